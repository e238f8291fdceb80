"""Panels of seeds: dots, thin lines and bars, with their interval and the claims' thresholds.

Every panel draws into an Axes and returns it. None of them knows what a model or an experiment is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minitx.errors import MinitxError, ShapeError
from minitx.plots.style import FONT, Look, look
from minitx.statistics import column_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Role = str | int | Look
Thresholds = float | Mapping[str, float] | None
Directions = str | Mapping[str, str]


def threshold_line(
    ax: Axes,
    value: float,
    direction: str = "at_least",
    *,
    axis: str = "y",
    span: tuple[float, float] | None = None,
    text: str | None = None,
) -> Axes:
    """A dotted line at a claim's threshold, with triangles on the side where the claim holds.

    Parameters
    ----------
    value : float
        The threshold, in units of `axis`.
    direction : {"at_least", "at_most"}
        Which side the claim is on.
    axis : {"x", "y"}
        The axis that `value` is measured on.
    span : (start, stop), optional
        Extent along the other axis, in data units; default the whole panel.
    text : str, optional
        Written at the line.

    Raises
    ------
    MinitxError
        If the direction is neither of the two.
    """
    if direction not in ("at_least", "at_most"):
        raise MinitxError(f"A claim is 'at_least' or 'at_most' its threshold; got {direction!r}.")
    upright = axis == "x"
    style: dict[str, Any] = {"color": "black", "linestyle": ":", "lw": 1.6, "zorder": 4}
    if span is None:
        (ax.axvline if upright else ax.axhline)(value, **style)
        transform = ax.get_xaxis_transform() if upright else ax.get_yaxis_transform()
        middle = np.array([0.03, 0.97])
    else:
        transform = ax.transData
        middle = np.array([np.mean(span)])
        ax.plot(*([[value] * 2, span] if upright else [span, [value] * 2]), **style)
    more = direction == "at_least"
    marker = (
        (9 if more else 8) if upright else (10 if more else 11)
    )  # carets that stand on the line
    at = (np.full(middle.shape, value), middle)
    ax.plot(
        *(at if upright else at[::-1]),
        linestyle="none",
        marker=marker,
        color="black",
        markersize=6,
        transform=transform,
        zorder=4,
        clip_on=False,
    )
    if text:
        ax.annotate(
            text,
            (value, 0.98) if upright else (0.98, value),
            xycoords=transform if span is None else "data",
            xytext=(4, 4),
            textcoords="offset points",
            ha="left" if upright else "right",
            va="bottom",
            fontsize=FONT["tick"],
        )
    return ax


def seed_dots(
    ax: Axes,
    values: Mapping[str, ArrayLike],
    *,
    roles: Mapping[str, Role] | None = None,
    threshold: Thresholds = None,
    direction: Directions = "at_least",
    horizontal: bool = True,
    names: Mapping[str, str] | None = None,
) -> Axes:
    """One row per label: every seed a dot, the mean a tick, its 95 % interval a bar.

    Parameters
    ----------
    values : dict label -> float [seeds]
        In the order of the rows, top to bottom (left to right if not horizontal).
    roles : dict label -> role, optional
        "treatment" (default), "control", "comparison", a series number, or a `Look`.
    threshold : float or dict label -> float, optional
        A claim's threshold: one for all rows, or one for each row that a claim is about.
    direction : "at_least" | "at_most", or dict label -> one of them
    horizontal : bool
        Labels on the y axis (long names stay readable) or on the x axis.
    names : dict label -> str, optional
        What to print instead of the label.
    """
    roles, names = roles or {}, names or {}
    for row, (name, seeds) in enumerate(values.items()):
        style = look(roles.get(name, "treatment"))
        seeds = np.asarray(seeds, dtype=float)
        # Spread equal dots a little across the row, the same way every time.
        offset = row + np.linspace(-0.22, 0.22, len(seeds)) if len(seeds) > 1 else np.full(1, row)
        if np.isfinite(seeds).any():  # an unclipped line without points upsets the layout
            _points(ax, seeds, offset, style, horizontal)
            mean, low, high = column_intervals(seeds)
            _whisker(ax, row, float(mean), float(low), float(high), style, horizontal)
        limit = threshold.get(name) if isinstance(threshold, Mapping) else threshold
        if limit is not None:
            side = direction.get(name, "at_least") if isinstance(direction, Mapping) else direction
            span = (row - 0.42, row + 0.42)
            threshold_line(ax, limit, side, axis="x" if horizontal else "y", span=span)
    ticks = [names.get(name, name) for name in values]
    if horizontal:
        ax.set_yticks(range(len(ticks)), ticks, fontsize=FONT["tick"])
        ax.set_ylim(len(ticks) - 0.4, -0.6)
        ax.grid(axis="x", color="0.9", lw=0.8)
    else:
        ax.set_xticks(range(len(ticks)), ticks, fontsize=FONT["tick"])
        ax.set_xlim(-0.6, len(ticks) - 0.4)
        ax.grid(axis="y", color="0.9", lw=0.8)
    return ax


def _points(ax: Axes, x: np.ndarray, y: np.ndarray, style: Look, horizontal: bool) -> None:
    ax.plot(
        *((x, y) if horizontal else (y, x)),
        linestyle="none",
        marker=style.marker,
        color=style.color,
        markerfacecolor=style.face,
        markersize=5.5,
        alpha=0.9,
        zorder=3,
        clip_on=False,
    )


def _whisker(
    ax: Axes, at: float, mean: float, low: float, high: float, style: Look, horizontal: bool
) -> None:
    ends = ([low, high], [at, at])
    tick = ([mean, mean], [at - 0.3, at + 0.3])
    ax.plot(*(ends if horizontal else ends[::-1]), color=style.color, lw=5, alpha=0.35, zorder=2)
    ax.plot(*(tick if horizontal else tick[::-1]), color=style.color, lw=2, zorder=2.5)


def seed_lines(
    ax: Axes,
    x: ArrayLike,
    ys: np.ndarray,
    label: str | None = None,
    role: Role = "treatment",
    *,
    thin: bool = True,
    markers: bool = True,
) -> Axes:
    """Every seed a thin line, their mean a thick one, the 95 % interval a band.

    Parameters
    ----------
    x : float [points]
    ys : float [seeds, points]
    label : str, optional
        Name in the legend (call `legend` once all lines are drawn).
    role : role, series number or Look
    thin : bool
        Whether to draw the single seeds (leave out where many lines share a panel).
    markers : bool
        Whether to mark the mean's points.

    Raises
    ------
    ShapeError
        If `ys` is not [seeds, len(x)].
    """
    x, ys = np.asarray(x), np.atleast_2d(np.asarray(ys, dtype=float))
    if ys.ndim != 2 or ys.shape[1] != len(x):
        raise ShapeError(
            f"Expected lines [seeds, {len(x)}] for {len(x)} points of x; got {list(ys.shape)}."
        )
    style = look(role)
    if thin:
        ax.plot(x, ys.T, color=style.color, linestyle=style.linestyle, lw=0.7, alpha=0.4, zorder=2)
    mean, low, high = column_intervals(ys)
    if len(ys) > 1:
        ax.fill_between(x, low, high, color=style.color, alpha=0.15, lw=0, zorder=1)
    ax.plot(
        x,
        mean,
        color=style.color,
        linestyle=style.linestyle,
        lw=2.2,
        marker=style.marker if markers else None,
        markerfacecolor=style.face,
        markersize=5.5,
        label=label,
        zorder=3,
    )
    return ax


def bars(
    ax: Axes,
    values: Mapping[str, ArrayLike],
    *,
    roles: Mapping[str, Role] | None = None,
    threshold: Thresholds = None,
    direction: Directions = "at_least",
    names: Mapping[str, str] | None = None,
) -> Axes:
    """Bars of the mean over seeds, hatched by role, with the seeds as dots on top.

    For amounts whose zero means something; else `seed_dots`. Parameters as in `seed_dots`.
    """
    roles = roles or {}
    for at, (name, seeds) in enumerate(values.items()):
        style = look(roles.get(name, "treatment"))
        mean = float(column_intervals(seeds)[0])
        ax.bar(
            at,
            mean,
            0.75,
            color="white",
            edgecolor=style.color,
            hatch=style.hatch,
            lw=1.2,
            zorder=1,
        )
        ax.bar(at, mean, 0.75, color=style.color, alpha=0.3, zorder=1)
    seed_dots(
        ax,
        values,
        roles=roles,
        threshold=threshold,
        direction=direction,
        horizontal=False,
        names=names,
    )
    ax.axhline(0.0, color="black", lw=0.8)
    return ax
