"""Items one after another: what was seen cannot come again, is likely to, or says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError, choose
from minitx.tasks.base import Batch, Task, mark, next_token_targets
from minitx.tasks.draws import distinct


def _permutation(deck: Deck, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    return rng.permuted(np.tile(np.arange(deck.n_items), (batch_size, 1)), axis=1)


def _topics(deck: Deck, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    topic = distinct(rng, (batch_size,), deck.topic_size, deck.n_items)
    pick = rng.integers(deck.topic_size, size=(batch_size, deck.n_items))
    return np.take_along_axis(topic, pick, axis=1)


def _iid(deck: Deck, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(deck.n_items, size=(batch_size, deck.n_items))


DRAWS: dict[str, Callable[[Deck, int, np.random.Generator], np.ndarray]] = {
    "permutation": _permutation,
    "topics": _topics,
    "iid": _iid,
}
"""How items follow each other; every item is equally frequent under each of them."""


@dataclass(frozen=True)
class Deck(Task):
    """BOS and `n_items` items; predict every next one. Ids: items 0..n_items-1, then BOS.

    Attributes
    ----------
    draw : str
        "permutation": every item exactly once, so that none comes again. "topics": from
        `topic_size` items that each sequence chooses anew, so that what came is likely to come
        again. "iid": independent, so that what came says nothing.

    Notes
    -----
    ``info["seen"]`` bool [B, T, n_items]: the items that stand at or before a position.
    """

    draw: str = "permutation"
    n_items: int = 16
    topic_size: int = 4

    def __post_init__(self) -> None:
        choose(DRAWS, self.draw, "draw")
        if not 1 <= self.topic_size <= self.n_items:
            raise MinitxError(
                f"topic_size must lie in 1..n_items={self.n_items}; got {self.topic_size}."
            )

    @property
    def vocab_size(self) -> int:
        return self.n_items + 1

    @property
    def out_size(self) -> int:
        return self.n_items

    @property
    def max_len(self) -> int:
        return 1 + self.n_items

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh sequences: tokens int64 [B, 1 + n_items]."""
        items = choose(DRAWS, self.draw, "draw")(self, batch_size, rng)
        tokens = np.concatenate([np.full((batch_size, 1), self.n_items), items], axis=1)
        stands = tokens[:, :, None] == np.arange(self.n_items)  # [B, T, n_items]
        seen = np.logical_or.accumulate(stands, axis=1)
        return Batch(tokens, next_token_targets(tokens), info={"seen": seen})

    def describe(self, rng: np.random.Generator) -> str:
        tokens = self.sample(1, rng).tokens[0]
        words = ["BOS", *(f"i{item}" for item in tokens[1:])]
        return mark(words, answers=range(1, len(words)))
