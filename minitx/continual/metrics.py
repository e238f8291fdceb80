"""What is kept and what is lost over a sequence of tasks, from one accuracy matrix.

``A[i, j]`` is the accuracy on task j after training on task i, for T tasks, rows and columns in the
order of training. Libraries disagree on these names (one calls −BWT forgetting, another lets the
maximum run over the last row too); here each is the formula of the paper that is named.
"""

from __future__ import annotations

import numpy as np

from minitx.errors import ShapeError


def _matrix(accuracy: np.ndarray) -> np.ndarray:
    a = np.asarray(accuracy, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or a.size == 0:
        raise ShapeError(
            f"Expected an accuracy matrix [T, T] (row: after task i, column: task j); "
            f"got shape {list(a.shape)}."
        )
    return a


def average_accuracy(accuracy: np.ndarray) -> float:
    """``mean_j A[T, j]``: how much of everything is known at the end (Lopez-Paz & Ranzato, 2017).

    Parameters
    ----------
    accuracy : float [T, T]

    Raises
    ------
    ShapeError
        If the matrix is not square.
    """
    return float(_matrix(accuracy)[-1].mean())


def learning_accuracy(accuracy: np.ndarray) -> float:
    """``mean_j A[j, j]``: how well each task was learnt when its turn came (Riemer et al., 2019)."""
    return float(np.diag(_matrix(accuracy)).mean())


def backward_transfer(accuracy: np.ndarray) -> float:
    """``mean_{j<T} (A[T, j] − A[j, j])`` (Lopez-Paz & Ranzato, 2017); 0 for a single task."""
    a = _matrix(accuracy)
    return float((a[-1] - np.diag(a))[:-1].mean()) if len(a) > 1 else 0.0


def forward_transfer(accuracy: np.ndarray, untrained: np.ndarray) -> float:
    """``mean_{i≥2} (A[i−1, i] − b_i)`` (Lopez-Paz & Ranzato, 2017); 0 for a single task.

    Parameters
    ----------
    accuracy : float [T, T]
    untrained : float [T]
        ``b``: accuracy on each task at random initialisation.
    """
    a, b = _matrix(accuracy), np.asarray(untrained, dtype=np.float64)
    if b.shape != (len(a),):
        raise ShapeError(
            f"Expected one untrained accuracy a task, [{len(a)}]; got {list(b.shape)}."
        )
    return float((np.diag(a, 1) - b[1:]).mean()) if len(a) > 1 else 0.0


def forgetting(accuracy: np.ndarray) -> float:
    """``mean_{j<T} (max_{l<T} A[l, j] − A[T, j])``, in [−1, 1] (Chaudhry et al., 2018).

    The maximum leaves out the last row, so the value may be negative: the last task may have helped
    an earlier one. At least ``−backward_transfer``; equal to it where each task was at its best right
    after its training. 0 for a single task.
    """
    a = _matrix(accuracy)
    return float((a[:-1].max(axis=0) - a[-1])[:-1].mean()) if len(a) > 1 else 0.0


def intransigence(accuracy: np.ndarray, joint: np.ndarray) -> float:
    """``mean_k (A*_k − A[k, k])``: what the model could not learn any more (Chaudhry et al., 2018).

    Parameters
    ----------
    accuracy : float [T, T]
    joint : float [T]
        ``A*``: accuracy on each task of a model that was trained on all of them together.
    """
    a, best = _matrix(accuracy), np.asarray(joint, dtype=np.float64)
    if best.shape != (len(a),):
        raise ShapeError(f"Expected one joint accuracy a task, [{len(a)}]; got {list(best.shape)}.")
    return float((best - np.diag(a)).mean())
