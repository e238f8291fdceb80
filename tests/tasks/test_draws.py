"""The shared draws: different numbers, demand over places, the context mask."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.draws import DEMANDS, context_mask, demand, distinct


@given(high=st.integers(1, 12), data=st.data(), seed=st.integers(0, 999))
def test_distinct_numbers_are_distinct_and_in_range(high, data, seed):
    n = data.draw(st.integers(0, high))
    out = distinct(np.random.default_rng(seed), (3, 4), n, high)
    assert out.shape == (3, 4, n)
    assert out.size == 0 or (out.min() >= 0 and out.max() < high)
    ordered = np.sort(out, axis=-1)
    assert (np.diff(ordered, axis=-1) > 0).all()


@pytest.mark.parametrize("n, high", [(2, 4), (3, 4), (4, 5)])
def test_every_ordered_choice_is_equally_likely(n, high):
    draws = distinct(np.random.default_rng(0), (60_000,), n, high)
    _, counts = np.unique(draws, axis=0, return_counts=True)
    n_choices = np.prod(np.arange(high - n + 1, high + 1))
    assert len(counts) == n_choices
    expected = 60_000 / n_choices
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # Mean n-1, sd sqrt(2(n-1)): five standard deviations.
    assert chi_square < n_choices - 1 + 5 * np.sqrt(2 * (n_choices - 1))


def test_too_many_distinct_numbers_is_an_error():
    with pytest.raises(MinitxError, match="Cannot draw 5 different numbers below 4"):
        distinct(np.random.default_rng(0), (2,), 5, 4)


@given(
    name=st.sampled_from(sorted(DEMANDS)),
    n=st.integers(1, 40),
    strength=st.floats(0, 1),
    scale=st.floats(0.5, 8),
)
def test_demand_is_a_distribution_with_a_floor(name, n, strength, scale):
    chance = demand(name, n, strength, scale)
    assert chance.shape == (n,)
    assert np.isclose(chance.sum(), 1.0)
    assert (chance >= (1 - strength) / n - 1e-12).all()
    if name in ("uniform", "ends"):
        assert np.allclose(chance, chance[::-1])


def test_demand_on_the_ends_is_the_stated_formula():
    chance = demand("ends", 24)
    at = np.arange(24)
    bump = np.exp(-at / 2) + np.exp(-(23 - at) / 2)
    assert np.allclose(chance, 0.3 / 24 + 0.7 * bump / bump.sum())
    with pytest.raises(MinitxError, match="Unknown demand 'end'"):
        demand("end", 4)


def test_context_mask_by_hand():
    assert context_mask(2, 2).astype(int).tolist() == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 0, 1],
    ]
