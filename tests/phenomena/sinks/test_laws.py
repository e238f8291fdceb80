"""What a sink is, whatever was trained: laws of the weights alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor
from minitx.interp.scores import first_token_share
from minitx.nn import ATTENTION, TransformerConfig

CONFIG = TransformerConfig(vocab_size=3, max_len=12)
seeds = st.integers(0, 2**32 - 1)
lengths = st.integers(2, 12)


def pattern(kind, scores, mask=None):
    mask = np.tri(scores.shape[-1], dtype=bool) if mask is None else mask
    return ATTENTION[kind](Tensor(scores), mask, CONFIG).data


@pytest.mark.law("sinks.emergence")
@given(seeds, lengths, st.floats(0.1, 8.0))
def test_softmax_with_a_drained_first_token_is_softmax1_over_the_rest(seed, T, spread):
    """The sink does what softmax1 does without one: score 0, value 0 at the first token."""
    rng = np.random.default_rng(seed)
    scores = spread * rng.standard_normal((2, 1, T, T))
    scores[..., 0] = 0.0
    values = rng.standard_normal((2, 1, T, 3))
    values[..., 0, :] = 0.0
    parked = pattern("softmax", scores)
    rest = np.tri(T, dtype=bool)
    rest[:, 0] = False
    free = pattern("softmax1", scores, rest)
    np.testing.assert_allclose(parked @ values, free @ values, atol=1e-12)
    unspent = 1.0 - free.sum(axis=-1)[:, 0, 1:].mean()
    assert first_token_share(parked)[0] == pytest.approx(unspent, abs=1e-12)


@pytest.mark.law("sinks.boundaries")
@given(seeds, lengths, st.floats(-20, 20), st.floats(0, 10))
def test_softmax1_may_park_as_well_if_scores_are_raised(seed, T, shift, further):
    """It never forbids a sink: raise all scores, and its weights grow up to those of softmax."""
    scores = 2.0 * np.random.default_rng(seed).standard_normal((2, 1, T, T))
    low, high = (pattern("softmax1", scores + c) for c in (shift, shift + further))
    whole = pattern("softmax", scores)
    assert (low <= high + 1e-15).all() and (high <= whole + 1e-12).all()
    np.testing.assert_allclose(low, whole * low.sum(axis=-1, keepdims=True), atol=1e-12)
    assert np.allclose(pattern("softmax1", scores + 60.0), whole, atol=1e-12)
    assert (pattern("softmax1", scores - 60.0) < 1e-12).all()
