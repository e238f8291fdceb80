"""What the experiments' figures share: which arm looks how, and where a measure's claims lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from minitx.lab import Results


def roles(results: Results, comparison: tuple[str, ...] = ()) -> dict[str, str]:
    """Arm -> "treatment", "control" or, for the arms named, "comparison"."""
    other = dict.fromkeys(comparison, "comparison")
    return {
        name: "control" if name in results.controls else other.get(name, "treatment")
        for name in results.arms
    }


def by_arm(results: Results, measure: str, arms: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Arm -> the measure of every finished seed; arms without one are left out."""
    return {name: results.values(name, measure) for name in arms or results.arms if results[name]}


def claimed(results: Results, measure: str) -> dict[str, Any]:
    """The thresholds of a measure's claims, as the panels take them: ``**claimed(results,
    "share")``.

    Claims about a difference of two arms are left out: they have no place on the measure's axis.
    """
    claims = [
        each.claim
        for each in results.claims
        if each.claim.measure == measure and each.claim.minus is None
    ]
    return {
        "threshold": {claim.arm: claim.threshold for claim in claims},
        "direction": {claim.arm: claim.direction for claim in claims},
    }


def mean(results: Results, arm: str, measure: str) -> float:
    """Mean over the finished seeds, NaN if there are none; for titles that say what was found."""
    values = np.asarray(results.values(arm, measure), dtype=float)
    return float(values.mean()) if values.size else float("nan")
