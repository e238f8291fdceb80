"""What the experiments' figures are made of. Thresholds come from the results' claims only.

`draw_claims` is a whole figure: one panel for each measure that is claimed. An experiment that has
nothing more to show writes ``draw = draw_claims``. The others build on the panels: `rows` (arms of
one measure), `curves` (a measure along an axis, a line for each arm), and `message` for the title.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import ClaimResult, Experiment, Results

MINUS = "\N{MINUS SIGN}"


# --- what was found -----------------------------------------------------------------------------


def roles(results: Results) -> dict[str, str]:
    """Arm -> "treatment", "control" or "comparison"."""
    return {name: "control" if name in results.controls else "treatment" for name in results.arms}


def by_arm(results: Results, measure: str, arms: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Arm -> the measure of every finished seed; arms without one are left out."""
    return {name: results.values(name, measure) for name in arms or results.arms if results[name]}


def mean(results: Results, arm: str, measure: str) -> float:
    """Mean over the finished seeds, NaN if there are none; for titles that say what was found."""
    values = np.asarray(results.values(arm, measure), dtype=float)
    return float(values.mean()) if values.size else math.nan


def claims_on(results: Results, measure: str) -> list[ClaimResult]:
    """The verdicts on claims about a measure itself, not about a difference of two arms."""
    return [
        each
        for each in results.claims
        if each.claim.measure == measure and each.claim.minus is None
    ]


def claimed(results: Results, measure: str) -> dict[str, Any]:
    """Thresholds and directions of a measure's claims by arm, as `minitx.plots` takes them."""
    claims = [each.claim for each in claims_on(results, measure)]
    return {
        "threshold": {claim.arm: claim.threshold for claim in claims},
        "direction": {claim.arm: claim.direction for claim in claims},
    }


def claim_line(ax: Axes, results: Results, measure: str, arm: str, **options: Any) -> Axes:
    """A line across the panel at the threshold of the claims about that measure in that arm."""
    for each in claims_on(results, measure):
        if each.claim.arm == arm:
            plots.threshold_line(ax, each.claim.threshold, each.claim.direction, **options)
    return ax


# --- panels -------------------------------------------------------------------------------------


def rows(
    ax: Axes,
    results: Results,
    measure: str,
    arms: Iterable[str] = (),
    *,
    names: Mapping[str, str] | None = None,
    **options: Any,
) -> Axes:
    """One row for each arm: seeds, mean, interval, and the thresholds of the claims about it.

    Parameters
    ----------
    measure : str
        A measure of one number.
    arms : iterable of str
        Which, in which order; default all.
    names : dict arm -> str, optional
        What to print instead of the arm's name.
    **options
        As in `rows_of`.
    """
    names = names or {}
    which = {names.get(arm, arm): (arm, measure) for arm in arms or results.arms}
    return rows_of(ax, results, which, **options)


def rows_of(
    ax: Axes,
    results: Results,
    which: Mapping[str, tuple[str, str]],
    *,
    title: str | None = None,
    x: str | None = None,
    limits: tuple[float, float] | None = None,
    reference: float | None = None,
    looks: Mapping[str, Any] | None = None,
    bars: bool = False,
) -> Axes:
    """One row for each pair of arm and measure, with the thresholds of the claims about it.

    Parameters
    ----------
    which : dict label -> (arm, measure)
        In the order of the rows. Arms without finished runs are left out.
    title, x : str, optional
        Title of the panel, and label of the measure's axis.
    limits : (low, high), optional
        Ends of the measure's axis.
    reference : float, optional
        A grey line: chance, or what holds by symmetry.
    looks : dict label or arm -> role, series number or Look, optional
        Where they differ from the arms' `roles`.
    bars : bool
        Upright bars from zero, in place of rows of dots.
    """
    which = {label: pair for label, pair in which.items() if results[pair[0]]}
    role, looks = roles(results), looks or {}
    threshold: dict[str, float] = {}
    direction: dict[str, str] = {}
    for label, (arm, measure) in which.items():
        for each in claims_on(results, measure):
            if each.claim.arm == arm:
                threshold[label], direction[label] = each.claim.threshold, each.claim.direction
    draw = plots.bars if bars else plots.seed_dots
    draw(
        ax,
        {label: results.values(*pair) for label, pair in which.items()},
        roles={
            label: looks.get(label, looks.get(arm, role[arm])) for label, (arm, _) in which.items()
        },
        threshold=threshold,
        direction=direction,
    )
    if limits is not None:
        (ax.set_ylim if bars else ax.set_xlim)(*limits)
    if reference is not None:
        (ax.axhline if bars else ax.axvline)(reference, color="0.6", lw=1, zorder=0)
    return plots.label(ax, title, y=x) if bars else plots.label(ax, title, x=x)


