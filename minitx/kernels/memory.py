"""Keep the memory of large arrays for the next step, instead of giving it back on every one.

A training step makes the same large arrays again and again. The C library of Linux returns an array
of more than a few hundred kilobytes to the system as soon as it is free, and the next one costs a
page fault for every 4 kB: a fifth of a step's time. Two settings of its allocator (``mallopt``) make
it keep such memory; elsewhere nothing is done. ``MINITX_KEEP_MEMORY=0`` leaves the allocator alone.
"""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST = 32 << 20  # the C library takes no more: larger arrays go back at once, as before


def keep() -> bool:
    """Ask the allocator to keep freed memory; whether it agreed."""
    if os.environ.get("MINITX_KEEP_MEMORY", "1") == "0" or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a C library without it
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, 1 << 30))
