"""How alike are two representations, or two subspaces? Pure functions of arrays.

Nothing here edits its inputs, and read-only arrays are accepted. Everything is computed in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from minitx.errors import ShapeError


def _samples(x: ArrayLike, name: str) -> np.ndarray:
    """``x`` as float64 ``[N, F]``: all leading axes are samples."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim < 2:
        raise ShapeError(f"{name} has shape {x.shape}; expected [samples, features].")
    return x.reshape(-1, x.shape[-1])


def linear_cka(x: ArrayLike, y: ArrayLike) -> float:
    """Linear centred kernel alignment of two representations of the same samples.

    With columns centred, ``CKA = ||XᵀY||²_F / (||XᵀX||_F ||YᵀY||_F)``: in [0, 1], 1 with itself,
    and unchanged by rotations and by scaling of either side. (Kornblith et al. 2019.)

    Parameters
    ----------
    x : array [..., F]
    y : array [..., G]
        The same number of samples as ``x``; leading axes are flattened into samples.

    Returns
    -------
    float
        ``nan`` if either side is constant over the samples: there is nothing to align.

    Raises
    ------
    ShapeError
        If the numbers of samples differ.
    """
    x, y = _samples(x, "x"), _samples(y, "y")
    if len(x) != len(y):
        raise ShapeError(f"x has {len(x)} samples and y has {len(y)}; they must be the same ones.")
    # Scaling first keeps the fourth powers below in range; CKA does not see it.
    x, y = _unit_scale(x), _unit_scale(y)
    x, y = x - x.mean(0), y - y.mean(0)
    if _is_rounding(x) or _is_rounding(y):
        return float("nan")
    # ||XᵀY||_F² = <XXᵀ, YYᵀ>: take the smaller of the two products.
    if len(x) < max(x.shape[1], y.shape[1]):
        kx, ky = x @ x.T, y @ y.T
        cross, xx, yy = (kx * ky).sum(), (kx * kx).sum(), (ky * ky).sum()
    else:
        cross, xx, yy = (np.square(a.T @ b).sum() for a, b in ((x, y), (x, x), (y, y)))
    return float(np.clip(cross / np.sqrt(xx * yy), 0.0, 1.0))


def _unit_scale(x: np.ndarray) -> np.ndarray:
    largest = np.abs(x).max(initial=0.0)
    return x / largest if largest > 0 else x


def _is_rounding(centred: np.ndarray) -> bool:
    """Is what centring left (of data whose largest entry is 1) no more than rounding error?"""
    return not np.abs(centred).max(initial=0.0) > 1e-14


def effective_rank(matrix: ArrayLike) -> np.ndarray | float:
    """``exp`` of the entropy of the singular values, normalised to sum to one.

    Between 1 (one direction) and ``min(n, m)`` (all directions alike), unchanged by scaling and by
    rotation. (Roy & Vetterli 2007.)

    Parameters
    ----------
    matrix : array [..., n, m]

    Returns
    -------
    array [...] or float
        0 for a zero matrix: it has no direction at all.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim < 2:
        raise ShapeError(f"A matrix [..., n, m] is needed; got shape {matrix.shape}.")
    singular = np.linalg.svd(matrix, compute_uv=False)  # [..., min(n, m)]
    largest = singular.max(-1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    share = singular / safe
    total = share.sum(-1, keepdims=True)
    share = share / np.where(total > 0, total, 1.0)
    entropy = -(share * np.log(np.where(share > 0, share, 1.0))).sum(-1)
    rank = np.where(largest[..., 0] > 0, np.exp(entropy), 0.0)
    return float(rank) if rank.ndim == 0 else rank


def cosine(x: ArrayLike, y: ArrayLike) -> np.ndarray | float:
    """Cosine of the angle between vectors along the last axis: ``x·y / (|x| |y|)``.

    Parameters
    ----------
    x, y : arrays [..., F], broadcast against each other

    Returns
    -------
    array [...] or float
        In [-1, 1]; 0 where either vector is zero.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim == 0 or y.ndim == 0 or x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"Vectors of one length are needed; got shapes {x.shape} and {y.shape}.")
    x, y = _unit_vectors(x), _unit_vectors(y)
    value = np.clip((x * y).sum(-1), -1.0, 1.0)
    return float(value) if value.ndim == 0 else value


def _unit_vectors(x: np.ndarray) -> np.ndarray:
    largest = np.abs(x).max(-1, keepdims=True, initial=0.0)
    x = x / np.where(largest > 0, largest, 1.0)  # first: squares of tiny numbers underflow
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(norm > 0, norm, 1.0)


def subspace_angles(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Principal angles between the column spaces of two matrices.

    The cosines are the singular values of ``Q_xᵀ Q_y`` for orthonormal bases; small angles are
    taken from the sines instead, where a cosine near 1 has lost its digits. (Björck & Golub 1973;
    Knyazev & Argentati 2002.)

    Parameters
    ----------
    x : array [F, n]
    y : array [F, m]

    Returns
    -------
    array [min(rank x, rank y)]
        Radians in [0, π/2], largest first.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise ShapeError(
            f"Two matrices [F, n] and [F, m] are needed; got shapes {x.shape} and {y.shape}."
        )
    qx, qy = _basis(x), _basis(y)
    if qx.shape[1] < qy.shape[1]:
        qx, qy = qy, qx
    cosines = np.linalg.svd(qx.T @ qy, compute_uv=False)  # largest first
    sines = np.linalg.svd(qy - qx @ (qx.T @ qy), compute_uv=False)[::-1]  # smallest first
    k = qy.shape[1]
    cosines, sines = np.clip(cosines[:k], 0, 1), np.clip(sines[:k], 0, 1)
    angles = np.where(cosines**2 > 0.5, np.arcsin(sines), np.arccos(cosines))
    return np.sort(angles)[::-1]


def _basis(x: np.ndarray) -> np.ndarray:
    """Orthonormal basis of the column space, [F, rank]."""
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    if not len(s) or s[0] == 0:
        return u[:, :0]
    return u[:, s > s[0] * max(x.shape) * np.finfo(np.float64).eps]
