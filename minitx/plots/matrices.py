"""Panels of matrices: an attention pattern, and a small matrix with its numbers written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.errors import ShapeError
from minitx.plots.style import FONT

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pattern(
    ax: Axes,
    weights: np.ndarray,
    tokens: Sequence[Any] | None = None,
    *,
    vmax: float | None = 1.0,
    causal: bool = True,
    colorbar: bool = False,
) -> Axes:
    """An attention pattern: queries down, keys across, darker = more weight.

    Parameters
    ----------
    weights : float [T, S]
    tokens : sequence of T labels, optional
        Written at both axes (only for short sequences: T ≤ 24).
    vmax : float, optional
        Weight drawn darkest; None for the largest of this pattern.
    causal : bool
        Leave the upper triangle, which can hold no weight, blank grey.
    colorbar : bool
        Add a scale of weights beside the panel.

    Raises
    ------
    ShapeError
        If the weights are not one [T, S] matrix.
    """
    weights = np.array(weights, dtype=float)  # a copy: masking must not reach the caller's array
    if weights.ndim != 2:
        raise ShapeError(f"A pattern is one matrix [T, S]; got {list(weights.shape)}.")
    if causal:
        weights[np.triu_indices(len(weights), 1, weights.shape[1])] = np.nan
    ax.set_facecolor("0.93")
    image = ax.imshow(weights, cmap="Blues", vmin=0.0, vmax=vmax, interpolation="nearest")
    ax.spines[["top", "right"]].set_visible(False)
    if tokens is not None and len(tokens) <= 24:
        ax.set_yticks(range(len(tokens)), tokens, fontsize=FONT["tick"] - 2)
        ax.set_xticks(range(len(tokens)), tokens, fontsize=FONT["tick"] - 2, rotation=90)
    ax.set_xlabel("key position (attended to)", fontsize=FONT["label"])
    ax.set_ylabel("query position", fontsize=FONT["label"])
    if colorbar:
        bar = ax.figure.colorbar(image, ax=ax, fraction=0.046)
        bar.set_label("attention weight", fontsize=FONT["label"])
        bar.ax.tick_params(labelsize=FONT["tick"])
    return ax


def matrix(
    ax: Axes,
    values: np.ndarray,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    fmt: str = "{:.2f}",
    vmin: float | None = 0.0,
    vmax: float | None = 1.0,
) -> Axes:
    """A small matrix with its numbers written in the cells (accuracies by task, maps of settings).

    Parameters
    ----------
    values : float [len(rows), len(columns)]
        NaN cells stay blank.

    Raises
    ------
    ShapeError
        If the labels do not fit the matrix.
    """
    values = np.asarray(values, dtype=float)
    if values.shape != (len(rows), len(columns)):
        raise ShapeError(
            f"A matrix {list(values.shape)} cannot carry {len(rows)} row labels and "
            f"{len(columns)} column labels."
        )
    ax.set_facecolor("0.93")
    image = ax.imshow(values, cmap="Blues", vmin=vmin, vmax=vmax, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = float(np.asarray(image.norm(value))) > 0.6
            ax.text(
                j,
                i,
                fmt.format(value),
                ha="center",
                va="center",
                fontsize=FONT["tick"],
                color="white" if dark else "black",
            )
    ax.set_xticks(range(len(columns)), columns, fontsize=FONT["tick"])
    ax.set_yticks(range(len(rows)), rows, fontsize=FONT["tick"])
    ax.tick_params(length=0)
    return ax
