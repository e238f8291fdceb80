"""A linear layer, forwards and backwards, with our own matrix product and threads."""

# digest of _math.py, _gemm.py, _registers.py, _tiles.py: e76942f47cbb
from __future__ import annotations

import numpy as np

from minitx.kernels import reference, threads
from minitx.kernels._arrays import plain, rows, scratch, takes, vector
from minitx.kernels._gemm import packed_size, panel_width
from minitx.kernels._math import kernel
from minitx.kernels._tiles import (
    APART,
    TILE,
    WIDEST,
    add_rows,
    copy_rows,
    fill_bias,
    packed_weight,
    piece,
    product,
    take,
    weight_gradient,
)
from minitx.kernels.compiled_mlp import split_sums


def linear(x, weight, bias=None):
    if not takes(x, weight, bias) or x.ndim == 1 or weight.size == 0:
        return reference.linear(x, weight, bias)
    x_rows = rows(x)
    N, (O, I) = len(x_rows), weight.shape
    y = np.empty((*x.shape[:-1], O), x.dtype)
    parts = threads.parts(N, TILE, 2 * N * O * I)
    threads.share(
        _forward, (N + TILE - 1) // TILE, parts, x_rows, plain(weight), vector(bias, x.dtype),
        y.reshape(N, O), scratch(parts, _scratch_size(O, I), x.dtype),
    )  # fmt: skip
    return y


def linear_backward(g, x, weight, has_bias=True):
    if not takes(x, g, weight) or x.ndim == 1 or weight.size == 0:
        return reference.linear_backward(g, x, weight, has_bias)
    x_rows = rows(x)
    N, (O, I) = len(x_rows), weight.shape
    gx = np.empty(x.shape, x.dtype)
    parts = threads.parts(N, TILE, 4 * N * O * I)
    sums = np.zeros((parts, O * I + (O if has_bias else 0)), x.dtype)
    threads.share(
        _backward, (N + TILE - 1) // TILE, parts, rows(g), x_rows, plain(weight), gx.reshape(N, I),
        sums, scratch(parts, _scratch_size(O, I), x.dtype),
    )  # fmt: skip
    bias = weight[:, 0] if has_bias else None  # for its shape
    return gx, *split_sums(sums, (weight, bias))


def _scratch_size(O, I):
    """Numbers of scratch that one share takes, at least."""
    packed = (I + WIDEST) * (O + WIDEST) + TILE * (I + WIDEST)
    return packed + TILE * (O + APART) + max(TILE, O) * WIDEST


@kernel
def _forward(first, last, share, x, weight, bias, y, space):
    O, I = weight.shape
    zero = x.dtype.type(0)
    packed, mine = piece(space[share], packed_size(zero, I, O))
    edge, mine = piece(mine, TILE * panel_width(zero))
    packed_weight(weight, True, packed)
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, x.shape[0] - top)
        fill_bias(y, top, n, bias)
        product(x, top, n, I, packed, O, edge, y, top, bias.size > 0)


@kernel
def _backward(first, last, share, g, x, weight, gx, sums, space):
    O, I = weight.shape
    zero = x.dtype.type(0)
    packed, mine = piece(space[share], packed_size(zero, O, I))
    g_tile, mine = take(mine, TILE, O + APART)
    tile_packed, mine = piece(mine, packed_size(zero, TILE, I))
    edge, mine = piece(mine, max(TILE, O) * panel_width(zero))
    packed_weight(weight, False, packed)
    g_weight, g_bias = take(sums[share], O, I)
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, x.shape[0] - top)
        copy_rows(g, top, n, g_tile)
        add_rows(g_tile, n, g_bias)
        product(g_tile, 0, n, O, packed, I, edge, gx, top, False)
        weight_gradient(g_tile, x, top, n, tile_packed, edge, g_weight)
