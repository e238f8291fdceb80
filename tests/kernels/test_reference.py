"""The definition itself: backward rules against the complex step, values known from outside."""

import numpy as np
import pytest

from minitx.kernels import reference


def complex_step(f, x):
    """Gradient of the scalar ``f`` at ``x``, exact to the last digit where ``f`` is analytic."""
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        z = x.astype(np.complex128)
        z[i] += 1e-20j
        g[i] = np.imag(f(z)) / 1e-20
    return g


def check(f, gradients, inputs, g):
    """``gradients[i]`` is the gradient of ``sum(g * f(*inputs))`` for ``inputs[i]``."""
    for i, gradient in enumerate(gradients):

        def one(x, i=i):
            return (g * f(*inputs[:i], x, *inputs[i + 1 :])).sum()

        np.testing.assert_allclose(gradient, complex_step(one, inputs[i]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("off_by_one", [False, True])
def test_softmax_backward(rng, off_by_one):
    x, g, mask = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), rng.random((3, 5)) < 0.6
    y = reference.softmax(x, mask, off_by_one)
    check(
        lambda x: reference.softmax(x, mask, off_by_one), [reference.softmax_backward(g, y)], [x], g
    )


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_activations_backward(rng, name):
    x, g = 3 * rng.normal(size=(4, 5)), rng.normal(size=(4, 5))
    check(getattr(reference, name), [getattr(reference, f"{name}_backward")(g, x)], [x], g)


def test_log_softmax_and_cross_entropy_backward(rng):
    x, g, targets = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), np.array([1, -100, 4])
    y = reference.log_softmax(x)
    check(reference.log_softmax, [reference.log_softmax_backward(g, y)], [x], g)
    _, lse, count = reference.cross_entropy(x, targets)
    gradient = reference.cross_entropy_backward(2.0, x, lse, targets, -100, count)
    check(lambda x: reference.cross_entropy(x, targets)[0], [gradient], [x], 2.0)
    assert (gradient[1] == 0).all()


def test_norms_backward(rng):
    x, w, b, g = (rng.normal(size=s) for s in [(2, 3, 5), 5, 5, (2, 3, 5)])
    _, mean, rstd = reference.layer_norm(x, w, b)
    gradients = reference.layer_norm_backward(g, x, w, mean, rstd)
    check(lambda *a: reference.layer_norm(*a)[0], gradients, [x, w, b], g)
    _, rrms = reference.rms_norm(x, w)
    gradients = reference.rms_norm_backward(g, x, w, rrms)
    check(lambda *a: reference.rms_norm(*a)[0], gradients, [x, w], g)


def test_linear_backward(rng):
    x, w, b, g = (rng.normal(size=s) for s in [(2, 3, 5), (4, 5), 4, (2, 3, 4)])
    check(reference.linear, reference.linear_backward(g, x, w), [x, w, b], g)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("off_by_one", [False, True])
def test_attention_backward(rng, causal, off_by_one):
    q, k, v, g = (rng.normal(size=(2, 4, 2, 3)) for _ in range(4))
    bias = rng.normal(size=(2, 2, 4, 4))

    def f(q, k, v, bias):
        return reference.attention(q, k, v, None, bias, 0.5, off_by_one, causal)

    gradients = reference.attention_backward(
        g, q, k, v, f(q, k, v, bias)[1], 0.5, causal, want_bias=True
    )
    check(lambda *a: f(*a)[0], gradients, [q, k, v, bias], g)


def test_rotary_turns_back_and_keeps_lengths(rng):
    x, angle = rng.normal(size=(2, 3, 2, 4)), rng.normal(size=(3, 2))
    turned = reference.rotary(x, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(np.linalg.norm(turned), np.linalg.norm(x))
    back = reference.rotary(turned, np.cos(angle), np.sin(angle), inverse=True)
    np.testing.assert_allclose(back, x)
    assert not np.allclose(turned, x)


def test_embedding_gradient_adds_up_repeated_tokens():
    g = np.array([[1.0, 2], [10, 20], [100, 200]])
    got = reference.embedding_backward(g, np.array([1, 0, 1]), 3)
    np.testing.assert_array_equal(got, [[10, 20], [101, 202], [0, 0]])


@pytest.mark.parametrize(
    ("logits", "loss"),
    [
        ([0, -100, -100, -100], 0),
        ([0, 0, 0, 0], np.log(4)),
        ([0, 0, 0, -100], np.log(3)),
        ([1000, 0, 0, 0], 0),
    ],
)
def test_cross_entropy_by_hand(logits, loss):
    got = reference.cross_entropy(np.array([logits], float), np.array([0]))[0]
    np.testing.assert_allclose(got, loss, atol=1e-12)


def test_softmax_laws(rng):
    x = rng.normal(size=(4, 6)) * 10
    np.testing.assert_allclose(reference.softmax(x), reference.softmax(x + 1000))
    with_zero = np.concatenate([x, np.zeros((4, 1))], axis=1)
    np.testing.assert_allclose(
        reference.softmax(x, off_by_one=True), reference.softmax(with_zero)[:, :6]
    )
    for big in (1e4, -1e4):
        y = reference.softmax(np.full((1, 3), big), off_by_one=True)
        np.testing.assert_allclose(y.sum(), 1 if big > 0 else 0)
    assert (reference.softmax(x, np.zeros((4, 6), bool)) == 0).all()


def test_gelu_by_hand():
    np.testing.assert_allclose(
        reference.gelu(np.array([-1.0, 0.0, 1.0])), [-0.158808, 0.0, 0.841192], atol=1e-6
    )


def test_adamw_first_step_moves_by_lr_against_the_sign(rng):
    p, g = np.ones(5), rng.normal(size=5)
    m, v = np.zeros(5), np.zeros(5)
    reference.adamw(p, g, m, v, 0.01, 0.9, 0.999, 0.0, 0.1, 1)
    np.testing.assert_allclose(p, 1 - 0.01 * 0.1 - 0.01 * np.sign(g))
