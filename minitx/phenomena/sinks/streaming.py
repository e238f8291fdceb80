"""What happens to a stream when the cache drops the first token?

The file reads top to bottom: the question, what is varied, what is measured, what is claimed (and
so what would refute it); then the measurement and the figure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.autograd import no_grad, ops
from minitx.interp.scores import first_token_share
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.nn.generate import KVCache
from minitx.nn.transformer import Transformer
from minitx.phenomena.figures import mean, rows_of
from minitx.phenomena.recipe import train
from minitx.phenomena.sinks._recipe import SinkSettings, sink_head
from minitx.tasks.base import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import Results


@dataclass(frozen=True)
class StreamSettings(SinkSettings):
    """The sink recipe with dense bigram rows and a longer training, and the stream to read."""

    successors: int = 0
    steps: int = 1000
    # Reading: streams four times as long as the sequences of training.
    stream: int = 250
    scored_from: int = 200
    streams: int = 64
    small: int = 4
    large: int = 8


@register
class Streaming(Experiment):
    """Read long streams with a full cache, a window, and a window that keeps the first token.

    Keys are cached before rotary positions turn them, and positions are counted within the cache:
    a windowed cache never meets a position that training has not seen. Caches that are compared
    have the same size: `small` tokens, or `small` − 1 and the first.
    """

    name = "sinks.streaming"
    question = "Why does a language model break when its cache drops the first token?"
    mechanism = (
        "Idle queries park their attention on BOS, whose value is small. Once a sliding window has "
        "dropped BOS, the same weight must go to ordinary tokens, whose values are not small, and "
        "every prediction is disturbed. Keeping the first token beside the window mends that. A "
        "model whose idle head is closed by a gate has nothing to lose. The full cache is no way "
        "out: past the trained length rotary positions are out of range."
    )
    source = "Xiao et al. (2023), Efficient Streaming Language Models with Attention Sinks"
    seconds = 55.0
    Settings = StreamSettings
    quick = {"steps": 250, "streams": 16}

    arms = {
        "softmax": arm(text="a model that parks on BOS"),
        "head_gate": arm(gate="head", control=True, text="a model whose idle head is gated off"),
    }

    measured = {
        "gap_small": "loss with the last `small` (4) tokens in the cache, minus the loss with BOS "
        "and the last `small` − 1; nats a token, mean over positions 200 to 249",
        "gap_large": "the same for `large` (8) tokens",
        "gap_small_clear": "1 if gap_small is at least 0.08 nats in this seed, else 0",
        "full_minus_sink": "loss with the full cache minus the loss with BOS and `small` − 1 "
        "tokens, nats",
        "gap_other": "gap_small with the token at position 1 kept in place of BOS, nats",
        "bos_share": "attention on BOS at the trained length: mean over non-trigger queries t ≥ 1 "
        "of A[t, 0]",
        "loss_full": "loss with the full cache, nats a token, over positions 200 to 249",
        "loss_window": "the same with a window of `small` tokens",
        "loss_sink": "the same with BOS and `small` − 1 tokens",
        "entropy": "entropy of the next token, mean over those positions: no model can do better",
        "curve_full": "loss above the entropy, means over ten positions each, with the full cache",
        "curve_window": "the same with a window of `small` tokens",
        "curve_sink": "the same with BOS and `small` − 1 tokens",
    }

    claims = [
        at_least("bos_share", 0.6, arm="softmax", text="The model parks on BOS"),
        at_least("gap_small", 0.3, arm="softmax", text="Dropping BOS from a small cache hurts"),
        at_least("gap_small_clear", 1.0, arm="softmax", text="It hurts in every single seed"),
        at_least(
            "full_minus_sink", 0.2, arm="softmax", text="BOS and a window beat the full cache"
        ),
        at_most(
            "gap_other", 0.1, arm="softmax", control=True, text="Another old token is no substitute"
        ),
        at_most(
            "gap_small", 0.02, arm="head_gate", control=True, text="A gated head does not miss BOS"
        ),
    ]

    def measure(self, settings: StreamSettings, seed: int) -> dict[str, Any]:
        """Train on short sequences, then read long streams with different caches."""
        task = settings.task(seed)
        model, rng = train(task, settings, seed, max_len=settings.stream)
        short = task.sample(settings.streams, rng)
        weights = sink_head(model, short).weights
        long = dataclasses.replace(task, length=settings.stream).sample(settings.streams, rng)
        small, large, scored = settings.small, settings.large, slice(settings.scored_from, None)
        curves = {
            "full": read(model, long),
            "window": read(model, long, window=small),
            "sink": read(model, long, window=small - 1, n_sinks=1),
        }
        window_large = read(model, long, window=large)
        sink_large = read(model, long, window=large - 1, n_sinks=1)
        other = read(model, without_bos(long), window=small - 1, n_sinks=1)
        floor = task.entropy()[long.tokens].mean(axis=0)  # [T]: the lowest loss that can be had
        loss = {name: curve[scored].mean() for name, curve in curves.items()}
        gap = loss["window"] - loss["sink"]
        return {
            "gap_small": gap,
            "gap_large": (window_large - sink_large)[scored].mean(),
            "gap_small_clear": float(gap >= 0.08),
            "full_minus_sink": loss["full"] - loss["sink"],
            "gap_other": loss["window"] - other[settings.scored_from - 1 :].mean(),
            "bos_share": first_token_share(weights, rows=~short.info["trigger"])[0],
            **{f"loss_{name}": value for name, value in loss.items()},
            "entropy": floor[scored].mean(),
            **{f"curve_{name}": in_tens(curve - floor) for name, curve in curves.items()},
        }

    def example(self, rng: np.random.Generator) -> str:
        """A sequence in words, the copies marked."""
        return self.Settings().task(seed=0).describe(rng)

    def draw(self, results: Results) -> Figure:
        """The loss along the stream for both models; the price of dropping BOS over seeds."""
        fig, (left, middle, right) = plots.figure(ncols=3, size=(13.5, 4.6))
        _curves(left, results, "softmax", "A model that parks on BOS")
        _curves(middle, results, "head_gate", "Control: a model with a head gate")
        middle.sharey(left)
        left.set_ylim(-0.05, 1.3 * max(left.get_ylim()[1], middle.get_ylim()[1]))
        plots.legend(left, loc="upper left")
        above = middle.get_xaxis_transform()
        middle.text(3, 0.97, "lengths of\ntraining", transform=above, va="top", color="0.3")
        size = results.settings.get("softmax") or StreamSettings()
        which = {
            words.format(small=size.small, large=size.large): pair for words, pair in GAPS.items()
        }
        looks = {label: "control" for label, pair in which.items() if pair[1] == "gap_other"}
        rows_of(right, results, which, looks=looks, reference=0.0,
                title="What a kept token is worth",
                x="loss without minus loss with it (nats a token)")  # fmt: skip
        costs = [mean(results, name, "gap_small") for name in ("softmax", "head_gate")]
        return plots.suptitle(
            fig,
            "Dropping the first token from the cache costs {:.2f} nats a token; "
            "where a gate closes the idle head, {:.2f}".format(*costs),
        )


def read(
    model: Transformer, batch: Batch, window: int | None = None, n_sinks: int = 0
) -> np.ndarray:
    """Loss along a stream that is read through a cache: float64 [T], nats, mean over the batch."""
    with no_grad():
        logits = model(batch.tokens, cache=KVCache(model, window=window, n_sinks=n_sinks))
        losses = ops.cross_entropy(logits, batch.targets, reduction="none").data  # [B, T]
    return losses.mean(axis=0, dtype=float)


def without_bos(batch: Batch) -> Batch:
    """The same streams without their first token: a cache then keeps another token in its place."""
    return Batch(batch.tokens[:, 1:], batch.targets[:, 1:])


def in_tens(curve: np.ndarray) -> np.ndarray:
    """Means over ten positions each; a rest is left out."""
    return curve[: len(curve) // 10 * 10].reshape(-1, 10).mean(axis=1)


CURVES = {"full": "full cache", "window": "last {0} tokens", "sink": "BOS + last {1} tokens"}
GAPS = {
    "BOS, cache of {small}": ("softmax", "gap_small"),
    "BOS, cache of {large}": ("softmax", "gap_large"),
    "another token, {small}": ("softmax", "gap_other"),
    "BOS, head gate, {small}": ("head_gate", "gap_small"),
    "BOS, head gate, {large}": ("head_gate", "gap_large"),
}


def _curves(ax: Axes, results: Results, name: str, title: str) -> None:
    """The loss along the stream, a line for each cache; the trained lengths shaded."""
    settings = results.settings.get(name) or StreamSettings()
    for series, (curve, words) in enumerate(CURVES.items()):
        if results[name]:
            ys = results.values(name, f"curve_{curve}")
            x = 10 * np.arange(ys.shape[1]) + 5
            words = words.format(settings.small, settings.small - 1)
            plots.seed_lines(ax, x, ys, words, role=series, markers=False)
    ax.axvspan(0, settings.length, color="0.94", zorder=0)
    plots.label(ax, title, "position in the stream", "loss above the floor (nats a token)")
