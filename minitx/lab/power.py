"""How likely is a run of n seeds to support a claim, and how many seeds does the claim need?

A run of n seeds is imitated by n draws, with replacement, from the stored seeds; all arms of a seed
stay together. Each imitation is judged by the rule that judges real runs. The share of imitations
that support the claim estimates its *power*. The stored seeds stand for all seeds, so the estimate
is no better than they are: with few, or where training now and then does something rare that none of
them shows, it says too much.

References
----------
Efron and Tibshirani (1993), *An Introduction to the Bootstrap*, section 25.5 (power).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError
from minitx.lab.claims import Claim, judge
from minitx.lab.results import Results

GOAL = 0.95
DRAWS = 300  # standard error of a share of 0.95: 0.013
RESAMPLES = 2000  # of the interval in one imitation; fewer than in a real verdict, which is one
SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 60)
SEED = 20240301


@dataclass(frozen=True)
class Power:
    """What the stored seeds promise of a claim.

    Attributes
    ----------
    claim : Claim or None
        None: all claims of the experiment at once.
    shares : dict
        Number of seeds -> share of imitated runs that support the claim.
    needed : int or None
        The fewest seeds, among `SIZES`, with which 95 % of the imitated runs support it; None if
        even `SIZES[-1]` are too few.
    """

    claim: Claim | None
    shares: dict[int, float]
    needed: int | None


def power(claims: Sequence[Claim], results: Results, seeds: Sequence[int]) -> list[Power]:
    """The power of each claim, and of all of them at once (last).

    Parameters
    ----------
    claims : sequence of Claim
    results : Results
        The stored runs; every seed in every arm.
    seeds : sequence of int
        Numbers of seeds, each at least 1.

    Raises
    ------
    MinitxError
        If fewer than two seeds are stored, or a number of seeds is below 1.
    """
    if len(results.seeds) < 2:
        raise MinitxError(
            f"Power is read off the spread over at least 2 stored seeds of {results.name}, "
            f"got {len(results.seeds)}."
        )
    if not seeds or min(seeds) < 1:
        raise MinitxError(f"Numbers of seeds are at least 1, got {tuple(seeds)}.")
    table = _Table(claims, results)
    everything = range(len(claims))
    asked = [(claim, [index]) for index, claim in enumerate(claims)] + [(None, everything)]
    return [
        Power(claim, {n: table.share(indices, n) for n in seeds}, table.fewest(indices))
        for claim, indices in asked
    ]


class _Table:
    """Which imitated runs support which claims, worked out where it is asked for."""

    def __init__(self, claims: Sequence[Claim], results: Results) -> None:
        self.claims, self.results = claims, results
        self.hits: dict[tuple[int, int], np.ndarray] = {}

    def hit(self, index: int, n: int) -> np.ndarray:
        """True for each imitation of n seeds that supports the claim: bool [DRAWS]."""
        if (index, n) not in self.hits:
            claim = self.claims[index]
            arms = [arm for arm in (claim.arm, claim.minus) if arm is not None]
            self.hits[index, n] = np.array(
                [
                    judge(claim, imitation, RESAMPLES).supported
                    for imitation in imitations(self.results, n, arms)
                ]
            )
        return self.hits[index, n]

    def share(self, indices: Iterable[int], n: int) -> float:
        """Share of imitations of n seeds that support all these claims."""
        return float(np.logical_and.reduce([self.hit(index, n) for index in indices]).mean())

    def fewest(self, indices: Sequence[int]) -> int | None:
        """The first of `SIZES` that reaches the goal, by bisection: more seeds have more power."""
        low, high = 0, len(SIZES)
        while low < high:
            middle = (low + high) // 2
            if self.share(indices, SIZES[middle]) >= GOAL:
                high = middle
            else:
                low = middle + 1
        return SIZES[low] if low < len(SIZES) else None


def imitations(results: Results, n: int, arms: Sequence[str]) -> Iterator[Results]:
    """`DRAWS` runs of n seeds, drawn from the stored ones; the same draws for all arms and calls."""
    rng = np.random.default_rng([SEED, n])
    for drawn in rng.choice(results.seeds, size=(DRAWS, n)).tolist():
        runs = {
            (arm, new): dataclasses.replace(results.runs[arm, old], seed=new)
            for new, old in enumerate(drawn)
            for arm in arms
        }
        yield dataclasses.replace(results, seeds=tuple(range(n)), runs=runs, claims=[])
