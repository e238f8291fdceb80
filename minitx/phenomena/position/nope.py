"""A model without position codes: does it know where things stand all the same?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.interp.probes import probe
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import claim_line, curves
from minitx.phenomena.position._recipe import Settings
from minitx.phenomena.recipe import train
from minitx.plots import figure, label, legend, suptitle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results


@dataclass(frozen=True)
class NopeSettings(Settings):
    """The list task without positions, two layers of two heads; `steps=0` is a model at birth."""

    positions: str = "none"
    n_layers: int = 2
    n_heads: int = 2
    eval_sequences: int = 300


@register
class NoPE(Experiment):
    """Read the position off the residual stream, layer by layer, with a ridge probe."""

    name = "position.nope"
    question = "Can a model without any position encoding tell where a token stands?"
    mechanism = (
        "Nothing in the input says where a token stands. But under a causal mask the query at t "
        "averages over t tokens, so what it receives shrinks and settles with t: the number of visible "
        "tokens leaks into the stream, already at random weights, and training sharpens it where the "
        "task needs it. Without the mask every query sees the same set, and there is nothing to read."
    )
    source = (
        "Haviv et al. (2022), Transformer Language Models without Positional Encodings Still Learn "
        "Positional Information; Kazemnejad et al. (2023)"
    )
    seconds = 15.0
    Settings = NopeSettings
    quick = {"eval_sequences": 100}

    arms = {
        "causal": arm(text="causal mask, trained to answer 'what was the fifth?'"),
        "causal, untrained": arm(steps=0, text="the same model before any training"),
        "bidirectional": arm(mask="bidirectional", control=True, text="trained without the mask"),
        "bidirectional, untrained": arm(
            mask="bidirectional", steps=0, control=True, text="untrained, without the mask"
        ),
    }

    measured = {
        "r2": (
            "R² of a ridge probe for the list position, held-out sequences, at the embedding and after "
            "each block: float [1 + layers]"
        ),
        "r2_layer1": "R² after the first block",
        "r2_layer2": "R² after the second block",
        "r2_best": "the highest R² of any layer: what a control must keep near 0",
        "r2_shuffled": "highest R² of the same probe fitted to shuffled positions",
        "error": "mean |position − read-off position| after the first block, in list positions",
        "read": "mean read-off position (from 1) for each true position, after the first block",
    }

    claims = [
        at_least(
            "r2_layer1", 0.8, arm="causal", text="The position can be read off after one block"
        ),
        at_least(
            "r2_layer2",
            0.3,
            arm="causal, untrained",
            text="It leaks already at random weights, through the mask alone",
        ),
        at_most(
            "r2_best", 0.05, arm="bidirectional", control=True, text="Not without the mask, trained"
        ),
        at_most(
            "r2_best",
            0.05,
            arm="bidirectional, untrained",
            control=True,
            text="Not without the mask, untrained",
        ),
        at_most(
            "r2_shuffled", 0.05, arm="causal", control=True, text="A probe on shuffled labels fails"
        ),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """One list and its question, in words."""
        return NopeSettings().make_task("uniform").describe(rng)

    def measure(self, settings: NopeSettings, seed: int) -> dict[str, Any]:
        """Train (or not), then fit a probe to each layer's stream over the list."""
        task = settings.make_task("uniform")
        model, rng = train(task, settings, seed)
        batch = task.sample(settings.eval_sequences, rng)
        _, cache = model.run_with_cache(
            batch.tokens, names_filter=lambda name: "resid" in name, **batch.model_kwargs()
        )
        streams = [cache["blocks.0.hook_resid_pre"]] + [
            cache[f"blocks.{layer}.hook_resid_post"] for layer in range(settings.n_layers)
        ]
        listed = slice(1, 1 + settings.items)  # the list, without BOS and the queries
        n = len(batch.tokens)
        position = np.tile(np.arange(settings.items), n)
        sequence = np.repeat(np.arange(n), settings.items)  # whole sequences are held out
        probes = [
            probe(
                stream[:, listed].reshape(n * settings.items, -1).astype(np.float64),
                position,
                rng,
                groups=sequence,
            )
            for stream in streams
        ]
        first = streams[1][:, listed].reshape(n * settings.items, -1)
        read = probes[1].probe.predict(first).reshape(n, settings.items)
        r2 = np.array([each.score for each in probes])
        return {
            "r2": r2,
            "r2_layer1": r2[1],
            "r2_layer2": r2[2] if len(r2) > 2 else float("nan"),
            "r2_best": r2.max(),
            "r2_shuffled": max(each.control for each in probes),
            "error": np.abs(read - np.arange(settings.items)).mean(),
            "read": 1 + read.mean(axis=0),
        }

    def draw(self, results: Results) -> Figure:
        """R² by layer, and the read-off position against the true one."""
        fig, (left, right) = figure(ncols=2, size=(10.5, 4.4))
        settings = results.settings["causal"]
        layers = range(settings.n_layers + 1)
        curves(left, results, "r2", layers, thin=True)
        claim_line(left, results, "r2_layer1", "causal", span=(0.7, 1.3))
        claim_line(left, results, "r2_layer2", "causal, untrained", span=(1.7, 2.3))
        left.set_xticks(layers, ["embedding", *(f"block {i + 1}" for i in range(len(layers) - 1))])
        label(left, "Position can be read off the stream", y="R² of a ridge probe (held out)")
        items = 1 + np.arange(settings.items)
        curves(right, results, "read", thin=True, markers=False)
        right.plot(items, items, color="0.6", lw=1)
        title = "Where the probe puts each item, after block 1"
        label(right, title, x="true position in the list", y="mean position read off")
        legend(right, loc="lower right")
        return suptitle(fig, "No position code, yet the causal mask tells where a token stands")
