"""A needle among distractors: one item fits the query in every attribute, the others do not.

Easy distractors differ from the needle in every attribute, hard ones in a few only. What is asked
is how the number of hard ones, at a constant number of distractors, tells on the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE, Batch, Task, mark

NEEDLE, EASY, HARD, QUERY = range(4)
"""What stands at a position, in ``info["kind"]``."""


@dataclass(frozen=True)
class Needles(Task):
    """`n_distractors` items and the needle in random order, then a query with the needle's
    attributes.

    An item is `n_attributes` attributes (of `n_levels` levels each) and a value, fused at one
    position; the query has QUERY in place of the value. The answer is the needle's value. All
    values are independent and uniform: were a distractor's value never the answer, a model could
    learn to answer by exclusion. Exactly ``round(hard_share * n_distractors)`` distractors are
    hard. Ids: values 0..n_values-1, QUERY, then the levels of each attribute; the output ranges
    over the values.

    Attributes
    ----------
    hard_share : float or None
        Share of hard distractors; None draws it for each sequence from U[0, 1].
    hard_differs : int
        In how many attributes a hard distractor differs; `n_attributes` makes it an easy one that
        is only called hard (a control).

    Notes
    -----
    ``info["kind"]`` int [B, T]: NEEDLE, EASY, HARD or QUERY.

    Source: the needle-in-a-haystack paradigm; hard and easy distractors after "The first drop of
    ink" (2026).
    """

    n_distractors: int = 16
    hard_share: float | None = 0.0
    hard_differs: int = 1
    n_attributes: int = 3
    n_levels: int = 8
    n_values: int = 16

    def __post_init__(self) -> None:
        if self.hard_share is not None and not 0.0 <= self.hard_share <= 1.0:
            raise MinitxError(f"hard_share must lie in [0, 1] or be None; got {self.hard_share}.")
        if not 1 <= self.hard_differs <= self.n_attributes:
            raise MinitxError(
                f"A hard distractor differs in 1..{self.n_attributes} attributes; "
                f"got hard_differs={self.hard_differs}."
            )
        if self.n_levels < 2:
            raise MinitxError(f"To differ takes two levels an attribute; got {self.n_levels}.")

    @property
    def vocab_size(self) -> int:
        return self.n_values + 1 + self.n_attributes * self.n_levels

    @property
    def out_size(self) -> int:
        return self.n_values

    @property
    def max_len(self) -> int:
        return self.n_distractors + 2

    @property
    def query(self) -> int:
        """Id of the QUERY feature, which stands in the place of the value."""
        return self.n_values

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh sequences: tokens int64 [B, n_distractors + 2, n_attributes + 1], value last."""
        n, n_attributes = self.n_distractors, self.n_attributes
        share = rng.random(batch_size) if self.hard_share is None else self.hard_share
        n_hard = np.broadcast_to(np.round(np.multiply(share, n)), (batch_size,))
        hard = np.arange(n) < n_hard[:, None]  # [B, n]; shuffled below

        needle = rng.integers(self.n_levels, size=(batch_size, 1, n_attributes))
        # Which attributes differ: all of them, or for hard ones hard_differs random ones.
        rank = rng.random((batch_size, n, n_attributes)).argsort(axis=-1)
        differs = (rank < self.hard_differs) | ~hard[..., None]
        shift = rng.integers(1, self.n_levels, size=differs.shape)
        distractors = (needle + shift * differs) % self.n_levels

        levels = np.concatenate([needle, distractors], axis=1)  # [B, n + 1, A]
        kind = np.concatenate(
            [np.full((batch_size, 1), NEEDLE), np.where(hard, HARD, EASY)], axis=1
        )
        order = rng.permuted(np.tile(np.arange(n + 1), (batch_size, 1)), axis=1)
        levels = np.take_along_axis(levels, order[..., None], axis=1)
        kind = np.take_along_axis(kind, order, axis=1)
        values = rng.integers(self.n_values, size=kind.shape)

        tokens = np.full((batch_size, n + 2, n_attributes + 1), self.query, dtype=np.int64)
        offset = self.query + 1 + np.arange(n_attributes) * self.n_levels
        tokens[:, :-1, :-1], tokens[:, -1, :-1] = levels + offset, needle[:, 0] + offset
        tokens[:, :-1, -1] = values
        targets = np.full(tokens.shape[:2], IGNORE, dtype=np.int64)
        targets[:, -1] = values[kind == NEEDLE]
        kind = np.concatenate([kind, np.full((batch_size, 1), QUERY)], axis=1)
        return Batch(tokens, targets, info={"kind": kind})

    def describe(self, rng: np.random.Generator) -> str:
        batch = self.sample(1, rng)
        offset = self.query + 1 + np.arange(self.n_attributes) * self.n_levels
        names = ["".join(map(str, row)) for row in batch.tokens[0, :, :-1] - offset]
        note = {NEEDLE: "", EASY: "", HARD: "(hard)"}
        items = [
            f"{name}:v{value}{note[kind]}"
            for name, value, kind in zip(
                names[:-1], batch.tokens[0, :-1, -1], batch.info["kind"][0, :-1], strict=True
            )
        ]
        at = int(np.flatnonzero(batch.info["kind"][0] == NEEDLE)[0])
        return f"{mark(items, answers=[at])} | {names[-1]}? **v{batch.targets[0, -1]}**"
