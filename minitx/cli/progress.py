"""How the runs go: bars on a terminal, a line now and then elsewhere. All on standard error."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text

from minitx.cli.tables import duration
from minitx.lab import Experiment, Outcome, Reporter
from minitx.lab.runner import Plan
from minitx.lab.workers import Done

EVERY = 10.0  # seconds between two lines where there is no terminal
MOST_ARMS = 12  # with more, one bar for all


class Estimate:
    """How long the runs that are left will take."""

    def __init__(self, experiment: Experiment, plan: Plan) -> None:
        total = len(plan.arms) * len(plan.seeds)
        self.left = total - len(plan.stored)
        self.jobs = min(plan.jobs or self.left, max(self.left, 1))
        # Before the first run has ended, go by what the experiment says of one seed on 2 cores.
        self.each = experiment.expected_seconds(1) * 2 / len(plan.arms)
        self.measured: list[float] = []
        self.since = time.monotonic()

    def count(self, seconds: float) -> None:
        """One more run has ended, and took this long."""
        self.left -= 1
        self.measured.append(seconds)
        self.each = sum(self.measured) / len(self.measured)
        self.since = time.monotonic()

    def seconds(self) -> float:
        """Seconds left, counted down between two runs."""
        return max(0.0, self.left * self.each / self.jobs - (time.monotonic() - self.since))


class _TimeLeft(ProgressColumn):
    max_refresh = 1.0

    def __init__(self, estimate: Estimate) -> None:
        super().__init__()
        self.estimate = estimate

    def render(self, task) -> Text:
        if not task.fields.get("total_row"):
            return Text("")
        left = self.estimate.seconds()
        unknown = "nearly done" if self.estimate.measured else "longer than expected"
        words = f"about {duration(left)} left" if left >= 1 else unknown
        return Text(f"{duration(task.elapsed or 0.0)}, {words}")


class LineReporter(Reporter):
    """A plain line at the start, every ten seconds or so, and for each run that fails."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.finished = self.total = 0

    def on_start(self, experiment: Experiment, plan: Plan) -> None:
        self.name, self.start = experiment.name, time.monotonic()
        self.last = self.start
        self.total = len(plan.arms) * len(plan.seeds)
        self.finished = len(plan.stored)
        announce(self.out, experiment, plan)
        if self.finished < self.total:
            warm_up(experiment)
        self.estimate = Estimate(experiment, plan)

    def on_run(self, done: Done) -> None:
        self.estimate.count(done.seconds)
        if done.error:
            self.out.print(failure(done), soft_wrap=True)
            return
        self.finished += 1
        now = time.monotonic()
        left = self.estimate.seconds()
        # At most twenty lines or so, however long it takes.
        if self.estimate.left and now - self.last >= max(EVERY, (now - self.start + left) / 20):
            self.last = now
            about = duration(left)
            self.out.print(f"{self.name}: {self.finished} of {self.total} runs, about {about} left")

    def on_end(self, outcome: Outcome) -> None:
        pass


class BarReporter(LineReporter):
    """A bar for each arm and one for all, with the time left."""

    def on_start(self, experiment: Experiment, plan: Plan) -> None:
        super().on_start(experiment, plan)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _TimeLeft(self.estimate),
        )
        self.bars = Progress(*columns, console=self.out, transient=True, refresh_per_second=4)
        self.all = self.bars.add_task(
            experiment.name, total=self.total, completed=self.finished, total_row=True
        )
        self.rows = {}
        if 1 < len(plan.arms) <= MOST_ARMS:
            for arm in plan.arms:
                ready = sum((arm, seed) in plan.stored for seed in plan.seeds)
                self.rows[arm] = self.bars.add_task(
                    f"  {arm}", total=len(plan.seeds), completed=ready
                )
        if self.finished < self.total:
            self.bars.start()

    def on_run(self, done: Done) -> None:
        self.estimate.count(done.seconds)
        if done.error:
            self.bars.console.print(failure(done), style="red")
        else:
            self.finished += 1
        self.bars.advance(self.all)
        if done.arm in self.rows:
            self.bars.advance(self.rows[done.arm])

    def close(self) -> None:
        """Take the bars off the screen; also after Ctrl-C."""
        if getattr(self, "bars", None) is not None:
            self.bars.stop()

    def on_end(self, outcome: Outcome) -> None:
        self.close()


def reporter(out: Console) -> LineReporter:
    """Bars if this is a terminal, else lines."""
    return BarReporter(out) if out.is_terminal and not out.is_dumb_terminal else LineReporter(out)


def announce(out: Console, experiment: Experiment, plan: Plan) -> None:
    """What is about to be done, and what need not be."""
    total, stored = len(plan.arms) * len(plan.seeds), len(plan.stored)
    text = f"{experiment.name}: {_count(len(plan.arms), 'arm')} x {_count(len(plan.seeds), 'seed')}"
    text += f" = {_count(total, 'run')}"
    if stored == total:
        text += ", all stored"
    else:
        text += f", {stored} stored" if stored else ""
        text += f", {plan.jobs} at a time" if plan.jobs > 1 else ""
    out.print(text, style="dim", soft_wrap=True)
    if plan.damaged:
        lines = ", ".join(map(str, plan.damaged[:5])) + (", ..." if len(plan.damaged) > 5 else "")
        out.print(
            f"results.jsonl: line {lines} cannot be read (cut off by a kill?) and does not count.",
            style="yellow",
            soft_wrap=True,
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def failure(done: Done) -> str:
    """One line for a run that failed."""
    return f"arm {done.arm!r}, seed {done.seed} failed: {done.error}"


def warm_up(experiment: Experiment) -> None:
    """Compile the kernels here, before workers start: they find them in the disk cache."""
    from minitx import kernels

    plain = all(getattr(each, "mlp", None) == "none" for each in experiment.settings().values())
    kernels.warm_up(without=kernels.OF_MLPS if plain else ())
