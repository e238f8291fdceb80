"""Every kernel in plain NumPy: this is the definition. ``compiled.py`` says the same, faster.

Arrays in, arrays out; no Tensor here. A kernel never writes to its inputs, except the optimiser's
step, which says so. The letters in shapes: ``B`` batch, ``T`` queries, ``S`` keys, ``H`` heads,
``K`` head width, ``D`` model width, ``V`` vocabulary, ``N`` rows, ``...`` any leading axes.

Where a function is analytic, its kernel takes complex numbers too, without ``abs`` or ``conj``: so
the derivative of ``f`` is ``imag(f(x + 1e-20j)) / 1e-20``, exact to the last digit
(Squire & Trapp, 1998), and the tests check every backward rule against it.
"""

from __future__ import annotations

import math

import numpy as np

GELU_SLOPE = np.sqrt(2 / np.pi)
GELU_CUBIC = 0.044715


# ---------------------------------------------------------------- softmax


def softmax(x, mask=None, off_by_one=False):
    """Weights that are positive and sum to one over the last axis.

    Parameters
    ----------
    x : array [..., S]
        Scores.
    mask : bool array, broadcastable to ``x``, optional
        True where a weight is allowed. A row with nothing allowed is all zeros, never NaN.
    off_by_one : bool
        ``exp(x) / (1 + sum(exp(x)))``: the row may sum to less than one (Miller, 2023).

    Returns
    -------
    array [..., S]
    """
    if mask is not None:
        x = np.where(mask, x, np.asarray(-np.inf, dtype=x.dtype))
    peak = x.real.max(axis=-1, keepdims=True, initial=-np.inf)
    if off_by_one:  # the 1 is a key whose score is 0, and takes part in the maximum
        peak = np.maximum(peak, 0)
    peak = np.where(peak == -np.inf, 0, peak).astype(x.real.dtype)  # nothing allowed: exp(-inf) = 0
    e = np.exp(x - peak)
    total = e.sum(axis=-1, keepdims=True)
    if off_by_one:
        total = total + np.exp(-peak)
    return e / np.where(total == 0, 1, total)


def softmax_backward(g, y):
    """Gradient of `softmax` from its output: ``y * (g - sum(g * y))``, also when off by one."""
    return y * (g - (g * y).sum(axis=-1, keepdims=True))


def log_softmax(x):
    """Logarithm of `softmax` over the last axis. [..., V] -> [..., V]"""
    return x - _logsumexp(x)[..., None]


def log_softmax_backward(g, y):
    """Gradient of `log_softmax` from its output: ``g - exp(y) * sum(g)``."""
    return g - np.exp(y) * g.sum(axis=-1, keepdims=True)


