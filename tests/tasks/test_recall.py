"""What makes the recall tasks fair: exact counts, answers from the context, nothing given away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.recall import AssociativeRecall, KeyValueRecall
from tests.tasks.owed import associations, recalls

seeds = st.integers(0, 9999)


@pytest.mark.parametrize("task", [KeyValueRecall(), AssociativeRecall()])
def test_train_and_test_streams_share_no_draw(task):
    train, test = np.random.default_rng(0).spawn(2)
    seen = {row.tobytes() for row in task.sample(1000, train).tokens}
    assert len(seen) == 1000
    assert not any(row.tobytes() in seen for row in task.sample(1000, test).tokens)


# ---- each key once


@given(task=recalls, seed=seeds)
def test_recall_answer_is_the_value_beside_the_key(task, seed):
    batch = task.sample(3, np.random.default_rng(seed))
    for b in range(3):
        pairs = batch.tokens[b, : task.n_pairs]
        assert len(set(pairs[:, 0])) == task.n_pairs and (pairs[:, 1] < task.n_values).all()
        for t in range(task.n_pairs, task.max_len):
            key, feature = batch.tokens[b, t]
            (at,) = np.flatnonzero(pairs[:, 0] == key)
            assert feature == task.query
            assert batch.targets[b, t] == pairs[at, 1] and batch.info["item"][b, t] == at
    assert (batch.targets[:, : task.n_pairs] == IGNORE).all()


def test_demand_changes_only_what_is_asked():
    places = {}
    for asks in ("uniform", "ends", "first", "last"):
        batch = KeyValueRecall(asks=asks).sample(3000, np.random.default_rng(1))
        item = batch.info["item"][:, 24:]
        places[asks] = np.bincount(item.ravel(), minlength=24) / item.size
        # whichever place is asked for, the answer is uniform over the values
        values = np.bincount(batch.targets[:, 24:].ravel(), minlength=16) / item.size
        assert np.abs(values - 1 / 16).max() < 0.01
    assert np.abs(places["uniform"] - 1 / 24).max() < 0.006
    middle = places["ends"][8:16].mean()
    assert places["ends"][0] > 5 * middle and places["ends"][-1] > 5 * middle
    assert places["first"][0] > 5 * places["first"][-1]
    assert places["last"][-1] > 5 * places["last"][0]


# ---- key and value apart


@given(task=associations, seed=seeds)
def test_association_lists_all_pairs_then_repeats_them(task, seed):
    batch = task.sample(3, np.random.default_rng(seed))
    for b in range(3):
        keys, values = batch.tokens[b, 0::2], batch.tokens[b, 1::2]
        table = dict(zip(keys[: task.n_active], values[: task.n_active], strict=True))
        assert len(table) == len(set(table.values())) == task.n_active
        assert all(table[k] == v for k, v in zip(keys, values, strict=True))
        asked = np.flatnonzero(batch.targets[b] != IGNORE)
        assert asked.tolist() == list(range(2 * task.n_active, task.max_len, 2))
        assert all(batch.targets[b, t] == table[batch.tokens[b, t]] for t in asked)


def test_no_key_is_more_frequent_and_values_do_not_follow_from_keys():
    task = AssociativeRecall()
    batch = task.sample(16_000, np.random.default_rng(0))
    at = batch.targets != IGNORE
    table = np.zeros((16, 16))
    np.add.at(table, (batch.tokens[at] - 16, batch.targets[at]), 1)
    share = table / table.sum()
    # Each cell: about 500 sequences, two queries in each, so a relative sd of .055.
    assert np.abs(share * 256 - 1).max() < 0.28


def test_curriculum_ends_with_the_task_itself():
    task = AssociativeRecall()
    stages = task.curriculum()
    assert [until for until, _ in stages] == [0.2, 0.4, 1.0]
    assert [stage.n_active for _, stage in stages] == [2, 4, 8]
    assert [stage.n_pairs for _, stage in stages] == [16, 16, 24]
    assert stages[-1][1] == task
    assert len({stage.vocab_size for _, stage in stages}) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyValueRecall(n_keys=4, n_pairs=5),
        lambda: KeyValueRecall(asks="middle"),
        lambda: AssociativeRecall(n_active=17),
        lambda: AssociativeRecall(n_pairs=7),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(MinitxError):
        make()
