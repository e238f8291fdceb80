"""Values known from outside, worked out by hand or in closed form."""

import numpy as np
import pytest

from minitx.autograd import Tensor, ops, tensor
from minitx.autograd.engine import unbroadcast


def leaf(x):
    return tensor(x, requires_grad=True, dtype=np.float64)


def test_expression_of_micrograd():
    a, b = leaf(-4.0), leaf(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
    assert g.item() == pytest.approx(24.70408, abs=5e-6)
    assert a.grad == pytest.approx(138.83382, abs=5e-6)
    assert b.grad == pytest.approx(645.57726, abs=5e-6)


def test_sanity_check_of_micrograd():
    x = leaf(-4.0)
    z = 2 * x + 2 + x
    q = z.relu() + z * x
    h = (z * z).relu()
    y = h + q + q * x
    y.backward()
    assert y.item() == -20
    assert x.grad == 46


def test_shared_node():
    a = leaf(1.0)
    b = a + a
    c = b + b
    c.backward()
    assert a.grad == 4


def test_shared_node_in_a_product():
    b = leaf([1, 2, 3])
    ((2 * b) * (3 * b)).backward(np.ones(3))
    np.testing.assert_array_equal(b.grad, [12, 24, 36])


@pytest.mark.parametrize(
    ("wide", "narrow", "value"),
    [
        ((5, 1, 2, 4, 3), (2, 1, 3), 20),
        ((5, 1, 2, 1, 3), (2, 1, 3), 5),
        ((2, 4, 3), (2, 1, 3), 4),
        ((2, 4, 3), (1, 1, 3), 8),
    ],
)
def test_unbroadcast_counts_the_copies(wide, narrow, value):
    np.testing.assert_array_equal(unbroadcast(np.ones(wide), narrow), np.full(narrow, value))


def test_quotient_that_broadcasts():
    a, b = leaf([0, 6, 12, 18]), leaf([[1], [2], [3]])
    (a / b).backward(np.ones((3, 4)))
    np.testing.assert_allclose(a.grad, [11 / 6] * 4, rtol=1e-15)
    np.testing.assert_allclose(b.grad, [[-36], [-9], [-4]], rtol=1e-15)


def test_matrix_product():
    a = leaf(np.arange(-3, 3).reshape(2, 3))
    b = leaf(np.arange(-4, 5).reshape(3, 3))
    (a @ b).backward(np.ones((2, 3)))
    np.testing.assert_array_equal(a.grad, [[-9, 0, 9]] * 2)
    np.testing.assert_array_equal(b.grad, [[-3] * 3, [-1] * 3, [1] * 3])


def test_repeated_index():
    x = leaf(np.zeros((2, 3)))
    x[[0, 1, 0, 1, 0], [0, 0, 1, 2, 0]].backward(np.full(5, 10.0))
    np.testing.assert_array_equal(x.grad, [[20, 10, 0], [10, 0, 10]])


def test_log_of_a_product_of_logs():
    # d/dc of the sum of ln(a b ln c) is n / (c ln c): 3 / (10 ln 10)
    a, b, c = leaf([1.0, 2.0, 3.0]), leaf([2.0, 3.0, 4.0]), leaf(10.0)
    ((a * b) * c.log()).log().sum().backward()
    assert c.grad == pytest.approx(0.1302883, abs=5e-8)


@pytest.mark.parametrize(
    ("logits", "loss"),
    [
        ([0, -100, -100, -100], 0),
        ([5, 5, 5, 5], np.log(4)),
        ([0, 0, 0, -100], np.log(3)),
        ([1000, 0, 0, 0], 0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy(logits, loss, dtype):
    got = ops.cross_entropy(Tensor(np.array([logits], dtype)), [0]).item()
    assert got == pytest.approx(loss, abs=1e-6)
