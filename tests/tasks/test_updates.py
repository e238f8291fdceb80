"""What makes the update streams fair: exact counts, constant length, the last value counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.updates import KeyValueUpdates, UpdateProbe, hide_overwritten, repeats, writes
from tests.tasks.owed import probes, updates

seeds = st.integers(0, 9999)


@pytest.mark.parametrize("task", [KeyValueUpdates(), UpdateProbe()])
def test_train_and_test_streams_share_no_draw(task):
    train, test = np.random.default_rng(0).spawn(2)
    seen = {row.tobytes() for row in task.sample(1000, train).tokens}
    assert len(seen) == 1000
    assert not any(row.tobytes() in seen for row in task.sample(1000, test).tokens)


def history_of(batch, b, key):
    """The values written to a key, in order."""
    rows = np.flatnonzero(batch.info["write"][b] & (batch.info["key"][b] == key))
    return batch.tokens[b, rows, 1].tolist()


@given(task=updates, seed=seeds)
def test_update_answer_is_the_last_value_and_counts_are_exact(task, seed):
    batch = task.sample(3, np.random.default_rng(seed))
    n_context = 1 + task.n_slots
    assert (batch.tokens[:, 0] == task.bos).all()
    assert (batch.info["write"].sum(axis=1) == task.n_slots).all()
    for b in range(3):
        for t in range(1, task.max_len):
            key = batch.info["key"][b, t]
            values = history_of(batch, b, key)
            assert batch.tokens[b, t, 0] == task.bos + 1 + key
            assert len(values) == len(set(values)) == batch.info["updates"][b, t]
            assert 1 <= len(values) <= task.max_updates
            if t >= n_context:
                assert batch.tokens[b, t, 1] == task.query
                assert batch.targets[b, t] == values[-1]
            else:
                assert batch.targets[b, t] == IGNORE


@given(probe=probes(), seed=seeds)
def test_probe_writes_the_target_exactly_so_often(probe, seed):
    batch = probe.sample(3, np.random.default_rng(seed))
    half = probe.stream.n_slots // 2
    for b in range(3):
        (target,) = set(batch.info["key"][b, batch.info["write"][b] & ~batch.info["filler"][b]])
        assert history_of(batch, b, target) == batch.info["history"][b].tolist()
        assert len(set(batch.info["history"][b])) == probe.n_updates
        last = np.flatnonzero(batch.info["write"][b] & (batch.info["key"][b] == target))[-1]
        assert last - 1 >= half
        fillers = set(batch.info["key"][b, batch.info["filler"][b]])
        assert target not in fillers
        counts = [len(history_of(batch, b, key)) for key in fillers]
        assert 1 in counts and max(counts) <= probe.filler_updates
        asked, answer = batch.info["key"][b, -1], batch.targets[b, -1]
        if probe.asks == "target":
            assert asked == target and answer == batch.info["history"][b, -1]
        else:
            assert history_of(batch, b, asked) == [answer]


@given(probe=probes(), seed=seeds)
def test_the_yoked_control_sees_the_same_stream(probe, seed):
    streams = []
    for asks in ("target", "once"):
        yoked = UpdateProbe(probe.n_updates, asks, probe.filler_updates, probe.stream)
        streams.append(yoked.sample(4, np.random.default_rng(seed)).tokens[:, :-1])
    assert np.array_equal(*streams)


def test_length_and_last_place_do_not_depend_on_the_number_of_updates():
    for n_updates in (1, 2, 8, 16):
        batch = UpdateProbe(n_updates).sample(4000, np.random.default_rng(0))
        target = batch.info["write"] & ~batch.info["filler"]
        assert batch.tokens.shape == (4000, 34, 2)
        assert (target.sum(axis=1) == n_updates).all()
        last = 32 - target[:, 1:33][:, ::-1].argmax(axis=1)  # position in the sequence
        places = np.bincount(last, minlength=33)[17:33] / 4000
        assert np.isclose(places.sum(), 1) and np.abs(places - 1 / 16).max() < 0.02


def test_queries_ask_for_every_key_alike_and_answers_are_uniform():
    batch = KeyValueUpdates().sample(6000, np.random.default_rng(0))
    at = batch.targets != IGNORE
    values = np.bincount(batch.targets[at], minlength=32) / at.sum()
    assert np.abs(values * 32 - 1).max() < 0.1
    # A key is asked for as a key, however often it is written: with U uniform on {1, 2}, about half
    # of the queries (the slots run out a little earlier for keys written twice).
    assert 0.45 < (batch.info["updates"][at] == 1).mean() < 0.56


@given(task=st.one_of(updates, probes()), seed=seeds)
def test_the_oracle_hides_what_was_overwritten_and_nothing_else(task, seed):
    batch = hide_overwritten(task.sample(3, np.random.default_rng(seed)))
    key, write = batch.info["key"], batch.info["write"]
    for b in range(3):
        for t in range(task.max_len):
            for s in range(task.max_len):
                later = write[b, s + 1 : t + 1] & (key[b, s + 1 : t + 1] == key[b, s])
                assert batch.mask[b, t, s] == (not (write[b, s] and later.any()))


@given(seed=seeds, first_once=st.booleans())
def test_writes_of_a_key_stand_together(seed, first_once):
    keys, values = writes(np.random.default_rng(seed), 3, 9, 9, 6, 3, first_once=first_once)
    for row, stored in zip(keys, values, strict=True):
        changes = 1 + (np.diff(row) != 0).sum()
        assert changes == len(set(row))
        assert len(set(zip(row, stored, strict=True))) == 9
        assert not first_once or (row == row[0]).sum() == 1


def test_repeats_by_hand():
    assert repeats(np.array([[3, 1, 3, 3, 1, 2]])).tolist() == [
        [False, False, True, True, True, False]
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyValueUpdates(n_keys=8),
        lambda: KeyValueUpdates(max_updates=40),
        lambda: UpdateProbe(n_updates=18),
        lambda: UpdateProbe(asks="twice"),
        lambda: KeyValueUpdates().pack(np.array([[1, 2]]), np.array([[0, 0]]), np.array([[3]])),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(MinitxError):
        make()
