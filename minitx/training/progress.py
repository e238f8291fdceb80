"""A progress bar on standard error; the library that draws it is loaded only if asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Bar:
    """A context whose value is ``report(step, steps, loss)``."""

    def __init__(self, progress: bool | Callable | None, steps: int):
        self.progress, self.steps = progress, steps
        self.rich: Any = None

    def __enter__(self) -> Callable[[int, int, float], Any]:
        if callable(self.progress):
            return self.progress
        if not self.progress:
            return lambda step, steps, loss: None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        rich = self.rich = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}"),
            Remaining(),
            console=Console(stderr=True),
        )
        rich.start()
        bar = rich.add_task("training", total=self.steps, loss=float("nan"))
        return lambda step, steps, loss: rich.update(bar, completed=step, loss=loss)

    def __exit__(self, *exception: Any) -> None:
        if self.rich is not None:
            self.rich.stop()
