"""What a head would do, read from its weights alone: QK and OV circuits, and how heads compose.

Weights are in per-head shape, as ``model.W_Q`` and friends give them: ``W_Q, W_K, W_V [..., D,
K]``, ``W_O [..., K, D]``, ``W_E [V, D]``, ``W_U [D, V]``, rows acting from the left (``x @ W``).
Norms are linear only once their scale is fixed, so these circuits leave them out: fold the norm's
weight into the matrices first (``fold_norm``) if it matters. Pure functions; inputs are never
edited. (Elhage et al. 2021.)"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from minitx.errors import MinitxError, ShapeError, choose


def _matrices(**named: ArrayLike) -> list[np.ndarray]:
    arrays = []
    for name, value in named.items():
        value = np.asarray(value, dtype=np.float64)
        if value.ndim < 2:
            raise ShapeError(f"{name} has shape {value.shape}; expected a matrix [..., n, m].")
        arrays.append(value)
    return arrays


def _chain(*named: tuple[str, np.ndarray]) -> np.ndarray:
    """The product of matrices, or an error that restates the shapes."""
    try:
        product = named[0][1]
        for _, m in named[1:]:
            product = product @ m
    except ValueError:
        shapes = ", ".join(f"{name} {m.shape}" for name, m in named)
        raise ShapeError(f"These matrices do not chain: {shapes}.") from None
    return product


def qk_circuit(W_Q: ArrayLike, W_K: ArrayLike, W_E: ArrayLike | None = None) -> np.ndarray:
    """Which token looks at which: ``W_Q W_Kᵀ``, or ``W_E W_Q W_Kᵀ W_Eᵀ`` between tokens.

    Parameters
    ----------
    W_Q, W_K : arrays [..., D, K]
    W_E : array [V, D], optional

    Returns
    -------
    array [..., D, D], or [..., V (query), V (key)]
        Scores before the division by ``√K``.
    """
    W_Q, W_K = _matrices(W_Q=W_Q, W_K=W_K)
    W_KT = W_K.swapaxes(-1, -2)
    if W_E is None:
        return _chain(("W_Q", W_Q), ("W_Kᵀ", W_KT))
    (W_E,) = _matrices(W_E=W_E)
    # Through K, never through D × D: the circuit has rank K at most.
    left, right = _chain(("W_E", W_E), ("W_Q", W_Q)), _chain(("W_E", W_E), ("W_K", W_K))
    return _chain(("W_E W_Q", left), ("(W_E W_K)ᵀ", right.swapaxes(-1, -2)))


def ov_circuit(
    W_V: ArrayLike, W_O: ArrayLike, W_E: ArrayLike | None = None, W_U: ArrayLike | None = None
) -> np.ndarray:
    """What a head writes when it looks at a token: ``W_V W_O``, or ``W_E W_V W_O W_U`` to logits.

    Parameters
    ----------
    W_V : array [..., D, K]
    W_O : array [..., K, D]
    W_E : array [V, D], optional
    W_U : array [D, V], optional

    Returns
    -------
    array [..., D, D], or with W_E and W_U [..., V (seen), V (logit)]
    """
    W_V, W_O = _matrices(W_V=W_V, W_O=W_O)
    left, right = ("W_V", W_V), ("W_O", W_O)
    if W_E is not None:
        (W_E,) = _matrices(W_E=W_E)
        left = ("W_E W_V", _chain(("W_E", W_E), left))
    if W_U is not None:
        (W_U,) = _matrices(W_U=W_U)
        right = ("W_O W_U", _chain(right, ("W_U", W_U)))
    return _chain(left, right)


def copying_score(
    W_V: ArrayLike, W_O: ArrayLike, W_E: ArrayLike | None = None, W_U: ArrayLike | None = None
) -> np.ndarray | float:
    """Does a head raise the token it looks at? ``Σ Re λ / Σ |λ|`` over the OV circuit's
    eigenvalues.

    The circuit is ``W_E W_V W_O W_U`` (``[V, V]``), or ``W_V W_O`` when the embeddings are left
    out. Its nonzero eigenvalues are those of the small ``W_O W_U W_E W_V`` (``[K, K]``), which is
    what is computed. +1: copies; −1: suppresses what it sees; near 0: neither. (Elhage et al.
    2021.)

    Parameters
    ----------
    W_V : array [..., D, K]
    W_O : array [..., K, D]
    W_E : array [V, D], optional
    W_U : array [D, V], optional
        Give both or neither.

    Returns
    -------
    array [...] or float
        0 where all eigenvalues vanish.
    """
    W_V, W_O = (np.asarray(w, dtype=np.float64) for w in (W_V, W_O))
    if (W_E is None) != (W_U is None):
        raise MinitxError(
            "Give both W_E and W_U, or neither: the circuit must map tokens to tokens."
        )
    if min(W_V.ndim, W_O.ndim) < 2 or W_V.shape[-2:] != W_O.shape[:-3:-1]:
        raise ShapeError(
            f"W_V {W_V.shape} and W_O {W_O.shape} do not fit; expected [..., D, K] and [..., K, D]."
        )
    if W_E is None:
        small = W_O @ W_V
    else:
        W_E, W_U = np.asarray(W_E, dtype=np.float64), np.asarray(W_U, dtype=np.float64)
        small = W_O @ (W_U @ W_E) @ W_V
    eigenvalues = np.linalg.eigvals(small)  # [..., K]
    size = np.abs(eigenvalues).sum(-1)
    score = np.where(size > 0, eigenvalues.real.sum(-1) / np.where(size > 0, size, 1.0), 0.0)
    return float(score) if score.ndim == 0 else score


def composition_score(writer: ArrayLike, reader: ArrayLike) -> np.ndarray | float:
    """How much of what one head writes another reads: ``‖A B‖_F / (‖A‖_F ‖B‖_F)``.

    Parameters
    ----------
    writer : array [..., D, D]
        A: the earlier head's OV circuit, ``x @ A`` is what it writes.
    reader : array [..., D, D']
        B: what the later head does to it (see ``composition_scores``).

    Returns
    -------
    array [...] or float
        In [0, 1]. Random matrices do not score 0: subtract ``composition_baseline``. 0 when either
        matrix is zero.
    """
    A, B = _matrices(writer=writer, reader=reader)
    product = np.linalg.norm(_chain(("writer", A), ("reader", B)), axis=(-2, -1))
    sizes = np.linalg.norm(A, axis=(-2, -1)) * np.linalg.norm(B, axis=(-2, -1))
    score = np.where(sizes > 0, product / np.where(sizes > 0, sizes, 1.0), 0.0)
    return float(score) if score.ndim == 0 else score


def composition_scores(
    kind: str,
    writer_V: ArrayLike,
    writer_O: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    W_O: ArrayLike,
) -> np.ndarray:
    """Composition of every earlier head with every later one. (Elhage et al. 2021.)

    The later head reads through its queries (``"Q"``: ``W_Q W_Kᵀ``), its keys (``"K"``: ``W_K
    W_Qᵀ``, as in an induction head), or its values (``"V"``: ``W_V W_O``).

    Parameters
    ----------
    kind : "Q", "K" or "V"
    writer_V, writer_O : arrays [H, D, K], [H, K, D]
        The earlier layer's heads.
    W_Q, W_K, W_V, W_O : arrays [H', D, K], ..., [H', K, D]
        The later layer's heads.

    Returns
    -------
    array [H, H']
    """
    readers = {
        "Q": lambda: qk_circuit(W_Q, W_K),
        "K": lambda: qk_circuit(W_K, W_Q),
        "V": lambda: ov_circuit(W_V, W_O),
    }
    reader = choose(readers, kind, "composition")()
    writer = ov_circuit(writer_V, writer_O)
    return np.asarray(composition_score(writer[:, None], reader[None, :]))


def composition_baseline(
    d_model: int, d_head: int, rng: np.random.Generator, samples: int = 50
) -> float:
    """The composition score of random heads of these sizes: what "none" looks like.

    Parameters
    ----------
    d_model, d_head : int
    rng : Generator
    samples : int

    Returns
    -------
    float
        Mean over ``samples`` pairs with standard normal weights; near ``1/√d_model``.
    """
    draw = rng.standard_normal((4, samples, d_model, d_head))
    writer, reader = (draw[i] @ draw[i + 1].swapaxes(-1, -2) for i in (0, 2))
    return float(np.mean(composition_score(writer, reader)))


def singular_directions(
    left: ArrayLike, right: ArrayLike, k: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular vectors of a circuit ``left @ right`` of low rank: what it reads, and what it
    writes.

    For the OV circuit pass ``W_V, W_O``; for QK pass ``W_Q, W_Kᵀ``. Input direction ``u_i`` (a
    column) is sent to ``s_i v_i``: ``left @ right = Σ s_i u_i v_iᵀ``. (Millidge & Black 2022.)

    Parameters
    ----------
    left : array [..., D, K]
    right : array [..., K, D']
    k : int, optional
        How many; all ``min(D, K, D')`` by default.

    Returns
    -------
    (u [..., D, k], s [..., k], v [..., D', k])
        Largest first. Signs are fixed: the largest entry of each ``u`` is positive.
    """
    left, right = _matrices(left=left, right=right)
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(f"left {left.shape} and right {right.shape} do not chain.")
    # Two thin QRs make the decomposition K × K instead of D × D.
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.swapaxes(-1, -2))
    u, s, vt = np.linalg.svd(r_left @ r_right.swapaxes(-1, -2), full_matrices=False)
    u, v = q_left @ u, q_right @ vt.swapaxes(-1, -2)
    full = s.shape[-1]
    k = full if k is None else k
    if not 0 < k <= full:
        raise MinitxError(f"k must lie between 1 and {full}; got {k}.")
    largest = np.take_along_axis(u, np.abs(u).argmax(-2)[..., None, :], axis=-2)
    sign = np.where(largest < 0, -1.0, 1.0)
    return (u * sign)[..., :k], s[..., :k], (v * sign)[..., :k]


def fold_norm(W: ArrayLike, weight: ArrayLike | None, centre: bool = False) -> np.ndarray:
    """The linear part of a norm taken into the matrix behind it: ``C diag(weight) W``.

    After this, the matrix may be applied to a residual stream divided by its scale: ``LN(x) W =
    (x / scale) fold_norm(W, w, centre=True) + b W``.

    Parameters
    ----------
    W : array [..., D, K]
    weight : array [D] or None
        The norm's weight (None: ones).
    centre : bool
        True for layer norm, which subtracts the mean (C = I − 11ᵀ/D); False for RMS norm.

    Returns
    -------
    array [..., D, K]
    """
    (W,) = _matrices(W=W)
    folded = W if weight is None else np.asarray(weight, dtype=np.float64)[:, None] * W
    return folded - folded.mean(-2, keepdims=True) if centre else folded.copy()
