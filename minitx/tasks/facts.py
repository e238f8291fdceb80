"""Things to know by heart: facts, random labels.

Each is drawn once, from a seed that belongs to the task, and then stays: what is asked of a model is
that it still knows. Sampling only chooses which facts to show. Two tasks of one series never share a
question.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE, Batch, Task, mark


@dataclass(frozen=True)
class Facts(Task):
    """One of a series of `n_tasks` tables of facts: two key tokens, a separator, then the label.

    Every fact of the series has its own ordered pair of symbols; its label is independent and
    uniform, so that neither token alone tells it. Ids: labels 0..n_labels-1, the separator, then the
    symbols; the output ranges over the labels.

    Attributes
    ----------
    index : int
        Which table of the series, 0..n_tasks-1.
    seed : int
        The series.

    Notes
    -----
    ``info["fact"]`` int [B]: the row of the table that a sequence asks for.
    """

    index: int = 0
    n_tasks: int = 4
    n_facts: int = 32
    n_labels: int = 16
    n_symbols: int = 24
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.n_tasks:
            raise MinitxError(f"index must lie in 0..{self.n_tasks - 1}, got {self.index}.")
        if self.n_tasks * self.n_facts > self.n_symbols**2:
            raise MinitxError(
                f"{self.n_tasks} tables of {self.n_facts} facts need as many pairs of symbols; "
                f"{self.n_symbols} symbols make {self.n_symbols**2}."
            )

    @property
    def vocab_size(self) -> int:
        return self.n_labels + 1 + self.n_symbols

    @property
    def out_size(self) -> int:
        return self.n_labels

    @property
    def max_len(self) -> int:
        return 3

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The facts: keys int [n_facts, 2 (symbols)] and labels int [n_facts]."""
        rng = np.random.default_rng(self.seed)
        pairs = rng.permutation(self.n_symbols**2)[: self.n_tasks * self.n_facts]
        labels = rng.integers(self.n_labels, size=self.n_tasks * self.n_facts)
        mine = slice(self.index * self.n_facts, (self.index + 1) * self.n_facts)
        keys = np.stack(np.divmod(pairs[mine], self.n_symbols), axis=1)
        return keys, labels[mine]

    def batch(self, facts: np.ndarray) -> Batch:
        """These rows of the table, as sequences: tokens int64 [B, 3]."""
        keys, labels = self.table
        tokens = np.full((len(facts), 3), self.n_labels, dtype=np.int64)
        tokens[:, :2] = self.n_labels + 1 + keys[facts]
        targets = np.full_like(tokens, IGNORE)
        targets[:, 2] = labels[facts]
        return Batch(tokens, targets, info={"fact": np.asarray(facts)})

    def everything(self) -> Batch:
        """The whole table, in order."""
        return self.batch(np.arange(self.n_facts))

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Different facts in random order: all of them if `batch_size` is the table's size or more."""
        return self.batch(rng.permutation(self.n_facts)[:batch_size])

    def describe(self, rng: np.random.Generator) -> str:
        fact = int(rng.integers(self.n_facts))
        (a, b), label = self.table[0][fact], self.table[1][fact]
        return mark([f"s{a}", f"s{b}", "=", f"label{label}"], answers=[3])


@dataclass(frozen=True)
class RandomLabels(Task):
    """`n_items` random strings of tokens, each with a random label: nothing to understand.

    Every `seed` is a fresh task of the same difficulty, so whether a network still can learn shows
    in how well it learns the n-th one (Dohare et al., 2024). Strings of one task differ from each
    other. Ids: tokens 0..n_tokens-1; the output ranges over the labels.

    Notes
    -----
    ``info["item"]`` int [B]: which item a sequence is.
    """

    seed: int = 0
    n_items: int = 64
    length: int = 6
    n_tokens: int = 16
    n_labels: int = 8

    def __post_init__(self) -> None:
        if self.n_items > self.n_tokens**self.length:
            raise MinitxError(
                f"There are only {self.n_tokens**self.length} strings of {self.length} tokens; "
                f"got n_items={self.n_items}."
            )

    @property
    def vocab_size(self) -> int:
        return self.n_tokens

    @property
    def out_size(self) -> int:
        return self.n_labels

    @property
    def max_len(self) -> int:
        return self.length

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The items: strings int [n_items, length], all different, and labels int [n_items]."""
        rng = np.random.default_rng(self.seed)
        seen: dict[bytes, np.ndarray] = {}
        while len(seen) < self.n_items:
            string = rng.integers(self.n_tokens, size=self.length)
            seen.setdefault(string.tobytes(), string)
        return np.stack(list(seen.values())), rng.integers(self.n_labels, size=self.n_items)

    def batch(self, items: np.ndarray) -> Batch:
        """These items, with the label asked for at the last token."""
        strings, labels = self.table
        targets = np.full((len(items), self.length), IGNORE, dtype=np.int64)
        targets[:, -1] = labels[items]
        return Batch(strings[items], targets, info={"item": np.asarray(items)})

    def everything(self) -> Batch:
        """All items, in order."""
        return self.batch(np.arange(self.n_items))

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Different items in random order: all of them if `batch_size` is their number or more."""
        return self.batch(rng.permutation(self.n_items)[:batch_size])

    def describe(self, rng: np.random.Generator) -> str:
        item = int(rng.integers(self.n_items))
        words = [f"t{token}" for token in self.table[0][item]]
        return mark([*words, "->", f"label{self.table[1][item]}"], answers=[self.length + 1])
