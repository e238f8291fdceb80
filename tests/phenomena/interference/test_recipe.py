"""The common recipe is reproducible."""

import dataclasses

import numpy as np

from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.recipe import train
from minitx.tasks.updates import KeyValueUpdates

TINY = Recipe(d_model=8, n_heads=2, steps=3, batch_size=4)


def test_same_seed_same_weights_and_same_test_stream():
    model, rng = train(KeyValueUpdates(), TINY, seed=0)
    again, same = train(KeyValueUpdates(), TINY, seed=0)
    assert np.array_equal(model.flat, again.flat)
    assert rng.random() == same.random()
    other, _ = train(KeyValueUpdates(), TINY, seed=1)
    assert not np.array_equal(model.flat, other.flat)
    untrained, _ = train(KeyValueUpdates(), dataclasses.replace(TINY, steps=0), seed=0)
    assert not np.array_equal(model.flat, untrained.flat)
