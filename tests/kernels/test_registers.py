"""What is written out for vector registers, against plain NumPy in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.kernels import reference

pytest.importorskip("numba")
from numba import njit

from minitx.kernels import _gemm, _registers, _tiles
from minitx.kernels._math import _common

# Not kept on disk: the cache would not see a change of the functions that are called.
fresh = njit(**_common)

DTYPES = st.sampled_from([np.float32, np.float64])
SEEDS = st.integers(0, 2**32 - 1)


@fresh
def _width(number):
    return _gemm.panel_width(number)


@fresh
def _softmax(scores, scale, off_by_one, peaks, totals):
    at = _gemm.address(scores, 0), _gemm.address(peaks, 0), _gemm.address(totals, 0)
    number = peaks[0]
    _registers.softmax_columns(number, len(scores), at[0], scale, off_by_one, at[1], at[2])


@fresh
def _slopes(scores, slopes, in_exp, scale, lse):
    places = _gemm.address(scores, 0), _gemm.address(slopes, 0)
    at = _gemm.address(lse, 0)
    number = lse[0]
    _registers.slope_columns(number, len(scores), places[0], places[1], in_exp, scale, at)


@fresh
def _activate(x, bias, kind, out):
    _tiles.activate(x, 0, len(x), bias, kind, out)


def panel(rng, dtype, rows, spread):
    """Scores [rows, width], some of them -inf, the first column wholly so."""
    scores = (spread * rng.normal(size=(rows, _width(dtype(0))))).astype(dtype)
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    scores[:, 0] = -np.inf
    return scores


@given(st.integers(1, 40), st.floats(0.01, 30), st.booleans(), DTYPES, SEEDS)
def test_softmax_columns(rows, spread, off_by_one, dtype, seed):
    rng = np.random.default_rng(seed)
    scores, scale = panel(rng, dtype, rows, spread), dtype(0.3)
    exact = reference.softmax(float(scale) * scores.T.astype(float), None, off_by_one).T
    got, width = scores.copy(), scores.shape[1]
    peaks, totals = np.empty(width, dtype), np.empty(width, dtype)
    _softmax(got, scale, off_by_one, peaks, totals)
    np.testing.assert_allclose(got, exact, rtol=0, atol=2e-6 if dtype == np.float32 else 1e-14)
    assert (got[:, 0] == 0).all()  # nothing allowed
    assert totals[0] == off_by_one
    highest = np.maximum(scores.max(0), 0 if off_by_one else -np.inf)
    np.testing.assert_array_equal(peaks, np.where(np.isneginf(highest), 0, highest))


@given(st.integers(1, 40), DTYPES, SEEDS)
def test_slope_columns(rows, dtype, seed):
    """Against the softmax's own gradient rule, through its output."""
    rng = np.random.default_rng(seed)
    scores, scale = panel(rng, dtype, rows, 1.0), dtype(0.3)
    slopes = rng.normal(size=scores.shape).astype(dtype)
    wide = float(scale) * scores.astype(float)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(wide).sum(0))
    lse[np.isneginf(lse)] = np.inf
    weights = np.exp(wide - lse)
    exact = float(scale) * reference.softmax_backward(slopes.T.astype(float), weights.T).T
    _slopes(scores, slopes, scale, scale, lse.astype(dtype))
    atol = 2e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(scores, weights, rtol=0, atol=atol)
    np.testing.assert_allclose(slopes, exact, rtol=0, atol=10 * atol)


def exp(x, dtype):
    width = _width(dtype(0))
    scores, slopes = np.full((1, width), x, dtype), np.zeros((1, width), dtype)
    _slopes(scores, slopes, dtype(1), dtype(1), np.zeros(width, dtype))
    return scores


@given(st.floats(-87, 88), DTYPES)
def test_exp(x, dtype):
    """A relative error as small as the scalar exp's, wherever the result is a normal number."""
    exact = np.exp(float(dtype(x)))
    np.testing.assert_allclose(exp(x, dtype), exact, rtol=1e-6 if dtype == np.float32 else 1e-15)


@pytest.mark.parametrize("x", [89.1, 1e30, np.inf, -88.1, -1e30, -np.inf, np.nan])
def test_exp_at_the_ends(x):
    expected = np.nan if np.isnan(x) else np.inf if x > 0 else 0
    np.testing.assert_array_equal(exp(x, np.float32), expected)


@fresh
def _activate_backward(x, kind, g, out):
    _tiles.activate_backward(x, 0, len(x), kind, g, out)


@given(st.integers(1, 70), st.sampled_from(["gelu", "silu"]), st.sampled_from([1, 1e6, 1e15, 2e19]))
def test_activations_far_out(width, name, size):
    """x² may overflow; the activation is x or 0 there, and its slope 1 or 0."""
    x = np.tile(np.float32([[size], [-size]]), width)
    g, out, kind = np.ones_like(x), np.empty_like(x), _tiles.ACTIVATIONS[name]
    exact = np.array([[1.0], [0.0]]) if size > 1 else None
    _activate(x, np.zeros(width, np.float32), kind, out)
    forward = out.copy()
    _activate_backward(x, kind, g, out)
    np.testing.assert_allclose(out, forward, rtol=1e-6)
    if exact is None:
        wide = x.astype(float)
        exact = getattr(reference, f"{name}_backward")(np.ones_like(wide), wide)
    else:
        np.testing.assert_array_equal(forward, np.maximum(x, 0))
    np.testing.assert_allclose(g, np.broadcast_to(exact, g.shape), rtol=0, atol=2e-6)


@given(st.integers(1, 70), st.sampled_from(["gelu", "relu", "silu"]), DTYPES, SEEDS)
def test_activate(width, name, dtype, seed):
    """Whole panels, and the columns after the last whole one."""
    rng = np.random.default_rng(seed)
    x, bias = rng.normal(size=(3, width)).astype(dtype), rng.normal(size=width).astype(dtype)
    shifted = (x + bias).astype(float)
    relu = np.maximum(shifted, 0)
    exact = relu if name == "relu" else getattr(reference, name)(shifted)
    out = np.empty_like(x)
    _activate(x, bias, _tiles.ACTIVATIONS[name], out)
    atol = 3e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(x, shifted, rtol=0, atol=atol)
    np.testing.assert_allclose(out, exact, rtol=0, atol=atol)
