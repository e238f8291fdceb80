"""What the interference experiments share: one small model, and one way to train it."""

from __future__ import annotations

from dataclasses import dataclass

from minitx.phenomena import recipe


@dataclass(frozen=True)
class Recipe(recipe.Recipe):
    """Two layers of four heads without an MLP or positions; AdamW, a cosine to a tenth, clipping.

    Without an MLP, what happens in the model happens in attention.
    """

    n_layers: int = 2
    n_heads: int = 4
    positions: str = "none"
    embed_std: float | None = 0.1
    optimizer: str = "adamw"
    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.98)
    schedule: str = "cosine"
    warmup: int = 50
    floor: float = 0.1
    clip: float = 1.0
    steps: int = 600
    batch_size: int = 64
