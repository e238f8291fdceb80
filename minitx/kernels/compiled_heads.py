"""The first half of a transformer block in one kernel: norm, query, key, value, heads, output, residual.

A tile is one or more whole sequences. Scores never leave the cache: a few queries at a time meet the
keys that they may see, and what is kept for the backward pass is one number for each query and head,
the logarithm of its softmax's denominator, from which the weights are computed again (FlashAttention;
Dao et al., 2022). Under a causal mask, blocks above the diagonal are skipped.
"""

# digest of _math.py, _gemm.py, _tiles.py: d79d02418f28
from __future__ import annotations

import numpy as np

from minitx.kernels import reference_blocks as reference
from minitx.kernels import threads
from minitx.kernels._arrays import plain, rows, scratch, takes, vector
from minitx.kernels._gemm import address, multiply, pack, pack_transposed
from minitx.kernels._math import exp, kernel, maximum, part
from minitx.kernels._tiles import (
    NORMS,
    add_rows,
    fill_bias,
    fill_residual,
    norm_backward,
    normalise,
    normalise_again,
    packed_weight,
    product,
    turn,
    weight_gradient,
)
from minitx.kernels.compiled_mlp import split_sums

ROWS_AIMED_AT = 96  # of a tile; at least one sequence
QUERIES = 24  # that meet their keys together
WIDEST = 64  # panel width in numbers, at most


def attention_block(x, weights, n_heads, mask=None, bias=None, angles=None, **options):
    o = reference.BLOCK_OPTIONS | options
    shape = _shapes(x, weights, n_heads, mask, bias, angles)
    if shape is None:
        return reference.attention_block(x, weights, n_heads, mask, bias, angles, **options)
    (B, T, D), W = x.shape, weights[2].shape[0]
    dtype, N = x.dtype, B * T
    y, qkv, z = np.empty(x.shape, dtype), np.empty((N, 3 * W), dtype), np.empty((N, W), dtype)
    mean, rstd, lse = (np.empty(s, dtype) for s in (N, N, (B, n_heads, T)))
    parts = threads.parts(B, 1, N * (8 * D * W + 4 * T * W))
    sizes = _sizes(T, D, W)
    threads.share(
        _forward, B, parts, rows(x), *_plain(weights, dtype), *shape, n_heads, T, NORMS[o["norm"]],
        bool(o["off_by_one"]), bool(o["causal"]), bool(o["residual"]), float(o["eps"]),
        float(o["scale"]), mean, rstd, qkv, z, lse, y.reshape(N, D), scratch(parts, sizes, dtype),
    )  # fmt: skip
    return y, (mean, rstd, qkv, z, lse)


def attention_block_backward(
    g, x, weights, saved, n_heads, mask=None, bias=None, angles=None, **options
):
    o = reference.BLOCK_OPTIONS | options
    shape = _shapes(x, weights, n_heads, mask, bias, angles)
    if shape is None or not takes(g, x, *saved):
        return reference.attention_block_backward(
            g, x, weights, saved, n_heads, mask, bias, angles, **options
        )
    (B, T, D), W = x.shape, weights[2].shape[0]
    dtype, N = x.dtype, B * T
    gx = np.empty(x.shape, dtype)
    parts = threads.parts(B, 1, N * (16 * D * W + 8 * T * W))
    plain_weights = _plain(weights, dtype)
    sums = np.zeros((parts, sum(w.size for w in plain_weights)), dtype)
    threads.share(
        _backward, B, parts, rows(g), rows(x), *plain_weights, *shape, n_heads, T,
        NORMS[o["norm"]], bool(o["causal"]), bool(o["residual"]), float(o["scale"]), *saved,
        gx.reshape(N, D), sums, scratch(parts, _sizes(T, D, W), dtype),
    )  # fmt: skip
    return gx, *split_sums(sums, weights)


def _shapes(x, weights, n_heads, mask, bias, angles):
    """Mask [1 or B, T, T], bias [1 or H, T, T], angles [T or B T, K/2] as arrays; None: not for us.

    Empty arrays stand for no mask, no bias, no angles.
    """
    wq = weights[2]
    if not takes(x, *weights) or x.ndim != 3 or (weights[0] is None and weights[1] is not None):
        return None
    B, T, _ = x.shape
    dtype, H = x.dtype, n_heads
    if mask is None:
        mask = np.zeros((0, 0, 0), np.bool_)
    elif mask.dtype == np.bool_ and mask.shape[-2:] == (T, T) and mask.size in (T * T, B * T * T):
        mask = plain(mask).reshape(-1, T, T)
    else:
        return None
    if bias is None:
        bias = np.zeros((0, 0, 0), dtype)
    elif bias.dtype == dtype and bias.shape[-2:] == (T, T) and bias.size in (T * T, H * T * T):
        bias = plain(bias).reshape(-1, T, T)
    else:
        return None
    half = wq.shape[0] // H // 2
    if angles is None:
        cos = sin = np.zeros((0, 0), dtype)
    else:
        cos, sin = angles
        if (
            not takes(x, cos, sin)
            or cos.shape[-1] != half
            or cos.size not in (T * half, B * T * half)
        ):
            return None
        cos, sin = plain(cos).reshape(-1, half), plain(sin).reshape(-1, half)
    return mask, bias, cos, sin


