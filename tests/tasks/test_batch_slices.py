"""A slice of a batch keeps what belongs to its sequences, and what belongs to all."""

import dataclasses

import numpy as np

from minitx.tasks.lists import ListQueries
from minitx.tasks.updates import KeyValueUpdates, hide_overwritten


def test_a_slice_keeps_what_belongs_to_its_sequences():
    batch = hide_overwritten(KeyValueUpdates().sample(6, np.random.default_rng(0)))
    part = batch[2:4]
    assert part.size == 2
    assert np.array_equal(part.tokens, batch.tokens[2:4])
    assert np.array_equal(part.targets, batch.targets[2:4])
    assert np.array_equal(part.mask, batch.mask[2:4])
    assert np.array_equal(part.info["updates"], batch.info["updates"][2:4])


def test_a_slice_shares_what_belongs_to_all_sequences():
    batch = ListQueries(n_items=4, n_queries=2).sample(3, np.random.default_rng(0))
    assert np.array_equal(batch[:1].mask, batch.mask)
    assert np.array_equal(batch[:1].positions, batch.positions)
    own = dataclasses.replace(batch, positions=np.tile(batch.positions, (3, 1)))
    assert own[1:].positions.shape == (2, 7)
