"""Pictures of the inside of a model: patterns, head scores, patching maps, logit-lens tables.

Static and light, arrays in, the Figure out; right for long sequences too (labels are thinned out).
Each has a form ``..._panel(ax, ...)`` that draws into a panel of a larger figure.

    from minitx.plots import interp
    interp.patterns(cache["pattern", 0][0], tokens=words).savefig("patterns.png")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.errors import MinitxError, ShapeError
from minitx.plots.matrices import matrix, pattern
from minitx.plots.style import FONT, figure, label, suptitle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 26  # so many tick labels at most: more would overlap


def patterns(
    weights: np.ndarray,
    tokens: Sequence[Any] | None = None,
    titles: Sequence[str] | None = None,
    *,
    title: str | None = None,
    ncols: int = 4,
    causal: bool = True,
    vmax: float | None = 1.0,
) -> Figure:
    """Attention patterns side by side: queries down, keys across.

    Parameters
    ----------
    weights : float [H, T, S] or [T, S]
        One pattern a head, e.g. ``cache["pattern", 0][sample]``.
    tokens : sequence of T labels, optional
    titles : sequence of H str, optional
        "head 0", ... by default.
    title : str, optional
        The message of the figure.
    causal : bool
        Leave the upper triangle blank.
    vmax : float, optional
        The weight drawn darkest; None: the largest of each pattern.

    Returns
    -------
    Figure
    """
    weights = _stack(weights, "[H, T, S]")
    heads, T, _ = weights.shape
    titles = [f"head {h}" for h in range(heads)] if titles is None else list(titles)
    if len(titles) != heads:
        raise ShapeError(f"{len(titles)} titles for {heads} patterns.")
    ncols = min(ncols, heads)
    side = float(np.clip(1.6 + 0.12 * T, 2.6, 5.2))
    nrows = -(-heads // ncols)
    size = (ncols * side, nrows * (side + 0.15) + (0.4 if title else 0.0))
    fig, axes = figure(ncols, nrows, size=size, squeeze=False)
    for at, ax in enumerate(axes.flat):
        if at >= heads:
            ax.set_axis_off()
            continue
        pattern_panel(ax, weights[at], tokens, causal=causal, vmax=vmax)
        label(ax, title=titles[at])
        if at % ncols:
            ax.set_ylabel("")
        if at + ncols < heads:
            ax.set_xlabel("")
    return fig if title is None else suptitle(fig, title)


def pattern_panel(
    ax: Axes,
    weights: np.ndarray,
    tokens: Sequence[Any] | None = None,
    *,
    causal: bool = True,
    vmax: float | None = 1.0,
) -> Axes:
    """One attention pattern ``[T, S]``, labelled with its tokens."""
    weights = np.asarray(weights)
    pattern(ax, weights, vmax=vmax, causal=causal)
    if tokens is not None:
        if len(tokens) != weights.shape[1]:
            raise ShapeError(f"{len(tokens)} tokens for a pattern {list(weights.shape)}.")
        first = weights.shape[1] - weights.shape[0]
        small = FONT["tick"] - (2 if len(tokens) > 12 else 0)
        _ticks(ax, tokens, "x", small)
        _ticks(ax, list(tokens)[first:], "y", small)
        ax.set_xlabel("key (attended to)", fontsize=FONT["label"])
        ax.set_ylabel("query", fontsize=FONT["label"])
    return ax


def _ticks(ax: Axes, names: Sequence[Any], axis: str, size: float = FONT["tick"]) -> None:
    """Tick labels: all of them, or every n-th where they would overlap."""
    step = -(-len(names) // LABELS)
    places = range(0, len(names), step)
    words = [str(names[i]) for i in places]
    if axis == "x":
        turn = 90 if len(words) > 8 or max(map(len, words), default=0) > 4 else 0
        ax.set_xticks(places, words, fontsize=size, rotation=turn)
    else:
        ax.set_yticks(places, words, fontsize=size)


def head_grids(
    scores: np.ndarray | Mapping[str, np.ndarray],
    *,
    title: str | None = None,
    vmin: float | None = 0.0,
    vmax: float | None = 1.0,
) -> Figure:
    """Scores of all heads, one small grid a score: layers down, heads across, numbers inside.

    Parameters
    ----------
    scores : float [L, H], or dict name -> float [L, H]
        E.g. what `minitx.interp.heads.head_scores` gives.
    vmin, vmax : float, optional
        Ends of the colour scale; None: of each grid's own values (entropies are not shares).

    Returns
    -------
    Figure
    """
    named = dict(scores) if isinstance(scores, Mapping) else {"": scores}
    if not named:
        raise MinitxError("There are no scores to draw.")
    L, H = np.asarray(next(iter(named.values()))).shape
    panel = (max(1.2 + 0.62 * H, 2.6), max(1.3 + 0.45 * L, 2.1))
    fig, axes = figure(len(named), panel=panel, squeeze=False)
    for ax, (name, values) in zip(axes[0], named.items(), strict=True):
        head_grid_panel(ax, values, vmin=vmin, vmax=vmax)
        label(ax, title=name or None)
        if ax is not axes[0, 0]:
            ax.set_ylabel("")
    return fig if title is None else suptitle(fig, title)


def head_grid_panel(
    ax: Axes, scores: np.ndarray, *, vmin: float | None = 0.0, vmax: float | None = 1.0
) -> Axes:
    """One score of all heads ``[L, H]``: layers down, heads across."""
    scores = np.asarray(scores, dtype=float)
    if scores.ndim != 2:
        raise ShapeError(f"Head scores are [L, H]; got {list(scores.shape)}.")
    rows, columns = map(str, range(scores.shape[0])), map(str, range(scores.shape[1]))
    matrix(ax, scores, rows=list(rows), columns=list(columns), vmin=vmin, vmax=vmax)
    return label(ax, x="head", y="layer")


def patching_map(
    values: np.ndarray,
    tokens: Sequence[Any] | None = None,
    *,
    title: str | None = None,
    x: str = "position",
    y: str = "layer",
    rows: Sequence[Any] | None = None,
    what: str = "share recovered",
) -> Figure:
    """What patching brings back, by layer and position (or head): blue above zero, red below.

    Parameters
    ----------
    values : float [L, T] or [L, H]
        E.g. ``patch_resid_pre(...).recovered``.
    tokens : sequence of labels for the columns, optional
    rows : sequence of labels for the rows, optional
        0 ... L - 1 by default.
    what : str
        What the colour means.

    Returns
    -------
    Figure
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 2:
        raise ShapeError(f"A patching map is [layers, places]; got {list(values.shape)}.")
    L, T = values.shape
    size = (float(np.clip(2.4 + 0.3 * T, 4.0, 14.0)), float(np.clip(1.8 + 0.36 * L, 2.4, 8.0)))
    fig, ax = figure(size=size)
    patching_panel(ax, values, tokens, x=x, y=y, rows=rows, what=what)
    return fig if title is None else suptitle(fig, title)


