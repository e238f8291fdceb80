"""A tiny float64 model for tests of continual learning."""

import numpy as np

from minitx.nn import Transformer, TransformerConfig


def small_model(task, seed=0, dtype="float64"):
    """One block of width 8 for a task."""
    config = TransformerConfig(
        vocab_size=task.vocab_size,
        out_size=task.out_size,
        max_len=task.max_len,
        d_model=8,
        n_heads=2,
        n_layers=1,
        init_std=0.3,
        dtype=dtype,
    )
    return Transformer(config, rng=np.random.default_rng(seed))
