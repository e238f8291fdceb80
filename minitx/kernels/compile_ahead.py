"""Compile every kernel now, and tell what is going on: the first time takes some seconds."""

from __future__ import annotations

import functools
import sys

import numpy as np

from minitx.kernels import (
    compiled,
    compiled_attention,
    compiled_heads,
    compiled_linear,
    compiled_mlp,
)


def warm_up(progress=None, dtype=np.float32):
    """Call every kernel once on tiny arrays. Tells on standard error only if something compiles."""
    calls = _tiny_calls(np.dtype(dtype))
    before = _cache_misses()
    told = False
    for done, (name, call) in enumerate(calls):
        if progress is not None:
            progress(done, len(calls), name)
        call()
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


def _silent(done, total, name):
    """Nothing to say."""


def _dispatchers():
    """The compiled loops of this and the attention module."""
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
        (compiled.mlp_block, x, row, row, *mlp),
        (compiled.mlp_block_backward, x, x, row, row, *mlp, (stat, stat, x.copy())),
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
    ]
    return [(f.__name__, functools.partial(f, *arguments)) for f, *arguments in cases]
