"""gradcheck must accept right gradients, catch the classic wrong ones, and say where."""

import numpy as np
import pytest

from minitx.autograd import GradcheckError, Tensor, gradcheck, no_grad, ops, primitive, tensor
from minitx.errors import MinitxError

X = np.random.default_rng(3).normal(size=(3, 4))


def softmax(x):
    e = np.exp(x - np.real(x).max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@primitive
def softmax_with_mean(x):  # the classic: mean where the sum belongs
    y = softmax(x)
    return y, lambda g: y * (g - (g * y).mean(axis=-1, keepdims=True))


@primitive
def softmax_of_a_diagonal(x):  # forgets how the outputs depend on each other
    y = softmax(x)
    return y, lambda g: g * y * (1 - y)


@primitive
def square_without_its_factor(x):
    return x * x, lambda g: g * x


@primitive
def negated(x):
    return np.exp(x), lambda g: -g * np.exp(x)


@primitive
def slightly_off(x):
    return np.exp(x), lambda g: g * np.exp(x) * (1 + 1e-5)


@primitive
def one_entry_wrong(x):
    def rule(g):
        gx = g * np.cos(x)
        gx[2, 1] += 0.01
        return gx

    return np.sin(x), rule


@primitive
def transposed(x):
    return x.T, lambda g: g.reshape(x.shape)


@primitive
def added_once(x, b):  # broadcasting undone by hand, and wrong: a mean where the sum belongs
    return x + b, lambda g: g, lambda g: g.mean(axis=0)


@primitive
def absolute_with_a_wrong_sign(x):
    return np.absolute(x), lambda g: -g * np.sign(x)


@primitive
def without_gradient(x):
    return np.exp(x), lambda g: np.zeros_like(g)


WRONG = {
    f.__name__: (f, [X])
    for f in (
        softmax_with_mean,
        softmax_of_a_diagonal,
        square_without_its_factor,
        negated,
        slightly_off,
        one_entry_wrong,
        transposed,
        absolute_with_a_wrong_sign,
        without_gradient,
    )
} | {"added_once": (added_once, [X, X[0]])}


@pytest.mark.parametrize("method", ["auto", "complex", "central"])
@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_gradients_are_caught(name, method):
    f, inputs = WRONG[name]
    if name == "absolute_with_a_wrong_sign" and method == "complex":
        with pytest.raises(MinitxError, match="use method='central'"):
            gradcheck(f, inputs, method)
        return
    with pytest.raises(GradcheckError):
        gradcheck(f, inputs, method)


def test_the_error_says_where():
    with pytest.raises(GradcheckError, match=r"input 0 at index \(2, 1\)") as caught:
        gradcheck(one_entry_wrong, X)
    error = caught.value
    assert (error.input, error.index) == (0, (2, 1))
    assert error.expected == pytest.approx(error.got - 0.01, abs=1e-9)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(added_once, [X, X[0]])
    assert caught.value.input == 1


def test_detached_input_is_caught():
    with pytest.raises(GradcheckError, match="backward gives"):
        gradcheck(lambda x: x * x.detach(), X)
    with pytest.raises(GradcheckError, match="input 1 .* backward gives 0,"):
        gradcheck(lambda x, y: x * y.detach(), [X, X + 1])


@pytest.mark.parametrize("method", ["auto", "complex", "central"])
def test_right_gradients_pass(method):
    assert gradcheck(lambda x, w: ops.gelu(x @ w).softmax() * x.sum(), [X, X.T], method)
    assert gradcheck(ops.exp, 1.5, method)


def test_functions_that_are_not_analytic():
    # sin is analytic and |x| is not: the complex step sees only half of it.
    assert gradcheck(lambda x: ops.sin(x) + ops.absolute(x) * x, X)
    assert gradcheck(ops.absolute, X, method="central")
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: ops.sin(x) + ops.absolute(x) * x, X, method="complex")


def test_tensors_are_given_back_unchanged():
    data = X.astype(np.float32)
    t = Tensor(data, requires_grad=True)
    t.grad = before = np.ones_like(data)
    w = Tensor(X)
    seen = []
    gradcheck(lambda a, b: (seen.append((a is t, b is w, a.dtype)), a * b)[1], [t, w])
    assert t.data is data and t.grad is before and t.dtype == np.float32 and t.requires_grad
    assert not w.requires_grad and w.grad is None and w.data is X
    assert all(s[:2] == (True, True) for s in seen) and seen[0][2] == np.float64
    with pytest.raises(GradcheckError):
        gradcheck(softmax_with_mean, t)
    assert t.data is data and t.grad is before


def test_closures_over_parameters_are_checked():
    w, b = tensor(X, requires_grad=True), tensor(X[0], requires_grad=True)
    x = Tensor(X)
    assert gradcheck(lambda *_: (ops.tanh(x * w) + b).sum(), [w, b])
    with pytest.raises(GradcheckError):
        gradcheck(lambda *_: softmax_with_mean(x * w) + b, [w, b])


def test_integers_are_passed_on():
    tokens = np.array([0, 2, 2])
    assert gradcheck(lambda t, w: ops.embedding(t, w), [tokens, X])
    with pytest.raises(MinitxError, match="integers have no gradient"):
        gradcheck(lambda t: t * 1.0, [tokens])


def test_samples_of_large_inputs():
    calls = []
    big = np.ones((50, 40))
    assert gradcheck(lambda x: (calls.append(1), x * x)[1], big, sample=5)
    assert len(calls) < 20


def test_works_under_no_grad():
    with no_grad():
        assert gradcheck(ops.exp, X)


def test_errors():
    rng = np.random.default_rng(0)
    with pytest.raises(MinitxError, match="deterministic"):
        gradcheck(lambda x: ops.dropout(x, 0.5, rng), X)
    with pytest.raises(MinitxError, match="not finite"):
        gradcheck(lambda x: x * np.inf, X)
    with pytest.raises(MinitxError, match="return a Tensor, got ndarray"):
        gradcheck(lambda x: x.data, X)
    with pytest.raises(MinitxError, match="Unknown method 'centre'"):
        gradcheck(ops.exp, X, method="centre")
    with pytest.raises(MinitxError, match="leaf tensors"):
        gradcheck(ops.exp, [tensor(X, requires_grad=True) * 2])
