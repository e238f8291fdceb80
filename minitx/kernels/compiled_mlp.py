"""The second half of a transformer block in one kernel: norm, up, activation, down, residual.

A tile of some hundred rows goes through all of it while it is in the cache, forwards and backwards.
Kept for the backward pass: what enters the activation, and two numbers a row for the norm.
"""

# digest of _math.py, _gemm.py, _registers.py, _tiles.py: e76942f47cbb
from __future__ import annotations

import numpy as np

from minitx.kernels import reference_blocks as reference
from minitx.kernels import threads
from minitx.kernels._arrays import plain, rows, scratch, takes, vector
from minitx.kernels._gemm import packed_size, panel_width
from minitx.kernels._math import kernel
from minitx.kernels._tiles import (
    ACTIVATIONS,
    APART,
    NORMS,
    TILE,
    WIDEST,
    activate,
    activate_backward,
    add_rows,
    copy_rows,
    fill_residual,
    norm_backward,
    normalise,
    normalise_again,
    packed_weight,
    piece,
    product,
    take,
    weight_gradient,
)


def mlp_block(
    x, norm_weight, norm_bias, up, up_bias, down, down_bias,
    norm="layernorm", activation="gelu", residual=True, eps=1e-5,
):  # fmt: skip
    weights = (norm_weight, norm_bias, up, up_bias, down, down_bias)
    if not _ours(x, weights):
        return reference.mlp_block(x, *weights, norm, activation, residual, eps)
    x_rows = rows(x)
    N, (M, D) = len(x_rows), up.shape
    y, pre = np.empty(x.shape, x.dtype), np.empty((N, M), x.dtype)
    mean, rstd = np.empty(N, x.dtype), np.empty(N, x.dtype)
    parts = threads.parts(N, TILE, 4 * N * M * D)
    threads.share(
        _forward, (N + TILE - 1) // TILE, parts, x_rows, *_plain(weights, x.dtype), NORMS[norm],
        ACTIVATIONS[activation], residual, float(eps), mean, rstd, pre, y.reshape(N, D),
        scratch(parts, _scratch_size(M, D), x.dtype),
    )  # fmt: skip
    return y, (mean, rstd, pre)


def _ours(x, weights):
    """Whether the compiled kernel takes these arrays."""
    norm_weight, norm_bias, up = weights[:3]
    lonely = norm_bias is not None and norm_weight is None
    return takes(x, *weights) and x.ndim > 1 and up.size > 0 and not lonely


def mlp_block_backward(
    g, x, norm_weight, norm_bias, up, up_bias, down, down_bias, saved,
    norm="layernorm", activation="gelu", residual=True,
):  # fmt: skip
    weights = (norm_weight, norm_bias, up, up_bias, down, down_bias)
    if not (_ours(x, weights) and takes(x, g, *saved)):
        return reference.mlp_block_backward(g, x, *weights, saved, norm, activation, residual)
    x_rows = rows(x)
    N, (M, D) = len(x_rows), up.shape
    gx = np.empty(x.shape, x.dtype)
    parts = threads.parts(N, TILE, 8 * N * M * D)
    plain_weights = _plain(weights, x.dtype)
    sums = np.zeros((parts, sum(w.size for w in plain_weights)), x.dtype)
    threads.share(
        _backward, (N + TILE - 1) // TILE, parts, rows(g), x_rows, *plain_weights, NORMS[norm],
        ACTIVATIONS[activation], residual, *saved, gx.reshape(N, D), sums,
        scratch(parts, _scratch_size(M, D), x.dtype),
    )  # fmt: skip
    return gx, *split_sums(sums, weights)


def split_sums(sums, weights):
    """The shares' sums of gradients, added up, as arrays of the weights' shapes (None for None)."""
    total = sums[0]
    for more in sums[1:]:
        total += more
    gradients, start = [], 0
    for w in weights:
        if w is None:
            gradients.append(None)
            continue
        gradients.append(total[start : start + w.size].reshape(w.shape))
        start += w.size
    return gradients


