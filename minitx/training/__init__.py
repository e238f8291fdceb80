"""Training: ``fit`` (read ``loop.py``), and the callbacks that step into it."""

from minitx.training.callbacks import Callback, Curve, Every, History, State
from minitx.training.loop import cross_entropy_of_batch, first_bad_tensor, fit

__all__ = [
    "Callback",
    "Curve",
    "Every",
    "History",
    "State",
    "cross_entropy_of_batch",
    "first_bad_tensor",
    "fit",
]
