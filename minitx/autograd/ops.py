"""Every operation: forward and gradient rule side by side.

This file is the elementary ones; the coarse ones, one kernel each (softmax, linear, attention,
losses), are in `coarse.py`, the products of matrices in `products.py`; they reappear here.

How to read a line: ``return y, lambda g: ...`` gives the output and, for each input, the rule that
maps ``g``, the gradient of the final number by ``y``, to its gradient by that input. Rules do not
undo broadcasting: `engine.unbroadcast` does so for all of them, which is why ``add`` passes ``g``
through. A rule keeps alive the arrays that it mentions, so it mentions as few as it can.

All functions take tensors, arrays or Python numbers and return a `Tensor`; dtypes follow NumPy, and
Python numbers never change them. To add an operation: write it, list it in ``__all__``, add its
line to the table in ``tests/autograd/cases.py`` (a test insists).
"""

from __future__ import annotations

import builtins

import numpy as np

from minitx.autograd.coarse import (
    attention,
    cross_entropy,
    dropout,
    embedding,
    gelu,
    layer_norm,
    linear,
    log_softmax,
    rms_norm,
    rotary,
    silu,
    softmax,
)
from minitx.autograd.engine import primitive
from minitx.autograd.products import einsum, matmul
from minitx.autograd.tensor import Tensor
from minitx.errors import MinitxError

__all__ = [
    "absolute", "add", "astype", "attention", "broadcast_to", "clip", "concatenate", "cos",
    "cross_entropy", "cumsum", "divide", "dropout", "einsum", "embedding", "exp", "expand_dims",
    "gelu", "getitem", "layer_norm", "linear", "log", "log1p", "log_softmax", "logsumexp", "matmul",
    "max", "maximum", "mean", "min", "minimum", "multiply", "negative", "power", "relu", "reshape",
    "rms_norm", "rotary", "sigmoid", "silu", "sin", "softmax", "sqrt", "squeeze", "stack",
    "subtract", "sum", "swapaxes", "tanh", "transpose", "var", "where",
]  # fmt: skip

# ---------------------------------------------------------------------------------- arithmetic


@primitive
def add(a, b):
    """``a + b``"""
    return np.add(a, b), lambda g: g, lambda g: g


@primitive
def subtract(a, b):
    """``a - b``"""
    return np.subtract(a, b), lambda g: g, lambda g: -g


@primitive
def multiply(a, b):
    """``a * b``"""
    return np.multiply(a, b), lambda g: g * b, lambda g: g * a


@primitive
def divide(a, b):
    """``a / b``"""
    y = np.divide(a, b)
    return y, lambda g: g / b, lambda g: -g * y / b


@primitive
def negative(x):
    """``-x``"""
    return np.negative(x), lambda g: -g


@primitive
def power(a, b):
    """``a ** b``. The gradient by ``a`` is 0 where b = 0, and the one by ``b`` where a = 0."""
    y = a**b
    less = b - (b != 0)  # the exponent b - 1, except that 0 * 0**(-1) would be NaN
    return y, lambda g: g * (b * a**less), lambda g: g * (y * np.log(np.where(a == 0, 1, a)))


# ---------------------------------------------------------------- functions of each element


@primitive
def exp(x):
    """``e ** x``"""
    y = np.exp(x)
    return y, lambda g: g * y


@primitive
def log(x):
    """Natural logarithm."""
    return np.log(x), lambda g: g / x


@primitive
def log1p(x):
    """``log(1 + x)``, exact for small x."""
    return np.log1p(x), lambda g: g / (1 + x)


@primitive
def sqrt(x):
    """Square root. The gradient at 0 is infinite."""
    y = np.sqrt(x)
    return y, lambda g: g / (2 * y)


@primitive
def sin(x):
    """Sine."""
    return np.sin(x), lambda g: g * np.cos(x)


@primitive
def cos(x):
    """Cosine."""
    return np.cos(x), lambda g: -g * np.sin(x)


@primitive
def tanh(x):
    """Hyperbolic tangent."""
    y = np.tanh(x)
    return y, lambda g: g * (1 - y * y)


