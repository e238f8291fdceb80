"""Ways to learn one thing after another, as callbacks of `minitx.training.fit`.

.. code-block:: python

    keep = EWC(strength=100)
    for task in tasks:
        fit(model, task, steps=150, rng=rng, callbacks=[keep])
        keep.end_task(model, task.everything(), rng)

They compose: pass several to ``callbacks``, and tell each that a task is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.autograd import Tensor, ops
from minitx.continual.fisher import fisher_diagonal
from minitx.errors import MinitxError
from minitx.nn import Module
from minitx.tasks.base import Batch, join
from minitx.training import Callback, State


class Strategy(Callback):
    """A callback that is also told when a task is over. By itself it does nothing: naive training."""

    def end_task(self, model: Module, batch: Batch, rng: np.random.Generator) -> None:
        """The task whose data these are will not come back: keep what you need of it."""


class Replay(Strategy):
    """Rehearse stored examples of earlier tasks beside every batch (Ratcliff, 1990).

    Parameters
    ----------
    per_task : int
        How many examples of each task to store, drawn without replacement.
    per_step : int, optional
        How many stored examples to add to a batch, drawn anew each step; default all of them.
    """

    def __init__(self, per_task: int, per_step: int | None = None):
        if per_task < 1 or (per_step is not None and per_step < 1):
            raise MinitxError(
                f"Replay needs per_task >= 1 and per_step >= 1, got {per_task} and {per_step}."
            )
        self.per_task, self.per_step = per_task, per_step
        self.memory: list[Batch] = []

    def end_task(self, model: Module, batch: Batch, rng: np.random.Generator) -> None:
        self.memory.append(_rows(batch, rng.permutation(batch.size)[: self.per_task]))

    def on_batch(self, state: State, batch: Batch) -> Batch:
        if not self.memory:
            return batch
        stored = join(self.memory)
        if self.per_step is not None:
            n = min(self.per_step, stored.size)
            stored = _rows(stored, state.rng.permutation(stored.size)[:n])
        return join([batch, stored])


class EWC(Strategy):
    """Elastic weight consolidation (Kirkpatrick et al., 2017), a penalty for each earlier task:

    ``strength/2 · Σ_tasks Σ_i F_i (θ_i − θ*_i)²`` with F the diagonal Fisher information at the end
    of that task and θ* the weights there. Strength 0 is bit-identical to naive training.

    Parameters
    ----------
    strength : float
        λ ≥ 0. Its scale hangs on which Fisher is used; see `minitx.continual.fisher`.
    kind : {"exact", "sampled", "empirical"}
    """

    def __init__(self, strength: float, kind: str = "exact"):
        if strength < 0:
            raise MinitxError(f"The strength of EWC must not be negative, got {strength}.")
        self.strength, self.kind = strength, kind
        self.kept: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []

    def end_task(self, model: Module, batch: Batch, rng: np.random.Generator) -> None:
        fisher = fisher_diagonal(model, batch, self.kind, rng)
        anchor = {name: p.data.copy() for name, p in model.named_parameters()}
        fisher = {name: f.astype(anchor[name].dtype) for name, f in fisher.items()}
        self.kept.append((fisher, anchor))

    def penalty(self, state: State) -> Tensor | None:
        if not self.kept or not self.strength:
            return None
        total: Any = 0.0
        for fisher, anchor in self.kept:
            for name, p in state.model.named_parameters():
                moved = p - anchor[name]
                total = total + ops.sum(fisher[name] * moved * moved)
        return 0.5 * self.strength * total


class Freeze(Strategy):
    """Leave some parameters exactly as they are, from the start or from the second task on.

    Parameters
    ----------
    which : function of a parameter's name -> bool
        For example ``lambda name: name.startswith("blocks.0.")``.
    after_first_task : bool
        Wait until a task is over before freezing.
    """

    def __init__(self, which: Callable[[str], bool], after_first_task: bool = False):
        self.which, self.active = which, not after_first_task

    def end_task(self, model: Module, batch: Batch, rng: np.random.Generator) -> None:
        self.active = True

    def on_start(self, state: State) -> None:
        names = [name for name, _ in state.model.named_parameters()]
        if not any(self.which(name) for name in names):
            raise MinitxError(f"Freeze picks none of the parameters {', '.join(names)}.")

    def after_backward(self, state: State) -> None:
        # Optimisers leave a parameter without a gradient alone: no update, no weight decay.
        if self.active:
            for name, p in state.model.named_parameters():
                if self.which(name):
                    p.grad = None


class L2(Strategy):
    """A penalty on all weights, ``strength/2 · Σ θ²``, through the gradient (not decoupled)."""

    def __init__(self, strength: float):
        if strength < 0:
            raise MinitxError(f"The strength of L2 must not be negative, got {strength}.")
        self.strength = strength

    def after_backward(self, state: State) -> None:
        for p in state.model.parameters():
            if p.grad is not None:
                p.grad = p.grad + np.asarray(self.strength, p.dtype) * p.data


class ShrinkAndPerturb(Strategy):
    """After each step ``θ ← (1 − shrink) θ + noise · N(0, 1)`` (Ash & Adams, 2020).

    Norm gains move towards 1 rather than 0: they start there.
    """

    def __init__(self, shrink: float, noise: float):
        if not 0 <= shrink <= 1 or noise < 0:
            raise MinitxError(
                f"Shrink lies in [0, 1] and noise is not negative, got {shrink} and {noise}."
            )
        self.shrink, self.noise = shrink, noise

    def after_step(self, state: State) -> None:
        for name, p in state.model.named_parameters():
            rest = 1.0 if ".ln" in f".{name}" and name.endswith("weight") else 0.0
            kick = state.rng.standard_normal(p.shape).astype(p.dtype)
            p.data += np.asarray(self.shrink, p.dtype) * (rest - p.data)
            p.data += np.asarray(self.noise, p.dtype) * kick


def _rows(batch: Batch, rows: np.ndarray) -> Batch:
    """Some sequences of a batch whose mask and positions, if any, all rows share."""
    if any(a is not None and a.ndim > n for a, n in ((batch.mask, 2), (batch.positions, 1))):
        raise MinitxError("Stored examples must share one mask and one row of positions.")
    segments = None if batch.segments is None else batch.segments[rows]
    return Batch(batch.tokens[rows], batch.targets[rows], batch.mask, batch.positions, segments)
