"""What gets recorded: modes, threads, and primitives that a user writes."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import (
    Tensor,
    detect_anomaly,
    enable_grad,
    is_grad_enabled,
    no_grad,
    ops,
    primitive,
)
from minitx.errors import MinitxError


def leaf(x, dtype=np.float64):
    return Tensor(np.array(x, dtype), requires_grad=True)


# --------------------------------------------------------------------------------------- modes


def test_no_grad_records_nothing():
    x = leaf([1.0, 2.0])
    with no_grad():
        assert not is_grad_enabled()
        y = (x * 2).exp()
        with enable_grad():
            z = x * 2
        assert not is_grad_enabled()
    assert is_grad_enabled()
    assert not y.requires_grad and y._node is None and y.is_leaf
    assert z.requires_grad


def test_no_grad_as_a_decorator_of_a_function_that_calls_itself():
    @no_grad()
    def down(n):
        assert not is_grad_enabled()
        if n:
            down(n - 1)
        return leaf(1.0) * 2

    assert not down(3).requires_grad
    assert is_grad_enabled()


def test_no_grad_ends_with_an_exception():
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert is_grad_enabled()


def test_no_grad_is_for_one_thread():
    seen = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_two_threads_walk_their_own_graphs():
    def work(out):
        for _ in range(200):
            x = leaf([1.0, 2.0])
            y = (x * x).sum() + (x * 3).sum()
            y.backward()
            out.append(x.grad.tolist())

    results = [[], []]
    threads = [threading.Thread(target=work, args=(r,)) for r in results]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(g == [5, 7] for r in results for g in r) and len(results[0]) == 200


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_detect_anomaly_names_the_operation():
    x = leaf([0.0, 1.0])
    with detect_anomaly():
        with pytest.raises(MinitxError, match="log made the first NaN or infinity, in the forward"):
            (x.log() * 2.0).exp()
        y = (x.sqrt() * 2.0).sum()
        with pytest.raises(MinitxError, match="sqrt made the first NaN or infinity, in the back"):
            y.backward()
        # An infinity that was put in is nobody's fault.
        masked = ops.where(np.array([True, False]), x, -np.inf)
        assert masked.softmax().data.tolist() == [1, 0]
    assert not np.isfinite(x.log().data).all()


# ----------------------------------------------------------------------- primitives of a user


def test_tensors_by_keyword_get_their_gradients():
    x, w, b = leaf(np.ones((2, 3))), leaf(np.ones((4, 3))), leaf(np.zeros(4))
    ops.linear(x, bias=b, weight=w).sum().backward()
    np.testing.assert_array_equal(b.grad, np.full(4, 2.0))
    np.testing.assert_array_equal(w.grad, np.full((4, 3), 2.0))
    with pytest.raises(TypeError, match="no argument 'beta'"):
        ops.linear(x, w, beta=b)
    with pytest.raises(TypeError, match="misses its argument 'x'"):
        ops.linear(weight=w)


def test_needs_says_which_inputs_want_gradients():
    seen = []

    @primitive
    def watched(a, b, c=None, *, needs):
        seen.append(needs)
        return a * b, lambda g: (g, g, None)

    watched(leaf(1.0), 2.0)
    watched(1.0, leaf(2.0), c=Tensor(3.0))
    with no_grad():
        watched(leaf(1.0), leaf(2.0))
    assert seen == [(True, False), (False, True, False), (False, False)]


@given(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=6))
def test_uses_of_one_leaf_add_up(names):
    values = {"a": leaf(2.0), "b": leaf(3.0)}
    y = values[names[0]] * 1
    for name in names[1:]:
        y = y + values[name]
    y.backward()
    for name, t in values.items():
        assert (0 if t.grad is None else t.grad) == names.count(name)
