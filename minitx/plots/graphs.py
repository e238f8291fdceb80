"""Pictures of computations: which value was made from which, and what flows back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from minitx.errors import MinitxError
from minitx.plots.style import FONT, OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def graph(
    ax: Axes,
    inputs: Mapping[str, Sequence[str]],
    values: Mapping[str, str] | None = None,
    gradients: Mapping[str, str] | None = None,
) -> Axes:
    """A computation from left to right: leaves first, each node to the right of its inputs.

    Parameters
    ----------
    inputs : dict
        For every node the nodes it was made from, e.g. ``{"a": [], "b": ["a", "a"]}``.
    values, gradients : dict of str, optional
        What to write under a node, in black and in vermilion.

    Raises
    ------
    MinitxError
        For an input that is no node, or a cycle.
    """
    places = _places(inputs)
    for node, made_from in inputs.items():
        for count, other in enumerate(made_from):
            bend = _bend(
                places[node], places[other], list(made_from[:count]).count(other), made_from, other
            )
            ax.annotate(
                "",
                places[node],
                places[other],
                arrowprops={
                    "arrowstyle": "->",
                    "color": "0.35",
                    "shrinkA": 17,
                    "shrinkB": 17,
                    "connectionstyle": f"arc3,rad={bend}",
                },
                zorder=1,
            )
    for node, (x, y) in places.items():
        ax.plot(x, y, "o", markersize=30, color="white", markeredgecolor=OKABE_ITO["blue"], mew=1.6)
        ax.text(x, y, node, ha="center", va="center", fontsize=FONT["label"])
        for text, color, drop in (
            (values, "black", 0.36),
            (gradients, OKABE_ITO["vermilion"], 0.56),
        ):
            if text and node in text:
                ax.text(
                    x,
                    y - drop,
                    text[node],
                    ha="center",
                    va="center",
                    color=color,
                    fontsize=FONT["tick"],
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
                )
    columns, rows = zip(*places.values(), strict=True)
    ax.set_xlim(min(columns) - 0.5, max(columns) + 0.5)
    ax.set_ylim(min(rows) - 0.8, max(rows) + 0.45)
    ax.set_axis_off()
    return ax


def _bend(
    end: tuple[float, float],
    start: tuple[float, float],
    earlier: int,
    made_from: Sequence[str],
    other: str,
) -> float:
    """How much an arrow bends: a value used twice has two, and none runs through a node."""
    if list(made_from).count(other) > 1:
        return 0.2 if earlier else -0.15
    passes = end[0] - start[0] > 1 and end[1] == start[1]
    return -0.4 if passes else 0.0


def _places(inputs: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """Column: length of the longest way from a leaf. Rows: spread evenly, in the order given."""
    depth: dict[str, int] = {}
    for _ in range(len(inputs) + 1):
        for node, made_from in inputs.items():
            if any(other not in inputs for other in made_from):
                raise MinitxError(f"The graph's node {node!r} is made from one that is not in it.")
            if all(other in depth for other in made_from):
                depth[node] = 1 + max((depth[other] for other in made_from), default=-1)
        if len(depth) == len(inputs):
            break
    else:
        raise MinitxError("The graph has a cycle.")
    columns: dict[int, list[str]] = {}
    for node in inputs:
        columns.setdefault(depth[node], []).append(node)
    return {
        node: (float(column), (len(nodes) - 1) / 2 - row)
        for column, nodes in columns.items()
        for row, node in enumerate(nodes)
    }
