"""Panels of the sink experiments: example patterns, the trigger queries, the drained value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from minitx import plots
from minitx.phenomena.figures import rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from minitx.lab import Results

NAMES = {
    "weight_decay": "softmax, weight decay",
    "sgd": "softmax, SGD",
    "relu": "ReLU",
    "head_gate": "head gate",
    "key_bias": "key bias",
    "sink_logit": "sink logit",
    "no_bos": "no BOS",
    "no_triggers": "no triggers",
}
SHOWN = ("softmax", "softmax1", "sigmoid", "head_gate", "no_bos", "no_triggers")
NORMS = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]


def example_patterns(axes: Sequence[Axes], results: Results) -> None:
    """One sequence's attention in each of six arms, red marks at its triggers."""
    red = plots.OKABE_ITO["vermilion"]
    for ax, name in zip(axes, SHOWN, strict=True):
        control, size = name in results.controls, 32
        if results[name]:
            run = results[name][0]
            plots.pattern(ax, run["example"])
            size, triggers = len(run["example"]), run["example_trigger"]
            if len(triggers):  # an unclipped line without points upsets the layout
                right = np.full(len(triggers), size + 0.3)
                ax.plot(right, triggers, "<", markersize=5, color=red, clip_on=False)
        title = NAMES.get(name, name) + ("\n(control)" if control else "\n")
        plots.label(ax, title, "key position", "")
        frame = plots.CONTROL if control else plots.TREATMENT
        for side in ("left", "bottom"):
            ax.spines[side].set(color=frame.color, linewidth=2.5)
            ax.spines[side].set_position(("outward", 4))
        ax.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
    plots.label(axes[0], y="query position")
    axes[0].text(1.0, 0.9, "◂ trigger", ha="right", color=red, transform=axes[0].transAxes)


def mark_trigger_queries(ax: Axes, results: Results) -> None:
    """Crosses under the rows: the queries that have work to do."""
    for row, name in enumerate(each for each in results.arms if results[each]):
        busy = results.values(name, "trigger_share")
        crosses = ax.plot(busy, np.full(len(busy), row + 0.32), "x", color="black", ms=4.5)
    crosses[0].set_label("trigger queries (at work)")
    names = {"treatment": "other queries, softmax", "control": "other queries, control"}
    plots.role_legend(ax, names=names, extra=crosses, loc="lower right")


def draw_norms(ax: Axes, results: Results) -> None:
    """The size of the first token's value, relative to the others', on a logarithmic axis."""
    title = "What they find there: the size of the first value"
    rows(ax, results, "drain", names=NAMES, reference=1.0)
    plots.label(ax, title, "norm of the first token's value / mean norm of the others", wrap=60)
    ax.set_xscale("log")
    ax.set_xticks(NORMS, [f"{norm:g}" for norm in NORMS])
    ax.tick_params(axis="x", which="minor", length=0)
    ax.tick_params(labelleft=False)
    foot = {"transform": ax.get_xaxis_transform(), "ha": "right", "color": "0.3", "fontsize": 10}
    ax.text(0.93, 0.02, "as large as the others", **foot)
