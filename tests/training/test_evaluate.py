"""Asking a model: only where something is asked for, the same however it is cut up."""

import numpy as np
import pytest

from minitx.errors import MinitxError
from minitx.nn import Module, Transformer, TransformerConfig
from minitx.tasks.base import IGNORE
from minitx.tasks.updates import KeyValueUpdates, hide_overwritten
from minitx.training import accuracy, answers, correct

TASK = KeyValueUpdates(n_slots=6, n_keys=6, n_values=4, n_queries=3)


@pytest.fixture(scope="module")
def model():
    config = TransformerConfig(
        vocab_size=TASK.vocab_size, out_size=4, max_len=TASK.max_len, d_model=8, init_std=0.5
    )
    return Transformer(config, np.random.default_rng(0)).eval()


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_answers_do_not_depend_on_the_chunks(model, chunk):
    batch = hide_overwritten(TASK.sample(7, np.random.default_rng(0)))
    whole = answers(model, batch, chunk=100)
    assert whole.shape == (7 * 3,)
    assert np.array_equal(answers(model, batch, chunk), whole)


def test_answers_are_the_first_choices_in_the_order_of_the_targets(model):
    batch = TASK.sample(4, np.random.default_rng(1))
    logits = model(batch.tokens).data
    by_hand = [
        logits[b, t].argmax()
        for b in range(4)
        for t in range(TASK.max_len)
        if batch.targets[b, t] != IGNORE
    ]
    assert answers(model, batch).tolist() == by_hand
    right = correct(model, batch)
    assert np.array_equal(right, np.array(by_hand) == batch.targets[batch.targets != IGNORE])
    assert accuracy(model, batch) == right.mean()


def test_positions_restrict_what_counts(model):
    batch = TASK.sample(5, np.random.default_rng(2))
    asked = batch.targets != IGNORE
    right = correct(model, batch)
    whole = np.zeros(asked.shape)
    whole[asked] = right
    last = int(np.flatnonzero(asked.any(axis=0))[-1])
    at_last = np.arange(TASK.max_len) == last
    expected = whole[:, last][asked[:, last]].mean()
    for positions in (last, [last], last - TASK.max_len, at_last, np.tile(at_last, (5, 1))):
        assert accuracy(model, batch, positions=positions) == expected


def test_hooks_intervene_and_leave_no_trace(model):
    batch = TASK.sample(300, np.random.default_rng(3))
    before = answers(model, batch)

    def to_zero(activation, hook):
        return activation * 0.0

    changed = answers(model, batch, hooks=[("hook_embed", to_zero)])
    assert changed.shape == before.shape and not np.array_equal(changed, before)
    assert np.array_equal(answers(model, batch), before)


def test_asking_turns_dropout_off_and_leaves_the_mode_as_it_was():
    config = TransformerConfig(
        vocab_size=TASK.vocab_size, out_size=4, max_len=TASK.max_len, d_model=8, dropout=0.5
    )
    model, batch = (
        Transformer(config, np.random.default_rng(0)),
        TASK.sample(20, np.random.default_rng(0)),
    )
    model.train()
    noisy = answers(model, batch)
    assert model.training
    assert np.array_equal(noisy, answers(model.eval(), batch))


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (99, "whole numbers from"),
        ([0.5], "whole numbers from"),
        (np.ones(3, bool), "need the shape"),
        (np.zeros(TASK.max_len, bool), "Nothing is asked for"),
    ],
)
def test_positions_that_do_not_fit_are_refused(model, positions, message):
    with pytest.raises(MinitxError, match=message):
        accuracy(model, TASK.sample(2, np.random.default_rng(0)), positions=positions)


def test_hooks_need_hook_points():
    class Plain(Module):
        def forward(self, tokens):
            return tokens

    with pytest.raises(MinitxError, match="hook points, got Plain"):
        accuracy(Plain(), TASK.sample(2, np.random.default_rng(0)), hooks=[("x", print)])
