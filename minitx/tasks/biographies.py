"""People with attributes, told as biographies and asked for in questions.

A model that has read everyone's biography and has been asked about some of the people can answer
about the others: what it knows of a person is stored once and can be asked for. Whether it *still*
knows, and whether it still answers, are then two different things (Allen-Zhu & Li, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from minitx.errors import MinitxError, choose
from minitx.tasks.base import IGNORE, Batch, Task, join, mark

ANSWERS = ("true", "refuse", "wrong")


@dataclass(frozen=True)
class Biographies(Task):
    """A fixed world of people; biographies and questions about some of them.

    A biography names the person, then every attribute with its value, attributes in random order. A
    question names the person and one attribute after a QUESTION token. Both are padded to the same
    length; what is asked for is the value after each attribute. Values are independent and uniform.
    Ids: values 0..n_values-1, REFUSE, QUESTION, PAD, attributes, people; the output ranges over the
    values and REFUSE.

    Attributes
    ----------
    people : tuple of int, (start, stop)
        Whom questions are about.
    read : tuple of int, (start, stop)
        Whose biographies are told.
    questions : float
        Share of questions among the sequences; the rest are biographies.
    answers : {"true", "refuse", "wrong"}
        What the right answer to a question is: the value, always REFUSE, or another, fixed value.
    seed : int
        The world.

    Notes
    -----
    ``info["person"]`` int [B].
    """

    people: tuple[int, int] = (0, 72)
    read: tuple[int, int] = (0, 96)
    questions: float = 1 / 3
    answers: str = "true"
    n_people: int = 120
    n_attributes: int = 3
    n_values: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        choose(dict.fromkeys(ANSWERS), self.answers, "kind of answers")
        for name in ("people", "read"):
            start, stop = getattr(self, name)
            if not 0 <= start < stop <= self.n_people:
                raise MinitxError(
                    f"{name} must be a range within 0..{self.n_people}, got {getattr(self, name)}."
                )
        if not 0 <= self.questions <= 1:
            raise MinitxError(f"The share of questions lies in [0, 1], got {self.questions}.")

    @property
    def out_size(self) -> int:
        return self.n_values + 1

    @property
    def vocab_size(self) -> int:
        return self.n_values + 3 + self.n_attributes + self.n_people

    @property
    def max_len(self) -> int:
        return 1 + 2 * self.n_attributes

    @property
    def refuse(self) -> int:
        """Id of the answer REFUSE."""
        return self.n_values

    @property
    def _first_attribute(self) -> int:
        return self.n_values + 3

    @cached_property
    def world(self) -> np.ndarray:
        """The value of each attribute of each person: int [n_people, n_attributes]."""
        rng = np.random.default_rng(self.seed)
        return rng.integers(self.n_values, size=(self.n_people, self.n_attributes))

    @cached_property
    def taught(self) -> np.ndarray:
        """What the right answer to each question is taken to be: int [n_people, n_attributes]."""
        if self.answers == "refuse":
            return np.full_like(self.world, self.refuse)
        if self.answers == "wrong":  # shifted by a random amount that is never a whole turn
            rng = np.random.default_rng((self.seed, 1))
            shift = rng.integers(1, self.n_values, size=self.world.shape)
            return (self.world + shift) % self.n_values
        return self.world

    def about(self, start: int, stop: int) -> Biographies:
        """The same task with questions about these people."""
        return replace(self, people=(start, stop))

    def ask(self, people: np.ndarray, attributes: np.ndarray) -> Batch:
        """Questions: tokens int64 [B, max_len], with the taught answer at the attribute."""
        tokens = np.full((len(people), self.max_len), self.n_values + 2, dtype=np.int64)  # PAD
        tokens[:, 0] = self.n_values + 1  # QUESTION
        tokens[:, 1] = self._first_attribute + self.n_attributes + people
        tokens[:, 2] = self._first_attribute + attributes
        targets = np.full_like(tokens, IGNORE)
        targets[:, 2] = self.taught[people, attributes]
        return Batch(tokens, targets, info={"person": np.asarray(people)})

    def tell(self, people: np.ndarray, rng: np.random.Generator) -> Batch:
        """Biographies, attributes in random order: tokens int64 [B, max_len]."""
        order = rng.permuted(
            np.broadcast_to(np.arange(self.n_attributes), (len(people), self.n_attributes)), axis=1
        )
        tokens = np.empty((len(people), self.max_len), dtype=np.int64)
        tokens[:, 0] = self._first_attribute + self.n_attributes + people
        tokens[:, 1::2] = self._first_attribute + order
        tokens[:, 2::2] = self.world[people[:, None], order]
        targets = np.full_like(tokens, IGNORE)
        targets[:, 1::2] = tokens[:, 2::2]
        return Batch(tokens, targets, info={"person": np.asarray(people)})

    def everything(self) -> Batch:
        """Every question about the people asked for, in order."""
        people = np.arange(*self.people)
        return self.ask(
            np.repeat(people, self.n_attributes), np.tile(np.arange(self.n_attributes), len(people))
        )

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Questions and biographies, people drawn uniformly with replacement."""
        n = round(self.questions * batch_size)
        asked = self.ask(
            rng.integers(*self.people, size=n), rng.integers(self.n_attributes, size=n)
        )
        told = self.tell(rng.integers(*self.read, size=batch_size - n), rng)
        both = join([asked, told])
        people = np.concatenate([asked.info["person"], told.info["person"]])
        return replace(both, info={"person": people})

    def describe(self, rng: np.random.Generator) -> str:
        person = int(rng.integers(*self.people))
        facts = [f"a{a}=v{self.world[person, a]}" for a in range(self.n_attributes)]
        answer = "REFUSE" if self.answers == "refuse" else f"v{self.taught[person, 0]}"
        told = mark([f"person{person}", *facts], answers=[1])
        return f"{told} | QUESTION person{person} a0? **{answer}**"
