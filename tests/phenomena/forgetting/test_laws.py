"""What the series of tasks allow and what the measures say of it, whoever is trained."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.continual import metrics
from minitx.interp.similarity import effective_rank
from minitx.tasks.biographies import Biographies
from minitx.tasks.facts import Facts, RandomLabels

seeds = st.integers(0, 2**32 - 1)


def knows(tables, task):
    """Accuracy on a task of one who looks answers up in these tables, and else says 0."""
    book = {}
    for each in tables:
        batch = each.everything()
        book |= zip(map(bytes, batch.tokens), batch.targets[:, -1], strict=True)
    batch = task.everything()
    said = [book.get(bytes(row), 0) for row in batch.tokens]
    return np.mean(said == batch.targets[:, -1])


@pytest.mark.law("forgetting.sequential")
@given(seeds, st.integers(2, 5), st.integers(2, 12))
def test_nothing_in_a_series_must_be_forgotten(seed, n_tasks, n_facts):
    """One book holds all tables, for they share no question; a one-page book forgets all but luck."""
    series = [Facts(index=i, n_tasks=n_tasks, n_facts=n_facts, seed=seed) for i in range(n_tasks)]
    all_pages = np.array(
        [[knows(series[: i + 1], task) for task in series] for i in range(n_tasks)]
    )
    one_page = np.array(
        [[knows(series[i : i + 1], task) for task in series] for i in range(n_tasks)]
    )
    luck = np.array([knows([], task) for task in series])
    assert metrics.learning_accuracy(all_pages) == metrics.average_accuracy(all_pages) == 1.0
    assert metrics.backward_transfer(all_pages) == 0.0
    assert metrics.learning_accuracy(one_page) == 1.0
    assert metrics.forgetting(one_page) == pytest.approx(1.0 - luck[:-1].mean())


@pytest.mark.law("forgetting.plasticity")
@given(seeds, st.integers(1, 6), st.integers(0, 6))
def test_dead_units_bound_the_effective_rank(seed, alive, dead):
    """The rank that is measured falls with the units that no longer answer to anything."""
    rng = np.random.default_rng(seed)
    living = rng.standard_normal((20, alive))
    units = np.concatenate([living, np.zeros((20, dead))], axis=1)[:, rng.permutation(alive + dead)]
    rank = effective_rank(units)
    assert 1.0 - 1e-9 <= rank <= alive + 1e-9
    assert rank == pytest.approx(effective_rank(living))


@pytest.mark.law("forgetting.plasticity")
@given(seeds)
def test_each_task_of_a_series_can_be_learnt_and_says_nothing_of_the_next(seed):
    """No string has two labels in a task; over many tasks an answer says nothing of the next."""
    series = [RandomLabels(seed=(seed + number) % 2**32) for number in range(12)]
    for task in series:
        assert knows([task], task) == 1.0
    others = [np.mean(a.table[1] == b.table[1]) for a, b in pairwise(series)]
    assert abs(np.mean(others) - 1 / 8) < 0.09  # 11 * 64 pairs: sd .0125


@pytest.mark.law("forgetting.spurious")
@given(seeds, st.integers(1, 60), st.integers(1, 30))
def test_refusing_new_people_contradicts_nothing_and_overwriting_everything(seed, n_old, n_new):
    """So what the second task damages it need not damage; but where answers are overwritten."""
    n = n_old + n_new
    world = Biographies(people=(0, n_old), read=(0, n_old), n_people=n, seed=seed)
    refuse = Biographies(
        people=(n_old, n), read=(0, n_old), n_people=n, answers="refuse", seed=seed
    )
    wrong = Biographies(people=(0, n_old), read=(0, n_old), n_people=n, answers="wrong", seed=seed)
    truth, refused, overwritten = (
        {tuple(row[:3]): answer for row, answer in zip(b.tokens, b.targets[:, 2], strict=True)}
        for b in (task.everything() for task in (world, refuse, wrong))
    )
    assert not truth.keys() & refused.keys()
    assert truth.keys() == overwritten.keys()
    assert all(truth[question] != overwritten[question] for question in truth)