def patching_panel(
    ax: Axes,
    values: np.ndarray,
    tokens: Sequence[Any] | None = None,
    *,
    x: str = "position",
    y: str = "layer",
    rows: Sequence[Any] | None = None,
    what: str = "share recovered",
) -> Axes:
    """`patching_map` in a panel."""
    values = np.asarray(values, dtype=float)
    L, T = values.shape
    for names, size, side in ((tokens, T, "columns"), (rows, L, "rows")):
        if names is not None and len(names) != size:
            raise ShapeError(f"{len(names)} labels for the {size} {side} of the map.")
    known = np.abs(values[np.isfinite(values)])
    reach = max(1.0, known.max(initial=0.0))  # 1: everything came back
    image = ax.imshow(values, cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto")
    ax.set_facecolor("0.85")
    _ticks(ax, range(T) if tokens is None else tokens, "x")
    _ticks(ax, range(L) if rows is None else rows, "y")
    if values.size <= 40:
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = "white" if abs(value) > 0.6 * reach else "black"
                style: dict[str, Any] = {
                    "ha": "center",
                    "va": "center",
                    "fontsize": FONT["tick"] - 1,
                }
                ax.text(j, i, f"{value + 0.0:.2f}", color=color, **style)
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.05, pad=0.02)
    bar.set_label(what, fontsize=FONT["tick"])
    bar.ax.tick_params(labelsize=FONT["tick"])
    return label(ax, x=x, y=y)


