"""What the fused kernels do to a tile: some rows of the residual stream, while in the cache."""

from __future__ import annotations

import numpy as np

from minitx.kernels._gemm import (
    VECTOR_BYTES,
    VECTORS,
    address,
    multiply,
    pack,
    pack_transposed,
    panel_width,
)
from minitx.kernels._math import exp, part
from minitx.kernels._registers import FLAT, gate_back_run, gate_run

NORMS = {"none": 0, "layernorm": 1, "rmsnorm": 2}
ACTIVATIONS = {"gelu": 0, "relu": 1, "silu": 2}
GELU_A = -2 * 0.7978845608028654  # gelu(x) = x / (1 + exp(x (A + B x²))), see compiled.py
GELU_B = GELU_A * 0.044715
# Rows that are worked on together: a multiple of the micro-kernel's 6 and 12, and a tile of 4 * 128
# columns fits the L2 cache. Of whole sequences, at least one.
TILE = 96
WIDEST = VECTORS * VECTOR_BYTES // 4  # numbers in a row of a panel, at most: float32
# Added to the length of scratch rows: rows a power of two apart would share few places in the cache.
APART = 16


@part
def take(space, rows, columns):
    """A 2-D piece of scratch, and what is left of it."""
    return space[: rows * columns].reshape(rows, columns), space[rows * columns :]


@part
def piece(space, size):
    """A flat piece of scratch, and what is left of it."""
    return space[:size], space[size:]


# The norms index rows rather than take each out as a vector: for that, Numba counts references.


@part
def normalise(x, first, rows, w, b, eps, kind, mean, rstd, h):
    """Norm of rows ``first ...`` of x into h; their mean and 1 / spread are kept."""
    D = x.shape[1]
    zero, one, per = x.dtype.type(0), x.dtype.type(1), x.dtype.type(1 / D)
    for i in range(first, first + rows):
        mu, scale = zero, one
        if kind == 1:
            total = zero
            for d in range(D):
                total += x[i, d]
            mu = total * per
        if kind:
            total = zero
            for d in range(D):
                total += (x[i, d] - mu) * (x[i, d] - mu)
            scale = one / np.sqrt(total * per + x.dtype.type(eps))
        mean[i], rstd[i] = mu, scale
    normalise_again(x, first, rows, w, b, kind, mean, rstd, h)


@part
def normalise_again(x, first, rows, w, b, kind, mean, rstd, h):
    """The same from the kept mean and spread: cheaper than keeping the result."""
    D = x.shape[1]
    for i in range(rows):
        mu, scale = mean[first + i], rstd[first + i]
        if w.size and b.size:
            for d in range(D):
                h[i, d] = (x[first + i, d] - mu) * scale * w[d] + b[d]
        elif w.size:
            for d in range(D):
                h[i, d] = (x[first + i, d] - mu) * scale * w[d]
        else:
            for d in range(D):
                h[i, d] = (x[first + i, d] - mu) * scale


@part
def norm_backward(x, first, rows, w, b, kind, mean, rstd, gh, g, residual, gx, gw, gb):
    """From the norm's output back to its input; a residual's own gradient is added."""
    D = x.shape[1]
    zero, per = x.dtype.type(0), x.dtype.type(1 / D)
    for i in range(rows):
        row = first + i
        mu, scale = mean[row], rstd[row]
        sum_h, sum_hn = zero, zero
        if w.size:
            for d in range(D):
                n = (x[row, d] - mu) * scale
                gw[d] += gh[i, d] * n
                gh[i, d] *= w[d]
                sum_h += gh[i, d]
                sum_hn += gh[i, d] * n
        elif kind:
            for d in range(D):
                sum_h += gh[i, d]
                sum_hn += gh[i, d] * (x[row, d] - mu) * scale
        sum_h = sum_h * per if kind == 1 else zero
        sum_hn = sum_hn * per if kind else zero
        if residual:
            for d in range(D):
                n = (x[row, d] - mu) * scale
                gx[row, d] = g[row, d] + scale * (gh[i, d] - sum_h - n * sum_hn)
        else:
            for d in range(D):
                n = (x[row, d] - mu) * scale
                gx[row, d] = scale * (gh[i, d] - sum_h - n * sum_hn)


@part
def copy_rows(x, first, rows, out):
    """Rows of x into scratch, where they lie `APART` further apart: they are then read column by
    column, as a transpose."""
    for i in range(rows):
        for d in range(x.shape[1]):
            out[i, d] = x[first + i, d]


@part
def add_rows(x, rows, total):
    """total += sum of the first rows of x. Four at a time: the total is then read less often."""
    fours = rows // 4 * 4
    for i in range(0, fours, 4):
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(total.size):
            total[j] += (a[j] + b[j]) + (c[j] + d[j])
    for i in range(fours, rows):
        for j in range(total.size):
            total[j] += x[i, j]


@part
def fill_bias(x, first, rows, bias):
    """Rows of x = bias, if there is one: a product is then added to it."""
    for i in range(first, first + rows):
        for d in range(bias.size):
            x[i, d] = bias[d]