def _logsumexp(x):
    """Stable ``log(sum(exp(x)))`` over the last axis: the maximum comes out of the sum first."""
    peak = x.real.max(axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(abs(peak) == np.inf, 0, peak).astype(x.real.dtype)
    with np.errstate(divide="ignore"):  # log(0) = -inf is what an impossible row means
        return np.log(np.exp(x - peak).sum(axis=-1)) + peak[..., 0]


# ---------------------------------------------------------------- cross-entropy


def cross_entropy(logits, targets, ignore_index=-100):
    """Mean of ``-log softmax(logits)[target]`` over the rows that count.

    Parameters
    ----------
    logits : array [N, V]
    targets : int array [N]
        Class of each row; rows with ``ignore_index`` are left out.

    Returns
    -------
    loss : scalar
        In nats. Zero if no row counts (the caller decides whether that is an error).
    lse : array [N]
        ``log(sum(exp(logits)))`` of each row that counts, zero elsewhere; for the backward rule.
    count : int
        Number of rows that count.
    """
    keep = targets != ignore_index
    count = int(keep.sum())
    lse = np.zeros(len(logits), dtype=logits.dtype)
    lse[keep] = _logsumexp(logits[keep])
    loss = (lse[keep] - logits[keep, targets[keep]]).sum() / max(count, 1)
    return loss, lse, count


def cross_entropy_backward(g, logits, lse, targets, ignore_index, count):
    """``g / count * (softmax(logits) - onehot(target))``; rows that do not count get zeros.

    ``g`` is a scalar, or [N] for a gradient of its own for each row.
    """
    keep = targets != ignore_index
    g_logits = np.zeros_like(logits)
    g_logits[keep] = np.exp(logits[keep] - lse[keep, None])
    g_logits[keep, targets[keep]] -= 1
    scale = np.broadcast_to(np.asarray(g), lse.shape) / max(count, 1)
    return (g_logits * scale[:, None]).astype(logits.dtype, copy=False)


# ---------------------------------------------------------------- norms


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Shift and scale each row to mean 0 and variance 1 (Ba et al., 2016).

    Parameters
    ----------
    x : array [..., D]
    weight, bias : array [D] or None
    eps : float
        Added to the variance.

    Returns
    -------
    y : array [..., D]
    mean, rstd : array [...]
        Of each row; ``rstd = 1 / sqrt(variance + eps)``. For the backward rule.
    """
    mean = x.mean(axis=-1)
    centred = x - mean[..., None]
    rstd = 1 / np.sqrt((centred * centred).mean(axis=-1) + _like(eps, x))
    y = centred * rstd[..., None]
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y, mean, rstd


def layer_norm_backward(g, x, weight, mean, rstd):
    """Gradients of `layer_norm`.

    With ``n`` the normalised row and ``h = g * weight``, the row's mean and variance take their
    share of the gradient away: ``gx = rstd * (h - mean(h) - n * mean(h * n))``.

    Returns
    -------
    gx : array [..., D]
    gw, gb : array [D], or None if there is no weight
    """
    n = (x - mean[..., None]) * rstd[..., None]
    h = g if weight is None else g * weight
    along = (h * n).mean(axis=-1, keepdims=True)
    gx = rstd[..., None] * (h - h.mean(axis=-1, keepdims=True) - n * along)
    if weight is None:
        return gx, None, None
    return gx, _sum_rows(g * n), _sum_rows(g)


def rms_norm(x, weight=None, eps=1e-5):
    """Divide each row by its root mean square (Zhang & Sennrich, 2019).

    Returns
    -------
    y : array [..., D]
    rrms : array [...]
        ``1 / sqrt(mean(x**2) + eps)`` of each row, for the backward rule.
    """
    rrms = 1 / np.sqrt((x * x).mean(axis=-1) + _like(eps, x))
    y = x * rrms[..., None]
    return (y if weight is None else y * weight), rrms


def rms_norm_backward(g, x, weight, rrms):
    """Gradients of `rms_norm`: ``gx = rrms * (h - n * mean(h * n))``; (gx, gw or None)."""
    n = x * rrms[..., None]
    h = g if weight is None else g * weight
    gx = rrms[..., None] * (h - n * (h * n).mean(axis=-1, keepdims=True))
    return gx, (None if weight is None else _sum_rows(g * n))


# ---------------------------------------------------------------- activations


def gelu(x):
    """``x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))`` (Hendrycks & Gimpel, 2016), as GPT-2."""
    half = _like(0.5, x)
    return half * x * (1 + np.tanh(_gelu_inner(x)))


def gelu_backward(g, x):
    """Gradient of `gelu` from its input."""
    t = np.tanh(_gelu_inner(x))
    inner_slope = _like(GELU_SLOPE, x) * (1 + _like(3 * GELU_CUBIC, x) * x * x)
    return g * _like(0.5, x) * (1 + t + x * (1 - t * t) * inner_slope)


def _gelu_inner(x):
    return _like(GELU_SLOPE, x) * (x + _like(GELU_CUBIC, x) * x * x * x)


def silu(x):
    """``x * sigmoid(x)``, also called swish (Elfwing et al., 2018)."""
    return x * _sigmoid(x)


def silu_backward(g, x):
    """Gradient of `silu` from its input."""
    s = _sigmoid(x)
    return g * s * (1 + x * (1 - s))


def _sigmoid(x):
    """``1 / (1 + exp(-x))``, written so that exp never overflows."""
    positive = x.real >= 0
    e = np.exp(np.where(positive, -x, x))
    return np.where(positive, _like(1, x), e) / (1 + e)


# ---------------------------------------------------------------- linear


def linear(x, weight, bias=None):
    """``x @ weight.T + bias``. x [..., I], weight [O, I], bias [O] or None -> [..., O]"""
    y = x @ weight.T
    return y if bias is None else y + bias


def linear_backward(g, x, weight, has_bias=True):
    """Gradients of `linear`: (gx [..., I], gw [O, I], gb [O] or None)."""
    N = math.prod(g.shape[:-1])  # not -1: an empty array does not tell
    rows_g, rows_x = g.reshape(N, weight.shape[0]), x.reshape(N, weight.shape[1])  # [N, O], [N, I]
    return g @ weight, rows_g.T @ rows_x, (rows_g.sum(axis=0) if has_bias else None)


# ---------------------------------------------------------------- attention


def attention(q, k, v, mask=None, bias=None, scale=1.0, off_by_one=False, causal=False):
    """Each query takes a weighted mean of the values (Vaswani et al., 2017).

    ``pattern = softmax(scale * q @ k.T + bias)`` where the mask allows, ``z = pattern @ v``.

    Parameters
    ----------
    q : array [B, T, H, K]
    k, v : array [B, S, H, K]
    mask : bool array, broadcastable to [B, H, T, S], optional
        True where a query may look. A query that may look nowhere gets zeros.
    bias : array, broadcastable to [B, H, T, S], optional
        Added to the scores.
    scale : float
        Usually ``1 / sqrt(K)``.
    off_by_one : bool
        See `softmax`.
    causal : bool
        A promise that the mask is exactly lower-triangular (``T == S``), so that a faster kernel
        may skip the other half. With ``mask=None`` it *is* the mask.

    Returns
    -------
    z : array [B, T, H, K]
    pattern : array [B, H, T, S]
    """
    scores = _like(scale, q) * (_heads_first(q) @ _heads_first(k).swapaxes(-1, -2))  # [B, H, T, S]
    if bias is not None:
        scores = scores + bias
    if causal and mask is None:
        mask = np.tri(q.shape[1], k.shape[1], dtype=bool)
    pattern = softmax(scores, mask, off_by_one)
    return _heads_first(pattern @ _heads_first(v)), pattern


def attention_backward(g, q, k, v, pattern, scale=1.0, causal=False, want_bias=False):
    """Gradients of `attention`.

    Returns
    -------
    gq, gk, gv : as q, k, v
    gscores : array [B, H, T, S] or None
        Gradient for the scores, hence for a bias before its broadcasting is undone; None unless
        ``want_bias``.
    """
    qh, kh, vh, gh = _heads_first(q), _heads_first(k), _heads_first(v), _heads_first(g)
    g_pattern = gh @ vh.swapaxes(-1, -2)  # [B, H, T, S]
    g_scores = softmax_backward(g_pattern, pattern)
    gq = _like(scale, q) * (g_scores @ kh)
    gk = _like(scale, q) * (g_scores.swapaxes(-1, -2) @ qh)
    gv = pattern.swapaxes(-1, -2) @ gh
    return *map(_heads_first, (gq, gk, gv)), (g_scores if want_bias else None)


def _heads_first(x):
    """[B, T, H, K] <-> [B, H, T, K]"""
    return x.swapaxes(1, 2)


def rotary(x, cos, sin, inverse=False):
    """Rotate pairs of features by an angle that depends on the position (Su et al., 2021).

    Feature ``i`` is paired with ``i + K/2`` (the half-split convention of GPT-NeoX and LLaMA).

    Parameters
    ----------
    x : array [B, T, H, K], K even
    cos, sin : array [T, K/2] or [B, T, K/2]
    inverse : bool
        Rotate back. A rotation's transpose is its inverse: this is also the backward rule.
    """
    cos, sin = cos[..., None, :], sin[..., None, :]  # [.., T, 1, K/2]
    if inverse:
        sin = -sin
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


# ---------------------------------------------------------------- embedding, optimiser


def embedding_backward(g, tokens, vocab):
    """Add each row's gradient to its token's row. g [N, D], tokens int [N] -> [vocab, D]"""
    gw = np.zeros((vocab, g.shape[1]), dtype=g.dtype)
    np.add.at(gw, tokens, g)  # not gw[tokens] += g, which would keep one of several equal tokens
    return gw


def adamw(p, g, m, v, lr, beta1, beta2, eps, weight_decay, step):
    """One step of AdamW (Loshchilov & Hutter, 2019), in place on ``p``, ``m`` and ``v``.

    Parameters
    ----------
    p, g, m, v : flat arrays
        Parameters, gradient, and the running means of the gradient and of its square.
    weight_decay : float
        Decoupled: ``p`` shrinks by ``lr * weight_decay`` of itself.
    step : int
        1 for the first step; undoes the bias of running means that start at zero.
    """
    p *= _like(1 - lr * weight_decay, p)
    m += _like(1 - beta1, p) * (g - m)
    v += _like(1 - beta2, p) * (g * g - v)
    rate = _like(lr / (1 - beta1**step), p)
    p -= rate * m / (np.sqrt(v / _like(1 - beta2**step, p)) + _like(eps, p))


# ---------------------------------------------------------------- small helpers


def _like(number, x):
    """A Python number as a scalar of ``x``'s real dtype: float32 in, float32 out."""
    return x.real.dtype.type(number)


def _sum_rows(x):
    """Sum over all axes but the last."""
    return x.reshape(-1, x.shape[-1]).sum(axis=0)
