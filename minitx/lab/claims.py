"""A claim is an object that can fail: a statistic, a direction, a threshold fixed beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError
from minitx.lab.results import Results, Run
from minitx.statistics import RESAMPLES, bootstrap_interval

SYMBOLS = {"at_least": "≥", "at_most": "≤"}


@dataclass(frozen=True)
class Claim:
    """The mean over seeds of ``measure`` in ``arm`` (less that in ``minus``) against a threshold.

    Attributes
    ----------
    measure : str
        Key of the dictionary that ``Experiment.measure`` returns; its value must be one number.
    direction : "at_least" or "at_most"
    threshold : float
        In the unit of the measure.
    arm : str
        Name of the arm.
    minus : str or None
        Another arm: the claim is then about the difference, paired by seed.
    text : str
        The claim in words.
    control : bool
        True where the claim says that the effect vanishes (or that arms differ in nothing else).
    id : str
        Unique within the experiment; made of measure and arms unless given.
    """

    measure: str
    direction: str
    threshold: float
    arm: str
    minus: str | None = None
    text: str = ""
    control: bool = False
    id: str = ""

    def __post_init__(self) -> None:
        if self.direction not in SYMBOLS:
            raise MinitxError(
                f"A claim's direction is 'at_least' or 'at_most', got {self.direction!r}."
            )
        if isinstance(self.threshold, bool) or not math.isfinite(float(self.threshold)):
            raise MinitxError(f"A claim's threshold is a finite number, got {self.threshold!r}.")
        object.__setattr__(self, "threshold", float(self.threshold))
        against = f" minus {self.minus}" if self.minus else ""
        if not self.id:
            object.__setattr__(
                self, "id", f"{self.measure}.{self.arm}{against.replace(' ', '-')}.{self.direction}"
            )
        if not self.text:
            words = self.direction.replace("_", " ")
            text = f"{self.measure} in {self.arm}{against} is {words} {self.threshold:g}"
            object.__setattr__(self, "text", text)

    @property
    def symbol(self) -> str:
        """``≥`` or ``≤``."""
        return SYMBOLS[self.direction]


def at_least(
    measure: str,
    threshold: float,
    *,
    arm: str,
    minus: str | None = None,
    text: str = "",
    control: bool = False,
    id: str | None = None,
) -> Claim:
    """Claim that the mean over seeds is at least the threshold; see `Claim`.

    >>> at_least("share", 0.6, arm="softmax", text="Idle queries park on the first token.").symbol
    '≥'
    """
    return Claim(measure, "at_least", threshold, arm, minus, text, control, id or "")


def at_most(
    measure: str,
    threshold: float,
    *,
    arm: str,
    minus: str | None = None,
    text: str = "",
    control: bool = False,
    id: str | None = None,
) -> Claim:
    """Claim that the mean over seeds is at most the threshold; see `Claim`."""
    return Claim(measure, "at_most", threshold, arm, minus, text, control, id or "")


@dataclass(frozen=True)
class ClaimResult:
    """A claim with what the seeds say of it.

    Attributes
    ----------
    claim : Claim
    values : tuple of float
        One per seed of ``seeds``: the measure, or the paired difference.
    seeds : tuple of int
        The seeds that finished (in both arms, for a difference).
    estimate, low, high : float or None
        Mean over seeds and its 95 % bootstrap interval; None where they cannot be had.
    verdict : "supported", "refuted" or "inconclusive"
    note : str
        Why it is inconclusive, where the interval does not say it.
    """

    claim: Claim
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    estimate: float | None
    low: float | None
    high: float | None
    verdict: str
    note: str = ""

    @property
    def supported(self) -> bool:
        """True if the verdict is "supported"."""
        return self.verdict == "supported"

    def to_dict(self) -> dict:
        """The entry of ``verdicts.json``."""
        claim = self.claim
        return {
            "id": claim.id,
            "text": claim.text,
            "control": claim.control,
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
            "direction": claim.direction,
            "threshold": claim.threshold,
            "verdict": self.verdict,
            "measure": claim.measure,
            "arm": claim.arm,
            "minus": claim.minus,
            "values": [v if math.isfinite(v) else None for v in self.values],
            "seeds": list(self.seeds),
            "note": self.note,
        }


def verdict(direction: str, threshold: float, low: float, high: float) -> str:
    """Supported if the whole interval is on the right side, refuted if wholly on the wrong one.

    The threshold itself is on the right side.
    """
    if direction == "at_most":
        low, high, threshold = -high, -low, -threshold
    if low >= threshold:
        return "supported"
    return "refuted" if high < threshold else "inconclusive"


def judge(claim: Claim, results: Results, resamples: int = RESAMPLES) -> ClaimResult:
    """Set a claim against the results.

    Fewer than two finished seeds or a value that is not finite make it inconclusive, with a note.

    Raises
    ------
    MinitxError
        If the measure is missing or not a single number.
    """
    mine = _by_seed(claim.measure, claim.arm, results)
    if claim.minus is not None:
        other = _by_seed(claim.measure, claim.minus, results)
        mine = {seed: mine[seed] - other[seed] for seed in mine if seed in other}
    seeds, values = tuple(mine), tuple(mine.values())
    bad = sum(not math.isfinite(v) for v in values)
    if len(values) < 2:
        note = f"{len(values)} finished seed{'s' * (len(values) != 1)}: an interval needs two"
        estimate = values[0] if values and not bad else None
        return ClaimResult(claim, values, seeds, estimate, None, None, "inconclusive", note)
    if bad:
        note = f"{bad} of {len(values)} values not finite"
        return ClaimResult(claim, values, seeds, None, None, None, "inconclusive", note)
    estimate, low, high = bootstrap_interval(values, resamples=resamples)
    missing = len(results.seeds) - len(values)
    note = f"{missing} of {len(results.seeds)} seeds missing" if missing else ""
    word = verdict(claim.direction, claim.threshold, low, high)
    return ClaimResult(claim, values, seeds, estimate, low, high, word, note)


def as_number(run: Run, measure: str) -> float:
    """The measure of a run as one number; null is nan.

    Raises
    ------
    MinitxError
        If it is missing, or not one number.
    """
    value = run[measure]
    if np.size(value) != 1 or isinstance(value, str | dict):
        raise MinitxError(
            f"A claim needs one number per run, but {measure!r} of {run.arm!r}, seed {run.seed}, is "
            f"{type(value).__name__} of shape {np.shape(value)}; return its summary as a measure of "
            "its own."
        )
    return float(np.reshape(value, ()))


def _by_seed(measure: str, arm: str, results: Results) -> dict[int, float]:
    """The measure of each finished run of an arm: {seed: number}."""
    return {run.seed: as_number(run, measure) for run in results[arm]}
