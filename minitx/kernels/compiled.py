"""The kernels of ``reference.py``, compiled by Numba: same names, same results, one pass each.

Every public function prepares its arrays (one dtype, C order, leading axes folded into rows) and
hands them to a compiled loop whose name starts with an underscore. What the loops do not take
(complex numbers, half precision, mixed dtypes, nothing at all) goes to the reference, which is also
where the docstrings are.

The loops are top-level functions, because Numba's disk cache never finds a closure again; they
release the GIL; and they start no threads of their own, because threads of Numba's beside those of
BLAS fight for the same cores and turn a step of one millisecond into seventy.
"""

# digest of _math.py, _gemm.py, _registers.py, _tiles.py: e76942f47cbb
from __future__ import annotations

import numpy as np

from minitx.kernels import memory, reference
from minitx.kernels._arrays import integers, plain, rows, takes, vector
from minitx.kernels._math import exp, kernel, maximum
from minitx.kernels.compiled_attention import (  # noqa: F401
    attention,
    attention_backward,
    rotary,
    softmax,
    softmax_backward,
)
from minitx.kernels.compiled_heads import attention_block, attention_block_backward  # noqa: F401
from minitx.kernels.compiled_linear import linear, linear_backward  # noqa: F401
from minitx.kernels.compiled_mlp import mlp_block, mlp_block_backward  # noqa: F401

memory.keep()

# ---------------------------------------------------------------- log-softmax, cross-entropy


def log_softmax(x):
    if not takes(x) or x.ndim == 0:
        return reference.log_softmax(x)
    y = np.empty(x.shape, x.dtype)
    _log_softmax(rows(x), y.reshape(-1, x.shape[-1]))
    return y


def log_softmax_backward(g, y):
    if not takes(y, g) or y.ndim == 0 or g.shape != y.shape:
        return reference.log_softmax_backward(g, y)
    gx = np.empty(y.shape, y.dtype)
    _log_softmax_backward(rows(g), rows(y), gx.reshape(-1, y.shape[-1]))
    return gx


@kernel
def _log_softmax(x, y):
    for i in range(x.shape[0]):
        lse = _logsumexp(x[i])
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] - lse


@kernel
def _logsumexp(x):
    peak = maximum(x)
    if np.isinf(peak):
        peak = x.dtype.type(0)
    total = x.dtype.type(0)
    for j in range(x.size):
        total += exp(x[j] - peak)
    return np.log(total) + peak


@kernel
def _log_softmax_backward(g, y, gx):
    for i in range(y.shape[0]):
        total = g.dtype.type(0)
        for j in range(y.shape[1]):
            total += g[i, j]
        for j in range(y.shape[1]):
            gx[i, j] = g[i, j] - exp(y[i, j]) * total


def cross_entropy(logits, targets, ignore_index=-100):
    if not takes(logits):
        return reference.cross_entropy(logits, targets, ignore_index)
    lse = np.zeros(len(logits), logits.dtype)
    total, count = _cross_entropy(plain(logits), integers(targets), int(ignore_index), lse)
    if count < 0:  # a class out of range: let NumPy say which
        return reference.cross_entropy(logits, targets, ignore_index)
    return logits.dtype.type(total / max(count, 1)), lse, count


def cross_entropy_backward(g, logits, lse, targets, ignore_index, count):
    if not takes(logits, lse):
        return reference.cross_entropy_backward(g, logits, lse, targets, ignore_index, count)
    g_logits = np.empty(logits.shape, logits.dtype)
    scale = np.empty(lse.shape, logits.dtype)
    scale[...] = np.asarray(g) / max(count, 1)
    _cross_entropy_backward(
        scale, plain(logits), lse, integers(targets), int(ignore_index), g_logits
    )
    return g_logits


@kernel
def _cross_entropy(logits, targets, ignore_index, lse):
    total, count = 0.0, 0
    classes = logits.shape[1]
    for i in range(logits.shape[0]):
        target = targets[i]
        if target == ignore_index:
            continue
        if target < -classes or target >= classes:
            return total, -1
        if target < 0:
            target += classes
        lse[i] = _logsumexp(logits[i])
        total += lse[i] - logits[i, target]
        count += 1
    return total, count


@kernel
def _cross_entropy_backward(scale, logits, lse, targets, ignore_index, g_logits):
    for i in range(logits.shape[0]):
        if targets[i] == ignore_index:
            g_logits[i] = logits.dtype.type(0)
            continue
        for j in range(logits.shape[1]):
            g_logits[i, j] = scale[i] * exp(logits[i, j] - lse[i])
        g_logits[i, targets[i]] -= scale[i]