def curves(
    ax: Axes,
    results: Results,
    measure: str,
    x: Sequence[float] | np.ndarray | None = None,
    arms: Iterable[str] = (),
    *,
    names: Mapping[str, str] | None = None,
    looks: Mapping[str, Any] | None = None,
    thin: bool = False,
    markers: bool = True,
) -> Axes:
    """A line for each arm: the mean over seeds of a measure of several numbers, with its interval.

    Parameters
    ----------
    measure : str
        A measure of shape [points].
    x : float [points], optional
        Default 1, 2, ...
    looks : dict arm -> role, series number or Look, optional
        Default: treatments take the series in their order, controls the controls' look.
    thin, markers : bool
        As in `minitx.plots.seed_lines`.
    """
    looks = {**series(results), **(looks or {})}
    for name, ys in by_arm(results, measure, arms).items():
        at = 1 + np.arange(ys.shape[-1]) if x is None else x
        label = (names or {}).get(name, name)
        plots.seed_lines(ax, at, ys, label, looks[name], thin=thin, markers=markers)
    return ax


GREYS = [
    plots.Look(grey, marker, "--", "///", filled=False)
    for grey, marker in (("0.3", "s"), ("0.45", "d"), ("0.6", "x"), ("0.7", "+"))
]


def series(results: Results, arms: Iterable[str] = ()) -> dict[str, Any]:
    """Arm -> its look where several lines share a panel: colours; controls grey and dashed."""
    names = list(arms or results.arms)
    controls = [name for name in names if name in results.controls]
    others = [name for name in names if name not in results.controls]
    greys = {name: GREYS[i % len(GREYS)] for i, name in enumerate(controls)}
    if len(controls) == 1:
        greys = {controls[0]: plots.look("control")}
    return {name: plots.look(i) for i, name in enumerate(others)} | greys


# --- a figure that needs no drawing -------------------------------------------------------------


def draw_claims(experiment: Experiment, results: Results) -> Figure:
    """One panel for each claimed measure: all arms, or the claimed differences of arms.

    Use it as an experiment's method: ``draw = draw_claims``.
    """
    panels = _panels(results)
    columns = min(len(panels), 3)
    down = math.ceil(len(panels) / columns)
    deep = 1.3 + 0.33 * max(len(values) for _, values, _ in panels)
    fig, axes = plots.figure(
        ncols=columns, nrows=down, size=(4.8 * columns, max(2.6, deep) * down + 0.5), squeeze=False
    )
    for ax, (measure, values, options) in zip(axes.flat, panels, strict=False):
        plots.seed_dots(ax, values, roles=roles(results), **options)
        difference = "difference in " if options.pop("differences", False) else ""
        plots.label(ax, f"{difference}{measure}", x=_unit(experiment.measured[measure]), wrap=44)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    return plots.suptitle(fig, experiment.question)


def _panels(results: Results) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(measure, rows, options of seed_dots), in the order of the claims."""
    found: dict[tuple[str, bool], tuple[str, dict[str, Any], dict[str, Any]]] = {}
    for each in results.claims:
        claim = each.claim
        key = (claim.measure, claim.minus is not None)
        if claim.minus is None:
            found.setdefault(
                key,
                (claim.measure, by_arm(results, claim.measure), claimed(results, claim.measure)),
            )
            continue
        _, values, options = found.setdefault(
            key, (claim.measure, {}, {"threshold": {}, "direction": {}})
        )
        name = f"{claim.arm} {MINUS}\n{claim.minus}"
        values[name] = np.asarray(each.values, dtype=float)
        options["threshold"][name] = claim.threshold
        options["direction"][name] = claim.direction
    return list(found.values())


def _unit(text: str) -> str:
    """The first clause of a measure's sentence: what stands before a colon or semicolon."""
    for sign in (":", ";", " ("):
        text = text.split(sign)[0]
    return text if len(text) <= 80 else text[:77] + "..."