def lens_table(
    logits: np.ndarray,
    tokens: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    *,
    targets: Sequence[int] | None = None,
    rows: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """A logit lens as a table: after each layer (top row last), the likeliest token by position.

    Parameters
    ----------
    logits : float [L + 1, T, V]
        One sample of `minitx.interp.attribution.logit_lens`.
    tokens : sequence of T labels, optional
        The inputs, written below.
    names : sequence of V str, optional
        How to write each output token; its id by default.
    targets : int [T], optional
        The right outputs: cells that have them are framed. Negative: no target.
    rows : sequence of L + 1 str, optional

    Returns
    -------
    Figure
        The colour is the probability of the token that is written in the cell.
    """
    logits = np.asarray(logits, dtype=float)
    if logits.ndim != 3:
        raise ShapeError(f"A lens is [L + 1, T, V] (one sample); got {list(logits.shape)}.")
    L, T, _ = logits.shape
    z = np.exp(logits - logits.max(-1, keepdims=True))
    probability = z.max(-1) / z.sum(-1)
    best = logits.argmax(-1)
    words = [[str(names[i]) if names is not None else str(i) for i in row] for row in best]
    widest = max(len(word) for row in words for word in row)
    cell = max(0.34, 0.1 * widest + 0.12)
    size = (float(np.clip(2.6 + cell * T, 4.0, 16.0)), float(np.clip(1.6 + 0.4 * L, 2.4, 9.0)))
    fig, ax = figure(size=size)
    image = ax.imshow(probability, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
    right = np.zeros((L, T), bool) if targets is None else best == np.asarray(targets)[None, :]
    for i, j in np.ndindex(L, T):
        color = "white" if probability[i, j] > 0.6 else "black"
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": FONT["tick"]}
        if T <= 40:
            ax.text(j, i, words[i][j], color=color, **style)
        if right[i, j]:
            ax.add_patch(_frame(i, j))
    _ticks(ax, range(T) if tokens is None else tokens, "x")
    rows = ["input", *(f"layer {i}" for i in range(L - 1))] if rows is None else list(rows)
    ax.set_yticks(range(L), rows, fontsize=FONT["tick"])
    below = "input token" if tokens is not None else "position"
    label(ax, x=below + (" (framed: the right output)" if right.any() else ""), y="after")
    bar = fig.colorbar(image, ax=ax, fraction=0.05, pad=0.02)
    bar.set_label("probability", fontsize=FONT["tick"])
    bar.ax.tick_params(labelsize=FONT["tick"])
    return fig if title is None else suptitle(fig, title)


def _frame(row: int, column: int) -> Any:
    from matplotlib.patches import Rectangle

    from minitx.plots.style import OKABE_ITO

    box = (column - 0.46, row - 0.44)
    return Rectangle(box, 0.92, 0.88, fill=False, edgecolor=OKABE_ITO["orange"], lw=2.0)


def _stack(weights: np.ndarray, wanted: str) -> np.ndarray:
    weights = np.asarray(weights, dtype=float)
    if weights.ndim == 2:
        weights = weights[None]
    if weights.ndim != 3 or 0 in weights.shape:
        raise ShapeError(f"Expected patterns {wanted}; got {list(weights.shape)}.")
    return weights
