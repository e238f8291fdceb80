"""Asking a trained model: its first choice wherever a batch has a target."""

from __future__ import annotations

import numpy as np

from minitx.autograd import no_grad
from minitx.nn.module import Module
from minitx.tasks.base import IGNORE, Batch


def answers(model: Module, batch: Batch, chunk: int = 250) -> np.ndarray:
    """The model's first choice wherever a token is asked for.

    Parameters
    ----------
    model : Module
        Called with the batch's tokens, mask, positions and segments; returns logits [B, T, V].
    batch : Batch
        `IGNORE` in its targets: nothing is asked for there.
    chunk : int
        Sequences in one forward pass, which bounds the memory; the answers do not hang on it.

    Returns
    -------
    int [asked]
        In the order of ``batch.targets[batch.targets != IGNORE]``. No gradients are recorded.
    """
    found = []
    with no_grad():
        for start in range(0, batch.size, chunk):
            part = batch[start : start + chunk]
            logits = model(part.tokens, **part.model_kwargs()).data
            found.append(logits[part.targets != IGNORE].argmax(axis=-1))
    return np.concatenate(found)


def correct(model: Module, batch: Batch, chunk: int = 250) -> np.ndarray:
    """Whether each of the `answers` is the target, bool [asked]. Its mean is the accuracy."""
    return answers(model, batch, chunk) == batch.targets[batch.targets != IGNORE]


def accuracy(model: Module, batch: Batch, chunk: int = 250) -> float:
    """Share of right answers, 0 to 1."""
    return float(correct(model, batch, chunk).mean())
