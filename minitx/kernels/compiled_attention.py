"""Compiled softmax, attention and rotary positions. See ``compiled.py`` for how they are built."""

# digest of _math.py, _gemm.py, _registers.py, _tiles.py: e76942f47cbb
from __future__ import annotations

import numpy as np

from minitx.kernels import reference
from minitx.kernels._arrays import NO_MASK, plain, rows, takes
from minitx.kernels._math import exp, kernel, maximum

# ---------------------------------------------------------------- softmax


def softmax(x, mask=None, off_by_one=False):
    if not takes(x) or x.ndim == 0:
        return reference.softmax(x, mask, off_by_one)
    y = np.empty(x.shape, x.dtype)
    if mask is None:
        _softmax(rows(x), y.reshape(-1, x.shape[-1]), bool(off_by_one))
    else:
        _softmax_masked(
            rows(x), _mask_rows(mask, x.shape), y.reshape(-1, x.shape[-1]), bool(off_by_one)
        )
    return y


def softmax_backward(g, y):
    if not takes(y, g) or y.ndim == 0 or g.shape != y.shape:
        return reference.softmax_backward(g, y)
    gx = np.empty(y.shape, y.dtype)
    _softmax_backward(rows(g), rows(y), gx.reshape(-1, y.shape[-1]))
    return gx


def _mask_rows(mask, shape):
    """The mask as [M, S], so that row ``i`` of the scores has row ``i % M`` of the mask.

    A mask [T, S] for scores [B, H, T, S] is used as it is, without being repeated.
    """
    mask = np.asarray(mask, dtype=np.bool_)
    while mask.ndim > 1 and mask.shape[0] == 1:
        mask = mask[0]
    if mask.ndim == 0 or mask.shape != shape[len(shape) - mask.ndim :]:
        mask = np.broadcast_to(mask, shape)
    return plain(mask).reshape(-1, shape[-1])


@kernel
def _softmax(x, y, off_by_one):
    one = x.dtype.type(1)
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        peak = maximum(x[i])
        if off_by_one and peak < zero:
            peak = zero
        if peak == -np.inf:
            peak = zero
        total = exp(-peak) if off_by_one else zero
        for s in range(x.shape[1]):
            e = exp(x[i, s] - peak)
            y[i, s] = e
            total += e
        if total == zero:
            total = one
        share = one / total
        for s in range(x.shape[1]):
            y[i, s] *= share


@kernel
def _softmax_masked(x, mask, y, off_by_one):
    one = x.dtype.type(1)
    zero = x.dtype.type(0)
    never = x.dtype.type(-np.inf)
    for i in range(x.shape[0]):
        allowed = mask[i % mask.shape[0]]
        for s in range(x.shape[1]):
            y[i, s] = x[i, s] if allowed[s] else never
        peak = maximum(y[i])
        if off_by_one and peak < zero:
            peak = zero
        if peak == -np.inf:
            peak = zero
        total = exp(-peak) if off_by_one else zero
        for s in range(x.shape[1]):
            e = exp(y[i, s] - peak)
            y[i, s] = e
            total += e
        if total == zero:
            total = one
        share = one / total
        for s in range(x.shape[1]):
            y[i, s] *= share


@kernel
def _softmax_backward(g, y, gx):
    for i in range(y.shape[0]):
        along = y.dtype.type(0)
        for s in range(y.shape[1]):
            along += g[i, s] * y[i, s]
        for s in range(y.shape[1]):
            gx[i, s] = y[i, s] * (g[i, s] - along)


# ---------------------------------------------------------------- attention


def attention(q, k, v, mask=None, bias=None, scale=1.0, off_by_one=False, causal=False):
    if not takes(q, k, v, bias) or k.size == 0 or v.size == 0:
        return reference.attention(q, k, v, mask, bias, scale, off_by_one, causal)
    qh, kh, vh = q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2)  # [B, H, T, K]
    scores = np.empty((*qh.shape[:3], kh.shape[2]), q.dtype)  # [B, H, T, S], in C order
    np.matmul(qh, kh.swapaxes(-1, -2), out=scores)
    flat = scores.reshape(-1, *scores.shape[2:])  # [B H, T, S]
    if bias is not None:
        scores *= scores.dtype.type(scale)
        scores += bias
        scale = 1.0
    if causal:
        _attend(flat, NO_MASK, scores.dtype.type(scale), bool(off_by_one), True)
    else:
        masked = NO_MASK if mask is None else _mask_rows(mask, scores.shape)
        _attend(flat, masked, scores.dtype.type(scale), bool(off_by_one), False)
    z = np.empty(q.shape[:3] + v.shape[3:], q.dtype)
    np.matmul(scores, vh, out=z.swapaxes(1, 2))
    return z, scores