@primitive
def sigmoid(x):
    """``1 / (1 + exp(-x))``"""
    negative = np.real(x) < 0
    e = np.exp(np.where(negative, x, -x))  # exponents are never positive: no overflow
    y = np.where(negative, e, 1) / (1 + e)
    return y, lambda g: g * (y * (1 - y))


@primitive
def relu(x):
    """``max(x, 0)``. The gradient at 0 is 0."""
    y = np.maximum(x, 0)
    return y, lambda g: np.where(y > 0, g, 0)


@primitive
def absolute(x):
    """``|x|``. The gradient at 0 is 0."""
    return np.absolute(x), lambda g: g * np.sign(x)


@primitive
def maximum(a, b):
    """The larger of each pair. Where they tie, each gets half of the gradient."""
    return np.maximum(a, b), lambda g: _winner(g, a, b), lambda g: _winner(g, b, a)


@primitive
def minimum(a, b):
    """The smaller of each pair. Where they tie, each gets half of the gradient."""
    return np.minimum(a, b), lambda g: _winner(g, b, a), lambda g: _winner(g, a, b)


def _winner(g, high, low):
    return np.where(np.equal(high, low), g / 2, np.where(np.greater(high, low), g, 0))


@primitive
def clip(x, low=None, high=None):
    """``x`` kept within constants. The gradient outside is 0, at the bounds 1."""
    y = np.clip(x, low, high)
    return y, lambda g: np.where(y == x, g, 0)


@primitive
def where(condition, a, b):
    """``a`` where the condition holds, else ``b``.

    The branch not taken gets the gradient 0, so a NaN *value* in it does no harm. An infinite *slope*
    does, as in PyTorch and JAX: in ``where(x > 0, log(x), 0)`` the rule of ``log`` turns that 0 into
    ``0 / 0 = NaN`` at x = 0. Make the input harmless first: ``log(where(x > 0, x, 1))``.
    """
    if getattr(condition, "dtype", np.bool_) != np.bool_:
        raise MinitxError(f"where needs a condition of dtype bool, got {condition.dtype}.")
    y = np.where(condition, a, b)
    return y, None, lambda g: np.where(condition, g, 0), lambda g: np.where(condition, 0, g)


@primitive
def astype(x, dtype):
    """``x`` in another float dtype; the gradient comes back in the old one."""
    return np.asarray(x).astype(dtype), lambda g: g


# ---------------------------------------------------------------------------------- reductions


def _as_kept(y, ndim, axis, keepdims):
    """Give a reduced array its axes of length 1 back, so that it broadcasts against the input."""
    if keepdims:
        return y
    if axis is None:
        return np.reshape(y, (1,) * ndim)
    return np.expand_dims(y, axis)


@primitive
def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``: an int, a tuple, or None for all."""
    shape = x.shape
    y = np.add.reduce(x, axis=axis, keepdims=keepdims)  # x.sum, without a detour
    return y, lambda g: np.broadcast_to(_as_kept(g, len(shape), axis, keepdims), shape)


@primitive
def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``."""
    shape = x.shape
    y = x.mean(axis=axis, keepdims=keepdims)
    share = np.size(y) / builtins.max(x.size, 1)
    return y, lambda g: np.broadcast_to(_as_kept(g * share, len(shape), axis, keepdims), shape)


