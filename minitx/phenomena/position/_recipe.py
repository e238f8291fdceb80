"""What the position experiments share: settings of one training run, the run, and its curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.autograd import no_grad
from minitx.errors import choose
from minitx.nn import Transformer, TransformerConfig
from minitx.optim import warmup
from minitx.tasks.base import Task
from minitx.tasks.lists import ListQueries
from minitx.tasks.recall import KeyValueRecall
from minitx.training import fit

EDGE = 3  # serial positions that count as "first" and as "last"


@dataclass(frozen=True)
class Settings:
    """One training run on a list ("what was the fifth?") or on key-value pairs ("what had k?")."""

    # The task.
    task: str = "list"
    items: int = 24
    queries: int = 12
    values: int = 16
    query_positions: str = "spread"  # list only: do the queries' position numbers run on?
    asks: str = "uniform"  # which serial positions training asks for
    # The model: pre-LayerNorm, ReLU MLP, no biases, untied, weights N(0, 0.1²).
    positions: str = "rotary"
    mask: str = "causal"
    n_layers: int = 1
    n_heads: int = 1
    d_model: int = 32
    d_head: int = 0  # 0: d_model / n_heads
    # Training.
    steps: int = 400
    batch_size: int = 32
    lr: float = 3e-3
    # Measuring: every serial position is asked for equally often, whatever training did.
    eval_sequences: int = 1000

    def make_task(self, asks: str) -> Task:
        """The task that asks for these serial positions."""
        if choose({"list": True, "pairs": False}, self.task, "task"):
            return ListQueries(self.items, self.values, self.queries, self.query_positions, asks)
        return KeyValueRecall(
            n_pairs=self.items, n_values=self.values, n_queries=self.queries, asks=asks
        )

    def config(self, task: Task) -> TransformerConfig:
        """The model for a task."""
        return TransformerConfig(
            vocab_size=task.vocab_size,
            out_size=task.out_size,
            max_len=task.max_len,
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_head=self.d_head or None,
            n_layers=self.n_layers,
            positions=self.positions,
            mask=self.mask,
            mlp="relu",
            bias=False,
            init_std=0.1,
        )


def train(settings: Settings, seed: int) -> tuple[Transformer, np.random.Generator]:
    """Train one model; arms with the same seed share initial weights and data where they can.

    Returns
    -------
    model, rng
        `rng` is a stream for measuring, which training has not drawn from.
    """
    init_rng, train_rng, eval_rng = np.random.default_rng(seed).spawn(3)
    task = settings.make_task(settings.asks)
    model = Transformer(settings.config(task), rng=init_rng)
    if settings.steps:
        fit(
            model,
            task,
            steps=settings.steps,
            batch_size=settings.batch_size,
            lr=settings.lr,
            rng=train_rng,
            optimizer="adam",
            betas=(0.9, 0.99),
            schedule=warmup(20),
        )
    return model, eval_rng


def serial_accuracy(model: Transformer, task: Task, n: int, rng: np.random.Generator) -> np.ndarray:
    """Share of right answers for each serial position that is asked for.

    Parameters
    ----------
    task : Task
        Its batches say in ``info["item"]`` which serial position each query asks for (-1: none).
    n : int
        Number of sequences.

    Returns
    -------
    float64 [items], NaN where a position was never asked for
    """
    batch = task.sample(n, rng)
    with no_grad():
        logits = model(batch.tokens, **batch.model_kwargs()).data  # [B, T, V]
    item = batch.info["item"]
    asked = item >= 0
    right = (logits.argmax(-1) == batch.targets)[asked]
    count = np.bincount(item[asked])
    with np.errstate(invalid="ignore"):
        return np.bincount(item[asked], weights=right) / count


def serial_shape(accuracy: np.ndarray, edge: int = EDGE) -> dict[str, Any]:
    """How a serial-position curve bends.

    With ``first`` and ``last`` the means over `edge` positions at each end and ``middle`` the mean
    over the middle third, ``u = (first + last)/2 - middle``: 0 is flat, positive is a U.

    Parameters
    ----------
    accuracy : float [items]

    Returns
    -------
    dict with ``first, middle, last, first_minus_middle, last_minus_middle, first_minus_last, u,
    abs_u``
    """
    third = len(accuracy) // 3
    first, last = float(accuracy[:edge].mean()), float(accuracy[-edge:].mean())
    middle = float(accuracy[third : len(accuracy) - third].mean())
    u = (first + last) / 2 - middle
    return {
        "first": first,
        "middle": middle,
        "last": last,
        "first_minus_middle": first - middle,
        "last_minus_middle": last - middle,
        "first_minus_last": first - last,
        "u": u,
        "abs_u": abs(u),
    }
