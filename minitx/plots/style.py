"""The house style: colours, what treatment and control look like, and how a figure is made.

Object-oriented Matplotlib only: no pyplot, so no global figure and no display is ever needed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from minitx.errors import choose

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# Okabe and Ito (2008): eight colours that colour-blind readers tell apart.
OKABE_ITO = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
}

# Point sizes chosen so that the smallest text is still 10 pixels high at half of the saved size.
FONT = {"title": 12.0, "label": 11.0, "tick": 10.0, "suptitle": 14.0}
DPI = 150


@dataclass(frozen=True)
class Look:
    """How one role or series is drawn: colour, and two signs that survive printing in grey."""

    color: str
    marker: str
    linestyle: str
    hatch: str
    filled: bool = True

    @property
    def face(self) -> str:
        """Fill of a marker: the colour, or white for hollow ones."""
        return self.color if self.filled else "white"


TREATMENT = Look(OKABE_ITO["blue"], "o", "-", "")
CONTROL = Look(OKABE_ITO["orange"], "s", "--", "///", filled=False)
# An arm that is neither: it is there to be compared, and the effect need not vanish in it.
COMPARISON = Look(OKABE_ITO["purple"], "D", "-.", "...")
ROLES = {"treatment": TREATMENT, "control": CONTROL, "comparison": COMPARISON}

# For several conditions of one kind (tasks, depths, methods), in the order they should be used.
SERIES = (
    Look(OKABE_ITO["blue"], "o", "-", ""),
    Look(OKABE_ITO["vermilion"], "^", "-", "\\\\"),
    Look(OKABE_ITO["green"], "v", "-.", "xx"),
    Look(OKABE_ITO["purple"], "D", ":", "..."),
    Look(OKABE_ITO["sky"], "P", "-", "++"),
    Look(OKABE_ITO["black"], "X", "--", "oo"),
)


def look(role: str | int | Look) -> Look:
    """The look of a role ("treatment", "control", "comparison"), or of the n-th series.

    Raises
    ------
    MinitxError
        If `role` is a string that is not a role.
    """
    if isinstance(role, Look):
        return role
    if isinstance(role, int):
        return SERIES[role % len(SERIES)]
    return choose(ROLES, role, "role")


def figure(
    ncols: int = 1,
    nrows: int = 1,
    *,
    panel: tuple[float, float] = (4.4, 3.3),
    size: tuple[float, float] | None = None,
    mosaic: Sequence[Sequence[str]] | str | None = None,
    rows: Sequence[str] | None = None,
    heights: Sequence[float] | None = None,
    **subplots: Any,
) -> tuple[Figure, Any]:
    """A new figure in house style, and its axes.

    Parameters
    ----------
    ncols, nrows : int
        Grid of panels.
    panel : (width, height)
        Inches for one panel; ignored when `size` is given.
    size : (width, height), optional
        Inches for the whole figure.
    mosaic : str or nested list, optional
        Names of panels as they lie, in place of a grid (see ``Figure.subplot_mosaic``).
    rows : sequence of str, optional
        Rows of panels, a letter each, in place of a grid; every row is laid out by itself, so that
        columns need not line up.
    heights : sequence of float, optional
        Relative heights of these rows.
    **subplots
        Passed to ``Figure.subplots`` (``width_ratios``, ``sharey``, ``squeeze``, ...).

    Returns
    -------
    (Figure, axes)
        One Axes for a single panel, else an array [ncols], [nrows] or [nrows, ncols]; with a
        mosaic or rows, a dict by name.
    """
    from matplotlib.figure import Figure

    size = size or (ncols * panel[0], nrows * panel[1])
    fig = Figure(figsize=size, dpi=DPI, layout="constrained", facecolor="white")
    if rows is not None:
        parts = fig.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
        axes: Any = {}
        for part, row in zip(parts, rows, strict=True):
            axes |= part.subplot_mosaic([list(row)], **subplots)
    elif mosaic is not None:
        axes = fig.subplot_mosaic(cast(Any, mosaic), **subplots)
    else:
        axes = fig.subplots(nrows, ncols, **subplots)
    for ax in _flat(axes):
        _dress(ax)
    return fig, axes


def _flat(axes: Any) -> list[Axes]:
    import numpy as np

    return list(axes.values()) if isinstance(axes, dict) else list(np.ravel(axes))


def _dress(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT["tick"], length=3)
    ax.set_axisbelow(True)


def label(
    ax: Axes, title: str | None = None, x: str | None = None, y: str | None = None, wrap: int = 44
) -> Axes:
    """Title (the message, not the name of the plot) and axis labels (with units), in house sizes.

    `wrap` is the number of characters after which a title breaks.
    """
    if title is not None:
        lines = "\n".join(textwrap.fill(part, wrap) for part in title.split("\n"))
        ax.set_title(lines, fontsize=FONT["title"], loc="left", fontweight="bold")
    if x is not None:
        ax.set_xlabel(x, fontsize=FONT["label"])
    if y is not None:
        ax.set_ylabel(y, fontsize=FONT["label"])
    return ax


def suptitle(fig: Figure, message: str) -> Figure:
    """The message of the whole figure, at its top left."""
    fig.suptitle(message, fontsize=FONT["suptitle"], fontweight="bold", x=0.01, ha="left")
    return fig


def legend(ax: Axes, **kwargs: Any) -> Legend:
    """A frameless legend in house size; ``loc`` and the rest as in Matplotlib."""
    return ax.legend(**{"fontsize": FONT["tick"], "frameon": False, "handlelength": 2.4} | kwargs)


def role_legend(
    ax: Axes,
    roles: Sequence[str] = ("treatment", "control"),
    names: dict[str, str] | None = None,
    threshold: bool = True,
    extra: Sequence[Any] = (),
    **kwargs: Any,
) -> Legend:
    """A legend that says which look is which role, and what the dotted line is.

    Parameters
    ----------
    names : dict, optional
        What to print for a role, e.g. ``{"comparison": "not a control"}``.
    threshold : bool
        Whether to explain the dotted threshold line too.
    extra : sequence of artists
        More entries, e.g. lines that were drawn with a label.
    """
    from matplotlib.lines import Line2D

    names = names or {}
    handles = []
    for role in roles:
        style = look(role)
        handles.append(
            Line2D(
                [],
                [],
                color=style.color,
                marker=style.marker,
                markerfacecolor=style.face,
                linestyle="none",
                markersize=6,
                label=names.get(role, role),
            )
        )
    if threshold:
        handles.append(
            Line2D([], [], color="black", linestyle=":", lw=1.6, label="claimed threshold")
        )
    return legend(ax, handles=[*handles, *extra], **kwargs)
