"""Bigram-Backcopy: a token stream in which a head has work at some positions and none at others.

Source: Guo, Pai, Bai, Jiao, Jordan and Mei (2024), "Active-Dormant Attention Heads".

A sequence starts with BOS. The next token follows a fixed random bigram table, except after one of
a few *trigger* tokens: then comes the token before the trigger. The bigrams need no attention (the
current token says all there is to know), the copies need exactly one look back.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from minitx.errors import MinitxError
from minitx.tasks.base import Batch, Task, mark

BOS = 0

# Twelve consonants by five vowels: a pronounceable name for each of the sixty normal tokens.
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


@dataclass(frozen=True)
class BigramBackcopy(Task):
    """The Bigram-Backcopy task.

    Token ids: 0 is BOS, 1..n_triggers are the triggers, the rest are the normal tokens.

    Attributes
    ----------
    table_seed : int
        Seed of the bigram table. Sequences come from the generator that is handed to `sample`.
    length : int
        Tokens in a sequence, T, BOS included.
    n_normal, n_triggers : int
        Number of normal tokens and of triggers.
    successors : int or None
        How many normal tokens can follow a normal token (sparse rows); None for all (dense rows).
    trigger_share : float
        Probability that a trigger follows a normal token; 0 for a stream without triggers.
    bos : bool
        Whether sequences start with BOS; else they start with a normal token.

    Raises
    ------
    MinitxError
        For settings that leave no token to draw.
    """

    table_seed: int = 0
    length: int = 64
    n_normal: int = 60
    n_triggers: int = 3
    successors: int | None = 4
    trigger_share: float = 0.15
    bos: bool = True

    def __post_init__(self) -> None:
        if self.length < 2 or self.n_normal < 1 or self.n_triggers < 0:
            raise MinitxError(
                f"Bigram-Backcopy needs a length of 2 or more and at least one normal token; got "
                f"length {self.length}, {self.n_normal} normal tokens, {self.n_triggers} triggers."
            )
        if self.successors is not None and not 1 <= self.successors <= self.n_normal:
            raise MinitxError(
                f"A token can have 1 to {self.n_normal} successors (or None for all); "
                f"got {self.successors}."
            )
        if not 0.0 <= self.trigger_share < 1.0 or (self.trigger_share and not self.n_triggers):
            raise MinitxError(
                f"The trigger share must lie in [0, 1), and be 0 without triggers; got "
                f"{self.trigger_share} with {self.n_triggers} triggers."
            )

    @property
    def vocab_size(self) -> int:
        """BOS, triggers and normal tokens."""
        return 1 + self.n_triggers + self.n_normal

    @property
    def max_len(self) -> int:
        """Length of a sequence."""
        return self.length

    @property
    def first_normal(self) -> int:
        """The smallest id of a normal token."""
        return 1 + self.n_triggers

    def is_trigger(self, tokens: np.ndarray) -> np.ndarray:
        """True where a token is a trigger (same shape as `tokens`)."""
        return (tokens > BOS) & (tokens < self.first_normal)

    def table(self) -> np.ndarray:
        """Next-token probabilities float64 [V, V], row = current token.

        The row of BOS is uniform over the normal tokens; the rows of triggers are zero, because
        what follows a trigger is a copy and not a draw.
        """
        return _table(self).copy()

    def entropy(self) -> np.ndarray:
        """Entropy of the next token in nats, float64 [V]: the lowest loss that any model can reach.

        −Σ p ln p of each row of the table; 0 after a trigger, where the next token is certain.
        """
        table = _table(self)
        logs = np.log(table, out=np.zeros_like(table), where=table > 0)
        return -(table * logs).sum(axis=1)

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Draw sequences with the next token as the target at every position.

        Returns
        -------
        Batch
            ``info["trigger"]`` bool [B, T]: the query is a trigger, its target a copy.
            ``info["normal"]`` bool [B, T]: the query is a normal token, its target a bigram draw.
        """
        edges, following = _lookup(self)
        trigger_of = np.zeros(self.vocab_size, dtype=bool)
        trigger_of[1 : self.first_normal] = True
        # Just under 1: token + draw must not round up into the next token's row.
        draws = rng.random((self.length + 1, batch_size)) * (1.0 - 1e-12)
        stream = np.empty((self.length + 1, batch_size), dtype=np.int64)  # [T + 1, B]
        start = BOS if self.bos else following[np.searchsorted(edges, BOS + draws[0], side="right")]
        stream[0] = start
        for t in range(1, self.length + 1):
            last = stream[t - 1]
            drawn = following[np.searchsorted(edges, last + draws[t], side="right")]
            # The first token is never a trigger, so what t = 1 would copy is never used.
            stream[t] = np.where(trigger_of[last], stream[t - 2], drawn)
        stream = stream.T
        tokens = np.ascontiguousarray(stream[:, :-1])
        trigger = self.is_trigger(tokens)
        normal = tokens >= self.first_normal
        targets = np.ascontiguousarray(stream[:, 1:])
        return Batch(tokens, targets, info={"trigger": trigger, "normal": normal})

    def name_of(self, token: int) -> str:
        """A readable name: BOS, !1 for the first trigger, a syllable for a normal token."""
        if token == BOS:
            return "BOS"
        if token < self.first_normal:
            return f"!{token}"
        at = token - self.first_normal
        return SYLLABLES[at] if at < len(SYLLABLES) else f"w{at}"

    def describe(self, rng: np.random.Generator) -> str:
        """One example in words; the tokens that can be copied from the context are marked."""
        shown = min(18, self.length)
        tokens = self.sample(64, rng).tokens[:, :shown]
        copies = self.is_trigger(tokens[:, :-1])
        # The first sequence that shows the rule twice, where there is one.
        best = int(np.minimum(copies.sum(axis=1), 2).argmax())
        answers = (np.flatnonzero(copies[best]) + 1).tolist()
        words = mark([self.name_of(token) for token in tokens[best]], answers)
        rule = (
            "After a trigger !k the answer is the token before it; every other token"
            if answers
            else "There are no triggers here; every token"
        )
        return f"{words} ...\n{rule} is drawn from the bigram row of the token before."


