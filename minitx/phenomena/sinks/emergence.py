"""Why does a head with nothing to say look at the first token?

The file reads top to bottom: the question, what is varied, what is measured, what is claimed (and
so what would refute it); then the measurement and the figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.interp.scores import absolute_shares, first_token_share, sink_rate, value_drain
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import mean, rows
from minitx.phenomena.recipe import train
from minitx.phenomena.sinks._figure import NAMES, draw_norms, example_patterns, mark_trigger_queries
from minitx.phenomena.sinks._recipe import SinkSettings, sink_head

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results

UNNORMALISED = ("sigmoid", "relu")  # rows that do not sum to one
SHOWN = 32  # positions of the example sequence in the figure


@register
class Emergence(Experiment):
    """One head on a stream where it has work at some positions and none at all the others.

    Arms share the table, the batches and the first weights of their seed. What a head without
    normalisation leaves on the first token is next to nothing, but so is what it leaves anywhere:
    as a share of all its weight (`idle_proxy`) the first token may still come out high.
    """

    name = "sinks.emergence"
    question = "Why does a head with nothing to say look at the first token?"
    mechanism = (
        "After a trigger the head must fetch the token before it. Everywhere else the next token "
        "follows from the current one, and attention has nothing to add; but softmax weights must "
        "sum to one. So the head parks them on the token that every query can see, the first, and "
        "training makes that token's value small: looking there adds nothing. Let the weights sum "
        "to less than one (softmax1, sigmoid, ReLU), give them another place to rest (key bias, "
        "sink logit), let a gate close the head, or take away the first token's special look or "
        "the head's work, and the first token is left alone."
    )
    source = (
        "Guo et al. (2024), Active-Dormant Attention Heads; Xiao et al. (2023), Efficient "
        "Streaming Language Models with Attention Sinks; Gu et al. (2024), When Attention Sink "
        "Emerges"
    )
    seconds = 145.0
    Settings = SinkSettings
    quick = {"steps": 200, "eval_sequences": 32}

    arms = {
        "softmax": arm(text="weights that must sum to one"),
        "weight_decay": arm(optimizer="adamw", weight_decay=0.1, text="AdamW, decay 0.1"),
        "sgd": arm(optimizer="sgd", lr=1.0, clip=1.0, text="momentum 0.9 in place of Adam"),
        "softmax1": arm(attention="softmax1", control=True, text="exp / (1 + Σ exp)"),
        "sigmoid": arm(attention="sigmoid", control=True, text="each weight on its own"),
        "relu": arm(attention="relu", control=True, text="max(score, 0) / T"),
        "head_gate": arm(gate="head", control=True, text="softmax, but a gate can close the head"),
        "key_bias": arm(key_bias=True, control=True, text="a learned extra key, its value zero"),
        "sink_logit": arm(sink_logit=True, control=True, text="a learned logit, its value zero"),
        "no_bos": arm(bos=False, control=True, text="an ordinary token comes first"),
        "no_triggers": arm(trigger_share=0.0, control=True, text="the head never has work"),
    }

    measured = {
        "idle_share": "attention on the first token: mean over non-trigger queries t ≥ 1 of "
        "A[t, 0] (Xiao et al. 2023), the weight as it enters the output, 0 to 1",
        "trigger_share": "the same over trigger queries, where the head is at work",
        "idle_proxy": "mean of |A[t, 0]| / Σ|A[t, :]| over the same queries: where rows need not "
        "sum to one, what is left of a nearly closed head is divided by next to nothing",
        "unspent": "1 − Σ A[t, :], mean over non-trigger queries: weight that no token gets "
        "(softmax1's one, the key bias, the sink logit)",
        "drain": "‖v_first‖ / mean ‖v_other‖ (Guo et al. 2024); 1 = as large as the others",
        "sink_rate": "share of sequences whose mean weight on the first token exceeds 0.3 (Gu et "
        "al. 2024); for sigmoid and ReLU of |A| / Σ|A|",
        "copy_accuracy": "share of triggers after which the copied token is the top prediction",
        "excess_loss": "loss at normal tokens minus the entropy of their bigram rows, nats a token",
        "layer": "the layer (from 0) of the head that is reported: the one that sinks most",
        "head": "its number in the layer",
        "example": "the pattern of one sequence, its first 32 positions, float [32, 32]",
        "example_trigger": "where the triggers stand in it, int [triggers]",
    }

    claims = [
        at_least("idle_share", 0.6, arm="softmax", text="Idle queries park on the first token"),
        at_most("trigger_share", 0.05, arm="softmax", text="Queries with work to do not park"),
        at_most("drain", 0.2, arm="softmax", text="The first token's value is drained"),
        at_least("idle_share", 0.6, arm="weight_decay", text="Weight decay does not remove it"),
        at_least("idle_share", 0.6, arm="sgd", text="Without Adam it is there too"),
        *(
            at_most("idle_share", limit, arm=name, control=True, text=text)
            for name, limit, text in [
                ("softmax1", 0.05, "No parking where weights may sum to less than one"),
                ("sigmoid", 0.05, "No parking with sigmoid weights"),
                ("relu", 0.05, "No parking with ReLU weights"),
                ("head_gate", 0.2, "Little parking where a gate can close the head"),
                ("key_bias", 0.05, "A learned key bias frees the first token"),
                ("sink_logit", 0.05, "A learned sink logit frees the first token"),
                ("no_bos", 0.1, "No parking on a first token that is like any other"),
                ("no_triggers", 0.1, "No parking where the head never has work"),
            ]
        ),
        at_least("unspent", 0.6, arm="key_bias", text="The sink has moved to the key bias"),
        at_least("unspent", 0.6, arm="sink_logit", text="The sink has moved to the sink logit"),
        *(
            at_least(
                "copy_accuracy",
                0.95,
                arm=name,
                control=True,
                text=f"The head does its work: {name}",
            )
            for name in arms
            if name != "no_triggers"
        ),
    ]

    def measure(self, settings: SinkSettings, seed: int) -> dict[str, Any]:
        """Train one model and look at its head on fresh sequences."""
        task = settings.task(seed)
        model, rng = train(task, settings, seed)
        batch = task.sample(settings.eval_sequences, rng)
        trigger, normal = batch.info["trigger"], batch.info["normal"]
        seen = sink_head(model, batch)
        shares = absolute_shares(seen.weights)
        copied = seen.predicted == batch.targets
        over_floor = seen.losses - task.entropy()[batch.tokens]
        for_rate = shares if settings.attention in UNNORMALISED else seen.weights
        return {
            "idle_share": first_token_share(seen.weights, rows=~trigger)[0],
            "trigger_share": first_token_share(seen.weights, rows=trigger)[0],
            "idle_proxy": first_token_share(shares, rows=~trigger)[0],
            "unspent": 1.0 - seen.weights.sum(axis=-1)[:, 0][~trigger].mean(dtype=float),
            "drain": value_drain(seen.values)[0],
            "sink_rate": sink_rate(for_rate)[0],
            "copy_accuracy": copied[trigger].mean() if trigger.any() else np.nan,
            "excess_loss": over_floor[normal].mean(dtype=float),
            "layer": seen.layer,
            "head": seen.head,
            "example": seen.weights[0, 0, :SHOWN, :SHOWN].round(3),
            "example_trigger": np.flatnonzero(trigger[0, :SHOWN]),
        }

    def example(self, rng: np.random.Generator) -> str:
        """A sequence in words, the copies marked."""
        return self.Settings().task(seed=0).describe(rng)

    def draw(self, results: Results) -> Figure:
        """Example patterns; below, where idle queries look and how small the value there is."""
        fig, axes = plots.figure(rows=["abcdef", "AB"], heights=[1, 1.7], size=(13.0, 7.8))
        example_patterns([axes[place] for place in "abcdef"], results)
        title = "Where queries without work look"
        rows(axes["A"], results, "idle_share", names=NAMES, limits=(-0.03, 1.03), title=title,
             x="share of attention on the first token")  # fmt: skip
        mark_trigger_queries(axes["A"], results)
        draw_norms(axes["B"], results)
        controls = [mean(results, name, "idle_share") for name in results.controls]
        return plots.suptitle(
            fig,
            f"A softmax head with nothing to say parks {mean(results, 'softmax', 'idle_share'):.0%} "
            f"of its attention on the first token; in the controls at most {np.nanmax(controls):.0%}",
        )
