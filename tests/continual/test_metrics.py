"""Metrics of continual learning: formulas, bounds, and the oracles on which libraries disagree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minitx.continual import metrics
from minitx.errors import ShapeError

square = st.integers(1, 6).flatmap(
    lambda n: arrays(np.float64, (n, n), elements=st.floats(0, 1, width=32))
)


def test_forgetting_leaves_the_last_row_out_of_the_maximum():
    # One earlier task: best before the last row .5, at the end .6; it was not forgotten but helped.
    assert metrics.forgetting(np.array([[0.5, 0.0], [0.6, 0.8]])) == pytest.approx(-0.1)


def test_a_matrix_by_hand():
    a = np.array([[0.9, 0.2, 0.1], [0.5, 0.8, 0.3], [0.4, 0.6, 1.0]])
    assert metrics.average_accuracy(a) == pytest.approx((0.4 + 0.6 + 1.0) / 3)
    assert metrics.learning_accuracy(a) == pytest.approx((0.9 + 0.8 + 1.0) / 3)
    assert metrics.backward_transfer(a) == pytest.approx(((0.4 - 0.9) + (0.6 - 0.8)) / 2)
    assert metrics.forgetting(a) == pytest.approx((0.5 + 0.2) / 2)
    assert metrics.forward_transfer(a, [0.1, 0.1, 0.1]) == pytest.approx((0.1 + 0.2) / 2)
    assert metrics.intransigence(a, [1, 1, 1]) == pytest.approx((0.1 + 0.2 + 0.0) / 3)


@given(square)
def test_forgetting_is_bounded_and_at_least_minus_backward_transfer(a):
    before = a.copy()
    lost = metrics.forgetting(a)
    assert -1 <= lost <= 1
    assert lost >= -metrics.backward_transfer(a) - 1e-12
    assert np.array_equal(a, before)


@given(square)
def test_forgetting_equals_minus_backward_transfer_where_the_diagonal_is_the_best(a):
    np.fill_diagonal(a, a.max(axis=0))
    assert metrics.forgetting(a) == pytest.approx(-metrics.backward_transfer(a), abs=1e-12)


def test_one_task_is_defined():
    one = np.array([[0.7]])
    assert metrics.forgetting(one) == metrics.backward_transfer(one) == 0
    assert metrics.forward_transfer(one, [0.1]) == 0
    assert metrics.average_accuracy(one) == pytest.approx(0.7)


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros(3), np.zeros((0, 0))])
def test_a_matrix_that_is_not_square_is_refused(wrong):
    with pytest.raises(ShapeError, match=r"\[T, T\]"):
        metrics.forgetting(wrong)


def test_a_vector_of_the_wrong_length_is_refused():
    with pytest.raises(ShapeError, match=r"\[2\]"):
        metrics.intransigence(np.eye(2), [1.0])
    with pytest.raises(ShapeError, match=r"\[2\]"):
        metrics.forward_transfer(np.eye(2), [1.0])
