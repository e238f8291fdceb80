"""Synthetic tasks: NumPy only, one file a family. A task knows nothing of models.

``from minitx.tasks.bigram import Backcopy`` gives one family; this package re-exports the base.
"""

from minitx.tasks.base import IGNORE, Batch, Task, mark, next_token_targets

__all__ = ["IGNORE", "Batch", "Task", "mark", "next_token_targets"]
