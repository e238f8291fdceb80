"""The first half of a transformer block in one kernel: norm, query, key, value, heads, output, residual.

A tile is one or more whole sequences. Scores never leave the cache: a few queries at a time meet the
keys that they may see, and what is kept for the backward pass is one number for each query and head,
the logarithm of its softmax's denominator, from which the weights are computed again (FlashAttention;
Dao et al., 2022). Under a causal mask, blocks above the diagonal are skipped.
"""

# digest of _math.py, _gemm.py, _registers.py, _tiles.py: e76942f47cbb
from __future__ import annotations

import numpy as np

from minitx.kernels import reference_blocks as reference
from minitx.kernels import threads
from minitx.kernels._arrays import plain, rows, scratch, takes, vector
from minitx.kernels._gemm import (
    address,
    item_size,
    multiply,
    pack_transposed,
    packed_size,
    panel_width,
)
from minitx.kernels._math import kernel, part
from minitx.kernels._registers import slope_columns, softmax_columns
from minitx.kernels._tiles import (
    APART,
    NORMS,
    TILE,
    WIDEST,
    add_rows,
    copy_rows,
    fill_bias,
    fill_residual,
    norm_backward,
    normalise,
    normalise_again,
    packed_weight,
    panels,
    piece,
    product,
    take,
    turn,
    weight_gradient,
)
from minitx.kernels.compiled_mlp import split_sums


