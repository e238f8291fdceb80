"""What can be read off a representation? Linear probes, and the removal of what they read.

A probe is always scored on data it has not seen, beside the same probe fitted to shuffled labels:
a score means something only above that control (Hewitt & Liang 2019). Ridge probes predict
numbers, logistic probes predict classes. Plain NumPy, float64, no gradients of the model involved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minitx.errors import MinitxError, ShapeError, choose


@dataclass(frozen=True)
class RidgeProbe:
    """A linear map ``x @ weight + bias`` to numbers. ``weight [F, G]``, ``bias [G]``."""

    weight: np.ndarray
    bias: np.ndarray

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Predictions ``[N, G]`` for ``x [N, F]``."""
        return np.asarray(x, dtype=np.float64) @ self.weight + self.bias

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """``R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)²`` on ``x [N, F]``, ``y [N]`` or ``[N, G]``.

        ȳ is the mean of the given ``y``. ``nan`` if ``y`` is constant.
        """
        y = _columns(y)
        spread = np.square(y - y.mean(0)).sum()
        left = np.square(y - self.predict(x)).sum()
        return float(1 - left / spread) if spread > 0 else float("nan")


@dataclass(frozen=True)
class LogisticProbe:
    """A linear classifier. ``weight [F, C]``, ``bias [C]``, ``classes [C]`` the labels."""

    weight: np.ndarray
    bias: np.ndarray
    classes: np.ndarray

    def logits(self, x: ArrayLike) -> np.ndarray:
        """Class scores ``[N, C]`` for ``x [N, F]``."""
        return np.asarray(x, dtype=np.float64) @ self.weight + self.bias

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Labels ``[N]`` for ``x [N, F]``."""
        return self.classes[self.logits(x).argmax(-1)]

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """Accuracy on ``x [N, F]``, ``y [N]``."""
        return float((self.predict(x) == np.asarray(y)).mean())


def fit_ridge(x: ArrayLike, y: ArrayLike, penalty: float = 1.0) -> RidgeProbe:
    """Least squares with ``penalty · ‖W‖²`` on centred data; the bias is not penalised.

    ``W = (XᵀX + λI)⁻¹ XᵀY`` with columns of X and Y centred. (Hoerl & Kennard 1970.)

    Parameters
    ----------
    x : array [N, F]
    y : array [N] or [N, G]
    penalty : float
        λ ≥ 0. With 0 the solution of least norm is returned.

    Returns
    -------
    RidgeProbe
    """
    x, y = _features(x), _columns(y)
    _same_length(x, y)
    if penalty < 0:
        raise MinitxError(f"penalty must be ≥ 0; got {penalty}.")
    mean_x, mean_y = x.mean(0), y.mean(0)
    # Through the singular values: stable, and the limit λ → 0 is the least-norm solution.
    u, s, vt = np.linalg.svd(x - mean_x, full_matrices=False)
    keep = s > s.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    shrink = np.where(keep, s / np.where(keep, s**2 + penalty, 1.0), 0.0)
    weight = vt.T @ (shrink[:, None] * (u.T @ (y - mean_y)))
    return RidgeProbe(weight, mean_y - mean_x @ weight)


def fit_logistic(
    x: ArrayLike, y: ArrayLike, penalty: float = 1e-2, steps: int = 50, tolerance: float = 1e-8
) -> LogisticProbe:
    """Multinomial logistic regression: mean cross-entropy + ``penalty/2 · ‖W‖²``, by Newton's
    method.

    Features are standardised inside and the weights mapped back, so that the penalty means the
    same for every layer of a model. The bias is not penalised.

    Parameters
    ----------
    x : array [N, F]
    y : array [N]
        Labels of any kind.
    penalty : float
        λ > 0.
    steps : int
        At most so many Newton steps; it usually stops after ten.
    tolerance : float
        Stop when no entry of the gradient is larger.

    Returns
    -------
    LogisticProbe

    Raises
    ------
    MinitxError
        With fewer than two classes, or a penalty that is not positive.
    """
    x, y = _features(x), np.asarray(y)
    _same_length(x, y)
    classes, label = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise MinitxError(f"A classifier needs two classes or more; all labels are {classes}.")
    if not penalty > 0:
        raise MinitxError(f"penalty must be > 0 (separable data have no optimum); got {penalty}.")
    mean, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    ones = np.ones((len(x), 1))
    weight = _newton(
        np.hstack([(x - mean) / scale, ones]), label, len(classes), penalty, steps, tolerance
    )
    slope = weight[:-1] / scale[:, None]
    return LogisticProbe(slope, weight[-1] - mean @ slope, classes)


def _newton(x, label, n_classes, penalty, steps, tolerance) -> np.ndarray:  # [N, F], [N] -> [F, C]
    """Newton with an upper bound on the curvature, then halving: every step lowers the loss."""
    n, f = x.shape
    target = np.eye(n_classes)[label]
    decay = np.full((f, 1), penalty)
    decay[-1] = 1e-9  # the bias is free; the trifle pins down the shared constant of its classes

    def loss_at(w):
        z = x @ w
        z = z - z.max(-1, keepdims=True)
        lse = np.log(np.exp(z).sum(-1, keepdims=True))
        return float(-(target * (z - lse)).sum() / n + (decay * w * w).sum() / 2), np.exp(z - lse)

    w = np.zeros((f, n_classes))
    loss, p = loss_at(w)
    for _ in range(steps):
        grad = x.T @ (p - target) / n + decay * w
        if np.abs(grad).max() <= tolerance:
            break
        step = np.linalg.solve(_hessian(x, p, decay), grad.T.ravel()).reshape(n_classes, f).T
        size = 1.0
        while size > 1e-10:
            new_loss, new_p = loss_at(w - size * step)
            if new_loss <= loss - 1e-4 * size * (grad * step).sum():
                break
            size /= 2
        else:
            break  # rounding: no step lowers the loss any further
        w, loss, p = w - size * step, new_loss, new_p
    return w


def _hessian(x: np.ndarray, p: np.ndarray, decay: np.ndarray) -> np.ndarray:  # [C·F, C·F]
    """Second derivative, class-major: block (a, b) = Xᵀ diag(p_a (1[a=b] − p_b)) X / N."""
    n, f = x.shape
    c = p.shape[1]
    h = np.empty((c, f, c, f))
    for a in range(c):
        for b in range(a, c):
            d = p[:, a] * ((a == b) - p[:, b])
            block = (x * d[:, None]).T @ x / n
            h[a, :, b, :] = block
            h[b, :, a, :] = block.T
        h[a, :, a, :] += np.diag(decay[:, 0])
    return h.reshape(c * f, c * f)


@dataclass(frozen=True)
class ProbeResult:
    """A probe and how it did: R² (ridge) or accuracy (logistic).

    ``score`` on held-out data, ``train_score`` on its own, ``control`` on held-out data by the
    same probe fitted to shuffled labels (mean over shuffles), ``selectivity = score − control``.
    """

    probe: RidgeProbe | LogisticProbe
    score: float
    train_score: float
    control: float

    @property
    def selectivity(self) -> float:
        """How far the probe's score lies above that of shuffled labels. (Hewitt & Liang 2019.)"""
        return self.score - self.control