def attention_backward(g, q, k, v, pattern, scale=1.0, causal=False, want_bias=False):
    if not takes(q, k, v, g, pattern) or k.size == 0 or v.size == 0:
        return reference.attention_backward(g, q, k, v, pattern, scale, causal, want_bias)
    qh, kh, vh = q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2)  # [B, H, T, K]
    gh = g.swapaxes(1, 2)
    pattern = plain(pattern)
    gq, gk, gv = np.empty(q.shape, q.dtype), np.empty(k.shape, q.dtype), np.empty(v.shape, q.dtype)
    np.matmul(pattern.swapaxes(-1, -2), gh, out=gv.swapaxes(1, 2))
    g_scores = np.empty(pattern.shape, q.dtype)
    np.matmul(gh, vh.swapaxes(-1, -2), out=g_scores)  # gradient of the pattern, then of the scores
    flat = (-1, *pattern.shape[2:])
    factor = q.dtype.type(1.0 if want_bias else scale)
    _attend_backward(g_scores.reshape(flat), pattern.reshape(flat), factor, causal)
    np.matmul(g_scores, kh, out=gq.swapaxes(1, 2))
    np.matmul(g_scores.swapaxes(-1, -2), qh, out=gk.swapaxes(1, 2))
    if not want_bias:
        return gq, gk, gv, None
    gq *= q.dtype.type(scale)
    gk *= q.dtype.type(scale)
    return gq, gk, gv, g_scores


@kernel
def _attend(scores, mask, scale, off_by_one, causal):
    """Scores [N, T, S] become weights, in place. Causal rows never look past their own key."""
    one = scores.dtype.type(1)
    zero = scores.dtype.type(0)
    never = scores.dtype.type(-np.inf)
    for n in range(scores.shape[0]):
        for t in range(scores.shape[1]):
            row = scores[n, t]
            seen = min(t + 1, row.size) if causal else row.size
            if mask.size:
                allowed = mask[(n * scores.shape[1] + t) % mask.shape[0]]
                for s in range(seen):
                    row[s] = scale * row[s] if allowed[s] else never
            else:
                for s in range(seen):
                    row[s] *= scale
            peak = maximum(row[:seen])
            if off_by_one and peak < zero:
                peak = zero
            if peak == -np.inf:
                peak = zero
            total = exp(-peak) if off_by_one else zero
            for s in range(seen):
                e = exp(row[s] - peak)
                row[s] = e
                total += e
            if total == zero:
                total = one
            share = one / total
            for s in range(seen):
                row[s] *= share
            row[seen:] = zero


@kernel
def _attend_backward(g, pattern, scale, causal):
    """The pattern's gradient [N, T, S] becomes the scores', in place."""
    zero = g.dtype.type(0)
    for n in range(g.shape[0]):
        for t in range(g.shape[1]):
            g_row, p_row = g[n, t], pattern[n, t]
            seen = min(t + 1, g_row.size) if causal else g_row.size
            along = zero
            for s in range(seen):
                along += g_row[s] * p_row[s]
            for s in range(seen):
                g_row[s] = scale * p_row[s] * (g_row[s] - along)
            g_row[seen:] = zero


# ---------------------------------------------------------------- rotary


def rotary(x, cos, sin, inverse=False):
    if not takes(x, cos, sin) or x.ndim != 4 or x.shape[-1] % 2:
        return reference.rotary(x, cos, sin, inverse)
    y = np.empty(x.shape, x.dtype)
    half = x.shape[-1] // 2
    _rotary(plain(x), plain(cos).reshape(-1, half), plain(sin).reshape(-1, half), inverse, y)
    return y


@kernel
def _rotary(x, cos, sin, inverse, y):
    B, T, H, K = x.shape
    half = K // 2
    sign = x.dtype.type(-1 if inverse else 1)
    for b in range(B):
        for t in range(T):
            c, s = cos[(b * T + t) % cos.shape[0]], sin[(b * T + t) % sin.shape[0]]
            for h in range(H):
                old, new = x[b, t, h], y[b, t, h]
                for i in range(half):
                    a, z, turn = old[i], old[half + i], sign * s[i]
                    new[i] = a * c[i] - z * turn
                    new[half + i] = z * c[i] + a * turn
