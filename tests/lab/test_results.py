"""What was measured survives the way to disk and back exactly."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx.errors import MinitxError
from minitx.lab import Results, Run
from minitx.lab.results import from_json, to_json

words = st.text(max_size=3)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words
nested = leaves | st.lists(leaves | st.lists(leaves, max_size=2), max_size=2)


@given(st.dictionaries(words, nested | st.dictionaries(words, nested, max_size=2), max_size=2))
def test_all_but_infinities_comes_back_as_it_was(measurements):
    def finite(value):
        if isinstance(value, float) and math.isinf(value):
            return None
        if isinstance(value, list):
            return [finite(item) for item in value]
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        return value

    assert from_json(to_json(measurements)) == finite(measurements)


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4),
        elements={"allow_infinity": False},
    )
)
def test_arrays_come_back_bit_for_bit(array):
    run = Run("a", 0, from_json(to_json({"x": array})), 1.0)
    back = np.asarray(run["x"])
    assert back.shape == array.shape
    np.testing.assert_array_equal(back.astype(array.dtype), array)  # nan equals nan here
    zeros = (array == 0) & np.isfinite(array)
    np.testing.assert_array_equal(np.signbit(back[zeros]), np.signbit(array[zeros]))


def test_what_is_not_finite_becomes_null_and_the_text_is_strict_json():
    text = to_json({"x": math.nan, "y": [1.0, -math.inf], "z": np.array([np.nan, 2.0])})
    assert json.loads(text) == {"x": None, "y": [1.0, None], "z": [None, 2.0]}
    run = Run("a", 0, from_json(text), 1.0)
    assert math.isnan(run["x"])
    np.testing.assert_array_equal(run["z"], [np.nan, 2.0])


@pytest.mark.parametrize("text", ['{"x": NaN}', '{"x": -Infinity}', '{"x": 1', "", '{"x": 1}}'])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(ValueError):
        from_json(text)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0], "dictionary of named numbers, got list"),
        ({1: 2.0}, "are strings, got 1"),
        ({"x": object()}, "'x' is object"),
        ({"x": 1j}, "'x' is complex"),
        ({"x": {"deep": {1, 2}}}, "'deep' is set"),
    ],
)
def test_what_cannot_be_stored_is_named(value, words):
    with pytest.raises(MinitxError, match=words):
        to_json(value)


def some_results():
    runs = {
        ("a", 0): Run("a", 0, {"x": 1, "curve": [1.0, 2.0], "words": ["p"]}, 1.0),
        ("a", 2): Run("a", 2, {"x": 3, "curve": [5.0, None], "words": ["q"]}, 1.0),
        ("b", 0): Run("b", 0, {"x": 3, "curve": [5.0]}, 1.0),
    }
    return Results("made.up", ("a", "b"), (0, 1, 2), runs)


def test_values_are_stacked_over_finished_seeds():
    results = some_results()
    assert list(results) == ["a", "b"]
    assert results.finished_seeds("a") == [0, 2]
    np.testing.assert_array_equal(results.values("a", "x"), [1.0, 3.0])
    np.testing.assert_array_equal(results.values("a", "curve"), [[1, 2], [5, np.nan]])
    assert results["a"][1]["words"] == ["q"]
    assert "x" in results["b"][0] and "y" not in results["b"][0]


def test_unknown_names_list_the_known_ones():
    with pytest.raises(MinitxError, match="Unknown arm 'c'.*Known: a, b"):
        some_results()["c"]
    with pytest.raises(MinitxError, match="Unknown measure 'y'.*Known: curve, words, x"):
        some_results().values("a", "y")


def test_shapes_that_differ_over_seeds_are_refused():
    results = some_results()
    results.runs["a", 1] = Run("a", 1, {"curve": [1.0]}, 1.0)
    with pytest.raises(MinitxError, match=r"another shape.*\(1,\), \(2,\)"):
        results.values("a", "curve")
