"""What makes the needle task fair: exact counts, and distractors as hard as they are called."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.needles import EASY, HARD, NEEDLE, QUERY, Needles
from tests.tasks.owed import needles

seeds = st.integers(0, 9999)


@given(task=needles(), seed=seeds)
def test_kinds_are_what_they_are_called_and_counts_are_exact(task, seed):
    batch = task.sample(4, np.random.default_rng(seed))
    kind, levels = batch.info["kind"], batch.tokens[..., :-1]
    assert batch.tokens.shape == (4, task.max_len, task.n_attributes + 1)
    assert batch.tokens.min() >= 0 and batch.tokens.max() < task.vocab_size
    assert (kind[:, -1] == QUERY).all() and ((kind == QUERY).sum(axis=1) == 1).all()
    assert ((kind == NEEDLE).sum(axis=1) == 1).all()
    if task.hard_share is not None:
        expected = round(task.hard_share * task.n_distractors)
        assert ((kind == HARD).sum(axis=1) == expected).all()
    differs = (levels != levels[:, -1:]).sum(axis=-1)  # from the query, that is from the needle
    assert (differs[kind == NEEDLE] == 0).all()
    assert (differs[kind == EASY] == task.n_attributes).all()
    assert (differs[kind == HARD] == task.hard_differs).all()


@given(task=needles(), seed=seeds)
def test_the_answer_is_the_value_of_the_only_item_that_fits(task, seed):
    batch = task.sample(4, np.random.default_rng(seed))
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        fits = (tokens[:-1, :-1] == tokens[-1, :-1]).all(axis=-1)
        assert fits.sum() == 1
        assert targets[-1] == tokens[:-1][fits][0, -1] < task.out_size
        assert tokens[-1, -1] == task.query
    assert (batch.targets[:, :-1] == IGNORE).all()


def test_train_and_test_streams_share_no_draw():
    train, test = np.random.default_rng(0).spawn(2)
    seen = {row.tobytes() for row in Needles().sample(2000, train).tokens}
    assert len(seen) == 2000
    assert not any(row.tobytes() in seen for row in Needles().sample(2000, test).tokens)


def test_place_attributes_and_values_of_others_do_not_give_the_answer_away():
    task = Needles(n_distractors=7, hard_share=0.5, n_values=4)
    batch = task.sample(20_000, np.random.default_rng(0))
    kind, values = batch.info["kind"][:, :-1], batch.tokens[:, :-1, -1]
    place = (kind == NEEDLE).mean(axis=0)
    assert np.abs(place - 1 / 8).max() < 0.015
    answer = batch.targets[:, -1]
    assert np.abs(np.bincount(answer, minlength=4) / 20_000 - 0.25).max() < 0.02
    # A distractor holds the answer as often as chance: no answering by exclusion.
    for name in (EASY, HARD):
        same = (values == answer[:, None])[kind == name].mean()
        assert abs(same - 0.25) < 0.01
    # Each attribute is the one that differs equally often, by every shift equally often.
    levels = batch.tokens[..., :-1]
    shift = (levels[:, :-1] - levels[:, -1:])[kind == HARD] % 8
    assert np.abs((shift != 0).mean(axis=0) - 1 / 3).max() < 0.01
    counts = np.bincount(shift[shift != 0], minlength=8)[1:]
    assert np.abs(counts / counts.sum() - 1 / 7).max() < 0.01


def test_hard_distractors_may_be_drawn_as_easy_ones():
    task = Needles(n_distractors=10, hard_share=1.0, hard_differs=3)
    batch = task.sample(50, np.random.default_rng(0))
    assert ((batch.tokens[:, :-2, :-1] == batch.tokens[:, -1:, :-1]).all(-1).sum(1) <= 1).all()
    assert ((batch.info["kind"] == HARD).sum(axis=1) == 10).all()


def test_the_share_may_be_drawn_for_each_sequence():
    batch = Needles(n_distractors=16, hard_share=None).sample(4000, np.random.default_rng(0))
    n_hard = (batch.info["kind"] == HARD).sum(axis=1)
    assert n_hard.min() == 0 and n_hard.max() == 16
    assert abs(n_hard.mean() - 8) < 0.4


@pytest.mark.parametrize(
    "wrong", [{"hard_share": 1.2}, {"hard_differs": 4}, {"hard_differs": 0}, {"n_levels": 1}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(MinitxError):
        Needles(**wrong)
