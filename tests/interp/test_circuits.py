"""Circuits read from weights: literal products, bounds, and heads built to compose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError, ShapeError
from minitx.interp import circuits

seeds = st.integers(0, 2**32 - 1)


def draw(seed, *shapes):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape) for shape in shapes]
    for a in arrays:
        a.setflags(write=False)
    return arrays


@given(seeds, st.integers(1, 3), st.integers(2, 6), st.integers(1, 3))
def test_circuits_are_the_literal_products(seed, heads, width, k):
    W_Q, W_K, W_V, W_O, W_E, W_U = draw(
        seed, *[(heads, width, k)] * 3, (heads, k, width), (7, width), (width, 7)
    )
    for h in range(heads):
        qk, ov = W_Q[h] @ W_K[h].T, W_V[h] @ W_O[h]
        np.testing.assert_allclose(circuits.qk_circuit(W_Q, W_K)[h], qk)
        np.testing.assert_allclose(circuits.ov_circuit(W_V, W_O)[h], ov)
        np.testing.assert_allclose(
            circuits.qk_circuit(W_Q, W_K, W_E)[h], W_E @ qk @ W_E.T, atol=1e-12
        )
        full = circuits.ov_circuit(W_V, W_O, W_E, W_U)[h]
        np.testing.assert_allclose(full, W_E @ ov @ W_U, atol=1e-12)


@given(seeds, st.integers(2, 6), st.integers(1, 3))
def test_composition_of_all_pairs_is_that_of_each(seed, width, k):
    V0, O0, W_Q, W_K, W_V, W_O = draw(
        seed, (2, width, k), (2, k, width), *[(3, width, k)] * 3, (3, k, width)
    )
    readers = {
        "Q": [W_Q[h] @ W_K[h].T for h in range(3)],
        "K": [W_K[h] @ W_Q[h].T for h in range(3)],
        "V": [W_V[h] @ W_O[h] for h in range(3)],
    }
    for kind, matrices in readers.items():
        got = circuits.composition_scores(kind, V0, O0, W_Q, W_K, W_V, W_O)
        assert got.shape == (2, 3)
        for i, j in np.ndindex(2, 3):
            A, B = V0[i] @ O0[i], matrices[j]
            expected = np.linalg.norm(A @ B) / np.linalg.norm(A) / np.linalg.norm(B)
            assert got[i, j] == pytest.approx(expected)
            assert 0 <= got[i, j] <= 1


def test_composition_of_built_heads():
    # A head that writes along e0, a reader of e0 (all of it) and a reader of e1 (nothing).
    write = np.outer([0.0, 1, 0], [1.0, 0, 0])
    assert circuits.composition_score(write, np.outer([1.0, 0, 0], [0, 0, 1])) == 1.0
    assert circuits.composition_score(write, np.outer([0.0, 1, 0], [0, 0, 1])) == 0.0
    assert circuits.composition_score(write * 0, write) == 0.0


def test_composition_baseline_is_that_of_random_heads(rng):
    baseline = circuits.composition_baseline(64, 16, rng, samples=30)
    assert baseline == pytest.approx(1 / 8, rel=0.1)


@given(seeds, st.integers(2, 7), st.integers(1, 4), st.integers(2, 7))
def test_singular_directions_rebuild_the_circuit(seed, d, k, e):
    left, right = draw(seed, (2, d, k), (2, k, e))
    u, s, v = circuits.singular_directions(left, right)
    product = left @ right
    np.testing.assert_allclose((u * s[:, None]) @ v.swapaxes(-1, -2), product, atol=1e-9)
    rank = min(d, k, e)
    whole = np.linalg.svd(product, compute_uv=False)[:, :rank]
    np.testing.assert_allclose(s, whole, atol=1e-9)
    np.testing.assert_allclose(u.swapaxes(-1, -2) @ u, np.eye(rank)[None].repeat(2, 0), atol=1e-9)
    top = circuits.singular_directions(left, right, k=1)
    np.testing.assert_array_equal(top[1], s[:, :1])
    assert (np.take_along_axis(u, np.abs(u).argmax(-2)[:, None], 1) > 0).all()


@given(seeds, st.booleans())
def test_folded_norm_acts_as_the_norm_did(seed, centre):
    x, W, weight, bias = draw(seed, (5, 6), (6, 3), (6,), (6,))
    y = x - x.mean(-1, keepdims=True) if centre else x
    scale = np.sqrt(np.square(y).mean(-1, keepdims=True))
    expected = (y / scale * weight + bias) @ W
    got = (x / scale) @ circuits.fold_norm(W, weight, centre) + bias @ W
    np.testing.assert_allclose(got, expected, atol=1e-10)
    assert circuits.fold_norm(W, None) is not W


def test_mistakes_are_told():
    a, b = np.ones((4, 2)), np.ones((3, 5))
    with pytest.raises(ShapeError, match=r"\(4, 2\).*\(3, 5\)"):
        circuits.ov_circuit(a, b)
    with pytest.raises(MinitxError, match="Known: K, Q, V"):
        circuits.composition_scores("O", a, a.T, a, a, a, a.T)
    with pytest.raises(MinitxError, match="between 1 and 2"):
        circuits.singular_directions(a, a.T, k=3)
