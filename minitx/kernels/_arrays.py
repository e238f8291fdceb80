"""What the public side of a compiled kernel needs: may it take these arrays, and in which form."""

from __future__ import annotations

import threading

import numpy as np

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
NO_VECTOR = {dtype: np.zeros(0, dtype) for dtype in FLOATS}  # stands for "no weight", "no bias"
NO_MASK = np.zeros((0, 0), np.bool_)


def takes(x, *others) -> bool:
    """True if all (None aside) share one dtype, float32 or float64, and ``x`` is not empty."""
    dtype = x.dtype
    if dtype not in FLOATS or x.size == 0:
        return False
    for other in others:  # not all(...): a generator takes three times as long, on every call
        if other is not None and other.dtype is not dtype and other.dtype != dtype:
            return False
    return True


def plain(x):
    """``x`` itself if it is in C order, aligned and writeable, else a copy that is.

    One layout only, because Numba compiles a kernel anew for each kind of array it meets.
    """
    return x if x.flags.carray else np.array(x, order="C")


def rows(x):
    """[..., D] -> [N, D] in C order."""
    return plain(x).reshape(-1, x.shape[-1])


def vector(x, dtype):
    """A weight or bias; an empty one for None."""
    return NO_VECTOR[dtype] if x is None else plain(x)


def integers(x):
    """Token ids or classes as int64 in C order."""
    return plain(np.asarray(x, dtype=np.int64))


_mine = threading.local()  # freed with its thread


def scratch(parts, size, dtype):
    """[parts, size] of memory to work in, one row for each share; kept from call to call.

    Fresh large arrays would cost page faults on every call. Each thread of the user's has its own.
    """
    kept = vars(_mine)
    have = kept.get(dtype.char)
    if have is None or have.shape[0] < parts or have.shape[1] < size:
        old = (0, 0) if have is None else have.shape
        have = kept[dtype.char] = np.empty(
            (max(parts, old[0]), max(size + size // 8, old[1])), dtype
        )
    return have
