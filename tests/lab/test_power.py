"""Power against what can be worked out by hand, and what must hold whatever the numbers are."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.lab import Results, Run, at_least, at_most, power
from minitx.lab.claims import judge


def results(**arms):
    """Results from the values of `x` in each arm, by seed."""
    count = len(next(iter(arms.values())))
    runs = {
        (arm, 100 + i): Run(arm, 100 + i, {"x": float(x)}, 1.0)
        for arm, values in arms.items()
        for i, x in enumerate(values)
    }
    return Results("made.up", tuple(arms), tuple(range(100, 100 + count)), runs)


def test_a_claim_that_every_seed_bears_out_needs_two():
    [one, everything] = power.power([at_least("x", 0.5, arm="a")], results(a=[1] * 5), [1, 2, 9])
    assert one.shares == {1: 0.0, 2: 1.0, 9: 1.0}  # one seed has no interval
    assert one.needed == everything.needed == 2


def test_a_claim_that_is_false_never_gets_there():
    [one, _] = power.power([at_most("x", 0.5, arm="a")], results(a=[1, 2, 3]), [5])
    assert one.shares == {5: 0.0} and one.needed is None


def test_power_is_that_of_a_normal_mean():
    """A normal mean, known spread, one-sided test at 2.5 %: P(Z > 1.96 - d sqrt(n))."""
    # Quantiles of a normal: the stored seeds have its shape, without luck.
    from statistics import NormalDist

    grid = [NormalDist().inv_cdf((i + 0.5) / 200) for i in range(200)]
    stored = results(a=grid)
    distance = 0.6
    for n in (20, 30):
        [one, _] = power.power([at_least("x", -distance, arm="a")], stored, [n])
        expected = 1 - NormalDist().cdf(1.96 - distance * math.sqrt(n))
        # The interval is one for an unknown spread, so a little less than this.
        assert expected - 0.12 < one.shares[n] < expected + 0.05


def test_arms_of_a_seed_stay_together():
    """The arms swing widely and together: only a paired difference is sure."""
    swing = np.linspace(-10, 10, 12)
    stored = results(a=swing + 1, b=swing)
    paired, alone = at_least("x", 0.9, arm="a", minus="b"), at_least("x", 0.0, arm="a")
    [first, second, everything] = power.power([paired, alone], stored, [5])
    assert first.shares[5] == 1.0 and first.needed == 2
    assert second.shares[5] < 0.5
    assert everything.shares == second.shares  # the weaker of two decides


def test_what_is_needed_reaches_the_goal_and_one_size_less_does_not():
    rng = np.random.default_rng(0)
    stored = results(a=rng.normal(1.0, 1.0, 20))
    claim = at_least("x", 0.3, arm="a")
    [one, _] = power.power([claim], stored, list(power.SIZES))
    assert 2 < one.needed < 60
    before = power.SIZES[power.SIZES.index(one.needed) - 1]
    assert one.shares[one.needed] >= power.GOAL > one.shares[before]
    # Stored seeds only; the same answer whenever it is asked.
    assert power.power([claim], stored, [5]) == power.power([claim], stored, [5])


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.floats(-5, 5), min_size=2, max_size=6), n=st.integers(2, 6), seed=st.data()
)
def test_an_imitation_is_made_of_stored_seeds_and_is_judged_as_runs_are(values, n, seed):
    stored = results(a=values, b=[-v for v in values])
    threshold = seed.draw(st.sampled_from(values))
    claim = at_least("x", threshold, arm="a")
    imitations = list(power.imitations(stored, n, ["a", "b"]))
    assert len(imitations) == power.DRAWS
    for each in imitations[:20]:
        a, b = each.values("a", "x"), each.values("b", "x")
        assert len(a) == n and set(a) <= set(map(float, values))
        assert (a == -b).all()
    [one, _] = power.power([claim], stored, [n])
    share = np.mean([judge(claim, each, power.RESAMPLES).supported for each in imitations])
    assert one.shares[n] == share


def test_too_little_to_go_by():
    with pytest.raises(MinitxError, match="at least 2 stored seeds of made.up, got 1"):
        power.power([at_least("x", 0, arm="a")], results(a=[1.0]), [5])
    with pytest.raises(MinitxError, match="at least 1, got"):
        power.power([at_least("x", 0, arm="a")], results(a=[1.0, 2.0]), [0])
