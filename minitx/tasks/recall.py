"""Keys with values, then questions about keys.

`KeyValueRecall`: each key once, some places asked for more often than others.
`AssociativeRecall`: key and value in separate positions, so that recall needs an induction circuit.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE, Batch, Task, mark
from minitx.tasks.draws import context_mask, demand, distinct


@dataclass(frozen=True)
class KeyValueRecall(Task):
    """`n_pairs` different keys, each fused with a value at one position; then fused queries.

    Keys are a random choice out of `n_keys`, values independent and uniform, so neither a key nor
    its place tells the value. Which serial positions are asked for is the knob (`asks`, see
    `minitx.tasks.draws.demand`). A query sees the pairs and itself. Ids: values 0..n_values-1,
    QUERY, keys; the output ranges over the values.

    Notes
    -----
    ``info["item"]`` int [B, T]: serial position of the pair that a query asks for, -1 elsewhere.
    """

    n_keys: int = 64
    n_pairs: int = 24
    n_values: int = 16
    n_queries: int = 12
    asks: str = "uniform"
    strength: float = 0.7
    scale: float = 2.0

    def __post_init__(self) -> None:
        demand(self.asks, self.n_pairs)
        if self.n_pairs > self.n_keys:
            raise MinitxError(f"{self.n_pairs} pairs need as many keys; got n_keys={self.n_keys}.")

    @property
    def vocab_size(self) -> int:
        return self.n_values + 1 + self.n_keys

    @property
    def out_size(self) -> int:
        return self.n_values

    @property
    def max_len(self) -> int:
        return self.n_pairs + self.n_queries

    @property
    def query(self) -> int:
        """Id of the QUERY feature, which stands in the place of the value."""
        return self.n_values

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh pairs with their queries: tokens int64 [B, n_pairs + n_queries, 2 (key, value)]."""
        keys = distinct(rng, (batch_size,), self.n_pairs, self.n_keys)
        values = rng.integers(self.n_values, size=(batch_size, self.n_pairs))
        chance = demand(self.asks, self.n_pairs, self.strength, self.scale)
        asked = rng.choice(self.n_pairs, size=(batch_size, self.n_queries), p=chance)

        tokens = np.full((batch_size, self.max_len, 2), self.query, dtype=np.int64)  # [B, T, 2]
        tokens[:, : self.n_pairs, 0] = self.query + 1 + keys
        tokens[:, : self.n_pairs, 1] = values
        tokens[:, self.n_pairs :, 0] = self.query + 1 + np.take_along_axis(keys, asked, axis=1)
        targets = np.full((batch_size, self.max_len), IGNORE, dtype=np.int64)
        targets[:, self.n_pairs :] = np.take_along_axis(values, asked, axis=1)
        item = np.full_like(targets, -1)
        item[:, self.n_pairs :] = asked
        mask = context_mask(self.n_pairs, self.n_queries)
        return Batch(tokens, targets, mask=mask, info={"item": item})

    def describe(self, rng: np.random.Generator) -> str:
        batch = self.sample(1, rng)
        keys, values = batch.tokens[0, :, 0] - self.query - 1, batch.tokens[0, :, 1]
        asked = int(batch.info["item"][0, self.n_pairs])
        pairs = [f"k{keys[i]}:v{values[i]}" for i in range(self.n_pairs)]
        return f"{mark(pairs, answers=[asked])} | k{keys[asked]}? **v{values[asked]}**"


@dataclass(frozen=True)
class AssociativeRecall(Task):
    """key value key value ...: after a first pass over all `n_active` pairs, random pairs recur.

    Key and value stand at separate positions, so the value must first learn which key came before
    it (previous-token head), then the key must find it (induction head). Loss at every key from
    position ``2 n_active`` on: one query a sequence does not train (it stays at 1/n_active). Ids:
    values 0..n_values-1, then keys; the output ranges over the values.

    Source: Arora et al. (2023), Zoology (multi-query associative recall); Olsson et al. (2022).

    Notes
    -----
    ``info["pair"]`` int [B, T]: which of the active pairs a position belongs to.
    """

    n_keys: int = 16
    n_values: int = 16
    n_active: int = 8
    n_pairs: int = 24

    def __post_init__(self) -> None:
        if not 1 <= self.n_active <= min(self.n_keys, self.n_values, self.n_pairs):
            raise MinitxError(
                f"n_active must lie between 1 and the numbers of keys, values and pairs "
                f"({self.n_keys}, {self.n_values}, {self.n_pairs}); got {self.n_active}."
            )

    @property
    def vocab_size(self) -> int:
        return self.n_values + self.n_keys

    @property
    def out_size(self) -> int:
        return self.n_values

    @property
    def max_len(self) -> int:
        return 2 * self.n_pairs

    def curriculum(self) -> tuple[tuple[float, AssociativeRecall], ...]:
        """The tasks to train on in turn, as (until this share of training, task).

        2 active pairs until 20 %, 4 until 40 %, both in short sequences, then this task itself.
        """
        first, second = (
            dataclasses.replace(self, n_active=min(k, self.n_active), n_pairs=min(16, self.n_pairs))
            for k in (2, 4)
        )
        return ((0.2, first), (0.4, second), (1.0, self))

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh sequences: tokens int64 [B, 2 n_pairs]."""
        keys = distinct(rng, (batch_size,), self.n_active, self.n_keys)
        values = distinct(rng, (batch_size,), self.n_active, self.n_values)
        again = rng.integers(self.n_active, size=(batch_size, self.n_pairs - self.n_active))
        # Keys are drawn in random order, so the first pass may simply go through them.
        first = np.broadcast_to(np.arange(self.n_active), (batch_size, self.n_active))
        pair = np.concatenate([first, again], axis=1)  # [B, n_pairs]

        tokens = np.empty((batch_size, self.max_len), dtype=np.int64)  # [B, T]
        tokens[:, 0::2] = self.n_values + np.take_along_axis(keys, pair, axis=1)
        tokens[:, 1::2] = np.take_along_axis(values, pair, axis=1)
        targets = np.full_like(tokens, IGNORE)
        targets[:, 2 * self.n_active :: 2] = tokens[:, 2 * self.n_active + 1 :: 2]
        return Batch(tokens, targets, info={"pair": np.repeat(pair, 2, axis=1)})

    def describe(self, rng: np.random.Generator) -> str:
        batch = self.sample(1, rng)
        words = [
            f"v{token}" if token < self.n_values else f"k{token - self.n_values}"
            for token in batch.tokens[0]
        ]
        answered = np.flatnonzero(batch.targets[0] != IGNORE) + 1
        return mark(words, answers=answered.tolist())
