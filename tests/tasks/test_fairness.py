"""Every task of the package is fair; and the laws of fairness can fail."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.tasks import IGNORE, Batch, Task
from tests.tasks import owed

EVERY = owed.every_task()
each_task = pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)


def test_tasks_are_found():
    names = {kind.__name__ for kind in EVERY}
    assert {"KeyValueRecall", "BigramBackcopy", "Deck"} <= names and "Task" not in names
    assert set(owed.OWED) == set(EVERY)


@each_task
@given(data=st.data(), seed=st.integers(0, 2**32 - 2))
def test_whatever_the_settings_ids_are_valid_and_seeds_mean_the_same(kind, data, seed):
    mine = owed.owed_by(kind)
    task = data.draw(mine.settings)
    owed.check_ids(task, task.sample(4, np.random.default_rng(seed)))
    owed.check_draws(task, seed)
    owed.check_words(task, mine, seed)


@each_task
def test_seeds_give_different_batches(kind):
    owed.check_seeds(kind())


@each_task
def test_answers_are_balanced_and_no_blind_guesser_beats_chance(kind):
    owed.check_fairness(kind(), owed.owed_by(kind))


@each_task
def test_a_task_is_a_frozen_value(kind):
    """Workers get it pickled; code versions and caches go by its value."""
    task = kind()
    assert pickle.loads(pickle.dumps(task)) == task and hash(kind()) == hash(task)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.vocab_size = 3


# --- the laws can fail ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Copy(Task):
    """Four tokens, and then the answer to the last one, which follows from the first four."""

    flaw: str = ""
    vocab_size: int = 4
    max_len: int = 4

    def sample(self, batch_size, rng):
        flaw = self.flaw
        if flaw == "seeds change nothing":
            rng = np.random.default_rng(0)
        tokens = rng.integers(4, size=(batch_size, 4))
        targets = np.full_like(tokens, IGNORE)
        targets[:, 3] = answer = tokens.sum(axis=1) % 4
        if flaw == "not balanced":
            targets[:, 3] = np.where(rng.random(batch_size) < 0.1, 0, answer)
        if flaw == "who sees token":
            targets[:, 3] = tokens[:, 3]
        if flaw == "who sees first":
            targets[:, 3] = tokens[:, 0]
        if flaw == "who sees place":
            at = rng.integers(4, size=batch_size)
            targets[:, 3] = IGNORE
            targets[np.arange(batch_size), at] = at
        if flaw == "no output":
            targets[:, 0] = 4
        if flaw == "unknown token":
            tokens[0, 0] = 4
        if flaw == "differs under the same seed":
            tokens = self.shared[:batch_size]
        info = {"n": np.zeros(3, int)} if flaw == "row for each sequence" else {}
        mask = np.tri(4, k=-1, dtype=bool) if flaw == "does not see itself" else None
        return Batch(tokens, targets, mask, info=info)

    shared = np.random.default_rng(0).integers(1, 4, size=(9, 4))

    def describe(self, rng):
        return "0 1 2 3" if self.flaw == "no answer is marked" else "0 1 2 3 **2**"


def check_all(task):
    mine = owed.Owed(st.just(task))
    owed.check_ids(task, task.sample(4, np.random.default_rng(0)))
    owed.check_draws(task, 0)
    owed.check_words(task, mine, 0)
    owed.check_seeds(task)
    owed.check_fairness(task, mine)


def test_a_fair_task_passes():
    check_all(Copy())


@pytest.mark.parametrize(
    "flaw",
    ["seeds change nothing", "not balanced", "who sees token", "who sees first", "who sees place",
     "no output", "unknown token", "differs under the same seed", "row for each sequence",
     "does not see itself", "no answer is marked"],
)  # fmt: skip
def test_an_unfair_task_is_told_why(flaw):
    with pytest.raises(AssertionError, match=flaw):
        check_all(Copy(flaw))


def test_a_task_that_says_nothing_of_itself_fails():
    with pytest.raises(AssertionError, match="Copy is not tested for fairness"):
        owed.owed_by(Copy)