def probe(
    x: ArrayLike,
    y: ArrayLike,
    rng: np.random.Generator,
    kind: str = "ridge",
    penalty: float | None = None,
    test_share: float = 0.3,
    groups: ArrayLike | None = None,
    shuffles: int = 3,
) -> ProbeResult:
    """Fit a probe on one part of the data and score it on the rest, with a shuffled-label control.

    Parameters
    ----------
    x : array [N, F]
    y : array [N] or, for ridge, [N, G]
    rng : Generator
        Draws the split and the shuffles.
    kind : "ridge" or "logistic"
    penalty : float, optional
        1 for ridge and 0.01 for logistic by default.
    test_share : float
        Share of the samples (or groups) held out, in (0, 1).
    groups : array [N], optional
        Samples of one group never fall on both sides: positions of one sequence, for example.
    shuffles : int
        How many shuffled controls to average.

    Returns
    -------
    ProbeResult
    """
    fits: dict[str, Callable[..., RidgeProbe | LogisticProbe]] = {
        "ridge": fit_ridge,
        "logistic": fit_logistic,
    }
    fit = choose(fits, kind, "probe")
    options = {} if penalty is None else {"penalty": penalty}
    x, y = _features(x), np.asarray(y)
    _same_length(x, y)
    train, test = split(len(x), rng, test_share, groups)
    fitted = fit(x[train], y[train], **options)
    control = []
    for _ in range(shuffles):
        shuffled = fit(x[train], y[rng.permutation(train)], **options)
        control.append(shuffled.score(x[test], y[test]))
    return ProbeResult(
        probe=fitted,
        score=fitted.score(x[test], y[test]),
        train_score=fitted.score(x[train], y[train]),
        control=float(np.mean(control)) if control else float("nan"),
    )