def _plain(weights, dtype):
    """Matrices as they are, vectors empty where there are none: nw, nb, then (w, b) of q, k, v, out."""
    return tuple(plain(w) if w is not None and w.ndim == 2 else vector(w, dtype) for w in weights)


def _sizes(T, D, W):
    """Numbers of scratch that one share needs."""
    tile = max(ROWS_AIMED_AT, T) + T
    packed = 4 * (D + WIDEST) * (W + WIDEST)
    heads = 6 * (T + WIDEST) * (W + WIDEST) + 2 * QUERIES * (T + 3 * WIDEST)
    return packed + heads + tile * (4 * D + 5 * W + 6 * WIDEST) + 64 * WIDEST


@part
def _take(space, place, rows, columns):
    """A 2-D piece of scratch from ``place`` on."""
    return space[place : place + rows * columns].reshape(rows, columns)


@part
def _see(scores, t0, n, seen, mask, which, bias, head, scale):
    """Raw products become scores: scaled, biased, -inf where the mask forbids.

    Without bias and mask there is nothing to do: `_weigh` multiplies by the scale in its exp.
    """
    never = scores.dtype.type(-np.inf)
    for i in range(n):
        row = scores[i]
        if bias.size:
            extra = bias[head % bias.shape[0], t0 + i]
            for s in range(seen):
                row[s] = row[s] * scale + extra[s]
        else:
            for s in range(seen):
                row[s] *= scale
        if mask.size:
            allowed = mask[which % mask.shape[0], t0 + i]
            for s in range(seen):
                row[s] = row[s] if allowed[s] else never


@part
def _weigh(row, seen, scale, off_by_one):
    """exp(scale * (score - peak)) of a row, in place; returns log of the softmax's denominator and
    the factor that is still missing."""
    zero, one = row.dtype.type(0), row.dtype.type(1)
    peak = maximum(row[:seen])
    if off_by_one and peak < zero:
        peak = zero
    if peak == -np.inf:
        peak = zero
    total = exp(-peak * scale) if off_by_one else zero
    for s in range(seen):
        e = exp(scale * (row[s] - peak))
        row[s] = e
        total += e
    if total == zero:  # nothing allowed: with infinity here, exp(score - lse) stays zero
        return row.dtype.type(np.inf), one
    return np.log(total) + scale * peak, one / total


