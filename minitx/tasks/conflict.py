"""Questions that memory or the context can answer, and that they may answer differently."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE, Batch, Task, mark
from minitx.tasks.draws import distinct


@dataclass(frozen=True)
class MemoryOrContext(Task):
    """A few statements (key, value), then the query for one key.

    The world gives each key one value, all different: that is what can be remembered. Each
    statement is true to the world with probability `truth`, else it states one of the other
    values. *Closed book* (a share `closed_share`): no statement is about the key asked for, and
    the answer is the world's. *Open book*: one is, and the answer is what it states. Key, value
    and QUERY are fused. Ids: values 0..n_values-1, QUERY, keys; the output is over the values.

    Attributes
    ----------
    world_seed : int
        Draws the world.
    frequencies : tuple of float
        Relative frequency of closed-book questions for equal parts of the keys; open-book
        questions are uniform.
    conflict : bool
        Make the statement about the key asked for false, always (a test; needs closed_share = 0).

    Notes
    -----
    ``info["memory"]`` int [B]: the world's value of the key asked for. ``info["stated"]`` int [B]:
    the value stated for it, -1 in closed book. ``info["part"]`` int [B]: its part of the keys.

    Source: the contest of parametric and contextual knowledge, Longpre et al. (2021).
    """

    truth: float = 0.8
    closed_share: float = 0.8
    conflict: bool = False
    world_seed: int = 0
    n_keys: int = 24
    n_values: int = 32
    n_statements: int = 4
    frequencies: tuple[float, ...] = (25.0, 5.0, 1.0)

    def __post_init__(self) -> None:
        if self.n_keys > self.n_values:
            raise MinitxError(
                f"{self.n_keys} keys need as many different values; got n_values={self.n_values}."
            )
        if self.n_keys % len(self.frequencies) or self.n_statements >= self.n_keys:
            raise MinitxError(
                f"n_keys={self.n_keys} must be a multiple of the {len(self.frequencies)} "
                f"frequencies and exceed n_statements={self.n_statements}."
            )
        if not (0.0 <= self.truth <= 1.0 and 0.0 <= self.closed_share <= 1.0):
            raise MinitxError(
                f"truth and closed_share lie in [0, 1]; got {self.truth}, {self.closed_share}."
            )
        if self.conflict and self.closed_share > 0:
            raise MinitxError("conflict=True is about open-book questions: set closed_share=0.")

    @property
    def vocab_size(self) -> int:
        return self.n_values + 1 + self.n_keys

    @property
    def out_size(self) -> int:
        return self.n_values

    @property
    def max_len(self) -> int:
        return self.n_statements + 1

    @property
    def query(self) -> int:
        """Id of the QUERY feature, which stands in the place of the value."""
        return self.n_values

    def world(self) -> np.ndarray:
        """The true value of each key, int [n_keys], all different."""
        return np.random.default_rng(self.world_seed).permutation(self.n_values)[: self.n_keys]

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh questions: tokens int64 [B, n_statements + 1, 2 (key, value)]."""
        world, n = self.world(), self.n_statements
        part_of = np.arange(self.n_keys) * len(self.frequencies) // self.n_keys
        chance = np.asarray(self.frequencies)[part_of]
        closed = rng.random(batch_size) < self.closed_share
        asked = np.where(
            closed,
            rng.choice(self.n_keys, size=batch_size, p=chance / chance.sum()),
            rng.integers(self.n_keys, size=batch_size),
        )
        keys = distinct(rng, (batch_size,), n, self.n_keys - 1)
        keys += keys >= asked[:, None]  # any keys but the one asked for ...
        place = rng.integers(n, size=batch_size)
        rows = np.arange(batch_size)
        keys[rows, place] = np.where(
            closed, keys[rows, place], asked
        )  # ... which open book puts in

        true = rng.random(keys.shape) < self.truth
        if self.conflict:
            true[rows, place] = False
        other = rng.integers(1, self.n_values, size=keys.shape)
        values = (world[keys] + other * ~true) % self.n_values
        stated = np.where(closed, -1, values[rows, place])

        tokens = np.empty((batch_size, n + 1, 2), dtype=np.int64)
        tokens[:, :n, 0], tokens[:, n, 0] = self.query + 1 + keys, self.query + 1 + asked
        tokens[:, :n, 1], tokens[:, n, 1] = values, self.query
        targets = np.full(tokens.shape[:2], IGNORE, dtype=np.int64)
        targets[:, n] = np.where(closed, world[asked], stated)
        info = {"memory": world[asked], "stated": stated, "part": part_of[asked]}
        return Batch(tokens, targets, info=info)

    def describe(self, rng: np.random.Generator) -> str:
        batch = self.sample(1, rng)
        keys, values = batch.tokens[0, :, 0] - self.query - 1, batch.tokens[0, :, 1]
        said = [f"k{k}:v{v}" for k, v in zip(keys[:-1], values[:-1], strict=True)]
        memory, answer = batch.info["memory"][0], batch.targets[0, -1]
        at = np.flatnonzero(keys[:-1] == keys[-1]).tolist()
        return f"{mark(said, answers=at)} | k{keys[-1]} (in memory: v{memory})? **v{answer}**"
