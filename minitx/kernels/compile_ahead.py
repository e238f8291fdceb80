"""Compile every kernel now, and tell what is going on: the first time takes some seconds."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from minitx.kernels import (
    compiled,
    compiled_attention,
    compiled_heads,
    compiled_linear,
    compiled_mlp,
)

# About half of the whole: a second process takes them, on a second core.
ELSEWHERE = (
    *("attention_block_backward", "linear", "linear_backward"),
    *("gelu", "gelu_backward", "silu", "silu_backward"),
)


def warm_up(progress=None, without=(), dtype=np.float32):
    """Call every kernel once on tiny arrays. Tells on standard error only if something compiles.

    If something does, a second process compiles `ELSEWHERE` meanwhile, and we load its result.
    """
    calls = [(name, call) for name, call in _tiny_calls(np.dtype(dtype)) if name not in without]
    elsewhere = [name for name in ELSEWHERE if name not in without]
    calls.sort(key=lambda each: each[0] in elsewhere)  # last, when they are there to be loaded
    before = _cache_misses()
    told, second = False, None
    for done, (name, call) in enumerate(calls):
        if progress is not None:
            progress(done, len(calls), name)
        if name in elsewhere and second is not None:
            second.wait()  # should it have failed, we compile them here
        call()
        if second is None and _cache_misses() > before:
            second = _second_process(elsewhere, dtype)
        if progress is None and _cache_misses() > before:
            if not sys.stderr.isatty():  # one line, and no carriage returns, into a file
                print("Compiling kernels, once (later starts load them from disk)", file=sys.stderr)
                progress = _silent
                continue
            told = True
            # Fits on a line of 80 columns: what is wrapped cannot be written over.
            text = f"\rCompiling kernels, once: {done + 1} of {len(calls)}, {name:28}"
            print(text, end="", file=sys.stderr, flush=True)
    if told:
        print(file=sys.stderr)


def compile_only(names, dtype=np.float32):
    """Compile these kernels and no others, into the disk cache."""
    for name, call in _tiny_calls(np.dtype(dtype)):
        if name in names:
            call()


def _second_process(names, dtype):
    """Start compiling these kernels in another process."""
    code = (
        f"from minitx.kernels.compile_ahead import compile_only; "
        f"compile_only({names!r}, {np.dtype(dtype).name!r})"
    )
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _silent(done, total, name):
    """Nothing to say."""


def _dispatchers():
    """The compiled loops of all the modules of kernels."""
    for module in (compiled, compiled_attention, compiled_heads, compiled_linear, compiled_mlp):
        for value in list(vars(module).values()):
            if hasattr(value, "stats") and hasattr(value, "signatures"):
                yield value


def _cache_misses():
    return sum(sum(d.stats.cache_misses.values()) for d in _dispatchers())


def _tiny_calls(dtype):
    """(name, call) for each kernel, in the form in which training uses it."""
    x = np.ones((2, 4), dtype)
    row, ids, stat = np.ones(4, dtype), np.zeros(2, np.int64), np.ones(2, dtype)
    q, angle = np.ones((1, 2, 1, 4), dtype), np.ones((2, 2), dtype)
    pattern, allowed = np.ones((1, 1, 2, 2), dtype), np.ones((2, 2), np.bool_)
    square, qkv, lse = np.ones((4, 4), dtype), np.ones((2, 12), dtype), np.ones((1, 1, 2), dtype)
    mlp = (square, row, square, row)
    heads = (row, row, *(square, row) * 4)
    cases = [
        (compiled.softmax, x),
        (compiled.softmax, x, np.ones((2, 4), np.bool_)),
        (compiled.softmax_backward, x, x),
        (compiled.log_softmax, x),
        (compiled.log_softmax_backward, x, x),
        (compiled.cross_entropy, x, ids, -100),
        (compiled.cross_entropy_backward, 1.0, x, stat, ids, -100, 2),
        (compiled.layer_norm, x, row, row),
        (compiled.layer_norm_backward, x, x, row, stat, stat),
        (compiled.rms_norm, x, row),
        (compiled.rms_norm_backward, x, x, row, stat),
        (compiled.gelu, x),
        (compiled.gelu_backward, x, x),
        (compiled.silu, x),
        (compiled.silu_backward, x, x),
        (compiled.linear, x, x, row[:2]),
        (compiled.linear_backward, x[:, :2], x, x, True),
        (compiled.attention, q, q, q, allowed),
        (compiled.attention_backward, q, q, q, q, pattern),
        (compiled.rotary, q, angle, angle),
        (compiled.embedding_backward, x, ids, 3),
        (compiled.attention_block, q[:, :, 0], heads, 1),
        (
            compiled.attention_block_backward,
            q[:, :, 0],
            q[:, :, 0],
            heads,
            (stat, stat, qkv, x, lse),
            1,
        ),
        (compiled.adamw, *np.ones((4, 4), dtype), 0.1, 0.9, 0.99, 1e-8, 0.0, 1),
        (compiled.mlp_block, x, row, row, *mlp),
        (compiled.mlp_block_backward, x, x, row, row, *mlp, (stat, stat, x.copy())),
    ]
    return [(f.__name__, functools.partial(f, *arguments)) for f, *arguments in cases]
