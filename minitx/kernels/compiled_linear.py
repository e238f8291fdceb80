"""A linear layer, forwards and backwards, with our own matrix product and threads."""

# digest of _math.py, _gemm.py, _tiles.py: f9cb6647b42d
from __future__ import annotations

import numpy as np

from minitx.kernels import reference, threads
from minitx.kernels._arrays import plain, rows, scratch, takes, vector
from minitx.kernels._gemm import packed_size, panel_width
from minitx.kernels._math import kernel
from minitx.kernels._tiles import (
    APART,
    WIDEST,
    add_rows,
    fill_bias,
    packed_weight,
    product,
    take,
    weight_gradient,
)
from minitx.kernels.compiled_mlp import split_sums

TILE = 96


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
    number = x.dtype.type(0)
    packed, mine = take(space[share], 1, packed_size(number, I, O))
    edge, mine = take(mine, TILE, panel_width(number))
    packed_weight(weight, True, packed[0])
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, x.shape[0] - top)
        fill_bias(y, top, n, bias)
        product(x, top, n, I, packed[0], O, edge[0], y, top, bias.size > 0)


@kernel
def _backward(first, last, share, g, x, weight, gx, sums, space):
    O, I = weight.shape
    number = x.dtype.type(0)
    packed, mine = take(space[share], 1, packed_size(number, O, I))
    g_tile, mine = take(mine, TILE, O + APART)
    few_x, mine = take(mine, 1, packed_size(number, TILE, I))
    edge, mine = take(mine, max(TILE, O), panel_width(number))
    packed_weight(weight, False, packed[0])
    g_weight, g_bias = take(sums[share], O, I)
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, x.shape[0] - top)
        for i in range(n):
            for o in range(O):
                g_tile[i, o] = g[top + i, o]
        add_rows(g_tile, n, g_bias)
        product(g_tile, 0, n, O, packed[0], I, edge[0], gx, top, False)
        weight_gradient(g_tile, x, top, n, few_x[0], edge[0], g_weight)