# ---------------------------------------------------------------- norms


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    if not takes(x, weight, bias) or x.ndim == 0:
        return reference.layer_norm(x, weight, bias, eps)
    y, mean, rstd = (np.empty(shape, x.dtype) for shape in (x.shape, x.shape[:-1], x.shape[:-1]))
    w, b = vector(weight, x.dtype), vector(bias, x.dtype)
    _layer_norm(
        rows(x), w, b, float(eps), y.reshape(-1, x.shape[-1]), mean.reshape(-1), rstd.reshape(-1)
    )
    return y, mean, rstd


def layer_norm_backward(g, x, weight, mean, rstd):
    if not takes(x, g, weight, mean, rstd) or x.ndim == 0:
        return reference.layer_norm_backward(g, x, weight, mean, rstd)
    gx, w = np.empty(x.shape, x.dtype), vector(weight, x.dtype)
    gw, gb = np.zeros(w.shape, x.dtype), np.zeros(w.shape, x.dtype)
    stats = plain(mean).reshape(-1), plain(rstd).reshape(-1)
    _layer_norm_backward(rows(g), rows(x), w, *stats, gx.reshape(-1, x.shape[-1]), gw, gb)
    return (gx, None, None) if weight is None else (gx, gw, gb)


@kernel
def _layer_norm(x, w, b, eps, y, mean, rstd):
    D = x.shape[1]
    per = x.dtype.type(1 / D)
    one = x.dtype.type(1)
    for i in range(x.shape[0]):
        total = x.dtype.type(0)
        for d in range(D):
            total += x[i, d]
        mu = total * per
        total = x.dtype.type(0)
        for d in range(D):
            centred = x[i, d] - mu
            total += centred * centred
        scale = one / np.sqrt(total * per + x.dtype.type(eps))
        mean[i], rstd[i] = mu, scale
        if w.size and b.size:
            for d in range(D):
                y[i, d] = (x[i, d] - mu) * scale * w[d] + b[d]
        else:
            for d in range(D):
                y[i, d] = (x[i, d] - mu) * scale
            if w.size:
                for d in range(D):
                    y[i, d] *= w[d]
            if b.size:
                for d in range(D):
                    y[i, d] += b[d]


@kernel
def _layer_norm_backward(g, x, w, mean, rstd, gx, gw, gb):
    D = x.shape[1]
    per = x.dtype.type(1 / D)
    for i in range(x.shape[0]):
        mu, scale = mean[i], rstd[i]
        sum_h, sum_hn = x.dtype.type(0), x.dtype.type(0)
        if w.size:
            for d in range(D):
                n = (x[i, d] - mu) * scale
                h = g[i, d] * w[d]
                gw[d] += g[i, d] * n
                gb[d] += g[i, d]
                gx[i, d] = h
                sum_h += h
                sum_hn += h * n
        else:
            for d in range(D):
                h = g[i, d]
                gx[i, d] = h
                sum_h += h
                sum_hn += h * (x[i, d] - mu) * scale
        sum_h *= per
        sum_hn *= per
        for d in range(D):
            gx[i, d] = scale * (gx[i, d] - sum_h - (x[i, d] - mu) * scale * sum_hn)


def rms_norm(x, weight=None, eps=1e-5):
    if not takes(x, weight) or x.ndim == 0:
        return reference.rms_norm(x, weight, eps)
    y, rrms = np.empty(x.shape, x.dtype), np.empty(x.shape[:-1], x.dtype)
    _rms_norm(
        rows(x), vector(weight, x.dtype), float(eps), y.reshape(-1, x.shape[-1]), rrms.reshape(-1)
    )
    return y, rrms


def rms_norm_backward(g, x, weight, rrms):
    if not takes(x, g, weight, rrms) or x.ndim == 0:
        return reference.rms_norm_backward(g, x, weight, rrms)
    gx, w = np.empty(x.shape, x.dtype), vector(weight, x.dtype)
    gw = np.zeros(w.shape, x.dtype)
    _rms_norm_backward(
        rows(g), rows(x), w, plain(rrms).reshape(-1), gx.reshape(-1, x.shape[-1]), gw
    )
    return gx, (None if weight is None else gw)


@kernel
def _rms_norm(x, w, eps, y, rrms):
    per = x.dtype.type(1 / x.shape[1])
    one = x.dtype.type(1)
    for i in range(x.shape[0]):
        total = x.dtype.type(0)
        for d in range(x.shape[1]):
            total += x[i, d] * x[i, d]
        scale = one / np.sqrt(total * per + x.dtype.type(eps))
        rrms[i] = scale
        if w.size:
            for d in range(x.shape[1]):
                y[i, d] = x[i, d] * scale * w[d]
        else:
            for d in range(x.shape[1]):
                y[i, d] = x[i, d] * scale


