"""How far may float32 be off? Numbers that carry a bound on their own rounding error.

Running error analysis (Higham 2002, section 3.3): beside each value goes the largest error, in units
of the rounding ``u`` of one operation, that the operations so far can have made in it. It is

- handed on: ``f(x)`` has the error of x times ``|f'(x)|``, a product ``|y|`` and ``|x|`` times those
  of its factors;
- added to: each operation rounds its result. A sum may be taken in any order, so its error is counted
  from the sum of the *sizes* of its terms: what cancels leaves its rounding behind.

The sums are of first order in u. An array of these numbers (dtype object) goes through the NumPy
kernels as any array does, and so the bound belongs to the very formulas whose result it judges.
"""

from __future__ import annotations

import math

import numpy as np

from minitx.kernels import reference

U = float(np.finfo(np.float32).eps) / 2  # of one rounding to nearest
# Roundings in one call of a function: the library's own are within 1, our exp in float32 is
# within 3e-7 of the truth (`minitx/kernels/_math.py`).
CALL = 3e-7 / U


class Rounded:
    """``value``; ``error``, in units of u; ``size``, the sum of |terms| if it is a sum."""

    __slots__ = ("error", "size", "value")

    def __init__(self, value, error=0.0, size=None):
        self.value, self.error = float(value), error
        self.size = abs(self.value) if size is None else size

    def __add__(self, other):
        other = rounded(other)
        size = self.size + other.size
        return Rounded(self.value + other.value, self.error + other.error + size, size)

    def __mul__(self, other):
        other = rounded(other)
        value = self.value * other.value
        handed = abs(other.value) * self.error + abs(self.value) * other.error
        return Rounded(value, handed + abs(value))

    def __truediv__(self, other):
        return self * rounded(other).map(lambda x: 1 / x, lambda x, y: y * y)

    def __neg__(self):
        return Rounded(-self.value, self.error, self.size)

    def __sub__(self, other):
        return self + -rounded(other)

    def __rsub__(self, other):
        return rounded(other) + -self

    def __rtruediv__(self, other):
        return rounded(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other):
        return self.value == rounded(other).value

    def __ge__(self, other):
        return self.value >= rounded(other).value

    def __gt__(self, other):
        return self.value > rounded(other).value

    def __le__(self, other):
        return self.value <= rounded(other).value

    def __lt__(self, other):
        return self.value < rounded(other).value

    __hash__ = None

    def map(self, f, slope, roundings=1.0):
        """f(x), where ``slope(x, f(x))`` is its derivative."""
        y = f(self.value)
        return Rounded(y, abs(slope(self.value, y)) * self.error + roundings * abs(y))

    # NumPy's functions call these on each entry of an array of dtype object.

    def sqrt(self):
        return self.map(math.sqrt, lambda x, y: 0.5 / y)

    def exp(self):
        if self.value == -math.inf:  # a masked score: exactly 0
            return Rounded(0)
        return self.map(math.exp, lambda x, y: y, CALL)

    def tanh(self):
        return self.map(math.tanh, lambda x, y: 1 - y * y, CALL)

    def log(self):
        return self.map(math.log, lambda x, y: 1 / x, CALL)

    def log1p(self):
        return self.map(math.log1p, lambda x, y: 1 / (1 + x), CALL)

    def __abs__(self):
        return Rounded(abs(self.value), self.error, self.size)


def rounded(x):
    return x if isinstance(x, Rounded) else Rounded(x)


def array(x):
    """An array of float64 as it is after rounding to float32: each entry may be off by u."""
    return np.frompyfunc(lambda v: Rounded(v, abs(v)), 1, 1)(np.asarray(x))


def errors(x):
    """The bounds, as an array of float64."""
    return U * np.frompyfunc(lambda v: rounded(v).error, 1, 1)(x).astype(float)


def softmax(x, mask=None, off_by_one=False):
    """`reference.softmax` for these numbers: the 1 is written as one more key, whose score is 0."""
    if not off_by_one:
        return reference.softmax(x, mask)
    return reference.softmax(np.concatenate([x, array(np.zeros_like(x[..., :1]))], axis=-1))[
        ..., :-1
    ]
