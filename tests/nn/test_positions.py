"""Position schemes keep the laws that they are known for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import ops
from minitx.errors import MinitxError
from minitx.nn import POSITIONS, TransformerConfig, alibi_slopes
from tests.nn.small import seeds


def scheme(name, seed=0, **kw):
    base = {"vocab_size": 3, "max_len": 16, "d_model": 8, "n_heads": 2, "embed_std": 1.0}
    config = TransformerConfig(**{**base, "dtype": "float64", "positions": name, **kw})
    return POSITIONS[name](config, np.random.default_rng(seed))


@given(seeds, st.integers(0, 500), st.integers(0, 500), st.integers(-400, 400))
def test_rotary_scores_depend_on_the_offset_alone(seed, i, j, shift):
    rotary = scheme("rotary", d_head=6)
    q, k = np.random.default_rng(seed).standard_normal((2, 1, 1, 2, 6))

    def score(at_q, at_k):
        turned = [
            ops.rotary(x, *rotary.angles(np.array([at]))).data for x, at in ((q, at_q), (k, at_k))
        ]
        return (turned[0] * turned[1]).sum(-1)

    assert np.allclose(score(i, j), score(i + shift, j + shift), atol=1e-9)
    if i == j:
        assert np.allclose(score(i, j), (q * k).sum(-1), atol=1e-9)


def test_rotary_turns_by_position_times_rate():
    """One pair of features: the angle at position 3 is 3 radians."""
    cos, sin = scheme("rotary", d_head=2).angles(np.array([3]))
    x = ops.rotary(np.array([1.0, 0.0]).reshape(1, 1, 1, 2), cos, sin).data.ravel()
    assert np.allclose(x, [np.cos(3), np.sin(3)])


def test_rotary_rates_are_the_papers():
    """θ_i = base^(−2i/K), i = 0 … K/2 − 1."""
    rotary = scheme("rotary", d_head=8, rope_base=10000.0)
    assert np.allclose(rotary.rates, [1, 0.1, 0.01, 0.001])
    assert np.allclose(scheme("rotary", d_head=4, rope_base=100.0).rates, [1, 0.1])


def test_rotary_table_and_formula_agree_and_do_not_end():
    rotary = scheme("rotary")
    for at in (np.arange(5), np.array([[0, 15], [3, 3]]), np.array([-2, 40])):
        for got, wave in zip(rotary.angles(at), (np.cos, np.sin), strict=True):
            assert np.allclose(got, wave(at[..., None] * rotary.rates))


def test_alibi_slopes_are_the_papers():
    assert np.allclose(alibi_slopes(8), 0.5 ** np.arange(1, 9))
    assert np.allclose(alibi_slopes(4), [1 / 4, 1 / 16, 1 / 64, 1 / 256])
    assert np.allclose(alibi_slopes(1), [1 / 256])
    # not a power of two: the four of four heads, then the first and third of eight
    assert np.allclose(alibi_slopes(6), [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])


@given(st.integers(1, 12), st.integers(2, 12))
def test_alibi_falls_with_distance(H, T):
    at = np.arange(T)
    bias = scheme("alibi", n_heads=H, d_head=4).bias(at, at)
    assert bias.shape == (H, T, T)
    assert np.all(np.diff(bias[:, -1]) > 0)  # nearer is larger
    assert np.allclose(bias, np.swapaxes(bias, 1, 2)) and np.all(bias[:, at, at] == 0)
    slopes = alibi_slopes(H)
    assert np.allclose(bias[:, 1, 0], -slopes)


@given(st.integers(1, 5), st.integers(0, 30), st.integers(0, 30))
def test_a_sinusoidal_shift_is_a_rotation(half, at, shift):
    """One matrix, for all positions, turns p(t) into p(t + shift)."""
    D = 2 * half
    sinusoidal = scheme("sinusoidal", d_model=D, n_heads=1)
    waves = sinusoidal.embed(np.array([at, at + shift]))
    rates = 10000.0 ** (-2 * np.arange(half) / D)
    c, s = np.cos(shift * rates), np.sin(shift * rates)
    turn = np.zeros((D, D))
    for i in range(half):
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c[i], s[i]], [-s[i], c[i]]]
    assert np.allclose(turn @ turn.T, np.eye(D)) and np.allclose(turn @ waves[0], waves[1])


def test_sinusoidal_values():
    waves = scheme("sinusoidal", d_model=4, n_heads=1, embed_std=0.5).embed(np.array([0, 2]))
    assert np.allclose(
        waves, 0.5 * np.array([[0, 1, 0, 1], [np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)]])
    )
    odd = scheme("sinusoidal", d_model=5, n_heads=1)
    assert odd.embed(np.arange(3)).shape == (3, 5)


def test_learned_looks_its_rows_up():
    learned = scheme("learned")
    at = np.array([[3, 0], [1, 1]])
    assert np.array_equal(learned.embed(at).data, learned.weight.data[at])


@pytest.mark.parametrize("at", [np.array([16]), np.array([[0, -1]])])
def test_learned_schemes_end_at_max_len(at):
    with pytest.raises(MinitxError, match=f"Position {at.flat[-1]} .*0 … 15"):
        scheme("learned").embed(at)
    with pytest.raises(MinitxError, match=f"Position {at.flat[-1]}"):
        scheme("logit_bias").bias(np.array([0]), at)


def test_logit_bias_depends_on_the_key_alone():
    bias = scheme("logit_bias")
    bias.weight.data[...] = np.arange(32).reshape(16, 2)
    got = bias.bias(np.arange(3), np.array([5, 7])).data
    assert got.shape == (2, 1, 2) and got[:, 0].tolist() == [[10, 14], [11, 15]]
    batched = bias.bias(np.zeros((2, 3), int), np.array([[5, 7], [0, 1]]))
    assert batched.shape == (2, 2, 1, 2) and batched.data[1, :, 0].tolist() == [[0, 2], [1, 3]]
