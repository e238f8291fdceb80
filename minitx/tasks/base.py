"""What a task is: a recipe that turns random numbers into batches of tokens with their answers.

A task is a frozen dataclass of its settings. It knows nothing of models: NumPy only.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.errors import MinitxError, ShapeError

IGNORE = -100
"""The target of a position that carries no loss (PyTorch's ``ignore_index``)."""


@dataclass(frozen=True)
class Batch:
    """Sequences with what should be predicted at each position.

    Attributes
    ----------
    tokens : int [B, T] or [B, T, F]
        Token ids; with F, several features a position, whose embeddings the model adds up.
    targets : int [B, T]
        The token to predict at each position, `IGNORE` where there is no loss. Already aligned: the
        target of position t stands at t, so nothing is shifted later.
    mask : bool [T, S] or [B, T, S], optional
        Extra attention mask, True = may attend; ANDed with the model's own.
    positions : int [T] or [B, T], optional
        Position numbers in place of 0..T-1.
    segments : int [B, T], optional
        Document number of each position, for the document mask.
    info : dict of arrays
        What the task knows about the batch (where the queries are, which serial position is asked);
        measurements read it, models never do.

    Raises
    ------
    ShapeError
        If tokens and targets do not fit together.
    """

    tokens: np.ndarray
    targets: np.ndarray
    mask: np.ndarray | None = None
    positions: np.ndarray | None = None
    segments: np.ndarray | None = None
    info: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.tokens.ndim not in (2, 3) or self.targets.shape != self.tokens.shape[:2]:
            raise ShapeError(
                f"A batch needs tokens [B, T] or [B, T, F] and targets [B, T]; got tokens "
                f"{list(self.tokens.shape)} and targets {list(self.targets.shape)}."
            )
        for name in ("tokens", "targets"):
            kind = getattr(self, name).dtype
            if kind.kind not in "iu":
                raise MinitxError(f"A batch needs integer {name}; got {kind}.")

    @property
    def size(self) -> int:
        """Number of sequences, B."""
        return self.tokens.shape[0]

    def __getitem__(self, sequences: slice) -> Batch:
        """Some of the sequences, with their share of mask, positions, segments and info."""

        def cut(array: np.ndarray | None, ndim: int) -> np.ndarray | None:
            return array[sequences] if array is not None and array.ndim == ndim else array

        return Batch(
            self.tokens[sequences],
            self.targets[sequences],
            mask=cut(self.mask, 3),
            positions=cut(self.positions, 2),
            segments=cut(self.segments, 2),
            info={name: array[sequences] for name, array in self.info.items()},
        )

    def model_kwargs(self) -> dict[str, np.ndarray]:
        """The keyword arguments for ``model(batch.tokens, **batch.model_kwargs())``."""
        given = {"mask": self.mask, "positions": self.positions, "segments": self.segments}
        return {name: array for name, array in given.items() if array is not None}


def join(batches: Sequence[Batch]) -> Batch:
    """Batches below each other as one: their sequences are equally long.

    Raises
    ------
    ShapeError
        If tokens do not fit, or the batches differ in mask or positions (which all rows share).
    """
    first = batches[0]
    for other in batches[1:]:
        if other.tokens.shape[1:] != first.tokens.shape[1:]:
            raise ShapeError(
                f"Cannot join batches of tokens {list(first.tokens.shape)} and "
                f"{list(other.tokens.shape)}; make their sequences equally long."
            )
        for name in ("mask", "positions", "segments"):
            if not np.array_equal(getattr(first, name), getattr(other, name)):
                raise ShapeError(f"Cannot join batches that differ in their {name}.")
    tokens = np.concatenate([batch.tokens for batch in batches])
    targets = np.concatenate([batch.targets for batch in batches])
    return Batch(tokens, targets, first.mask, first.positions, first.segments)


class Task(abc.ABC):
    """Base class of tasks: subclass it with a frozen dataclass and say how to `sample`.

    A subclass sets ``vocab_size`` and ``max_len``, as a field or as a property, and overrides
    ``out_size`` (a property) where the model's output is not over the vocabulary.
    """

    if TYPE_CHECKING:  # to be read only, so that a field and a property both will do

        @property
        def vocab_size(self) -> int: ...

        @property
        def max_len(self) -> int: ...

    @property
    def out_size(self) -> int:
        """Number of classes that a model's output ranges over."""
        return self.vocab_size

    @abc.abstractmethod
    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Draw `batch_size` fresh sequences; the same state of `rng` gives the same batch."""

    @abc.abstractmethod
    def describe(self, rng: np.random.Generator) -> str:
        """One example in words, with the answers marked **like this**."""


def mark(words: Sequence[Any], answers: Iterable[int] = ()) -> str:
    """Join `words` by spaces, the ones at the positions `answers` marked as **answers**.

    >>> mark(["a", "b", "?", "a"], answers=[3])
    'a b ? **a**'
    """
    chosen = set(answers)
    return " ".join(f"**{word}**" if at in chosen else str(word) for at, word in enumerate(words))


def next_token_targets(tokens: np.ndarray) -> np.ndarray:
    """Targets of next-token prediction: ``targets[:, t] = tokens[:, t + 1]``, `IGNORE` at the end.

    Parameters
    ----------
    tokens : int [B, T]

    Returns
    -------
    int64 [B, T]
    """
    targets = np.full(tokens.shape, IGNORE, dtype=np.int64)
    targets[:, :-1] = tokens[:, 1:]
    return targets