@part
def fill_residual(x, first, rows, bias, residual, y):
    """Rows of y = x + bias, each if there is one: what the half's output is added to."""
    zero = x.dtype.type(0)
    for i in range(first, first + rows):
        if residual and bias.size:
            for d in range(x.shape[1]):
                y[i, d] = x[i, d] + bias[d]
        elif residual:
            for d in range(x.shape[1]):
                y[i, d] = x[i, d]
        elif bias.size:
            for d in range(x.shape[1]):
                y[i, d] = bias[d]
        else:
            for d in range(x.shape[1]):
                y[i, d] = zero


@part
def gate_factors(number, kind):
    """a and b with which ``x / (1 + exp(x (a + b x²)))`` is gelu (kind 0) or silu."""
    minus_one, zero = type(number)(-1), type(number)(0)
    return (type(number)(GELU_A), type(number)(GELU_B)) if kind == 0 else (minus_one, zero)


@part
def square(z):
    """z², but no more than `FLAT`."""
    flat = type(z)(FLAT)
    return flat if z * z > flat else z * z


@part
def activate(x, first, rows, bias, kind, out):
    """x += bias in rows ``first ...``, and the activation of that into out."""
    M, zero, one = x.shape[1], x.dtype.type(0), x.dtype.type(1)
    a, b = gate_factors(zero, kind)
    whole = M // panel_width(zero)
    for i in range(rows):
        row = first + i
        if kind == 1:
            for d in range(M):
                x[row, d] += bias[d]
                out[i, d] = zero if x[row, d] < zero else x[row, d]
            continue
        if whole:
            x_at, out_at = address(x, row * M), address(out, i * out.shape[1])
            gate_run(zero, whole, x_at, address(bias, 0), a, b, out_at)
        for d in range(whole * panel_width(zero), M):
            z = x[row, d] + bias[d]
            x[row, d] = z
            out[i, d] = z / (one + exp(z * (a + b * square(z))))


@part
def activate_backward(x, first, rows, kind, g, out):
    """The activation again into out, and g times its slope into g, in one pass."""
    M, zero, one, three = x.shape[1], x.dtype.type(0), x.dtype.type(1), x.dtype.type(3)
    a, b = gate_factors(zero, kind)
    whole = M // panel_width(zero)
    for i in range(rows):
        row = first + i
        if kind == 1:
            for d in range(M):
                out[i, d] = zero if x[row, d] < zero else x[row, d]
                g[i, d] = g[i, d] if x[row, d] > zero else zero
            continue
        if whole:
            x_at, out_at = address(x, row * M), address(out, i * out.shape[1])
            gate_back_run(zero, whole, x_at, a, b, address(g, i * g.shape[1]), out_at)
        for d in range(whole * panel_width(zero), M):
            z = x[row, d]
            curve = b * square(z)
            s = one / (one + exp(z * (a + curve)))
            out[i, d] = z * s
            g[i, d] *= s * (one - z * (one - s) * (a + three * curve))


@part
def turn(x, first, rows, heads, width, angle_row, cos, sin, back):
    """Rotary positions, in place: of the ``heads`` heads at the beginning of each row."""
    half = width // 2
    sign = x.dtype.type(-1 if back else 1)
    for i in range(rows):
        row = x[first + i]
        c, s = cos[(angle_row + i) % cos.shape[0]], sin[(angle_row + i) % cos.shape[0]]
        for head in range(heads):
            at = head * width
            for j in range(half):
                a, b, by = row[at + j], row[at + half + j], sign * s[j]
                row[at + j] = a * c[j] - b * by
                row[at + half + j] = b * c[j] + a * by


# Products with a weight, on rows of 2-D arrays.


@part
def packed_weight(weight, transposed, space):
    """Pack a weight [O, I]: transposed for the forward product, as it is for backward."""
    number = space[0]
    O, I = weight.shape
    if transposed:
        pack_transposed(number, I, O, address(weight, 0), I, address(space, 0))
    else:
        pack(number, O, I, address(weight, 0), I, address(space, 0))


@part
def product(a, a_row, rows, depth, packed, columns, edge, c, c_row, add):
    """c[c_row:] (+)= a[a_row: a_row + rows, :depth] @ the packed weight."""
    a_step, c_step = a.shape[1], c.shape[1]
    width = panel_width(packed[0])
    multiply(
        packed[0], rows, columns, depth, address(a, a_row * a_step), a_step, 1, address(packed, 0),
        width, depth * width, address(edge, 0), address(c, c_row * c_step), c_step, add,
    )  # fmt: skip


@part
def panels(number, depth, columns, b, b_step, space):
    """(address, row step, panel step) by which `multiply` can read B [depth, columns].

    B as it lies if it consists of whole panels, else packed into ``space``; so are rows that lie a
    multiple of 64 numbers apart, because these share few places in the cache.
    """
    width = panel_width(number)
    if columns % width == 0 and b_step % 64:
        return b, b_step, width
    pack(number, depth, columns, b, b_step, address(space, 0))
    return address(space, 0), width, depth * width


@part
def weight_gradient(g, a, a_row, rows, space, edge, out):
    """out[O, I] += g[:rows, :O].T @ a[a_row: a_row + rows, :I]"""
    O, I = out.shape
    g_step, a_step, number = g.shape[1], a.shape[1], space[0]
    b, b_step, panel_step = panels(number, rows, I, address(a, a_row * a_step), a_step, space)
    multiply(
        number, O, I, rows, address(g, 0), 1, g_step, b, b_step, panel_step, address(edge, 0),
        address(out, 0), I, True,
    )  # fmt: skip
