"""How an experiment trains: one frozen `Recipe` (model and training), and one `train`.

A family subclasses `Recipe` and states what differs; so does an experiment, whose ``Settings`` is a
recipe with fields of its own:

.. code-block:: python

    @dataclass(frozen=True)
    class Settings(Recipe):
        n_layers: int = 1
        steps: int = 300
        eval_sequences: int = 128  # the experiment's own knob

    model, rng = train(task, settings, seed)
    batch = task.sample(settings.eval_sequences, rng)

Arms with one seed share the first weights of every part that they have in common, the batches
(where the task is the same) and the sequences that they are tested on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from minitx.errors import MinitxError, choose, unknown
from minitx.nn.config import TransformerConfig
from minitx.nn.module import Module
from minitx.nn.transformer import Transformer
from minitx.optim import Optimizer, Schedule, constant, cosine, linear_decay, warmup
from minitx.tasks.base import Task
from minitx.training import Callback, fit
from minitx.training.loop import LossFunction

AnyModule = TypeVar("AnyModule", bound=Module)

SCHEDULES: dict[str, Callable[[Recipe], Schedule]] = {
    "constant": lambda recipe: constant(),
    "warmup": lambda recipe: warmup(recipe.warmup),
    "cosine": lambda recipe: cosine(warmup=recipe.warmup, floor=recipe.floor),
    "linear_decay": lambda recipe: linear_decay(start=recipe.decay_start, end=recipe.floor),
}
"""What the learning rate is multiplied by during training: name -> (recipe -> schedule)."""


@dataclass(frozen=True)
class Recipe:
    """A model and its training. Fields are matched to `TransformerConfig` by name.

    Any field of `TransformerConfig` may be added in a subclass; what the recipe does not name keeps
    the config's default. Vocabulary, output size and length come from the task.

    Attributes
    ----------
    d_model ... embed_std
        As in `TransformerConfig`.
    optimizer : {"adam", "adamw", "sgd"}
        With ``betas`` and ``weight_decay``; "sgd" has momentum ``betas[0]``.
    schedule : {"constant", "warmup", "cosine", "linear_decay"}
        "warmup" and "cosine" rise over ``warmup`` steps; "cosine" then falls to ``floor`` times
        lr; "linear_decay" is constant up to the share ``decay_start`` of the steps, then falls to
        ``floor`` times lr.
    clip : float
        Largest joint norm of the gradients; 0: no clipping.
    steps, batch_size : int
        With 0 steps the model stays as it was drawn.

    Raises
    ------
    MinitxError
        For an unknown field (the nearest names are suggested), an unknown schedule, or numbers
        that no training can use.
    """

    # The model.
    d_model: int = 64
    n_heads: int = 1
    n_layers: int = 1
    d_head: int | None = None
    positions: str = "rotary"
    attention: str = "softmax"
    mask: str = "causal"
    gate: str = "none"
    key_bias: bool = False
    sink_logit: bool = False
    norm: str = "layernorm"
    norm_bias: bool | None = None
    mlp: str = "none"
    bias: bool = False
    residual: bool = True
    init_std: float = 0.02
    embed_std: float | None = None
    # The training.
    optimizer: str = "adam"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup: int = 0
    decay_start: float = 0.7
    floor: float = 0.0
    clip: float = 0.0
    steps: int = 400
    batch_size: int = 32

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse unknown fields in a sentence, where a dataclass raises a bare TypeError."""
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        for key in kwargs:
            if key not in known:
                raise unknown(f"{cls.__name__} field", key, known)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        choose(SCHEDULES, self.schedule, "schedule")
        if self.steps < 0 or self.batch_size < 1:
            raise MinitxError(
                f"A recipe needs steps >= 0 and batch_size >= 1, got {self.steps} and "
                f"{self.batch_size}."
            )
        if not (np.isfinite(self.clip) and self.clip >= 0):
            raise MinitxError(f"clip is a norm, at least 0 (0: no clipping), got {self.clip}.")

    def config(self, task: Task, max_len: int | None = None) -> TransformerConfig:
        """The model for a task, able to read sequences of up to ``max_len`` too, if given."""
        ours = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(TransformerConfig)
            if hasattr(self, field.name)
        }
        ours["vocab_size"], ours["out_size"] = task.vocab_size, task.out_size
        return TransformerConfig(**ours | {"max_len": max(max_len or 0, task.max_len)})


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Three independent streams of a seed: for first weights, for training, for measuring."""
    init, training, measuring = np.random.default_rng(seed).spawn(3)
    return init, training, measuring


def untrained(task: Task, recipe: Recipe, seed: int, max_len: int | None = None) -> Transformer:
    """The model that `train` starts from, in evaluation mode."""
    model = Transformer(recipe.config(task, max_len), rng=streams(seed)[0])
    model.eval()
    return model


def train(
    task: Task,
    recipe: Recipe,
    seed: int,
    *,
    max_len: int | None = None,
    callbacks: Iterable[Callback] = (),
    loss: LossFunction | None = None,
) -> tuple[Transformer, np.random.Generator]:
    """Train one model on a task.

    Parameters
    ----------
    seed : int
        All randomness comes from it, in three streams: first weights, training, measuring.
    max_len : int, optional
        Longest sequence that the model will be asked to read later; default the task's.
    callbacks, loss
        As in `minitx.training.fit`.

    Returns
    -------
    model : Transformer
        In evaluation mode.
    rng : numpy.random.Generator
        A stream for measuring, from which training has not drawn.
    """
    _, training, measuring = streams(seed)
    model = untrained(task, recipe, seed, max_len)
    return fit_model(model, task, recipe, training, callbacks=callbacks, loss=loss), measuring


def fit_model(
    model: AnyModule,
    task: Any,
    recipe: Recipe,
    rng: np.random.Generator,
    *,
    callbacks: Iterable[Callback] = (),
    loss: LossFunction | None = None,
    optimizer: Optimizer | None = None,
    steps: int | None = None,
) -> AnyModule:
    """Train any model by a recipe's training fields, and hand it back in evaluation mode.

    Parameters
    ----------
    task : Task, or function (batch_size, rng) -> Batch
    optimizer : Optimizer, optional
        One that goes on from an earlier call, in place of a new one.
    steps : int, optional
        In place of the recipe's: for a second phase.
    """
    fit(
        model,
        task,
        steps=recipe.steps if steps is None else steps,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        rng=rng,
        optimizer=optimizer or recipe.optimizer,
        betas=recipe.betas,
        weight_decay=recipe.weight_decay,
        schedule=SCHEDULES[recipe.schedule](recipe),
        clip=recipe.clip or None,
        callbacks=callbacks,
        loss=loss,
    )
    return model
