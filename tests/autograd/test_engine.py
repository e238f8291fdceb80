"""The walk back: order, adding up, letting go, and the errors on the way."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from minitx.autograd import (
    Tensor,
    ops,
    primitive,
)
from minitx.autograd.engine import unbroadcast
from minitx.errors import MinitxError, ShapeError


def leaf(x, dtype=np.float64):
    return Tensor(np.array(x, dtype), requires_grad=True)


# ------------------------------------------------------------------------------- broadcasting


@given(hnp.mutually_broadcastable_shapes(num_shapes=1, base_shape=(2, 1, 3), max_dims=4))
def test_unbroadcast_is_the_transpose_of_broadcasting(pair):
    # <broadcast(x), g> = <x, unbroadcast(g)> for all x and g defines it.
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=pair.input_shapes[0]), rng.normal(size=pair.result_shape)
    back = unbroadcast(g, x.shape)
    assert back.shape == x.shape
    np.testing.assert_allclose((np.broadcast_to(x, g.shape) * g).sum(), (x * back).sum())


def test_a_rule_with_a_wrong_shape_is_named():
    @primitive
    def wrong(x):
        return x, lambda g: g[:1]

    with pytest.raises(ShapeError, match=r"wrong returned \(1,\) for an input of shape \(3,\)"):
        wrong(leaf([1, 2, 3])).backward(np.ones(3))


# ---------------------------------------------------------------------------------- the order


def test_deep_chain():
    x = leaf(1.0)
    y = x
    for _ in range(10_000):
        y = y * 1.0
    y.backward()
    assert x.grad == 1


def test_deep_chain_that_is_dropped_without_backward():
    y = leaf(1.0)
    for _ in range(100_000):
        y = y + 1.0
    del y  # freeing a chain of nodes must not recurse
    gc.collect()


def test_ladder_of_shared_nodes_is_walked_once():
    x = leaf(1.0)
    calls = []

    @primitive
    def counted(a):
        return a * 1.0, lambda g: (calls.append(1), g)[1]

    y = x
    for _ in range(60):  # 2**60 paths
        y = counted(y)
        y = y + y
    y.backward()
    assert x.grad == 2.0**60
    assert len(calls) == 60


def test_a_long_way_and_a_short_way():
    # The short way must wait for the long one, or part of the gradient is lost.
    x = leaf(3.0)
    a = x * 2.0
    b = a
    for _ in range(5):
        b = b * 1.0
    (a * b).backward()
    assert x.grad == 2 * 4 * 3.0


# ----------------------------------------------------------------------- gradients of leaves


def test_calls_add_up():
    x = leaf([1, 2])
    (x * 3).sum().backward()
    (x * 4).sum().backward()
    np.testing.assert_array_equal(x.grad, [7, 7])


def test_first_gradient_is_stored_not_added():
    x = leaf([1, 2])
    made = []

    @primitive
    def remember(a):
        def rule(g):
            made.append(g * 2)
            return made[-1]

        return a, rule

    remember(x).backward(np.ones(2))
    assert x.grad is made[0]


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: ops.concatenate([a, b]),
        lambda a, b: ops.stack([a, b]),
        lambda a, b: a.reshape(2, 1).T + b,
        lambda a, b: ops.broadcast_to(a, (2,)) + b[::-1],
        lambda a, b: a.sum() + b.sum(),
        lambda a, b: ops.dropout(a, 0.0, None) + b,
    ],
)
def test_gradients_are_never_shared(f):
    a, b = leaf([1, 2]), leaf([3, 4])
    y = f(a, b)
    upstream = np.ones(y.shape)
    y.backward(upstream)
    assert not np.shares_memory(a.grad, b.grad)
    assert not np.shares_memory(a.grad, upstream) and not np.shares_memory(b.grad, upstream)
    before = b.grad.copy()
    a.grad += 100
    np.testing.assert_array_equal(b.grad, before)
    assert upstream.max() == 1


def test_one_array_for_two_inputs():
    @primitive
    def both(a, b):
        def rule(g):
            twice = g * 2
            return twice, twice

        return a + b, rule

    a, b = leaf([1.0]), leaf([1.0])
    both(a, b).backward(np.ones(1))
    assert not np.shares_memory(a.grad, b.grad)
    a, b = leaf([1.0]), leaf([1.0])
    h, k = a * 1.0, b * 1.0
    y = both(h, k)
    (y + h * 3.0).backward(np.ones(1))  # h's 3 comes first; adding to it must not change k's 2
    assert a.grad == 5 and b.grad == 2


def test_upstream_of_a_leaf_is_copied():
    x, upstream = leaf([1, 2]), np.ones(2)
    x.backward(upstream)
    x.grad += 1
    assert upstream.max() == 1


def test_adding_up_does_not_touch_what_a_rule_passed_on():
    # x's two gradients are g itself and a fresh array; z holds g too.
    x, z = leaf([1.0, 2.0]), leaf([0.0, 0.0])
    upstream = np.ones(2)
    h = x * 1.0
    ((h + z) + h * 5.0).backward(upstream)
    h = x * 1.0
    (h * 5.0 + (h + z)).backward(upstream)  # the other way about
    np.testing.assert_array_equal(x.grad, [12, 12])
    np.testing.assert_array_equal(z.grad, [2, 2])
    np.testing.assert_array_equal(upstream, [1, 1])


def test_gradient_buffer_is_written_in_place():
    flat = np.full(4, np.nan)
    a, b = leaf([1, 2]), leaf([3, 4])
    a.grad_buffer, b.grad_buffer = flat[:2], flat[2:]
    (a * b + a).sum().backward()
    np.testing.assert_array_equal(flat, [4, 5, 1, 2])
    assert np.shares_memory(a.grad, flat)
    (a * b).sum().backward()
    np.testing.assert_array_equal(flat, [7, 9, 2, 4])
    a.grad = b.grad = None
    a.sum().backward()
    np.testing.assert_array_equal(flat, [1, 1, 2, 4])


def test_mixed_dtypes_come_back_in_their_own():
    a, b = leaf([1, 2], np.float32), leaf([3, 4], np.float64)
    y = a * b
    assert y.dtype == np.float64
    y.sum().backward()
    assert a.grad.dtype == np.float32 and b.grad.dtype == np.float64


# ---------------------------------------------------------------------------- computed tensors


def test_computed_gradients_are_kept_only_on_request():
    x = leaf([1.0, 2.0])
    a = x * 2
    b = (a * 3).retain_grad()
    (b * b).sum().backward()
    assert a.grad is None
    np.testing.assert_array_equal(b.grad, [12, 24])
    np.testing.assert_array_equal(x.grad, [72, 144])
    assert x.retain_grad() is x


def test_retained_gradient_is_not_shared():
    x = leaf([1.0, 2.0])
    y = (x * 1.0).retain_grad()
    z = y + 0.0
    z.sum().backward()
    y.grad += 10
    np.testing.assert_array_equal(x.grad, [1, 1])


def test_retain_grad_needs_a_gradient():
    with pytest.raises(MinitxError, match="no gradient will reach"):
        Tensor([1.0]).retain_grad()


def test_arrays_are_let_go_after_backward():
    held = []

    @primitive
    def holding(x):
        big = np.array(x)
        held.append(weakref.ref(big))
        return x * 2, lambda g: g * big

    x = leaf([1.0, 2.0])
    y = holding(x)
    assert held[0]() is not None
    y.sum().backward()
    assert held[0]() is None


def test_intermediate_arrays_live_only_if_a_rule_needs_them():
    x = leaf(np.ones(5))
    middle = x * 2.0
    alive = weakref.ref(middle.data)
    y = middle + 1.0
    del middle
    assert alive() is None
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, np.full(5, 2.0))


# ------------------------------------------------------------------------------------- errors


def test_second_backward():
    x = leaf(2.0)
    y = x * x
    y.backward()
    with pytest.raises(MinitxError, match="run the forward pass again"):
        y.backward()
    assert x.grad == 4


def test_second_backward_through_a_shared_part_changes_nothing():
    x, w = leaf(2.0), leaf(5.0)
    shared = x * x
    first, second = shared * 3.0, shared * w
    first.backward()
    before = x.grad.copy()
    with pytest.raises(MinitxError, match="freed"):
        (second + w).backward()
    assert x.grad == before and w.grad is None


def test_retain_graph():
    x = leaf(2.0)
    y = (x * x).exp()
    y.backward(retain_graph=True)
    once = x.grad.copy()
    y.backward()
    assert x.grad == pytest.approx(2 * once)


def test_backward_needs_a_scalar():
    with pytest.raises(MinitxError, match=r"shape \(2,\)"):
        (leaf([1, 2]) * 2).backward()


def test_backward_needs_a_gradient_of_the_right_shape():
    with pytest.raises(ShapeError, match=r"\(2,\), got \(3,\)"):
        (leaf([1, 2]) * 2).backward(np.ones(3))


def test_backward_needs_a_graph():
    with pytest.raises(MinitxError, match="no_grad"):
        Tensor([1.0]).sum().backward()
    with pytest.raises(MinitxError, match="has none"):
        leaf([1.0]).detach().sum().backward()


def test_input_without_a_gradient_rule():
    with pytest.raises(MinitxError, match="clip has no gradient by its input 1"):
        ops.clip(leaf([1.0]), leaf([0.0])).backward(np.ones(1))


def test_failed_walk_leaves_no_trace():
    broken = True

    @primitive
    def fragile(x):
        def rule(g):
            if broken:
                raise RuntimeError("boom")
            return g

        return x * 1, rule

    x = leaf(1.0)
    h = x * 2.0
    y = fragile(h) + h
    with pytest.raises(RuntimeError, match="boom"):
        y.backward(retain_graph=True)
    broken = False
    x.grad = None
    y.backward()
    assert x.grad == 4


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x + np.ones(4), r"add cannot take a \(2, 3\), b \(4,\)"),
        (lambda x: x @ np.ones((2, 2)), r"matmul cannot take a \(2, 3\), b \(2, 2\)"),
        (lambda x: x.reshape(5), r"reshape cannot take x \(2, 3\), shape 5"),
        (lambda x: x.sum(axis=2), r"sum cannot take x \(2, 3\), axis 2"),
        (lambda x: ops.concatenate([x, x.T]), r"concatenate cannot take"),
        (lambda x: ops.linear(x, np.ones((5, 4))), r"linear needs .* got x \(2, 3\), weight"),
        (lambda x: ops.layer_norm(x, np.ones(4)), r"layer_norm needs .* weight \(4,\)"),
        (lambda x: ops.cross_entropy(x, [0, 1, 2]), r"targets \[...\]; got logits \(2, 3\)"),
        (lambda x: ops.einsum("ij,jk->ik", x, x), r"einsum cannot take"),
        (lambda x: ops.softmax(x, mask=np.ones((3, 2), bool)), r"mask that broadcasts to \(2, 3\)"),
    ],
)
def test_wrong_shapes_are_restated(f, message):
    with pytest.raises(ShapeError, match=message):
        f(leaf(np.ones((2, 3))))
