"""One property test for every operation, made by one factory from the table in `cases.py`.

For each line of the table: the value against NumPy; the gradient by complex step, or by central
differences where a function is not analytic; that it is linear in the upstream gradient; and
manners: nobody's array is written to, no gradient is shared, the graph is let go, odd layouts and
float32 work.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor, no_grad, ops
from minitx.errors import MinitxError
from tests.autograd.cases import CASES


def test_the_table_has_every_operation():
    assert set(CASES) == set(ops.__all__), "each operation needs a line in CASES"
    public = {
        name
        for name, f in vars(ops).items()
        if callable(f) and not name.startswith("_") and f.__module__.startswith("minitx.autograd")
    }
    assert public - {"primitive", "Tensor"} == set(ops.__all__)


@pytest.mark.parametrize("name", sorted(CASES))
def test_operation(name):
    case = CASES[name]

    @given(case.examples, st.integers(0, 2**32 - 1))
    def check(example, seed):
        check_operation(case, example, np.random.default_rng(seed))

    check()


def leaves(arrays):
    return [Tensor(x, requires_grad=True) for x in arrays]


def gradients(op, arrays, upstream):
    tensors = leaves(arrays)
    op(*tensors).backward(upstream)
    return [t.grad for t in tensors]


def check_operation(case, example, rng):
    inputs, op = example.inputs, example.op
    before = [x.copy() for x in inputs]
    tensors = leaves(inputs)
    y = op(*tensors)
    expected = np.asarray(example.reference(*inputs))
    assert type(y.data) is np.ndarray and y.dtype == np.float64 and y.shape == expected.shape
    np.testing.assert_allclose(y.data, expected, rtol=1e-11, atol=1e-12)

    upstream, other = rng.normal(size=(2, *y.shape))
    upstream, other = np.asarray(upstream), np.asarray(other)
    upstream_before = upstream.copy()
    y.backward(upstream, retain_graph=True)
    grads = [t.grad for t in tensors]
    for t, numeric in zip(tensors, numeric_gradients(case, example, upstream), strict=True):
        assert type(t.grad) is np.ndarray and t.grad.dtype == np.float64
        tolerance = 1e-8 if case.analytic else 1e-6
        np.testing.assert_allclose(t.grad, numeric, rtol=tolerance, atol=tolerance)

    # Nobody's arrays were written to, and every gradient is its leaf's alone.
    assert all(np.array_equal(x, b) for x, b in zip(inputs, before, strict=True))
    assert np.array_equal(upstream, upstream_before)
    for i, j in itertools.combinations(range(len(grads)), 2):
        assert not np.shares_memory(grads[i], grads[j])
    for grad in grads:
        assert not any(np.shares_memory(grad, a) for a in (y.data, upstream, *inputs))

    # Linear in the upstream gradient; a second call adds to the first; after it the graph is gone.
    y.backward(2 * other - upstream)
    for t, g in zip(tensors, gradients(op, inputs, other), strict=True):
        np.testing.assert_allclose(t.grad, 2 * g, rtol=1e-9, atol=1e-10)
    assert y._node.rules is None and y._node.parents is None
    with pytest.raises(MinitxError, match="freed"):
        y.backward(upstream)

    expected = gradients(op, inputs, upstream)
    check_layouts(op, inputs, upstream, expected)
    check_needs(op, inputs, upstream, expected)
    check_repeated_use(op, inputs, upstream, expected)
    if case.same_dtype:
        check_float32(op, inputs, upstream, expected)


def numeric_gradients(case, example, upstream):
    """d sum(upstream * f) / d x by nudging one number at a time."""
    for i, x in enumerate(example.inputs):
        grad = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            if case.analytic:
                grad[index] = nudged(example, i, index, 1e-20j, upstream).imag / 1e-20
            else:
                up, down = (nudged(example, i, index, h, upstream) for h in (1e-6, -1e-6))
                grad[index] = (up - down) / 2e-6
        yield grad


def nudged(example, i, index, step, upstream):
    arrays = list(example.inputs)
    arrays[i] = arrays[i].astype(complex if isinstance(step, complex) else float)
    arrays[i][index] += step
    with no_grad():
        return (example.op(*map(Tensor, arrays)).data * upstream).sum()


def check_layouts(op, inputs, upstream, expected):
    """Strided, reversed, Fortran-ordered and read-only arrays mean what they say."""

    def strided(x):
        room = np.full([2 * n for n in x.shape], np.nan)
        view = room[(..., *(slice(None, None, -2) for _ in x.shape))]
        view[...] = x
        return view

    def frozen(x):
        x = np.array(x, order="F")
        x.flags.writeable = False
        return x

    for change in (strided, frozen):
        got = gradients(op, [change(x) for x in inputs], change(upstream))
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-12)
    # Every entry the same one: what the gradient of a sum looks like.
    constant = np.broadcast_to(np.array(0.7), upstream.shape)
    for g, e in zip(
        gradients(op, inputs, constant), gradients(op, inputs, constant.copy()), strict=True
    ):
        np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-12)


def check_needs(op, inputs, upstream, expected):
    """Inputs that need no gradient, tensors or arrays, get none and change nothing."""
    for i, e in enumerate(expected):
        tensors = [Tensor(x, requires_grad=i == j) for j, x in enumerate(inputs)]
        op(*tensors).backward(upstream)
        assert all(t.grad is None for j, t in enumerate(tensors) if j != i)
        np.testing.assert_allclose(tensors[i].grad, e, rtol=1e-11, atol=1e-12)
        mixed = [t if i == j else inputs[j] for j, t in enumerate(tensors)]
        tensors[i].grad = None
        op(*mixed).backward(upstream)
        np.testing.assert_allclose(tensors[i].grad, e, rtol=1e-11, atol=1e-12)
    assert not op(*map(Tensor, inputs)).requires_grad


def check_repeated_use(op, inputs, upstream, expected):
    """A leaf and a computed tensor that are used three times add up three paths."""
    tensors = leaves(inputs)
    middle = [t * 1.0 for t in tensors]
    (op(*middle) + op(*middle) + op(*tensors)).backward(upstream)
    for t, e in zip(tensors, expected, strict=True):
        np.testing.assert_allclose(t.grad, 3 * e, rtol=1e-9, atol=1e-10)


def check_float32(op, inputs, upstream, expected):
    tensors = leaves([x.astype(np.float32) for x in inputs])
    y = op(*tensors)
    assert y.dtype == np.float32
    y.backward(upstream)
    for t, e in zip(tensors, expected, strict=True):
        assert t.grad.dtype == np.float32
        np.testing.assert_allclose(t.grad, e, rtol=2e-3, atol=2e-4)