def _plain(weights, dtype):
    norm_weight, norm_bias, up, up_bias, down, down_bias = weights
    vectors = [vector(w, dtype) for w in (norm_weight, norm_bias, up_bias, down_bias)]
    return vectors[0], vectors[1], plain(up), vectors[2], plain(down), vectors[3]


def _scratch_size(M, D):
    """Numbers of scratch that one share takes, at least."""
    packed = 2 * (M + WIDEST) * (D + WIDEST) + TILE * (max(M, D) + WIDEST)
    return packed + TILE * (3 * D + 2 * M + 4 * APART) + max(TILE, M, D) * WIDEST + M


@kernel
def _forward(
    first, last, share, x, norm_weight, norm_bias, up, up_bias, down, down_bias, norm, activation,
    residual, eps, mean, rstd, pre, y, space,
):  # fmt: skip
    M, D = up.shape
    N, zero = x.shape[0], x.dtype.type(0)
    mine = space[share]
    up_packed, mine = piece(mine, packed_size(zero, D, M))
    down_packed, mine = piece(mine, packed_size(zero, M, D))
    h, mine = take(mine, TILE, D + APART)
    act, mine = take(mine, TILE, M + APART)
    edge, mine = piece(mine, TILE * panel_width(zero))
    shift, mine = piece(mine, M)
    for d in range(M):
        shift[d] = up_bias[d] if up_bias.size else zero
    packed_weight(up, True, up_packed)
    packed_weight(down, True, down_packed)
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, N - top)
        normalise(x, top, n, norm_weight, norm_bias, eps, norm, mean, rstd, h)
        product(h, 0, n, D, up_packed, M, edge, pre, top, False)
        activate(pre, top, n, shift, activation, act)
        fill_residual(x, top, n, down_bias, residual, y)
        product(act, 0, n, M, down_packed, D, edge, y, top, True)


@kernel
def _backward(
    first, last, share, g, x, norm_weight, norm_bias, up, up_bias, down, down_bias, norm, activation,
    residual, mean, rstd, pre, gx, sums, space,
):  # fmt: skip
    M, D = up.shape
    N, zero = x.shape[0], x.dtype.type(0)
    mine = space[share]
    up_packed, mine = piece(mine, packed_size(zero, M, D))
    down_packed, mine = piece(mine, packed_size(zero, D, M))
    h, mine = take(mine, TILE, D + APART)
    gh, mine = take(mine, TILE, D)
    g_tile, mine = take(mine, TILE, D + APART)
    act, mine = take(mine, TILE, M + APART)
    g_act, mine = take(mine, TILE, M + APART)
    edge, mine = piece(mine, max(TILE, M, D) * panel_width(zero))
    tile_packed, mine = piece(mine, packed_size(zero, TILE, max(M, D)))
    packed_weight(up, False, up_packed)
    packed_weight(down, False, down_packed)

    total = sums[share]
    g_norm_weight, total = total[: norm_weight.size], total[norm_weight.size :]
    g_norm_bias, total = total[: norm_bias.size], total[norm_bias.size :]
    g_up, total = take(total, M, D)
    g_up_bias, total = total[: up_bias.size], total[up_bias.size :]
    g_down, total = take(total, D, M)
    g_down_bias = total[: down_bias.size]

    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, N - top)
        copy_rows(g, top, n, g_tile)
        add_rows(g_tile, n, g_down_bias)
        product(g_tile, 0, n, D, down_packed, M, edge, g_act, 0, False)
        activate_backward(pre, top, n, activation, g_act, act)
        weight_gradient(g_tile, act, 0, n, tile_packed, edge, g_down)
        add_rows(g_act, n, g_up_bias)
        normalise_again(x, top, n, norm_weight, norm_bias, norm, mean, rstd, h)
        weight_gradient(g_act, h, 0, n, tile_packed, edge, g_up)
        product(g_act, 0, n, M, up_packed, D, edge, gh, 0, False)
        add_rows(gh, n, g_norm_bias)
        norm_backward(
            x, top, n, norm_weight, norm_bias, norm, mean, rstd, gh, g, residual, gx,
            g_norm_weight, g_norm_bias,
        )  # fmt: skip
