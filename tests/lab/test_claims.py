"""Claims: what supports, what refutes, what decides nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.lab import Results, Run, at_least, at_most, judge
from minitx.lab.claims import Claim, verdict


def results_of(seeds=None, **arms):
    """Results whose arms hold these values of the measure x, one for each seed from 0."""
    runs = {
        (arm, seed): Run(arm, seed, {"x": value}, 1.0)
        for arm, values in arms.items()
        for seed, value in enumerate(values)
        if value != "missing"
    }
    count = max(map(len, arms.values()))
    return Results("made.up", tuple(arms), tuple(range(seeds or count)), runs)


def test_supported_refuted_inconclusive():
    results = results_of(a=[0.8, 0.9, 0.7, 0.85, 0.95])
    words = [judge(at_least("x", t, arm="a"), results).verdict for t in (0.6, 0.8, 1.0)]
    assert words == ["supported", "inconclusive", "refuted"]
    words = [judge(at_most("x", t, arm="a"), results).verdict for t in (0.6, 0.8, 1.0)]
    assert words == ["refuted", "inconclusive", "supported"]


def test_the_threshold_itself_is_on_the_right_side():
    results = results_of(a=[1.0, 1.0, 1.0])
    assert judge(at_least("x", 1.0, arm="a"), results).verdict == "supported"
    assert judge(at_most("x", 1.0, arm="a"), results).verdict == "supported"


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(0, 5))
def test_the_verdict_is_one_of_three_and_mirrors(threshold, low, width):
    high = low + width
    word = verdict("at_least", threshold, low, high)
    assert word == verdict("at_most", -threshold, -high, -low)
    assert (word == "supported") == (low >= threshold)
    assert (word == "refuted") == (high < threshold)


def test_differences_are_paired_by_seed():
    # Spread over seeds is large, the difference within each seed is not.
    results = results_of(a=[1.0, 5.0, 9.0, 3.0], b=[0.5, 4.4, 8.5, 2.5])
    result = judge(at_least("x", 0.4, arm="a", minus="b"), results)
    assert result.verdict == "supported"
    assert result.values == pytest.approx((0.5, 0.6, 0.5, 0.5))
    assert judge(at_least("x", 0.4, arm="a"), results).verdict == "supported"
    assert result.high - result.low < 0.1 + 1e-9


def test_only_seeds_finished_in_both_arms_make_a_pair():
    results = results_of(a=[1.0, "missing", 3.0, 4.0], b=[0.0, 0.0, "missing", 1.0])
    result = judge(at_least("x", 0.5, arm="a", minus="b"), results)
    assert result.seeds == (0, 3)
    assert result.values == (1.0, 3.0)
    assert "2 of 4 seeds missing" in result.note


@pytest.mark.parametrize("values", [["missing"], [1.0], [1.0, "missing", "missing"]])
def test_fewer_than_two_seeds_decide_nothing(values):
    result = judge(at_least("x", 0.0, arm="a"), results_of(a=values))
    assert result.verdict == "inconclusive"
    assert result.low is result.high is None
    assert "an interval needs two" in result.note


def test_a_value_that_is_not_finite_decides_nothing():
    result = judge(at_least("x", 0.0, arm="a"), results_of(a=[1.0, None, 3.0]))
    assert result.verdict == "inconclusive"
    assert result.estimate is None
    assert "1 of 3 values not finite" in result.note
    entry = result.to_dict()
    assert entry["values"] == [1.0, None, 3.0]
    assert entry["estimate"] is entry["low"] is entry["high"] is None


def test_an_array_cannot_be_claimed_of():
    with pytest.raises(MinitxError, match=r"one number per run.*'x'.*\(2,\)"):
        judge(at_least("x", 0.0, arm="a"), results_of(a=[[1.0, 2.0], [1.0, 2.0]]))


def test_a_missing_measure_names_the_known_ones():
    with pytest.raises(MinitxError, match="Unknown measure 'y'.*Known: x"):
        judge(at_least("y", 0.0, arm="a"), results_of(a=[1.0, 2.0]))


def test_claims_name_and_describe_themselves():
    claim = at_most("x", 0.25, arm="a", minus="b")
    assert claim.text == "x in a minus b is at most 0.25"
    assert claim.id == "x.a-minus-b.at_most"
    assert at_least("x", 1, arm="a", id="mine").id == "mine"
    assert isinstance(at_least("x", 1, arm="a").threshold, float)


@pytest.mark.parametrize("threshold", [math.nan, math.inf, True])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(MinitxError, match="finite number"):
        at_least("x", threshold, arm="a")


def test_a_direction_is_one_of_two():
    with pytest.raises(MinitxError, match="'at_least' or 'at_most'"):
        Claim("x", "about", 1.0, "a")
