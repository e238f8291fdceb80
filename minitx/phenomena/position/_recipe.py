"""What the position experiments share: one model on a list, and its serial-position curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.errors import choose
from minitx.nn.transformer import Transformer
from minitx.phenomena.recipe import Recipe
from minitx.tasks.base import Task
from minitx.tasks.lists import ListQueries
from minitx.tasks.recall import KeyValueRecall
from minitx.training import correct

EDGE = 3  # serial positions that count as "first" and as "last"


@dataclass(frozen=True)
class Settings(Recipe):
    """One training run on a list ("what was the fifth?") or on key-value pairs ("what had k?").

    Pre-LayerNorm, ReLU MLP, no biases, weights N(0, 0.1²); 20 steps of warm-up.
    """

    d_model: int = 32
    mlp: str = "relu"
    init_std: float = 0.1
    lr: float = 3e-3
    schedule: str = "warmup"
    warmup: int = 20
    steps: int = 400
    # The task.
    task: str = "list"
    items: int = 24
    queries: int = 12
    values: int = 16
    query_positions: str = "spread"  # list only: do the queries' position numbers run on?
    asks: str = "uniform"  # which serial positions training asks for
    # Measuring: every serial position is asked for equally often, whatever training did.
    eval_sequences: int = 1000

    def make_task(self, asks: str) -> Task:
        """The task that asks for these serial positions."""
        if choose({"list": True, "pairs": False}, self.task, "task"):
            return ListQueries(self.items, self.values, self.queries, self.query_positions, asks)
        return KeyValueRecall(
            n_pairs=self.items, n_values=self.values, n_queries=self.queries, asks=asks
        )


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
    item = batch.info["item"]
    right = correct(model, batch, positions=item >= 0)
    asked = item[item >= 0]
    with np.errstate(invalid="ignore"):
        return np.bincount(asked, weights=right) / np.bincount(asked)


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
