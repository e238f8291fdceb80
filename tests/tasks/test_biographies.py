"""Biographies: the answer follows from what was read, and from nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.biographies import Biographies

seeds = st.integers(0, 500)


@given(seeds)
def test_a_biography_tells_every_attribute_once_and_truly(seed):
    task = Biographies(seed=seed)
    people = np.arange(20)
    batch = task.tell(people, np.random.default_rng(seed))
    attributes = batch.tokens[:, 1::2] - task.n_values - 3
    assert np.array_equal(np.sort(attributes, axis=1), np.tile(np.arange(3), (20, 1)))
    assert np.array_equal(batch.tokens[:, 2::2], task.world[people[:, None], attributes])
    assert np.array_equal(batch.targets[:, 1::2], batch.tokens[:, 2::2])
    assert (batch.targets[:, 0::2] == IGNORE).all()


@given(seeds)
def test_questions_are_about_the_people_asked_for_and_answered_from_the_world(seed):
    task = Biographies(seed=seed, questions=1.0).about(10, 30)
    batch = task.sample(64, np.random.default_rng(seed))
    person = batch.info["person"]
    assert person.min() >= 10 and person.max() < 30
    attribute = batch.tokens[:, 2] - task.n_values - 3
    assert np.array_equal(batch.targets[:, 2], task.world[person, attribute])
    assert (batch.targets != IGNORE).sum() == 64


@given(seeds)
def test_wrong_answers_are_fixed_and_always_wrong(seed):
    task = Biographies(seed=seed, answers="wrong")
    assert (task.taught != task.world).all()
    assert task.taught.min() >= 0 and task.taught.max() < task.n_values
    assert np.array_equal(task.taught, Biographies(seed=seed, answers="wrong").taught)


def test_refusing_is_one_answer_to_all_questions():
    task = Biographies(answers="refuse")
    assert set(task.everything().targets[:, 2]) == {task.refuse}


@given(seeds, st.floats(0, 1))
def test_the_share_of_questions_is_exact(seed, share):
    task = Biographies(questions=share)
    batch = task.sample(30, np.random.default_rng(seed))
    asked = (batch.tokens[:, 0] == task.n_values + 1).sum()
    assert asked == round(30 * share)
    assert batch.tokens.max() < task.vocab_size


def test_values_are_independent_of_person_and_attribute():
    worlds = np.stack([Biographies(seed=seed).world for seed in range(200)])
    share = np.bincount(worlds.ravel(), minlength=12) / worlds.size
    assert np.abs(share - 1 / 12).max() < 0.005
    assert abs((worlds[:, :, 0] == worlds[:, :, 1]).mean() - 1 / 12) < 0.01


def test_an_example_has_its_answer_marked():
    assert Biographies().describe(np.random.default_rng(0)).count("**") == 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"people": (5, 5)}, "people must be a range"),
        ({"read": (0, 500)}, "read must be a range"),
        ({"questions": 1.5}, "share of questions"),
        ({"answers": "maybe"}, "Unknown kind of answers"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(MinitxError, match=words):
        Biographies(**settings)
