"""A list of values, then questions about places in it: "what was the fifth?"

The place is the address, so a model without a sense of position cannot answer, and how well it
answers by serial position shows the shape of its position code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError, choose
from minitx.tasks.base import IGNORE, Batch, Task, mark
from minitx.tasks.draws import context_mask, demand

QUERY_POSITIONS = {"spread": True, "same": False}
"""Whether the queries' position numbers run on (the gap to the list varies) or are all the same."""


@dataclass(frozen=True)
class ListQueries(Task):
    """BOS, `n_items` random values, then `n_queries` query tokens; query token i asks for item i.

    Values are independent and uniform. A query sees BOS, the list and itself, never another query.
    Ids: values 0..n_values-1, BOS, then the queries; the output ranges over the values.

    Attributes
    ----------
    n_items, n_values, n_queries : int
        Length of the list, number of different values, queries a sequence.
    query_positions : "spread" or "same"
        Position numbers of the queries: running on after the list, or all equal to the first one's.
    asks : str
        Which serial positions are asked for: a name in `minitx.tasks.draws.DEMANDS`.

    Notes
    -----
    ``info["item"]`` int [B, T]: the serial position that a query asks for, -1 elsewhere.
    """

    n_items: int = 24
    n_values: int = 16
    n_queries: int = 12
    query_positions: str = "spread"
    asks: str = "uniform"

    def __post_init__(self) -> None:
        choose(QUERY_POSITIONS, self.query_positions, "query_positions")
        if min(self.n_items, self.n_values, self.n_queries) < 1:
            raise MinitxError("A list task needs at least one item, one value and one query.")
        demand(self.asks, self.n_items)  # refuses an unknown name

    @property
    def vocab_size(self) -> int:
        return self.n_values + 1 + self.n_items

    @property
    def out_size(self) -> int:
        return self.n_values

    @property
    def max_len(self) -> int:
        return 1 + self.n_items + self.n_queries

    @property
    def bos(self) -> int:
        """Id of the token that begins every sequence."""
        return self.n_values

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh lists with their queries: tokens int64 [B, 1 + n_items + n_queries]."""
        n_context = 1 + self.n_items
        values = rng.integers(self.n_values, size=(batch_size, self.n_items))
        chance = demand(self.asks, self.n_items)
        asked = rng.choice(self.n_items, size=(batch_size, self.n_queries), p=chance)

        tokens = np.full((batch_size, self.max_len), self.bos, dtype=np.int64)  # [B, T]
        tokens[:, 1:n_context] = values
        tokens[:, n_context:] = self.bos + 1 + asked
        targets = np.full_like(tokens, IGNORE)
        targets[:, n_context:] = np.take_along_axis(values, asked, axis=1)
        item = np.full_like(tokens, -1)
        item[:, n_context:] = asked

        positions = np.arange(self.max_len)
        if not QUERY_POSITIONS[self.query_positions]:
            positions[n_context:] = n_context
        mask = context_mask(n_context, self.n_queries)
        return Batch(tokens, targets, mask=mask, positions=positions, info={"item": item})

    def describe(self, rng: np.random.Generator) -> str:
        batch = self.sample(1, rng)
        values = batch.tokens[0, 1 : 1 + self.n_items]
        asked = int(batch.info["item"][0, 1 + self.n_items])
        listed = mark([f"v{value}" for value in values], answers=[asked])
        return f"BOS {listed} | item {asked}? **v{values[asked]}**"
