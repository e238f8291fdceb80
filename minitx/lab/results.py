"""What the runs measured, as claims and figures read it: always after a round trip through JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.errors import MinitxError, choose

if TYPE_CHECKING:
    from minitx.lab.claims import ClaimResult


@dataclass(frozen=True)
class Run:
    """One finished run.

    Attributes
    ----------
    arm, seed : str, int
    measurements : dict
        As read from JSON: numbers, strings, lists, dictionaries; None for what was not finite.
    seconds : float
        Wall time of the run.
    finished : float
        When it ended, seconds since 1970.
    """

    arm: str
    seed: int
    measurements: dict[str, Any]
    seconds: float
    finished: float = 0.0

    def __getitem__(self, measure: str) -> Any:
        """A number as float, a list of numbers as float array (null becomes nan), else as it is."""
        return _as_numbers(choose(self.measurements, measure, "measure"))

    def __contains__(self, measure: str) -> bool:
        return measure in self.measurements


@dataclass
class Results:
    """All finished runs of an experiment: ``results[arm]`` lists the runs of an arm by seed.

    Attributes
    ----------
    name : str
        The experiment's.
    arms : tuple of str
        In the experiment's order, whether or not their runs finished.
    seeds : tuple of int
        The seeds asked for.
    settings : dict
        The settings object of each arm.
    controls : frozenset of str
        The arms that are controls.
    claims : list of ClaimResult
        The verdicts (empty while they are being reached).
    quick : bool
        True for a small run, whose verdicts are a first look.
    """

    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: dict[tuple[str, int], Run]
    settings: dict[str, Any] = field(default_factory=dict)
    controls: frozenset[str] = frozenset()
    claims: list[ClaimResult] = field(default_factory=list)
    quick: bool = False

    def __getitem__(self, arm: str) -> list[Run]:
        choose(dict.fromkeys(self.arms), arm, "arm")
        return [self.runs[arm, seed] for seed in self.seeds if (arm, seed) in self.runs]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arms)

    def finished_seeds(self, arm: str) -> list[int]:
        """Seeds of the arm's finished runs, in the order of `values`."""
        return [run.seed for run in self[arm]]

    def values(self, arm: str, measure: str) -> np.ndarray:
        """The measure of every finished run of an arm, stacked: float [seeds, ...].

        Raises
        ------
        MinitxError
            If arm or measure is unknown, or the shape differs from seed to seed.
        """
        values = [np.asarray(run[measure]) for run in self[arm]]
        shapes = {value.shape for value in values}
        if len(shapes) > 1:
            raise MinitxError(
                f"{measure!r} of arm {arm!r} has another shape in another seed: {sorted(shapes)}; "
                "read the runs one by one with results[arm]."
            )
        return np.stack(values) if values else np.zeros(0)

    def claim(self, id: str) -> ClaimResult:
        """The verdict on the claim of that id."""
        return choose({result.claim.id: result for result in self.claims}, id, "claim")


def to_json(measurements: object) -> str:
    """Measurements as strict JSON text, from which every float comes back exactly.

    NumPy arrays become nested lists, numbers that are not finite become null.

    Raises
    ------
    MinitxError
        If this is not a dictionary from strings to numbers, arrays, strings, lists or dictionaries.
    """
    if not isinstance(measurements, dict):
        raise MinitxError(
            f"measure() returns a dictionary of named numbers, got {type(measurements).__name__}."
        )
    return json.dumps(_plain(measurements, "measurements"), allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """Read strict JSON.

    Raises
    ------
    ValueError
        If the text is cut off, or holds NaN or Infinity, which JSON does not have.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _plain(value: Any, where: str) -> Any:
    """Python objects that JSON has, from what an experiment may return."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise MinitxError(f"Keys of {where} are strings, got {wrong[0]!r}.")
        return {key: _plain(item, key) for key, item in value.items()}
    raise MinitxError(
        f"{where!r} is {type(value).__name__}, which cannot be stored; return numbers, NumPy "
        "arrays of numbers, strings, lists or dictionaries."
    )


def _as_numbers(value: Any) -> Any:
    if value is None:
        return math.nan
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, list):
        try:
            return np.array(value, dtype=np.float64)  # None becomes nan
        except (TypeError, ValueError):
            return value  # ragged, or words
    return value