@kernel
def _rms_norm_backward(g, x, w, rrms, gx, gw):
    per = x.dtype.type(1 / x.shape[1])
    for i in range(x.shape[0]):
        scale = rrms[i]
        along = x.dtype.type(0)
        if w.size:
            for d in range(x.shape[1]):
                n = x[i, d] * scale
                h = g[i, d] * w[d]
                gw[d] += g[i, d] * n
                gx[i, d] = h
                along += h * n
        else:
            for d in range(x.shape[1]):
                gx[i, d] = g[i, d]
                along += g[i, d] * x[i, d] * scale
        along *= per
        for d in range(x.shape[1]):
            gx[i, d] = scale * (gx[i, d] - x[i, d] * scale * along)


# ---------------------------------------------------------------- activations


def gelu(x):
    if not takes(x):
        return reference.gelu(x)
    y = np.empty(x.shape, x.dtype)
    _gelu(plain(x).reshape(-1), y.reshape(-1))
    return y


def gelu_backward(g, x):
    if not takes(x, g) or g.shape != x.shape:
        return reference.gelu_backward(g, x)
    gx = np.empty(x.shape, x.dtype)
    _gelu_backward(plain(g).reshape(-1), plain(x).reshape(-1), gx.reshape(-1))
    return gx


# (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)): one exponential, and no cancellation near tanh = -1.
_TWICE_SLOPE = 2 * float(reference.GELU_SLOPE)
_CUBIC = reference.GELU_CUBIC


@kernel
def _gelu(x, y):
    number = x.dtype.type
    one, a, b = number(1), number(-_TWICE_SLOPE), number(-_TWICE_SLOPE * _CUBIC)
    for i in range(x.size):
        z = x[i]
        y[i] = z / (one + exp(z * (a + b * z * z)))


@kernel
def _gelu_backward(g, x, gx):
    number = x.dtype.type
    one, a, b = number(1), number(-_TWICE_SLOPE), number(-_TWICE_SLOPE * _CUBIC)
    c = number(-3 * _TWICE_SLOPE * _CUBIC)
    for i in range(x.size):
        z = x[i]
        s = one / (one + exp(z * (a + b * z * z)))
        gx[i] = g[i] * s * (one - z * (one - s) * (a + c * z * z))


def silu(x):
    if not takes(x):
        return reference.silu(x)
    y = np.empty(x.shape, x.dtype)
    _silu(plain(x).reshape(-1), y.reshape(-1))
    return y


def silu_backward(g, x):
    if not takes(x, g) or g.shape != x.shape:
        return reference.silu_backward(g, x)
    gx = np.empty(x.shape, x.dtype)
    _silu_backward(plain(g).reshape(-1), plain(x).reshape(-1), gx.reshape(-1))
    return gx


@kernel
def _silu(x, y):
    one = x.dtype.type(1)
    for i in range(x.size):
        y[i] = x[i] / (one + exp(-x[i]))


@kernel
def _silu_backward(g, x, gx):
    one = x.dtype.type(1)
    for i in range(x.size):
        s = one / (one + exp(-x[i]))
        gx[i] = g[i] * s * (one + x[i] * (one - s))


# ---------------------------------------------------------------- embedding, optimiser


def embedding_backward(g, tokens, vocab):
    if not takes(g):
        return reference.embedding_backward(g, tokens, vocab)
    gw = np.zeros((vocab, g.shape[1]), g.dtype)
    if not _add_rows(plain(g), integers(tokens), gw):
        return reference.embedding_backward(g, tokens, vocab)  # out of range: NumPy says which
    return gw


@kernel
def _add_rows(g, tokens, gw):
    for i in range(g.shape[0]):
        token = tokens[i]
        if token < 0:
            token += gw.shape[0]
        if token < 0 or token >= gw.shape[0]:
            return False
        for d in range(g.shape[1]):
            gw[token, d] += g[i, d]
    return True


def adamw(p, g, m, v, lr, beta1, beta2, eps, weight_decay, step):
    if not takes(p, g, m, v) or not (p.flags.carray and m.flags.carray and v.flags.carray):
        return reference.adamw(p, g, m, v, lr, beta1, beta2, eps, weight_decay, step)
    keep = 1 - lr * weight_decay
    rate = lr / (1 - beta1**step)
    unbias = 1 / (1 - beta2**step)
    flat = (a.reshape(-1) for a in (p, plain(g), m, v))
    numbers = (keep, 1 - beta1, 1 - beta2, rate, unbias, eps)
    _adamw(*flat, *(p.dtype.type(number) for number in numbers))


@kernel
def _adamw(p, g, m, v, keep, take1, take2, rate, unbias, eps):
    for i in range(p.size):
        m[i] += take1 * (g[i] - m[i])
        v[i] += take2 * (g[i] * g[i] - v[i])
        p[i] = p[i] * keep - rate * m[i] / (np.sqrt(v[i] * unbias) + eps)
