"""Synthetic tasks: NumPy only, one file a family. A task knows nothing of models."""

from minitx.tasks.base import IGNORE, Batch, Task, join, mark, next_token_targets
from minitx.tasks.bigram import BigramBackcopy
from minitx.tasks.biographies import Biographies
from minitx.tasks.facts import Facts, RandomLabels
from minitx.tasks.lists import ListQueries
from minitx.tasks.needles import Needles
from minitx.tasks.recall import AssociativeRecall, KeyValueRecall
from minitx.tasks.updates import KeyValueUpdates, UpdateProbe

__all__ = [
    "IGNORE",
    "AssociativeRecall",
    "Batch",
    "BigramBackcopy",
    "Biographies",
    "Facts",
    "KeyValueRecall",
    "KeyValueUpdates",
    "ListQueries",
    "Needles",
    "RandomLabels",
    "Task",
    "UpdateProbe",
    "join",
    "mark",
    "next_token_targets",
]
