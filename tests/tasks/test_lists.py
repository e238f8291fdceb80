"""What makes the list task fair: the answer is in the list, and only the place tells it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.lists import ListQueries
from tests.tasks.owed import lists


@given(task=lists, seed=st.integers(0, 999))
def test_the_answer_stands_at_the_asked_place(task, seed):
    batch = task.sample(5, np.random.default_rng(seed))
    queries = batch.targets != IGNORE
    assert (queries.sum(axis=1) == task.n_queries).all()
    assert (queries == (batch.info["item"] >= 0)).all()
    assert batch.tokens.max() < task.vocab_size and batch.tokens.shape == (5, task.max_len)
    for b, t in zip(*np.nonzero(queries), strict=True):
        item = batch.info["item"][b, t]
        assert batch.tokens[b, t] == task.bos + 1 + item  # the query token says which place
        assert batch.tokens[b, 1 + item] == batch.targets[b, t] < task.out_size


def test_train_and_test_streams_share_no_list():
    train, test = np.random.default_rng(0).spawn(2)
    task = ListQueries()
    seen = {row.tobytes() for row in task.sample(2000, train).tokens[:, 1:25]}
    assert not any(row.tobytes() in seen for row in task.sample(2000, test).tokens[:, 1:25])


def test_the_asked_place_does_not_tell_the_value():
    batch = ListQueries(n_items=8, n_values=4).sample(4000, np.random.default_rng(0))
    items, values = (
        array[batch.targets != IGNORE] for array in (batch.info["item"], batch.targets)
    )
    table = np.zeros((8, 4))
    np.add.at(table, (items, values), 1)
    share = table / table.sum(axis=1, keepdims=True)
    assert np.abs(share - 0.25).max() < 0.03  # 6000 draws a row: sd .0056
    assert np.abs(table.sum(axis=1) / table.sum() - 1 / 8).max() < 0.01


def test_query_positions_run_on_or_stand_still():
    rng = np.random.default_rng(0)
    spread = ListQueries(n_items=3, n_queries=3).sample(1, rng).positions
    same = ListQueries(n_items=3, n_queries=3, query_positions="same").sample(1, rng).positions
    assert spread.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert same.tolist() == [0, 1, 2, 3, 4, 4, 4]


def test_a_query_sees_no_other_query():
    mask = ListQueries(n_items=3, n_queries=2).sample(1, np.random.default_rng(0)).mask
    assert mask[4].tolist() == [True] * 4 + [True, False]
    assert mask[5].tolist() == [True] * 4 + [False, True]
    assert not mask[:4, 4:].any()


@pytest.mark.parametrize("wrong", [{"asks": "middle"}, {"query_positions": "far"}, {"n_items": 0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(MinitxError):
        ListQueries(**wrong)
