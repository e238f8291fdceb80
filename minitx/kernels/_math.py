"""Scalar functions that the compiled kernels inline: written so that a loop over them vectorises.

The C library's ``expf`` is a call, and a loop with a call in it runs one number at a time. A
polynomial is arithmetic, and runs eight or sixteen at a time.

Numba's disk cache looks at the file of the kernel that is called, not at those it takes parts
from: kernels' files name the digest of the others, so that a change changes them too (a test
compares).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import overload, register_jitable

# What the optimiser may assume. NaN and infinity are never assumed away: they must propagate.
EXACT = {"contract"}  # a * b + c in one instruction
LOOSE = {"contract", "reassoc", "nsz", "arcp"}  # and sums in any order, so that they vectorise
# Division by zero gives infinity, as in NumPy: a check would keep loops from vectorising.
_common = {
    "fastmath": LOOSE, "error_model": "numpy", "nogil": True,
    "no_cfunc_wrapper": True,  # nobody calls them from C: less to compile
}  # fmt: skip
kernel = njit(cache=True, **_common)  # called from Python: kept on disk
# Called from kernels, and kept with them. Not `njit`, which would compile a part anew for each
# constant that it is called with.
part = register_jitable(**_common)
exact_part = register_jitable(**_common | {"fastmath": EXACT})
# Only for the search for a maximum: a NaN it misses still turns the row into NaN in the exp.
searching_part = register_jitable(**_common | {"fastmath": {"reassoc", "nsz", "nnan"}})


def exp(x):
    """``exp(x)``; float32 by Cody-Waite reduction and a polynomial (relative error below 3e-7).

    In float32, above 88.4 (2.4e38) the result is infinity, and below -87.7 (8e-39) it is 0.
    """
    return math.exp(x)


# Beyond these the power of two in float32 is 0 or infinity.
EXP_LOW, EXP_HIGH = np.float32(-88.02), np.float32(89)
EXP_MANTISSA_BITS = 23  # of a float32; above them is its exponent


@exact_part
def exp_steps(x):
    """A pair of float32 (p, shifted): exp(x) is p times the power of two in shifted's last bits.

    Arithmetic only, so that it serves a number as well as a row of them (`_registers.py`).
    """
    f = np.float32
    log2_e, ln2_high, ln2_low = f(1.4426950408889634), f(0.693145751953125), f(1.4286068e-06)
    # Adding 1.5 * 2**23 leaves the rounded integer in the lowest bits of the sum; 127 is the bias of
    # the exponent, for which these bits are then taken.
    shift = f(12582912 + 127)
    # 1 + r + c2 r² + ... + c5 r⁵: the least largest relative error over |r| <= ln(2) / 2, 1.05e-7
    c2, c3, c4, c5 = f(0.4999923179), f(0.1666711447), f(0.0418901132), f(0.0083125249)
    shifted = x * log2_e + shift
    n = shifted - shift  # x = n ln 2 + r
    r = (x - n * ln2_high) - n * ln2_low
    p = ((c5 * r + c4) * r + c3) * r + c2
    return p * (r * r) + (r + f(1)), shifted


@overload(exp, jit_options={"fastmath": EXACT})
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    low, high, mantissa_bits = EXP_LOW, EXP_HIGH, np.int32(EXP_MANTISSA_BITS)

    def exp_float32(x):
        x = low if x < low else x
        x = high if x > high else x
        p, shifted = exp_steps(x)
        power = np.int32(np.float32(shifted).view(np.int32) << mantissa_bits)
        return p * power.view(np.float32)  # times 2**n

    return exp_float32


@searching_part
def maximum(x):
    """Largest entry of a vector, -inf if it is empty. NaN may be missed."""
    peak = x.dtype.type(-np.inf)
    for i in range(x.size):
        peak = x[i] if x[i] > peak else peak
    return peak
