"""Learning one thing after another: metrics of what is kept, and strategies that keep it.

``metrics`` are pure functions of an accuracy matrix; ``fisher`` says how much each weight matters;
``strategies`` plug into `minitx.training.fit`.
"""

from minitx.continual.fisher import fisher_diagonal
from minitx.continual.strategies import (
    EWC,
    L2,
    Freeze,
    Replay,
    ShrinkAndPerturb,
    Strategy,
)

__all__ = [
    "EWC",
    "L2",
    "Freeze",
    "Replay",
    "ShrinkAndPerturb",
    "Strategy",
    "fisher_diagonal",
]
