"""Why is the middle of a list remembered worst? Three ways to get there, each with its control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import curves, series
from minitx.phenomena.position._recipe import Settings, serial_accuracy, serial_shape
from minitx.phenomena.recipe import train
from minitx.plots import figure, label, legend, suptitle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results

# Three recipes; within each, a control differs from the treatment in the one field it names.
GAP = {"positions": "rotary"}
DEPTH = {"positions": "none", "n_layers": 2, "n_heads": 2}
DEMAND = {
    "task": "pairs",
    "asks": "ends",
    "positions": "learned",
    "d_model": 16,
    "d_head": 2,
    "steps": 600,
}
PANELS = {
    "Relative positions, varying gap:\nboth ends are found first": (
        "gap",
        "gap fixed",
        "gap, learned",
    ),
    "Causal mask × depth:\nprimacy without a position code": (
        "depth",
        "depth 1",
        "depth, bidirectional",
    ),
    "Little capacity, demand at both ends:\nthe middle is given up": (
        "demand",
        "demand, logit bias",
        "demand uniform",
        "demand, wide head",
        "demand, no positions",
        "demand for first",
        "demand for last",
    ),
}


@register
class LostInTheMiddle(Experiment):
    """Accuracy by serial position under uniform evaluation, after three kinds of training."""

    name = "position.lost_in_the_middle"
    question = "Why does a model find what stands at the ends and miss what stands in the middle?"
    mechanism = (
        "Three roads lead to it. (1) With rotary positions a query must find item i across a gap that "
        "varies from query to query; early in training the ends of the list, where a coarse sense of "
        "distance suffices, are found before the middle, and learning works its way inward (a query "
        "sees the whole list and there is one layer, so the causal mask has no part in it). (2) "
        "Without any position code, the causal mask alone lets two layers tell the beginning of the "
        "list from the rest: primacy, no recency. (3) A head too narrow to serve every position "
        "serves those that are asked for most: if training asks about both ends, the middle is "
        "given up. Nowhere is a position's loss weighted by hand."
    )
    source = (
        "Liu et al. (2023), Lost in the Middle; Wu et al. (2025), On the Emergence of Position Bias in "
        "Transformers; Salvatore et al. (2025), Lost in the Middle: An Emergent Property"
    )
    seconds = 50.0
    Settings = Settings
    quick = {"eval_sequences": 200}

    arms = {
        "gap": arm(**GAP, text="rotary positions, the gap from list to query varies"),
        "gap fixed": arm(
            **GAP | {"query_positions": "same"},
            control=True,
            text="all queries stand at one position number",
        ),
        "gap, learned": arm(
            **GAP | {"positions": "learned"}, control=True, text="learned absolute positions"
        ),
        "depth": arm(**DEPTH, text="no position code, causal mask, two layers"),
        "depth 1": arm(**DEPTH | {"n_layers": 1}, control=True, text="one layer"),
        "depth, bidirectional": arm(
            **DEPTH | {"mask": "bidirectional"}, control=True, text="no causal mask"
        ),
        "demand": arm(**DEMAND, text="training asks mostly about both ends; head width 2"),
        "demand, logit bias": arm(
            **DEMAND | {"positions": "logit_bias"},
            text="the same, position enters only as a learned bias on the logits",
        ),
        "demand uniform": arm(
            **DEMAND | {"asks": "uniform"}, control=True, text="training asks about all alike"
        ),
        "demand, wide head": arm(
            **DEMAND | {"d_head": 8}, control=True, text="head width 8: room for every position"
        ),
        "demand, no positions": arm(
            **DEMAND | {"positions": "none"}, control=True, text="the head cannot tell positions"
        ),
        "demand for first": arm(**DEMAND | {"asks": "first"}, text="asks mostly about the first"),
        "demand for last": arm(**DEMAND | {"asks": "last"}, text="asks mostly about the last"),
    }

    measured = {
        "accuracy": "share of right answers by serial position, each asked for equally often",
        "first": "mean accuracy over the first 3 positions",
        "middle": "mean accuracy over the middle third of positions",
        "last": "mean accuracy over the last 3 positions",
        "first_minus_middle": "first − middle, in accuracy",
        "last_minus_middle": "last − middle, in accuracy",
        "first_minus_last": "first − last, in accuracy",
        "u": "(first + last)/2 − middle: 0 is flat, positive a U",
        "abs_u": "|u|: how far from flat, either way",
    }

    claims = [
        *(
            at_least(f"{end}_minus_middle", 0.18, arm=name, text=text.format(end=end))
            for name, text in [
                ("gap", "Varying gap: the {end} items are found better than the middle"),
                ("demand", "Demand at both ends: the {end} items are found better"),
                ("demand, logit bias", "The same where position is a logit bias only ({end})"),
            ]
            for end in ("first", "last")
        ),
        at_most("abs_u", 0.05, arm="gap fixed", control=True, text="No U where the gap is fixed"),
        at_most(
            "abs_u", 0.05, arm="gap, learned", control=True, text="No U with learned positions"
        ),
        at_least("first_minus_middle", 0.3, arm="depth", text="Mask × depth: primacy"),
        at_least("first_minus_last", 0.35, arm="depth", text="Mask × depth: no recency"),
        at_most(
            "first_minus_last", 0.1, arm="depth 1", control=True, text="No primacy with one layer"
        ),
        at_most(
            "first_minus_last",
            0.1,
            arm="depth, bidirectional",
            control=True,
            text="No primacy without the mask",
        ),
        *(
            at_most("abs_u", 0.06, arm=name, control=True, text=text)
            for name, text in [
                ("demand uniform", "No U where all positions are asked for alike"),
                ("demand, wide head", "No U where the head is wide enough"),
                ("demand, no positions", "No U where the head cannot tell positions"),
            ]
        ),
        at_least("first_minus_last", 0.3, arm="demand for first", text="One-sided: primacy"),
        at_most("first_minus_last", -0.3, arm="demand for last", text="One-sided: recency"),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """One sequence of each task in words."""
        lists, pairs = Settings(), Settings(task="pairs")
        return (
            f"{lists.make_task('uniform').describe(rng)}\n{pairs.make_task('ends').describe(rng)}"
        )

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Train one model, then ask for every serial position equally often."""
        model, rng = train(settings.make_task(settings.asks), settings, seed)
        uniform = settings.make_task("uniform")
        accuracy = serial_accuracy(model, uniform, settings.eval_sequences, rng)
        return {"accuracy": accuracy, **serial_shape(accuracy)}

    def draw(self, results: Results) -> Figure:
        """One panel a road: accuracy by serial position, controls dashed."""
        fig, axes = figure(ncols=3, size=(14, 5.6), sharey=True)
        chance = 1 / results.settings["gap"].values
        for ax, (title, names) in zip(axes, PANELS.items(), strict=True):
            looks = series(results, names)
            curves(ax, results, "accuracy", arms=names, looks=looks, markers=False)
            ax.axhline(chance, color="0.6", lw=1)
            ax.set_ylim(0, 1.03)
            label(ax, title, x="serial position in the list")
            legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        label(axes[0], y="accuracy (each position asked alike)")
        below = {"xytext": (2, -10), "textcoords": "offset points", "color": "0.4"}
        axes[0].annotate("chance", (0, chance), **below)
        return suptitle(fig, "Lost in the middle, by three roads (dashed grey: controls)")
