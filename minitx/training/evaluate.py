"""Asking a trained model: its first choice wherever a batch has a target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minitx.autograd import no_grad
from minitx.autograd.coarse import check_ids
from minitx.errors import MinitxError, ShapeError
from minitx.nn.hooks import HookedModule
from minitx.nn.module import Module, evaluating
from minitx.tasks.base import IGNORE, Batch

Positions = int | Iterable[int] | np.ndarray | None


def answers(
    model: Module,
    batch: Batch,
    chunk: int = 250,
    *,
    hooks: Iterable[tuple[Any, Any]] = (),
    positions: Positions = None,
) -> np.ndarray:
    """The model's first choice wherever a token is asked for.

    Parameters
    ----------
    model : Module
        Called with the batch's tokens, mask, positions and segments; returns logits [B, T, V]. It is
        put in evaluation mode (no dropout) for as long as this takes.
    batch : Batch
        `IGNORE` in its targets: nothing is asked for there.
    chunk : int
        Sequences in one forward pass, which bounds the memory; the answers do not depend on it.
    hooks : iterable of (name or filter, function), optional
        Interventions, as `HookedModule.run_with_hooks` takes them. With hooks the whole batch goes
        through in one pass, because what they put in may be as long as the batch.
    positions : int, ints, or bool [T] or [B, T], optional
        Count only what is asked for there; default everywhere.

    Returns
    -------
    int [asked]
        In the order of ``batch.targets[batch.targets != IGNORE]`` (at these positions). No gradients
        are recorded.

    Raises
    ------
    MinitxError
        If nothing is asked for at these positions, a target is none of the model's outputs, or the
        model has no hooks to hang these on.
    """
    asked, hooks = _asked(batch, positions), list(hooks)
    if chunk < 1:
        raise MinitxError(
            f"chunk is how many sequences go through at once, 1 or more; got {chunk}."
        )
    if hooks and not isinstance(model, HookedModule):
        raise MinitxError(f"hooks need a model with hook points, got {type(model).__name__}.")
    step = batch.size if hooks else chunk
    found = []
    with evaluating(model), no_grad():
        for start in range(0, batch.size, step):
            part, here = batch[start : start + step], asked[start : start + step]
            if hooks and isinstance(model, HookedModule):
                logits = model.run_with_hooks(part.tokens, hooks, **part.model_kwargs())
            else:
                logits = model(part.tokens, **part.model_kwargs())
            check_ids(part.targets[here], logits.shape[-1], "Target", "the model's output")
            found.append(logits.data[here].argmax(axis=-1))
    return np.concatenate(found)


def correct(
    model: Module,
    batch: Batch,
    chunk: int = 250,
    *,
    hooks: Iterable[tuple[Any, Any]] = (),
    positions: Positions = None,
) -> np.ndarray:
    """Whether each of the `answers` is the target, bool [asked]. Its mean is the accuracy."""
    given = answers(model, batch, chunk, hooks=hooks, positions=positions)
    return given == batch.targets[_asked(batch, positions)]


def accuracy(
    model: Module,
    batch: Batch,
    chunk: int = 250,
    *,
    hooks: Iterable[tuple[Any, Any]] = (),
    positions: Positions = None,
) -> float:
    """Share of right answers, 0 to 1. Parameters as in `answers`."""
    return float(correct(model, batch, chunk, hooks=hooks, positions=positions).mean())


def _asked(batch: Batch, positions: Positions) -> np.ndarray:
    """Bool [B, T]: something is asked for, at one of these positions."""
    asked = batch.targets != IGNORE
    T = asked.shape[1]
    if positions is not None:
        wanted = np.asarray(positions if isinstance(positions, int) else np.asarray(positions))
        if wanted.dtype != bool:
            if (
                wanted.dtype.kind not in "iu"
                or wanted.ndim > 1
                or (  # 2-D: a mask that is not bool
                    wanted.size and (int(wanted.min()) < -T or int(wanted.max()) >= T)
                )
            ):
                raise MinitxError(
                    f"positions are whole numbers from {-T} to {T - 1}, or bool [T] or [B, T]; got "
                    f"{positions!r}."
                )
            chosen = np.zeros(T, dtype=bool)
            chosen[wanted] = True
            wanted = chosen
        if wanted.shape not in ((T,), asked.shape):
            raise ShapeError(
                f"positions as bool need the shape [{T}] or {list(asked.shape)}, got "
                f"{list(wanted.shape)}."
            )
        asked = asked & wanted
    if not asked.any():
        raise MinitxError("Nothing is asked for at these positions: every target is IGNORE there.")
    return asked