@kernel
def _forward(
    first, last, share, x, norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo, mask, bias, cos,
    sin, H, T, norm, off_by_one, causal, residual, eps, scale, mean, rstd, qkv, z, lse, y, space,
):  # fmt: skip
    mine = space[share]
    W, D = wq.shape
    K = W // H
    number = x.dtype.type(0)
    factor = x.dtype.type(scale)
    room = (D + WIDEST) * (W + WIDEST)
    q_packed, k_packed, v_packed, o_packed = (
        mine[:room], mine[room : 2 * room], mine[2 * room : 3 * room], mine[3 * room : 4 * room],
    )  # fmt: skip
    at = 4 * room
    packed_weight(wq, True, q_packed)
    packed_weight(wk, True, k_packed)
    packed_weight(wv, True, v_packed)
    packed_weight(wo, True, o_packed)
    together = max(1, ROWS_AIMED_AT // T)
    tile = together * T
    h = _take(mine, at, tile, D)
    at += tile * D
    edge = mine[at : at + tile * WIDEST]
    at += tile * WIDEST
    keys, values = (
        mine[at : at + (T + WIDEST) * (K + WIDEST)],
        mine[at + (T + WIDEST) * (K + WIDEST) :],
    )
    at += 2 * (T + WIDEST) * (K + WIDEST)
    wide = (T + WIDEST - 1) // WIDEST * WIDEST + 16
    scores = _take(mine, at, QUERIES, wide)
    missing = np.empty(QUERIES, x.dtype)
    plain_scores = scale > 0 and not bias.size and not mask.size
    in_exp = factor if plain_scores else x.dtype.type(1)
    step = 3 * W
    for b0 in range(first, last, together):
        b1 = min(last, b0 + together)
        top, n = b0 * T, (b1 - b0) * T
        normalise(x, top, n, norm_weight, norm_bias, eps, norm, mean, rstd, h)
        fill_bias(qkv, top, n, 0, W, bq)
        fill_bias(qkv, top, n, W, W, bk)
        fill_bias(qkv, top, n, 2 * W, W, bv)
        product(h, 0, 0, n, D, q_packed, W, edge, qkv, top, 0, True)
        product(h, 0, 0, n, D, k_packed, W, edge, qkv, top, W, True)
        product(h, 0, 0, n, D, v_packed, W, edge, qkv, top, 2 * W, True)
        if cos.size:
            turn(qkv, top, n, 0, 2 * H, K, top, cos, sin, False)
        for b in range(b0, b1):
            for head in range(H):
                start, left = b * T, head * K
                pack_transposed(
                    number, K, T, address(qkv, start * step + W + left), step, address(keys, 0)
                )
                pack(
                    number,
                    T,
                    K,
                    address(qkv, start * step + 2 * W + left),
                    step,
                    address(values, 0),
                )
                for t0 in range(0, T, QUERIES):
                    t1 = min(T, t0 + QUERIES)
                    seen = t1 if causal else T
                    padded = (seen + 15) // 16 * 16
                    multiply(
                        number, t1 - t0, padded, K, address(qkv, (start + t0) * step + left), step,
                        1, address(keys, 0), K, address(edge, 0), address(scores, 0), wide, False,
                    )  # fmt: skip
                    if not plain_scores:
                        _see(scores, t0, t1 - t0, seen, mask, b, bias, head, factor)
                    for i in range(t1 - t0):
                        row_seen = t0 + i + 1 if causal else T
                        log, missing[i] = _weigh(scores[i], row_seen, in_exp, off_by_one)
                        lse[b, head, t0 + i] = log
                        scores[i, row_seen:padded] = number
                    multiply(
                        number, t1 - t0, K, seen, address(scores, 0), wide, 1, address(values, 0), T,
                        address(edge, 0), address(z, (start + t0) * W + left), W, False,
                    )  # fmt: skip
                    for i in range(t1 - t0):
                        for d in range(left, left + K):
                            z[start + t0 + i, d] *= missing[i]
        fill_residual(x, top, n, bo, residual, y)
        product(z, top, 0, n, W, o_packed, D, edge, y, top, 0, True)


@kernel
def _backward(
    first, last, share, g, x, norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo, mask, bias,
    cos, sin, H, T, norm, causal, residual, scale, mean, rstd, qkv, z, lse, gx, sums, space,
):  # fmt: skip
    mine, total = space[share], sums[share]
    W, D = wq.shape
    K = W // H
    number = x.dtype.type(0)
    factor = x.dtype.type(scale)
    room = (D + WIDEST) * (W + WIDEST)
    q_packed, k_packed, v_packed, o_packed = (
        mine[:room], mine[room : 2 * room], mine[2 * room : 3 * room], mine[3 * room : 4 * room],
    )  # fmt: skip
    at = 4 * room
    packed_weight(wq, False, q_packed)
    packed_weight(wk, False, k_packed)
    packed_weight(wv, False, v_packed)
    packed_weight(wo, False, o_packed)
    together = max(1, ROWS_AIMED_AT // T)
    tile = together * T
    h = _take(mine, at, tile, D)
    at += tile * D
    gh = _take(mine, at, tile, D)
    at += tile * D
    g_tile = _take(mine, at, tile, D + 16)  # not a power of two: a cache keeps its columns apart
    at += tile * (D + 16)
    gz = _take(mine, at, tile, W)
    at += tile * W
    g_qkv = _take(mine, at, tile, 3 * W + 16)
    at += tile * (3 * W + 16)
    edge = mine[at : at + tile * WIDEST]
    at += tile * WIDEST
    panels = mine[at : at + tile * (max(D, W) + WIDEST)]
    at += tile * (max(D, W) + WIDEST)
    side = (T + WIDEST) * (K + WIDEST)
    keys, values, key_rows, few_q, few_g = (
        mine[at : at + side], mine[at + side : at + 2 * side], mine[at + 2 * side : at + 3 * side],
        mine[at + 3 * side : at + 4 * side], mine[at + 4 * side : at + 5 * side],
    )  # fmt: skip
    at += 5 * side
    wide = (T + WIDEST - 1) // WIDEST * WIDEST + 16
    weights, slopes = (
        _take(mine, at, QUERIES, wide),
        _take(mine, at + QUERIES * wide, QUERIES, wide),
    )

    g_nw, total = total[: norm_weight.size], total[norm_weight.size :]
    g_nb, total = total[: norm_bias.size], total[norm_bias.size :]
    g_wq, total = total[: W * D].reshape(W, D), total[W * D :]
    g_bq, total = total[: bq.size], total[bq.size :]
    g_wk, total = total[: W * D].reshape(W, D), total[W * D :]
    g_bk, total = total[: bk.size], total[bk.size :]
    g_wv, total = total[: W * D].reshape(W, D), total[W * D :]
    g_bv, total = total[: bv.size], total[bv.size :]
    g_wo, total = total[: W * D].reshape(D, W), total[W * D :]
    g_bo = total[: bo.size]

    plain_scores = not bias.size and not mask.size
    in_exp = factor if plain_scores else x.dtype.type(1)
    step, g_step = 3 * W, 3 * W + 16
    for b0 in range(first, last, together):
        b1 = min(last, b0 + together)
        top, n = b0 * T, (b1 - b0) * T
        for i in range(n):
            for d in range(D):
                g_tile[i, d] = g[top + i, d]
        add_rows(g_tile, n, 0, g_bo)
        weight_gradient(g_tile, 0, z, top, 0, n, panels, edge, g_wo)
        product(g_tile, 0, 0, n, D, o_packed, W, edge, gz, 0, 0, False)
        g_qkv[:n] = number
        for b in range(b0, b1):
            for head in range(H):
                start, local, left = b * T, (b - b0) * T, head * K
                k_at = address(qkv, start * step + W + left)
                pack_transposed(number, K, T, k_at, step, address(keys, 0))
                pack(number, T, K, k_at, step, address(key_rows, 0))
                v_at = address(qkv, start * step + 2 * W + left)
                pack_transposed(number, K, T, v_at, step, address(values, 0))
                for t0 in range(0, T, QUERIES):
                    t1 = min(T, t0 + QUERIES)
                    m = t1 - t0
                    seen = t1 if causal else T
                    padded = (seen + 15) // 16 * 16
                    q_at = address(qkv, (start + t0) * step + left)
                    gz_at = address(gz, (local + t0) * W + left)
                    multiply(
                        number, m, padded, K, q_at, step, 1, address(keys, 0), K, address(edge, 0),
                        address(weights, 0), wide, False,
                    )  # fmt: skip
                    multiply(
                        number, m, padded, K, gz_at, W, 1, address(values, 0), K, address(edge, 0),
                        address(slopes, 0), wide, False,
                    )  # fmt: skip
                    if not plain_scores:
                        _see(weights, t0, m, seen, mask, b, bias, head, factor)
                    for i in range(m):
                        row_seen = t0 + i + 1 if causal else T
                        dot = number
                        for d in range(K):
                            dot += gz[local + t0 + i, left + d] * z[start + t0 + i, left + d]
                        w_row, s_row, log = weights[i], slopes[i], lse[b, head, t0 + i]
                        for s in range(row_seen):
                            w_row[s] = exp(in_exp * w_row[s] - log)
                            s_row[s] = factor * w_row[s] * (s_row[s] - dot)
                        w_row[row_seen:padded] = number
                        s_row[row_seen:padded] = number
                    multiply(
                        number, m, K, seen, address(slopes, 0), wide, 1, address(key_rows, 0), T,
                        address(edge, 0), address(g_qkv, (local + t0) * g_step + left), g_step,
                        False,
                    )  # fmt: skip
                    pack(number, m, K, q_at, step, address(few_q, 0))
                    pack(number, m, K, gz_at, W, address(few_g, 0))
                    multiply(
                        number, seen, K, m, address(slopes, 0), 1, wide, address(few_q, 0), m,
                        address(edge, 0), address(g_qkv, local * g_step + W + left), g_step, True,
                    )  # fmt: skip
                    multiply(
                        number, seen, K, m, address(weights, 0), 1, wide, address(few_g, 0), m,
                        address(edge, 0), address(g_qkv, local * g_step + 2 * W + left), g_step,
                        True,
                    )  # fmt: skip
        if cos.size:
            turn(g_qkv, 0, n, 0, 2 * H, K, top, cos, sin, True)
        normalise_again(x, top, n, norm_weight, norm_bias, norm, mean, rstd, h)
        add_rows(g_qkv, n, 0, g_bq)
        add_rows(g_qkv, n, W, g_bk)
        add_rows(g_qkv, n, 2 * W, g_bv)
        weight_gradient(g_qkv, 0, h, 0, 0, n, panels, edge, g_wq)
        weight_gradient(g_qkv, W, h, 0, 0, n, panels, edge, g_wk)
        weight_gradient(g_qkv, 2 * W, h, 0, 0, n, panels, edge, g_wv)
        product(g_qkv, 0, 0, n, W, q_packed, D, edge, gh, 0, 0, False)
        product(g_qkv, 0, W, n, W, k_packed, D, edge, gh, 0, 0, True)
        product(g_qkv, 0, 2 * W, n, W, v_packed, D, edge, gh, 0, 0, True)
        add_rows(gh, n, 0, g_nb)
        norm_backward(
            x, top, n, norm_weight, norm_bias, norm, mean, rstd, gh, g, residual, gx, g_nw, g_nb
        )
