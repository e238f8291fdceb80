"""Training: ``fit`` (read ``loop.py``), the callbacks that step into it, and asking what was learned."""

from minitx.training.callbacks import Callback, Curve, Every, History, State
from minitx.training.evaluate import accuracy, answers, correct
from minitx.training.loop import cross_entropy_of_batch, first_bad_tensor, fit

__all__ = [
    "Callback",
    "Curve",
    "Every",
    "History",
    "State",
    "accuracy",
    "answers",
    "correct",
    "cross_entropy_of_batch",
    "first_bad_tensor",
    "fit",
]
