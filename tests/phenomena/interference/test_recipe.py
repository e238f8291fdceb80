"""The common recipe: reproducible, and asking a model does not hang on how the asking is cut up."""

import dataclasses

import numpy as np
import pytest

from minitx.phenomena.interference._recipe import Recipe, answers, correct, slice_batch, train
from minitx.tasks.updates import KeyValueUpdates, hide_overwritten

TINY = Recipe(d_model=8, n_heads=2, steps=3, batch_size=4)


@pytest.fixture(scope="module")
def trained():
    return train(KeyValueUpdates(), TINY, seed=0)


def test_same_seed_same_weights_and_same_test_stream(trained):
    model, rng = train(KeyValueUpdates(), TINY, seed=0)
    assert np.array_equal(model.flat, trained[0].flat)
    assert rng.random() == trained[1].random()
    other, _ = train(KeyValueUpdates(), TINY, seed=1)
    assert not np.array_equal(model.flat, other.flat)
    untrained, _ = train(KeyValueUpdates(), dataclasses.replace(TINY, steps=0), seed=0)
    assert not np.array_equal(model.flat, untrained.flat)


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_answers_do_not_depend_on_the_chunks(trained, chunk):
    model, _ = trained
    batch = hide_overwritten(KeyValueUpdates().sample(7, np.random.default_rng(0)))
    whole = answers(model, batch, chunk=100)
    assert whole.shape == (7 * 8,)
    assert np.array_equal(answers(model, batch, chunk), whole)
    assert np.array_equal(correct(model, batch), whole == batch.targets[:, -8:].ravel())


def test_a_slice_keeps_what_belongs_to_its_sequences():
    batch = hide_overwritten(KeyValueUpdates().sample(6, np.random.default_rng(0)))
    part = slice_batch(batch, 2, 4)
    assert part.size == 2
    assert np.array_equal(part.tokens, batch.tokens[2:4])
    assert np.array_equal(part.mask, batch.mask[2:4])
    assert np.array_equal(part.info["updates"], batch.info["updates"][2:4])
    shared = dataclasses.replace(batch, mask=batch.mask[0])
    assert np.array_equal(slice_batch(shared, 2, 4).mask, batch.mask[0])
