"""Similarity of representations: literal definitions, bounds and invariances."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import ShapeError
from minitx.interp.similarity import cosine, effective_rank, linear_cka, subspace_angles

seeds = st.integers(0, 2**32 - 1)


def frozen(x):
    x.setflags(write=False)
    return x


def rotation(rng, n):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


@given(seeds, st.integers(2, 30), st.integers(1, 6), st.integers(1, 6))
def test_cka_is_centred_hsic_with_linear_kernels(seed, n, f, g):
    rng = np.random.default_rng(seed)
    x, y = frozen(rng.normal(size=(n, f)) + 3), frozen(rng.normal(size=(n, g)))
    centre = np.eye(n) - 1 / n
    kx, ky = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    expected = np.trace(kx @ ky) / math.sqrt(np.trace(kx @ kx) * np.trace(ky @ ky))
    assert linear_cka(x, y) == pytest.approx(expected, abs=1e-9)
    assert 0 <= linear_cka(x, y) <= 1


@given(seeds, st.integers(3, 30), st.integers(2, 5), st.floats(1e-3, 1e3))
def test_cka_is_one_with_itself_and_does_not_see_rotation_scale_or_shift(seed, n, f, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, f)), rng.normal(size=(n, 4))
    moved = x @ rotation(rng, f) * scale + rng.normal(size=f)
    assert linear_cka(x, moved) == pytest.approx(1, abs=1e-6)
    assert linear_cka(moved, y) == pytest.approx(linear_cka(x, y), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_cka_of_tiny_and_huge_numbers(rng, scale):
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 4))
    assert linear_cka(x * scale, y) == pytest.approx(linear_cka(x, y))


def test_cka_flattens_leading_axes_and_has_no_answer_for_constants(rng):
    x, y = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4, 2))
    assert linear_cka(x, y) == linear_cka(x.reshape(12, 5), y.reshape(12, 2))
    assert math.isnan(linear_cka(np.full((9, 2), 0.1), rng.normal(size=(9, 2))))
    with pytest.raises(ShapeError, match="12"):
        linear_cka(x, y[:2])


@given(seeds, st.integers(1, 6), st.integers(1, 6), st.floats(1e-6, 1e6))
def test_effective_rank_bounds_and_invariances(seed, n, m, scale):
    rng = np.random.default_rng(seed)
    a = frozen(rng.normal(size=(n, m)))
    rank = effective_rank(a)
    assert 1 - 1e-9 <= rank <= min(n, m) + 1e-9
    assert effective_rank(scale * rotation(rng, n) @ a @ rotation(rng, m)) == pytest.approx(rank)
    s = np.linalg.svd(a, compute_uv=False)
    share = s / s.sum()
    assert rank == pytest.approx(math.exp(-sum(p * math.log(p) for p in share if p > 0)))


def test_effective_rank_of_known_matrices():
    assert effective_rank(np.eye(5)) == pytest.approx(5)
    assert effective_rank(np.ones((4, 7))) == pytest.approx(1)
    assert effective_rank(np.diag([2.0, 1, 1])) == pytest.approx(2 * math.sqrt(2))
    np.testing.assert_allclose(effective_rank(np.stack([np.eye(3), np.zeros((3, 3))])), [3, 0])


def test_cosine():
    x = frozen(np.array([[3.0, 4.0], [0.0, 0.0], [1e-200, 0.0]]))
    np.testing.assert_allclose(cosine(x, np.array([1.0, 0.0])), [0.6, 0, 1])
    assert cosine(x[0], -2 * x[0]) == -1.0
    with pytest.raises(ShapeError, match="3"):
        cosine(x, np.ones(3))


@given(seeds, st.integers(4, 8))
def test_subspace_angles_are_those_put_in(seed, f):
    rng = np.random.default_rng(seed)
    basis = rotation(rng, f)
    angles = np.sort(rng.choice([0.0, 1e-9, 1e-4, 0.3, 1.2, math.pi / 2], size=2))[::-1]
    x = basis[:, :2] @ rng.normal(size=(2, 3))  # a rank-2 space, given by 3 columns
    y = basis[:, :2] * np.cos(angles) + basis[:, 2:4] * np.sin(angles)
    got = subspace_angles(frozen(x), frozen(y))
    np.testing.assert_allclose(got, angles, atol=1e-7)
    np.testing.assert_allclose(subspace_angles(y, x), got, atol=1e-7)


def test_subspace_angles_keep_small_angles():
    x, y = np.eye(3)[:, :1], np.array([[1.0], [1e-10], [0.0]])
    np.testing.assert_allclose(subspace_angles(x, y), [1e-10], rtol=1e-6)
