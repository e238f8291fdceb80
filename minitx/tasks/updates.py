"""Keys written more than once, then questions about keys: only the last value counts.

`KeyValueUpdates` trains; `UpdateProbe` tests how many earlier values it takes to make a model
answer with one of them; `hide_overwritten` is the oracle that takes the earlier values away.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from minitx.errors import MinitxError, choose
from minitx.tasks.base import IGNORE, Batch, Task, mark
from minitx.tasks.draws import distinct


@dataclass(frozen=True)
class KeyValueUpdates(Task):
    """BOS, `n_slots` writes (key, value) in random order, then queries for a key's *last* value.

    Every key in the context is written U times, U uniform on 1..max_updates, always with values
    that it did not have before; values of different keys are independent. Writes of all keys are
    shuffled together. Queries ask for keys of the context, uniformly. Key and value are fused at
    one position. Ids: values 0..n_values-1, QUERY, BOS, keys; the output ranges over the values.

    Source: the paradigm of proactive interference, as put to language models in PI-LLM (2025).

    Notes
    -----
    ``info["key"]`` int [B, T]: the key at each position, -1 at BOS.
    ``info["updates"]`` int [B, T]: how often the key of that position is written in the context.
    ``info["write"]`` bool [B, T]: where a key is written (neither BOS nor query).
    """

    n_slots: int = 32
    n_keys: int = 32
    n_values: int = 32
    n_queries: int = 8
    max_updates: int = 2

    def __post_init__(self) -> None:
        if self.n_keys < self.n_slots:
            raise MinitxError(
                f"{self.n_slots} slots may need as many keys (each written once); "
                f"got n_keys={self.n_keys}."
            )
        if not 1 <= self.max_updates <= self.n_values:
            raise MinitxError(
                f"max_updates must lie in 1..n_values={self.n_values}, for the values of a key all "
                f"differ; got {self.max_updates}."
            )

    @property
    def vocab_size(self) -> int:
        return self.n_values + 2 + self.n_keys

    @property
    def out_size(self) -> int:
        return self.n_values

    @property
    def max_len(self) -> int:
        return 1 + self.n_slots + self.n_queries

    @property
    def query(self) -> int:
        """Id of the QUERY feature, which stands in the place of the value."""
        return self.n_values

    @property
    def bos(self) -> int:
        """Id of the token that begins every sequence (in both features)."""
        return self.n_values + 1

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh streams with `n_queries` queries: tokens int64 [B, 1 + n_slots + n_queries, 2]."""
        keys, values = writes(
            rng, batch_size, self.n_slots, self.n_keys, self.n_values, self.max_updates
        )
        order = rng.permuted(np.tile(np.arange(self.n_slots), (batch_size, 1)), axis=1)
        keys, values = (np.take_along_axis(array, order, axis=1) for array in (keys, values))
        return self.pack(keys, values, query_keys=self._ask(keys, rng))

    def _ask(self, keys: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Uniformly drawn keys out of those in the context, int [B, n_queries]."""
        first = ~repeats(keys)
        # A score for each slot, infinite where its key stood before: the smallest is a uniform draw
        # among the keys, one draw a query.
        score = rng.random((self.n_queries, *keys.shape)) + np.where(first, 0.0, np.inf)
        slot = score.argmin(axis=-1).T  # [B, n_queries]
        return np.take_along_axis(keys, slot, axis=1)

    def pack(self, keys: np.ndarray, values: np.ndarray, query_keys: np.ndarray) -> Batch:
        """The batch of given writes and queries.

        Parameters
        ----------
        keys, values : int [B, n_slots]
            What is written, in the order of the stream.
        query_keys : int [B, Q]
            Which keys are asked for. The answer is the last value written to them.

        Raises
        ------
        MinitxError
            If a key is asked for that was never written.
        """
        batch_size, n_slots = keys.shape
        n_context, n_queries = 1 + n_slots, query_keys.shape[1]
        tokens = np.full((batch_size, n_context + n_queries, 2), self.bos, dtype=np.int64)
        tokens[:, 1:n_context, 0] = self.bos + 1 + keys
        tokens[:, 1:n_context, 1] = values
        tokens[:, n_context:, 0] = self.bos + 1 + query_keys
        tokens[:, n_context:, 1] = self.query

        match = query_keys[:, :, None] == keys[:, None, :]  # [B, Q, n_slots]
        if not match.any(axis=-1).all():
            raise MinitxError(
                "A key is asked for that was never written; ask for keys of the stream."
            )
        last = n_slots - 1 - match[..., ::-1].argmax(axis=-1)
        targets = np.full(tokens.shape[:2], IGNORE, dtype=np.int64)
        targets[:, n_context:] = np.take_along_axis(values, last, axis=1)

        key = np.full_like(targets, -1)
        key[:, 1:n_context], key[:, n_context:] = keys, query_keys
        updates = (key[:, :, None] == keys[:, None, :]).sum(axis=-1)
        write = np.zeros(targets.shape, dtype=bool)
        write[:, 1:n_context] = True
        return Batch(tokens, targets, info={"key": key, "updates": updates, "write": write})

    def describe(self, rng: np.random.Generator) -> str:
        return _tell(self, self.sample(1, rng))


@dataclass(frozen=True)
class UpdateProbe(Task):
    """Test streams of constant length in which one *target* key is written `n_updates` times.

    The last write of the target stands at a uniform place in the second half of the stream, its
    earlier writes before it; other keys (each written 1..filler_updates times) fill the rest, and
    at least one of them is written exactly once. One query follows. With ``asks="once"`` the very
    same streams end in the query for a key that was written once (the yoked control).

    Notes
    -----
    ``info`` as in `KeyValueUpdates`, and
    ``info["history"]`` int [B, n_updates]: the target's values in the order written, answer last.
    ``info["filler"]`` bool [B, T]: writes of other keys.
    """

    n_updates: int = 8
    asks: str = "target"
    filler_updates: int = 2
    stream: KeyValueUpdates = field(default_factory=KeyValueUpdates)

    def __post_init__(self) -> None:
        choose({"target": 0, "once": 1}, self.asks, "asks")
        limit = min(self.stream.n_slots // 2 + 1, self.stream.n_values, self.stream.n_slots - 1)
        if not 1 <= self.n_updates <= limit:
            raise MinitxError(
                f"n_updates must lie in 1..{limit}, so that the last write can stand anywhere in "
                f"the second half; got {self.n_updates}."
            )

    @property
    def vocab_size(self) -> int:
        return self.stream.vocab_size

    @property
    def out_size(self) -> int:
        return self.stream.out_size

    @property
    def max_len(self) -> int:
        return 2 + self.stream.n_slots

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Fresh streams with one query: tokens int64 [B, 2 + n_slots, 2]."""
        stream, n_updates = self.stream, self.n_updates
        n_slots, n_fill = stream.n_slots, stream.n_slots - n_updates
        target = rng.integers(stream.n_keys, size=(batch_size, 1))
        history = distinct(rng, (batch_size,), n_updates, stream.n_values)
        keys, values = writes(
            rng, batch_size, n_fill, stream.n_keys - 1, stream.n_values, self.filler_updates,
            first_once=True,
        )  # fmt: skip
        keys += keys >= target  # any key but the target
        once = keys[:, :1].copy()

        # The target's slots: the last one, and n_updates - 1 random ones before it.
        last = rng.integers(n_slots // 2, n_slots, size=(batch_size, 1))
        score = rng.random((batch_size, n_slots)) + np.where(np.arange(n_slots) < last, 0.0, 2.0)
        np.put_along_axis(score, last, -1.0, axis=1)
        slots = np.sort(np.argsort(score, axis=1)[:, :n_updates], axis=1)
        is_target = np.zeros((batch_size, n_slots), dtype=bool)
        np.put_along_axis(is_target, slots, True, axis=1)

        order = rng.permuted(np.tile(np.arange(n_fill), (batch_size, 1)), axis=1)
        all_keys = np.broadcast_to(target, is_target.shape).copy()
        all_values = np.empty_like(all_keys)
        all_keys[~is_target] = np.take_along_axis(keys, order, axis=1).ravel()
        all_values[~is_target] = np.take_along_axis(values, order, axis=1).ravel()
        all_values[is_target] = history.ravel()

        batch = stream.pack(all_keys, all_values, target if self.asks == "target" else once)
        filler = np.zeros(batch.targets.shape, dtype=bool)
        filler[:, 1:-1] = ~is_target
        return dataclasses.replace(batch, info=batch.info | {"history": history, "filler": filler})

    def describe(self, rng: np.random.Generator) -> str:
        return _tell(self.stream, self.sample(1, rng))


def writes(
    rng: np.random.Generator,
    batch_size: int,
    n_slots: int,
    n_keys: int,
    n_values: int,
    max_updates: int,
    first_once: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Keys in random order, each repeated U ~ uniform{1..max_updates} times, to fill `n_slots`.

    The last key is cut off where the slots end. With `first_once` the first key is written once.

    Returns
    -------
    keys, values : int64 [B, n_slots]
        Writes of one key stand next to each other and their values differ.
    """
    shape = (
        batch_size,
        n_slots,
    )  # no more than n_slots keys are needed: each takes a slot at least
    order = distinct(rng, (batch_size,), min(n_slots, n_keys), n_keys)
    counts = rng.integers(1, max_updates + 1, size=order.shape)
    if first_once:
        counts[:, 0] = 1
    ends = counts.cumsum(axis=1)
    slot = np.arange(n_slots)
    owner = (ends[:, None, :] <= slot[:, None]).sum(
        axis=-1
    )  # [B, n_slots] place of the key in order
    occurrence = slot - np.take_along_axis(ends - counts, owner, axis=1)
    choices = distinct(rng, order.shape, max_updates, n_values)  # [B, keys, max_updates]
    rows = np.broadcast_to(np.arange(batch_size)[:, None], shape)
    return np.take_along_axis(order, owner, axis=1), choices[rows, owner, occurrence]


def repeats(keys: np.ndarray) -> np.ndarray:
    """Whether each entry of a row stood in that row before, bool [B, N]."""
    n = keys.shape[1]
    same = keys[:, :, None] == keys[:, None, :]
    return (same & np.tri(n, k=-1, dtype=bool)).any(axis=-1)


def hide_overwritten(batch: Batch) -> Batch:
    """The batch with an oracle's mask: nobody sees a write once its key has been written again.

    Works on batches of `KeyValueUpdates` and `UpdateProbe`. A write is hidden only from positions
    at or after the write that replaced it, so the mask takes nothing from the future.
    """
    key, write = batch.info["key"], batch.info["write"]
    same = (key[:, :, None] == key[:, None, :]) & write[:, :, None] & write[:, None, :]
    replaces = same & np.tri(
        key.shape[1], k=-1, dtype=bool
    )  # [B, T, S]: t writes the key of s again
    allowed = ~np.logical_or.accumulate(replaces, axis=1)
    return dataclasses.replace(batch, mask=allowed if batch.mask is None else allowed & batch.mask)


def _tell(task: KeyValueUpdates, batch: Batch) -> str:
    """The first sequence in words, up to its first query."""
    at = int(np.flatnonzero(batch.targets[0] != IGNORE)[0])
    key, value = batch.info["key"][0], batch.tokens[0, :, 1]
    written = [f"k{key[t]}:v{value[t]}" for t in range(1, 1 + task.n_slots)]
    last = [t - 1 for t in range(1, 1 + task.n_slots) if key[t] == key[at]][-1]
    asked = f"k{key[at]} (written {batch.info['updates'][0, at]}x)"
    return f"BOS {mark(written, answers=[last])} | {asked}? **v{batch.targets[0, at]}**"
