"""What makes memory-or-context fair: each answer follows from the world or the context alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.conflict import MemoryOrContext
from tests.tasks.owed import conflicts


@given(task=conflicts, seed=st.integers(0, 999))
def test_the_answer_is_the_statement_or_else_the_world(task, seed):
    batch, world = task.sample(6, np.random.default_rng(seed)), task.world()
    assert len(set(world.tolist())) == task.n_keys
    n = task.n_statements
    for b in range(6):
        keys = batch.tokens[b, :, 0] - task.query - 1
        said = dict(zip(keys[:n].tolist(), batch.tokens[b, :n, 1].tolist(), strict=True))
        asked = int(keys[n])
        assert len(said) == n  # statements are about different keys
        assert batch.tokens[b, n, 1] == task.query
        assert batch.info["memory"][b] == world[asked]
        assert batch.info["stated"][b] == said.get(asked, -1)
        assert batch.targets[b, n] == said.get(asked, world[asked])
    assert (batch.targets[:, :n] == IGNORE).all()
    assert "in memory" in task.describe(np.random.default_rng(seed))


@pytest.mark.parametrize("truth", [0.0, 0.5, 0.8, 1.0])
def test_shares_are_as_stated(truth):
    task = MemoryOrContext(truth=truth)
    batch = task.sample(20_000, np.random.default_rng(0))
    keys, values = batch.tokens[:, :4, 0] - task.query - 1, batch.tokens[:, :4, 1]
    assert abs((values == task.world()[keys]).mean() - truth) < 0.01
    closed = batch.info["stated"] < 0
    assert abs(closed.mean() - 0.8) < 0.01
    parts = np.bincount(batch.info["part"][closed], minlength=3) / closed.sum()
    assert np.abs(parts - np.array([25, 5, 1]) / 31).max() < 0.015
    parts = np.bincount(batch.info["part"][~closed], minlength=3) / (~closed).sum()
    assert np.abs(parts - 1 / 3).max() < 0.025


@given(seed=st.integers(0, 999), truth=st.floats(0, 1))
def test_under_conflict_memory_and_statement_always_differ(seed, truth):
    task = MemoryOrContext(truth=truth, closed_share=0.0, conflict=True)
    batch = task.sample(20, np.random.default_rng(seed))
    assert (batch.info["stated"] >= 0).all()
    assert (batch.info["stated"] != batch.info["memory"]).all()
    assert np.array_equal(batch.targets[:, -1], batch.info["stated"])


def test_a_false_statement_is_any_other_value_alike():
    task = MemoryOrContext(closed_share=0.0, conflict=True, n_keys=3, n_values=4, n_statements=2)
    batch = task.sample(12_000, np.random.default_rng(0))
    shift = (batch.info["stated"] - batch.info["memory"]) % 4
    assert np.abs(np.bincount(shift, minlength=4)[1:] / 12_000 - 1 / 3).max() < 0.02
    place = (batch.tokens[:, :2, 0] == batch.tokens[:, 2:, 0]).mean(axis=0)
    assert np.abs(place - 0.5).max() < 0.03  # wherever the statement stands


@pytest.mark.parametrize(
    "wrong",
    [{"n_values": 8}, {"n_keys": 25}, {"truth": 1.5}, {"conflict": True}, {"n_statements": 24}],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(MinitxError):
        MemoryOrContext(**wrong)