def split(
    n: int, rng: np.random.Generator, test_share: float = 0.3, groups: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of a training and a test part: disjoint, together everything, whole groups kept.

    Parameters
    ----------
    n : int
    rng : Generator
    test_share : float
        In (0, 1); each side gets at least one group.
    groups : array [n], optional

    Returns
    -------
    (train, test) : int arrays, sorted
    """
    if not 0 < test_share < 1:
        raise MinitxError(f"test_share must lie between 0 and 1; got {test_share}.")
    groups = np.arange(n) if groups is None else np.asarray(groups)
    if groups.shape != (n,):
        raise ShapeError(f"groups has shape {groups.shape}; expected ({n},).")
    names = np.unique(groups)
    if len(names) < 2:
        raise MinitxError(f"Need two samples or groups to hold one out; got {len(names)}.")
    held = min(max(round(len(names) * test_share), 1), len(names) - 1)
    is_test = np.isin(groups, rng.permutation(names)[:held])
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def remove_subspace(
    x: ArrayLike, directions: ArrayLike, mean: ArrayLike | None = None
) -> np.ndarray:
    """``x`` without its component in the span of some directions: ``x − (x − mean) P``.

    Parameters
    ----------
    x : array [..., F]
    directions : array [F] or [F, n]
        Columns; they need not be orthogonal.
    mean : array [F], optional
        The point that stays in place: zero by default.

    Returns
    -------
    array [..., F]
        A new array in ``x``'s dtype.
    """
    x = np.asarray(x)
    directions = np.asarray(directions, dtype=np.float64)
    directions = directions[:, None] if directions.ndim == 1 else directions
    if directions.ndim != 2 or directions.shape[0] != x.shape[-1]:
        raise ShapeError(
            f"directions has shape {directions.shape}; "
            f"expected [F] or [F, n] with F = {x.shape[-1]}."
        )
    u, s, _ = np.linalg.svd(directions, full_matrices=False)
    basis = u[:, s > s.max(initial=0.0) * max(directions.shape) * np.finfo(np.float64).eps]
    centred = x if mean is None else x - np.asarray(mean)
    return (x - (centred @ basis) @ basis.T).astype(x.dtype)


def amnesic_projection(
    x: ArrayLike,
    y: ArrayLike,
    kind: str = "logistic",
    rounds: int = 10,
    penalty: float | None = None,
    tolerance: float = 0.02,
) -> np.ndarray:
    """Directions that a linear probe needs to read ``y``: removing them makes it forget.

    Iterative null-space projection: fit a probe, remove the span of its weights, fit again, until
    it does no better than the most frequent label (R² = 0 for ridge) or ``rounds`` are over. Feed
    the result to ``remove_subspace``, and compare with removing as many random directions.
    (Ravfogel et al. 2020; Elazar et al. 2021.)

    Parameters
    ----------
    x : array [N, F]
    y : array [N] or, for ridge, [N, G]
    kind : "logistic" or "ridge"
    rounds : int
    penalty : float, optional
    tolerance : float
        How far above chance on the data given still counts as forgotten.

    Returns
    -------
    array [F, n]
        Orthonormal columns; n = 0 when there was nothing to forget.
    """
    choose(dict.fromkeys(("logistic", "ridge")), kind, "probe")
    x, y = _features(x), np.asarray(y)
    _same_length(x, y)
    mean = x.mean(0)
    removed = np.zeros((x.shape[1], 0))
    for _ in range(rounds):
        if removed.shape[1] >= x.shape[1]:
            break
        left = remove_subspace(x, removed, mean) if removed.shape[1] else x
        options: dict[str, Any] = {} if penalty is None else {"penalty": penalty}
        fitted: RidgeProbe | LogisticProbe
        if kind == "ridge":
            fitted, chance = fit_ridge(left, y, **options), 0.0
        else:
            fitted = fit_logistic(left, y, **options)
            chance = np.unique(y, return_counts=True)[1].max() / len(y)
        if fitted.score(left, y) <= chance + tolerance:
            break
        # Class weights share a common part that moves no decision: only differences read y.
        weight = fitted.weight
        if kind != "ridge":
            weight = weight - weight.mean(1, keepdims=True)
        weight = remove_subspace(weight.T, removed).T if removed.shape[1] else weight
        u, s, _ = np.linalg.svd(weight, full_matrices=False)
        fresh = u[:, s > max(s.max(initial=0.0), 1e-300) * 1e-9]
        removed = np.linalg.qr(np.hstack([removed, fresh]))[0]
    return removed


def _features(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or not len(x):
        raise ShapeError(f"x has shape {x.shape}; expected [samples, features].")
    if not np.isfinite(x).all():
        raise MinitxError("x has NaN or infinite entries; a probe cannot be fitted to them.")
    return x


def _columns(y: ArrayLike) -> np.ndarray:
    y = np.asarray(y, dtype=np.float64)
    return y[:, None] if y.ndim == 1 else y


def _same_length(x: np.ndarray, y: np.ndarray) -> None:
    if y.ndim == 0 or len(x) != len(y):
        raise ShapeError(f"x has shape {x.shape} and y {y.shape}; the numbers of samples differ.")
