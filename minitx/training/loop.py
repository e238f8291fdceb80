"""Training: one loop, the same for every experiment, with places where a method can step in.

Training data come from a stream of their own: evaluating more often, or differently, does not
change what is trained on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minitx.autograd import Tensor, no_grad, ops
from minitx.errors import MinitxError, choose
from minitx.nn.hooks import HookedModule
from minitx.nn.module import Module
from minitx.optim import OPTIMIZERS, Optimizer, Schedule, clip_grad_norm_
from minitx.training.callbacks import Callback, History, State
from minitx.training.checkpoint import Checkpoint
from minitx.training.progress import Bar

LossFunction = Callable[[Tensor, Any], Tensor]


def fit(
    model: Module,
    task: Any,
    steps: int,
    batch_size: int = 32,
    lr: float = 1e-3,
    rng: np.random.Generator | None = None,
    optimizer: str | Optimizer | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.0,
    schedule: Schedule | None = None,
    clip: float | None = None,
    loss: LossFunction | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | Callable[[int, int, float], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
) -> History:
    """Train a model on a task.

    Parameters
    ----------
    model : Module
        Changed in place; left in evaluation mode.
    task : Task
        ``task.sample(batch_size, rng)`` gives a Batch; or a function ``(batch_size, rng) ->
        Batch``.
    steps, batch_size : int
    lr : float
        Times ``schedule(step, steps)``, if there is a schedule (see `minitx.optim`).
    rng : numpy.random.Generator
        Required. Two streams are drawn from it, one for the data and one for callbacks.
    optimizer : {None, "adamw", "adam", "sgd"} or Optimizer
        None is AdamW, which is Adam as long as ``weight_decay`` is 0. "sgd" has momentum
        ``betas[0]``. An Optimizer of your own brings its own lr, betas and weight decay, which the
        schedule scales.
    clip : float, optional
        Largest joint norm of the gradients.
    loss : function (logits, batch) -> scalar Tensor, optional
        Default: mean cross-entropy in nats over the targets that are not ignored.
    callbacks : iterable of Callback
    progress : bool or function (step, steps, loss), optional
        True shows a bar on standard error.
    checkpoint : path, optional
        If the file exists, training goes on from it, and gives the numbers that an uninterrupted
        run would have given; it is written every ``checkpoint_every`` steps and at the end.

    Returns
    -------
    History

    Raises
    ------
    MinitxError
        If rng is missing; if the loss or a gradient turns NaN or infinite (names the step and the
        first tensor that went bad); if the checkpoint is damaged or of another run.
    """
    if not isinstance(rng, np.random.Generator):
        raise MinitxError("fit() needs a generator: rng=np.random.default_rng(seed).")
    if steps < 0 or batch_size < 1:
        raise MinitxError(
            f"fit() needs steps >= 0 and batch_size >= 1, got {steps} and {batch_size}."
        )
    if checkpoint_every is not None and (checkpoint is None or checkpoint_every < 1):
        raise MinitxError("checkpoint_every needs a checkpoint path, and must be at least 1.")
    data_rng, callback_rng = rng.spawn(2)
    callbacks = list(callbacks)
    loss = loss or cross_entropy_of_batch
    sample = task.sample if hasattr(task, "sample") else task
    optimizer = _make_optimizer(optimizer, model, lr, betas, weight_decay)
    base_lr = optimizer.lr
    loss_of, lr_of, norm_of = (np.full(steps, np.nan) for _ in range(3))
    history = History(loss_of, lr_of, norm_of)
    state = State(model, optimizer, 0, steps, callback_rng, history)
    saver = None
    if checkpoint is not None:
        settings: dict[str, Any] = {
            "steps": steps,
            "batch_size": batch_size,
            "lr": base_lr,
            "clip": clip,
        }
        settings["optimizer"] = type(optimizer).__name__
        saver = Checkpoint(checkpoint, state, data_rng, callbacks, settings)
        saver.resume()
    before = history.seconds
    started = time.perf_counter()
    model.train()
    with Bar(progress, steps) as report:
        for callback in callbacks:
            callback.on_start(state)
        while state.step < steps:
            batch = sample(batch_size, data_rng)
            optimizer.lr = base_lr * (schedule(state.step, steps) if schedule else 1.0)
            _step(state, batch, loss, clip, callbacks)
            history.seconds = before + time.perf_counter() - started
            report(state.step, steps, state.loss)
            if saver and checkpoint_every and state.step % checkpoint_every == 0:
                saver.save()
        for callback in callbacks:
            callback.on_end(state)
    optimizer.lr = base_lr
    optimizer.zero_grad()
    model.eval()
    history.seconds = before + time.perf_counter() - started
    if saver:
        saver.save()
    return history


def cross_entropy_of_batch(logits: Tensor, batch: Any) -> Tensor:
    """Mean cross-entropy in nats over the targets that are not ignored."""
    return ops.cross_entropy(logits, batch.targets)


def _step(
    state: State, batch: Any, loss: LossFunction, clip: float | None, callbacks: list[Callback]
) -> None:
    """One update: forward, backward, move."""
    model, optimizer, history = state.model, state.optimizer, state.history
    for callback in callbacks:
        changed = callback.on_batch(state, batch)
        batch = batch if changed is None else changed
    state.batch = batch
    optimizer.zero_grad()
    objective = loss(model(batch.tokens, **batch.model_kwargs()), batch)
    state.loss = float(objective.item())
    for callback in callbacks:
        penalty = callback.penalty(state)
        if penalty is not None:
            objective = objective + penalty
    if not np.isfinite(objective.item()):
        raise MinitxError(
            f"The loss became {objective.item()} at step {state.step}: the first bad tensor is "
            f"{first_bad_tensor(model, batch)}; a smaller lr or clipping (clip=1.0) may help."
        )
    objective.backward()
    for callback in callbacks:
        callback.after_backward(state)
    norm = clip_grad_norm_(optimizer.params, clip)
    if not np.isfinite(norm):
        raise MinitxError(
            f"A gradient became {norm} at step {state.step}: the first bad one belongs to "
            f"{_first_bad_gradient(model)}; a smaller lr may help."
        )
    i = state.step
    history.loss[i], history.lr[i], history.grad_norm[i] = state.loss, optimizer.lr, norm
    optimizer.step()
    state.step += 1
    for callback in callbacks:
        callback.after_step(state)


def _make_optimizer(
    given: str | Optimizer | None,
    model: Module,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> Optimizer:
    if isinstance(given, Optimizer):
        return given
    name = given or "adamw"
    kind = choose(OPTIMIZERS, name, "optimizer")
    params = model.parameters()  # the frozen too: a callback may release them
    if name == "sgd":
        return kind(params, lr, momentum=betas[0], weight_decay=weight_decay)
    return kind(params, lr, betas=betas, weight_decay=weight_decay)


# --- when numbers go bad ------------------------------------------------------------------------


def first_bad_tensor(model: Module, batch: Any) -> str:
    """Name the first parameter, else the first activation of the forward pass, with NaN or inf."""
    for name, parameter in model.named_parameters():
        if not np.isfinite(parameter.data).all():
            return f"parameter {name!r}"
    if isinstance(model, HookedModule):
        found: list[str] = []

        def look(activation: Tensor, hook: Any) -> None:
            if not found and not np.isfinite(activation.data).all():
                found.append(hook.name)

        with no_grad(), np.errstate(all="ignore"):
            model.run_with_hooks(batch.tokens, [(lambda name: True, look)], **batch.model_kwargs())
        if found:
            return f"activation {found[0]!r}"
    return "the loss itself"


def _first_bad_gradient(model: Module) -> str:
    for name, p in model.named_parameters():
        if p.grad is not None and not np.isfinite(p.grad).all():
            return repr(name)
    return "no single parameter: the joint norm overflows"