def attention_block(x, weights, n_heads, mask=None, bias=None, angles=None, **options):
    o = reference.BLOCK_OPTIONS | options
    shape = _shapes(x, weights, n_heads, mask, bias, angles)
    if shape is None:
        return reference.attention_block(x, weights, n_heads, mask, bias, angles, **options)
    (B, T, D), W = x.shape, weights[2].shape[0]
    dtype, N = x.dtype, B * T
    y, z = np.empty(x.shape, dtype), np.empty((N, W), dtype)
    qkv = np.empty((N, 3 * W + APART), dtype)
    mean, rstd, lse = (np.empty(s, dtype) for s in (N, N, (B, n_heads, T)))
    parts = threads.parts(B, 1, N * (8 * D * W + 4 * T * W))
    threads.share(
        _forward, B, parts, rows(x), *_joined(weights, dtype), *shape, n_heads, T, NORMS[o["norm"]],
        bool(o["off_by_one"]), bool(o["causal"]), bool(o["residual"]), float(o["eps"]),
        float(o["scale"]), mean, rstd, qkv, z, lse, y.reshape(N, D),
        scratch(parts, _scratch_size(T, D, W, n_heads), dtype),
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
    joined = _joined(weights, dtype)
    sums = np.zeros((parts, sum(w.size for w in joined)), dtype)
    threads.share(
        _backward, B, parts, rows(g), rows(x), *joined, *shape, n_heads, T, NORMS[o["norm"]],
        bool(o["causal"]), bool(o["residual"]), float(o["scale"]), *saved, gx.reshape(N, D), sums,
        scratch(parts, _scratch_size(T, D, W, n_heads), dtype),
    )  # fmt: skip
    g_nw, g_nb, g_in, g_b_in, g_wo, g_bo = split_sums(sums, joined)
    gradients = g_nw, g_nb, *_thirds(g_in, g_b_in), g_wo, g_bo
    return gx, *(None if w is None else a for w, a in zip(weights, gradients, strict=True))


def _shapes(x, weights, n_heads, mask, bias, angles):
    """Mask [1 or B, T, T], bias [1 or H, T, T], angles [T or B T, K/2] as arrays; None: not for us.

    Empty arrays stand for no mask, no bias, no angles.
    """
    wq = weights[2]
    if not takes(x, *weights) or x.ndim != 3 or wq.size == 0:
        return None
    if weights[0] is None and weights[1] is not None:
        return None
    B, T, _ = x.shape
    dtype, H = x.dtype, n_heads
    if mask is None:
        mask = np.zeros((0, 0, 0), np.bool_)
    elif mask.dtype == np.bool_ and mask.shape in (
        (T, T), (1, T, T), (1, 1, T, T), (B, 1, T, T)
    ):  # fmt: skip
        mask = plain(mask).reshape(-1, T, T)
    else:
        return None
    if bias is None:
        bias = np.zeros((0, 0, 0), dtype)
    elif bias.dtype == dtype and bias.shape in (
        (T, T), (1, T, T), (H, T, T), (1, 1, T, T), (1, H, T, T)
    ):  # fmt: skip
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


def _joined(weights, dtype):
    """The ten weights as six: query's, key's and value's in one. Vectors are empty if there is none."""
    norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo = weights
    biases = [
        np.zeros(len(w), dtype) if b is None else b for w, b in ((wq, bq), (wk, bk), (wv, bv))
    ]
    b_in = None if bq is bk is bv is None else np.concatenate(biases)
    norm_weight, norm_bias, b_in, bo = (
        vector(a, dtype) for a in (norm_weight, norm_bias, b_in, bo)
    )
    w_in = plain(np.concatenate([wq, wk, wv]))  # it keeps Fortran's order if all three have it
    return norm_weight, norm_bias, w_in, b_in, plain(wo), bo


def _thirds(g_in, g_b_in):
    """Gradients of query, key and value, each weight and bias, from those of the joined ones."""
    W = len(g_in) // 3
    for start in (0, W, 2 * W):
        yield from (g_in[start : start + W], g_b_in[start : start + W])


def _scratch_size(T, D, W, H):
    """Numbers of scratch that one share takes, at least."""
    tile, K = max(TILE, T), W // H
    packed = (3 * W + WIDEST) * (D + WIDEST) + (D + WIDEST) * (W + WIDEST)
    tiles = tile * (3 * D + 4 * W + 4 * APART) + max(tile, 3 * W, D) * WIDEST
    heads = (T + 3 * WIDEST) * (K + WIDEST) + 2 * (T + 1) * WIDEST
    return packed + tiles + tile * (max(D, W) + WIDEST) + heads


@part
def _meet(rows, rows_at, rows_step, few, few_at, few_step, K, columns, out):
    """One panel, out [rows, panel] = rows @ few.T: keys with a few queries, or values with slopes.

    Both matrices lie at an address, their rows a step apart; ``columns`` is scratch for few.T.
    """
    number = out[0, 0]
    width, panel = panel_width(number), address(columns, 0)
    pack_transposed(number, K, few, few_at, few_step, panel)
    multiply(
        number, rows, width, K, rows_at, rows_step, 1, panel, width, 0, 0,
        address(out, 0), width, False,
    )  # fmt: skip


@part
def _where_to_scale(scale, bias):
    """The scale, as factors before and inside of the exp: inside is free, if nothing is added first
    and what is -inf stays so."""
    one = type(scale)(1)
    return (one, scale) if scale > 0 and not bias.size else (scale, one)


@part
def _see(scores, t0, n, seen, mask, which, bias, head, scale):
    """Raw products become scores: scaled, biased, -inf where the mask forbids.

    ``scale`` is 1 if the exp multiplies by it.
    """
    never = scores.dtype.type(-np.inf)
    if scale != 1:
        for s in range(seen):
            for j in range(scores.shape[1]):
                scores[s, j] *= scale
    for j in range(n):
        if bias.size:
            extra = bias[head % bias.shape[0], t0 + j]
            for s in range(seen):
                scores[s, j] += extra[s]
        if mask.size:
            allowed = mask[which % mask.shape[0], t0 + j]
            for s in range(seen):
                if not allowed[s]:
                    scores[s, j] = never


@part
def _hide_later(scores, t0, seen):
    """-inf where a key comes after its query."""
    for s in range(t0 + 1, seen):
        for j in range(s - t0):
            scores[s, j] = scores.dtype.type(-np.inf)


@kernel
def _forward(
    first, last, share, x, norm_weight, norm_bias, w_in, b_in, wo, bo, mask, bias, cos, sin, H, T,
    norm, off_by_one, causal, residual, eps, scale, mean, rstd, qkv, z, lse, y, space,
):  # fmt: skip
    D, W = wo.shape
    K, zero, factor = W // H, x.dtype.type(0), x.dtype.type(scale)
    width, size = panel_width(zero), item_size(zero)
    together = max(1, TILE // T)
    tile = together * T
    mine = space[share]
    in_packed, mine = piece(mine, packed_size(zero, D, 3 * W))
    out_packed, mine = piece(mine, packed_size(zero, W, D))
    h, mine = take(mine, tile, D + APART)
    edge, mine = piece(mine, tile * width)
    columns, mine = piece(mine, K * width)
    values, mine = piece(mine, packed_size(zero, T, K))
    scores, mine = take(mine, T, width)
    peak, mine = piece(mine, width)
    total, mine = piece(mine, width)
    packed_weight(w_in, True, in_packed)
    packed_weight(wo, True, out_packed)
    before_exp, in_exp = _where_to_scale(factor, bias)
    infinity = x.dtype.type(np.inf)
    step = qkv.shape[1]
    for b0 in range(first, last, together):
        b1 = min(last, b0 + together)
        top, n = b0 * T, (b1 - b0) * T
        normalise(x, top, n, norm_weight, norm_bias, eps, norm, mean, rstd, h)
        fill_bias(qkv, top, n, b_in)
        product(h, 0, n, D, in_packed, 3 * W, edge, qkv, top, b_in.size > 0)
        if cos.size:
            turn(qkv, top, n, 2 * H, K, top, cos, sin, False)
        for b in range(b0, b1):
            for head in range(H):
                start, left = b * T, head * K
                q_at = address(qkv, start * step + left)
                k_at, v_at = q_at + W * size, q_at + 2 * W * size
                v, v_step, v_panel = panels(zero, T, K, v_at, step, values)
                for t0 in range(0, T, width):
                    m = min(width, T - t0)
                    seen = t0 + m if causal else T
                    q_few = q_at + t0 * step * size
                    _meet(seen, k_at, step, m, q_few, step, K, columns, scores)
                    _see(scores, t0, m, seen, mask, b, bias, head, before_exp)
                    if causal:
                        _hide_later(scores, t0, seen)
                    softmax_columns(
                        zero, seen, address(scores, 0), in_exp, off_by_one, address(peak, 0),
                        address(total, 0),
                    )  # fmt: skip
                    multiply(
                        zero, m, K, seen, address(scores, 0), 1, width, v, v_step, v_panel,
                        address(edge, 0), address(z, (start + t0) * W + left), W, False,
                    )  # fmt: skip
                    for j in range(m):
                        # Nothing allowed: with infinity here, exp(score - lse) stays zero.
                        log = np.log(total[j]) if total[j] else infinity
                        lse[b, head, t0 + j] = log + in_exp * peak[j]
        fill_residual(x, top, n, bo, residual, y)
        product(z, top, n, W, out_packed, D, edge, y, top, True)


@kernel
def _backward(
    first, last, share, g, x, norm_weight, norm_bias, w_in, b_in, wo, bo, mask, bias, cos, sin, H, T,
    norm, causal, residual, scale, mean, rstd, qkv, z, lse, gx, sums, space,
):  # fmt: skip
    D, W = wo.shape
    K, zero, factor = W // H, x.dtype.type(0), x.dtype.type(scale)
    width, size = panel_width(zero), item_size(zero)
    together = max(1, TILE // T)
    tile = together * T
    mine = space[share]
    in_packed, mine = piece(mine, packed_size(zero, 3 * W, D))
    out_packed, mine = piece(mine, packed_size(zero, D, W))
    h, mine = take(mine, tile, D + APART)
    gh, mine = take(mine, tile, D)
    g_tile, mine = take(mine, tile, D + APART)
    gz, mine = take(mine, tile, W + APART)
    g_qkv, mine = take(mine, tile, 3 * W + APART)
    edge, mine = piece(mine, max(tile, 3 * W, D) * width)
    tile_packed, mine = piece(mine, packed_size(zero, tile, max(D, W)))
    keys, mine = piece(mine, packed_size(zero, T, K))
    columns, mine = piece(mine, K * width)
    few_q, mine = piece(mine, packed_size(zero, width, K))
    few_g, mine = piece(mine, packed_size(zero, width, K))
    weights, mine = take(mine, T, width)
    slopes, mine = take(mine, T, width)
    few_lse, mine = piece(mine, width)
    packed_weight(w_in, False, in_packed)
    packed_weight(wo, False, out_packed)

    rest = sums[share]
    g_nw, rest = piece(rest, norm_weight.size)
    g_nb, rest = piece(rest, norm_bias.size)
    g_w_in, rest = take(rest, 3 * W, D)
    g_b_in, rest = piece(rest, b_in.size)
    g_wo, rest = take(rest, D, W)
    g_bo = rest[: bo.size]

    before_exp, in_exp = _where_to_scale(factor, bias)
    infinity = x.dtype.type(np.inf)
    step, g_step, gz_step = qkv.shape[1], g_qkv.shape[1], gz.shape[1]
    for b0 in range(first, last, together):
        b1 = min(last, b0 + together)
        top, n = b0 * T, (b1 - b0) * T
        copy_rows(g, top, n, g_tile)
        add_rows(g_tile, n, g_bo)
        weight_gradient(g_tile, z, top, n, tile_packed, edge, g_wo)
        product(g_tile, 0, n, D, out_packed, W, edge, gz, 0, False)
        g_qkv[:n] = zero
        for b in range(b0, b1):
            for head in range(H):
                start, local, left = b * T, (b - b0) * T, head * K
                q_at = address(qkv, start * step + left)
                k_at, v_at = q_at + W * size, q_at + 2 * W * size
                gq_at = address(g_qkv, local * g_step + left)
                gk_at, gv_at = gq_at + W * size, gq_at + 2 * W * size
                k, k_step, k_panel = panels(zero, T, K, k_at, step, keys)
                for t0 in range(0, T, width):
                    m = min(width, T - t0)
                    seen = t0 + m if causal else T
                    q_few = q_at + t0 * step * size
                    gz_few = address(gz, (local + t0) * gz_step + left)
                    _meet(seen, k_at, step, m, q_few, step, K, columns, weights)
                    _meet(seen, v_at, step, m, gz_few, gz_step, K, columns, slopes)
                    _see(weights, t0, m, seen, mask, b, bias, head, before_exp)
                    if causal:
                        _hide_later(weights, t0, seen)
                    for j in range(width):  # infinity keeps the columns of no query at 0
                        few_lse[j] = lse[b, head, t0 + j] if j < m else infinity
                    slope_columns(
                        zero, seen, address(weights, 0), address(slopes, 0), in_exp, factor,
                        address(few_lse, 0),
                    )  # fmt: skip
                    multiply(
                        zero, m, K, seen, address(slopes, 0), 1, width, k, k_step, k_panel,
                        address(edge, 0), gq_at + t0 * g_step * size, g_step, False,
                    )  # fmt: skip
                    q, q_step, q_panel = panels(zero, m, K, q_few, step, few_q)
                    multiply(
                        zero, seen, K, m, address(slopes, 0), width, 1, q, q_step, q_panel,
                        address(edge, 0), gk_at, g_step, True,
                    )  # fmt: skip
                    gv, gv_step, gv_panel = panels(zero, m, K, gz_few, gz_step, few_g)
                    multiply(
                        zero, seen, K, m, address(weights, 0), width, 1, gv, gv_step, gv_panel,
                        address(edge, 0), gv_at, g_step, True,
                    )  # fmt: skip
        if cos.size:
            turn(g_qkv, 0, n, 2 * H, K, top, cos, sin, True)
        normalise_again(x, top, n, norm_weight, norm_bias, norm, mean, rstd, h)
        add_rows(g_qkv, n, g_b_in)
        weight_gradient(g_qkv, h, 0, n, tile_packed, edge, g_w_in)
        product(g_qkv, 0, n, 3 * W, in_packed, D, edge, gh, 0, False)
        add_rows(gh, n, g_nb)
        norm_backward(
            x, top, n, norm_weight, norm_bias, norm, mean, rstd, gh, g, residual, gx, g_nw, g_nb
        )