@primitive
def var(x, axis=None, ddof=0, keepdims=False):
    """Variance over ``axis``: squared deviations, divided by their number less ``ddof``."""
    away = x - x.mean(axis=axis, keepdims=True)
    squares = (away * away).sum(axis=axis, keepdims=keepdims)
    n = builtins.max(x.size // builtins.max(np.size(squares), 1) - ddof, 0)
    slope = 2 / n if n else np.nan
    return np.divide(squares, n), lambda g: away * _as_kept(g * slope, x.ndim, axis, keepdims)


@primitive
def max(x, axis=None, keepdims=False):
    """Largest value over ``axis``. Values that tie share the gradient evenly."""
    y = x.max(axis=axis, keepdims=keepdims)
    return y, lambda g: _share(g, x, y, axis, keepdims)


@primitive
def min(x, axis=None, keepdims=False):
    """Smallest value over ``axis``. Values that tie share the gradient evenly."""
    y = x.min(axis=axis, keepdims=keepdims)
    return y, lambda g: _share(g, x, y, axis, keepdims)


def _share(g, x, y, axis, keepdims):
    winners = (x == _as_kept(y, x.ndim, axis, keepdims)).astype(g.dtype)
    return winners * (_as_kept(g, x.ndim, axis, keepdims) / winners.sum(axis=axis, keepdims=True))


@primitive
def logsumexp(x, axis=None, keepdims=False):
    """``log(sum(exp(x)))`` over ``axis``, without overflow."""
    top = np.real(x).max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)  # all -inf: the answer is -inf, not NaN
    with np.errstate(divide="ignore"):
        kept = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    y = kept if keepdims else np.squeeze(kept, axis=axis)
    floor = np.where(np.isfinite(kept), kept, 0)
    return y, lambda g: np.exp(x - floor) * _as_kept(g, x.ndim, axis, keepdims)


@primitive
def cumsum(x, axis=None):
    """Running sum along ``axis``; over the flattened array if None."""
    shape, along = x.shape, 0 if axis is None else axis

    def rule(g):
        return np.flip(np.flip(g, along).cumsum(axis=along), along).reshape(shape)

    return np.cumsum(x, axis=axis), rule


# -------------------------------------------------------------------------------------- shapes


@primitive
def reshape(x, shape=-1):
    """The same values in another shape; one entry may be -1, for what is left."""
    old = x.shape
    return x.reshape(shape), lambda g: g.reshape(old)


@primitive
def transpose(x, axes=None):
    """The axes in the given order; reversed if None."""
    back = None if axes is None else np.argsort([axis % x.ndim for axis in axes])
    return np.transpose(x, axes), lambda g: np.transpose(g, back)


@primitive
def swapaxes(x, axis1, axis2):
    """Two axes exchanged."""
    return np.swapaxes(x, axis1, axis2), lambda g: np.swapaxes(g, axis1, axis2)


@primitive
def expand_dims(x, axis):
    """New axes of length 1, at the given places of the result."""
    old = np.shape(x)
    return np.expand_dims(x, axis), lambda g: g.reshape(old)


@primitive
def squeeze(x, axis=None):
    """Axes of length 1 removed: the given ones, or all."""
    old = np.shape(x)
    return np.squeeze(x, axis), lambda g: g.reshape(old)


@primitive
def broadcast_to(x, shape):
    """``x`` repeated to ``shape``, as a read-only view."""
    return np.broadcast_to(x, shape), lambda g: g


def concatenate(tensors, axis=0) -> Tensor:
    """Join along an axis that exists."""
    return _concatenate(*tensors, axis=axis)


@primitive
def _concatenate(*arrays, axis):
    ends = np.cumsum([a.shape[axis] for a in arrays])[:-1]
    return np.concatenate(arrays, axis), lambda g: tuple(np.split(g, ends, axis))


def stack(tensors, axis=0) -> Tensor:
    """Join along a new axis."""
    return _stack(*tensors, axis=axis)


@primitive
def _stack(*arrays, axis):
    return np.stack(arrays, axis), lambda g: tuple(np.moveaxis(g, axis, 0))


def getitem(x, index) -> Tensor:
    """``x[index]``: numbers, slices, None, ``...``, arrays or tensors of integers or bools."""
    if isinstance(index, tuple):
        index = tuple(i.data if isinstance(i, Tensor) else i for i in index)
    return _getitem(x, index=index.data if isinstance(index, Tensor) else index)


@primitive
def _getitem(x, index):
    shape = x.shape
    parts = index if isinstance(index, tuple) else (index,)
    plain = all(p is None or p is ... or isinstance(p, int | np.integer | slice) for p in parts)

    def rule(g):
        gx = np.zeros(shape, g.dtype)
        if plain:
            gx[index] = g
        else:  # an array of indices may name a place twice; its gradients add up
            np.add.at(gx, index, g)
        return gx

    return x[index], rule