@functools.lru_cache(maxsize=64)
def _table(task: BigramBackcopy) -> np.ndarray:
    """The table, float64 [V, V].

    A normal row is (1 − s)·Dirichlet(1) over the successors and s·Dirichlet(1) over the triggers,
    with s = `trigger_share`.
    """
    rng = np.random.default_rng(task.table_seed)
    first, n = task.first_normal, task.n_normal
    table = np.zeros((task.vocab_size, task.vocab_size))
    table[BOS, first:] = 1.0 / n
    for row in table[first:]:
        successors = rng.choice(n, size=task.successors or n, replace=False)
        row[first + successors] = rng.dirichlet(np.ones(len(successors)))
        if task.n_triggers:  # drawn for share 0 too, so that the bigrams are the same at any share
            row[first:] *= 1.0 - task.trigger_share
            row[1:first] = task.trigger_share * rng.dirichlet(np.ones(task.n_triggers))
    table.setflags(write=False)
    return table


@functools.lru_cache(maxsize=64)
def _lookup(task: BigramBackcopy) -> tuple[np.ndarray, np.ndarray]:
    """The table as one sorted list, so that one binary search draws the next token.

    For token c and a draw u in [0, 1), the first edge above c + u belongs to the next token: the
    edges of row c are c plus the running sums of its probabilities.
    """
    table = _table(task).copy()
    table[1 : task.first_normal, BOS] = 1.0  # a trigger's draw is not used, but must find an edge
    edges = np.arange(task.vocab_size)[:, None] + np.cumsum(table, axis=1)
    current, following = np.nonzero(table)
    last = np.append(current[1:] != current[:-1], True)
    edges = edges[current, following]
    edges[last] = current[last] + 1.0  # rounding must not end a row early
    return edges, following
