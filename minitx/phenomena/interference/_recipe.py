"""What the interference experiments share: one model, and one way to train it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minitx.nn import Module
from minitx.nn.transformer import Transformer, TransformerConfig
from minitx.optim import cosine
from minitx.tasks import Task
from minitx.training import Callback, fit


@dataclass(frozen=True)
class Recipe:
    """The common model and its training; an experiment's settings add their own fields.

    A causal pre-LayerNorm transformer without biases, output not tied to the embedding; AdamW with
    betas (0.9, 0.98), gradients clipped to norm 1, 50 steps of warm-up under a cosine to a tenth.
    """

    # The model. Without an MLP, what happens in it happens in attention.
    positions: str = "none"
    attention: str = "softmax"
    n_layers: int = 2
    n_heads: int = 4
    d_model: int = 64
    mlp: str = "none"
    init_std: float = 0.02
    embed_std: float = 0.1
    # Training.
    lr: float = 2e-3
    weight_decay: float = 0.0
    steps: int = 600
    batch_size: int = 64

    def config(self, task: Task, max_len: int | None = None) -> TransformerConfig:
        """The model for a task, able to read sequences of up to `max_len` too, if given."""
        return TransformerConfig(
            vocab_size=task.vocab_size,
            out_size=task.out_size,
            max_len=max(max_len or 0, task.max_len),
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_layers=self.n_layers,
            positions=self.positions,
            attention=self.attention,
            mlp=self.mlp,
            bias=False,
            init_std=self.init_std,
            embed_std=self.embed_std,
        )


def train(
    task: Task, recipe: Recipe, seed: int, max_len: int | None = None
) -> tuple[Transformer, np.random.Generator]:
    """A trained model, and a stream of random numbers for testing that training never drew from.

    Arms with the same seed share initial weights (where shapes agree), data and test sequences.
    """
    init_rng, train_rng, test_rng = np.random.default_rng(seed).spawn(3)
    model = Transformer(recipe.config(task, max_len), rng=init_rng)
    return fit_model(model, task, recipe, train_rng), test_rng


def fit_model(
    model: Module,
    task: Task,
    recipe: Recipe,
    rng: np.random.Generator,
    callbacks: Iterable[Callback] = (),
) -> Module:
    """Train any model by the common recipe, and hand it back in evaluation mode."""
    fit(
        model,
        task,
        steps=recipe.steps,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        rng=rng,
        optimizer="adamw",
        betas=(0.9, 0.98),
        weight_decay=recipe.weight_decay,
        schedule=cosine(warmup=50, floor=0.1),
        clip=1.0,
        callbacks=callbacks,
    )
    return model.eval()
