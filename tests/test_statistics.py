"""The bootstrap: laws by property, coverage by simulation, quantiles against tables."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minitx.statistics import (
    at_least_k,
    bootstrap_interval,
    column_intervals,
    expanded_tail,
    fewest_seeds,
    mean_interval,
    share_interval,
    student_quantile,
    student_within,
)

# Values of one scale, as the seeds of a measure are; rounded, so that ties occur.
numbers = st.integers(-(10**6), 10**6).map(lambda k: k / 1000)
samples = st.lists(numbers, min_size=2, max_size=40)


@given(samples)
def test_the_interval_holds_the_estimate_and_lies_within_the_data(values):
    estimate, low, high = bootstrap_interval(values)
    assert min(values) <= low <= estimate <= high <= max(values)
    assert estimate == pytest.approx(np.mean(values), rel=1e-12, abs=1e-12)


@given(samples)
def test_the_same_values_give_the_same_interval_in_any_order(values):
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values) == bootstrap_interval(values[::-1])


@given(samples, st.floats(0.01, 100), st.floats(-100, 100))
def test_shift_and_scale_move_the_interval_along(values, scale, shift):
    moved = bootstrap_interval(scale * np.array(values) + shift)
    expected = scale * np.array(bootstrap_interval(values)) + shift
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-8)


@given(samples)
def test_a_claim_gains_nothing_by_being_stated_upside_down(values):
    estimate, low, high = bootstrap_interval(values)
    mirrored = bootstrap_interval([-value for value in values])
    np.testing.assert_allclose(mirrored, (-estimate, -high, -low), rtol=1e-9, atol=1e-9)


@given(numbers, st.integers(2, 40))
def test_equal_values_give_a_point_without_rounding(value, n):
    assert bootstrap_interval([value] * n) == (value, value, value)


@given(samples)
def test_more_confidence_never_narrows_the_interval(values):
    _, low, high = bootstrap_interval(values, confidence=0.8)
    _, lower, higher = bootstrap_interval(values, confidence=0.99)
    assert lower <= low and high <= higher


@given(st.lists(numbers, min_size=4, max_size=12, unique=True))
def test_more_of_the_same_seeds_narrow_the_interval(values):
    assume(np.ptp(values) > 0.1)
    _, low, high = bootstrap_interval(values)
    _, low3, high3 = bootstrap_interval(values * 3)
    assert high3 - low3 < high - low


@given(st.lists(samples.map(lambda v: v[:2]), min_size=1, max_size=3))
def test_columns_have_the_interval_of_each(columns):
    together = np.array(column_intervals(np.transpose(columns)))
    np.testing.assert_array_equal(together.T, [mean_interval(each) for each in columns])


def test_columns_leave_missing_seeds_out():
    """One seed has a mean and no interval; none has neither."""
    nan = math.nan
    mean, low, high = column_intervals([[1.0, 1.0, nan], [3.0, nan, nan], [nan, nan, nan]])
    assert (mean[0], low[0], high[0]) == mean_interval([1.0, 3.0])
    assert mean[1] == 1.0 and np.isnan([low[1], high[1], mean[2], low[2], high[2]]).all()
    assert column_intervals(np.zeros((2, 3, 4)))[1].shape == (3, 4)


@pytest.mark.parametrize(("n", "least"), [(5, 0.89), (10, 0.92), (20, 0.93), (40, 0.93)])
def test_coverage_on_normal_data(n, least):
    """Plain percentiles reach .84 at n = 5 and .90 at n = 10, so they would fail here."""
    rng = np.random.default_rng(1)
    trials = 400
    inside = 0
    for _ in range(trials):
        _, low, high = bootstrap_interval(rng.normal(size=n), resamples=2000)
        inside += low <= 0.0 <= high
    assert least <= inside / trials <= 0.99


def test_student_quantiles_are_those_of_the_tables():
    table = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 9: 2.26216, 30: 2.04227, 39: 2.02269}
    for dof, t in table.items():
        assert student_quantile(0.95, dof) == pytest.approx(t, rel=2e-6)
    assert student_quantile(0.99, 4) == pytest.approx(4.60409, rel=2e-6)


@given(st.floats(0.01, 0.999), st.integers(1, 60))
def test_student_quantile_inverts_the_distribution(confidence, dof):
    assert student_within(student_quantile(confidence, dof), dof) == pytest.approx(confidence)


def test_the_tail_tends_to_the_plain_one_as_seeds_grow():
    tails = [expanded_tail(n) for n in (2, 3, 5, 10, 40, 400)]
    assert tails == sorted(tails)
    assert tails[-1] == pytest.approx(0.025, abs=1e-3)
    assert expanded_tail(5) == pytest.approx(0.00096, abs=5e-5)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf], [[1.0, 2.0]]])
def test_what_has_no_interval_is_refused(values):
    with pytest.raises(ValueError, match="at least two finite numbers"):
        bootstrap_interval(values)


# Of the tables in textbooks: two-sided 95 %, four digits.
@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(10, 10, 0.6915, 1), (8, 10, 0.4439, 0.9748), (0, 20, 0, 0.1684), (1, 1, 0.025, 1)],
)
def test_shares_have_the_interval_of_the_tables(k, n, low, high):
    assert share_interval(k, n) == pytest.approx((low, high), abs=5e-5)


counts = st.integers(1, 80).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts, st.floats(0.5, 0.999))
def test_a_share_lies_inside_its_interval_which_has_a_width(count, level):
    k, n = count
    low, high = share_interval(k, n, level)
    assert 0 <= low <= k / n <= high <= 1 and low < high
    assert (low == 0) == (k == 0) and (high == 1) == (k == n)


@given(counts, st.floats(0.5, 0.999))
def test_hits_and_misses_change_places(count, level):
    k, n = count
    low, high = share_interval(k, n, level)
    assert share_interval(n - k, n, level) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@given(counts, st.floats(0.5, 0.999))
def test_at_its_ends_the_count_seen_is_just_unlikely_enough(count, level):
    k, n = count
    low, high = share_interval(k, n, level)
    if k > 0:
        assert at_least_k(k, n, low) == pytest.approx((1 - level) / 2, rel=1e-6)
    if k < n:
        assert 1 - at_least_k(k + 1, n, high) == pytest.approx((1 - level) / 2, rel=1e-6)


@given(counts)
def test_one_hit_more_moves_both_ends_up_and_more_level_widens(count):
    k, n = count
    low, high = share_interval(k, n + 1)
    more = share_interval(k + 1, n + 1)
    assert (low < more[0] and high < more[1]) or (k + 1 == n + 1 and more[1] == 1)
    wide = share_interval(k, n + 1, 0.99)
    assert wide[0] <= low and high <= wide[1]


@pytest.mark.parametrize("n", [5, 10, 17])
def test_the_exact_interval_covers_every_share_as_often_as_it_says(n):
    """Summed over all counts, not simulated."""
    for share in np.linspace(0.01, 0.99, 99):
        covered = sum(
            at_least_k(k, n, share) - (at_least_k(k + 1, n, share) if k < n else 0)
            for k in range(n + 1)
            if share_interval(k, n)[0] <= share <= share_interval(k, n)[1]
        )
        assert covered >= 0.95 - 1e-9


@pytest.mark.parametrize("count", [(-1, 5), (6, 5), (0, 0), (1.5, 3), (1, 2, 1.0), (1, 2, 0.0)])
def test_what_is_no_count_has_no_share(count):
    with pytest.raises(ValueError, match="expected"):
        share_interval(*count)


@given(st.floats(0.05, 0.97))
def test_the_fewest_seeds_are_just_enough(share):
    n = fewest_seeds(share)
    assert share_interval(n, n)[0] >= share
    assert n == 1 or share_interval(n - 1, n - 1)[0] < share


def test_a_share_of_one_is_never_reached():
    assert fewest_seeds(1.0) is None
    assert fewest_seeds(0.8) == 17


def test_yes_and_no_have_the_exact_interval_either_way_up():
    values = [1.0] * 8 + [0.0] * 2
    assert mean_interval(values) == (0.8, *share_interval(8, 10))
    low, high = share_interval(8, 10)
    assert mean_interval([-value for value in values]) == (-0.8, -high, -low)
    other = [0.0, 0.5, 1.0]
    assert mean_interval(other) == bootstrap_interval(other)
    assert mean_interval([1.0, 1.0]) == (1.0, 1.0, 1.0)
