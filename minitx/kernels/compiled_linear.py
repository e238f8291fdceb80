"""A linear layer, forwards and backwards, with our own matrix product and threads."""

# digest of _math.py, _gemm.py, _tiles.py: d79d02418f28
from __future__ import annotations

import numpy as np

from minitx.kernels import reference, threads
from minitx.kernels._arrays import plain, rows, scratch, takes, vector
from minitx.kernels._math import kernel
from minitx.kernels._tiles import add_rows, fill_bias, packed_weight, product, weight_gradient
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
        y.reshape(N, O), scratch(parts, (I + 64) * (O + 64) + TILE * 64, x.dtype),
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
        sums, scratch(parts, (I + 64) * (O + 64) + TILE * (O + I + 256), x.dtype),
    )  # fmt: skip
    bias = weight[:, 0] if has_bias else None  # for its shape
    return gx, *split_sums(sums, (weight, bias))


@kernel
def _forward(first, last, share, x, weight, bias, y, space):
    O, I = weight.shape
    mine = space[share]
    edge, packed = mine[: TILE * 64], mine[TILE * 64 :]
    packed_weight(weight, True, packed)
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, x.shape[0] - top)
        if bias.size:
            fill_bias(y, top, n, 0, O, bias)
        product(x, top, 0, n, I, packed, O, edge, y, top, 0, bias.size > 0)


@kernel
def _backward(first, last, share, g, x, weight, gx, sums, space):
    O, I = weight.shape
    mine, total = space[share], sums[share]
    wide = O + 16
    edge, mine = mine[: TILE * 64], mine[TILE * 64 :]
    g_tile, mine = mine[: TILE * wide].reshape(TILE, wide), mine[TILE * wide :]
    panels, packed = mine[: TILE * (I + 64)], mine[TILE * (I + 64) :]
    g_weight, g_bias = total[: O * I].reshape(O, I), total[O * I :]
    packed_weight(weight, False, packed)
    for tile in range(first, last):
        top = tile * TILE
        n = min(TILE, x.shape[0] - top)
        for i in range(n):
            for o in range(O):
                g_tile[i, o] = g[top + i, o]
        add_rows(g_tile, n, 0, g_bias)
        product(g_tile, 0, 0, n, O, packed, I, edge, gx, top, 0, False)
        weight_gradient(g_tile, 0, x, top, 0, n, panels, edge, g_weight)
