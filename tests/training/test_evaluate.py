"""Asking a model: only where something is asked for, the same however it is cut up."""

import numpy as np
import pytest

from minitx.nn import Transformer, TransformerConfig
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
