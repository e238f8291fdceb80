"""Made-up experiments whose right verdict is known. Loaded by path, as a user's file would be."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from minitx.lab import Experiment, arm, at_least, at_most, register


@dataclass(frozen=True)
class Settings:
    mean: float = 0.0
    spread: float = 1.0
    sleep: float = 0.0
    bad_seed: int = -1
    how: Literal["raise", "exit", "die", "nan", "unstorable", "missing", "array"] = "raise"
    sizes: tuple[int, ...] = (4, 2)
    name: str | None = None
    flag: bool = False
    marks: str = ""  # a folder in which each run leaves a file


class MadeUp(Experiment):
    """Draws numbers around a mean. Whatever is claimed of them is known to be true or false."""

    question = "Does the lab judge rightly?"
    mechanism = "Numbers are drawn around a mean that we know."
    source = "Made up (2024)"
    measured = {"x": "a number drawn around `mean`", "third": "a third of x"}
    seconds = 1.0
    Settings = Settings
    quick = {"spread": 0.5}

    def measure(self, settings, seed):
        rng = np.random.default_rng([seed, round(100 * settings.mean)])
        if settings.marks:
            (Path(settings.marks) / f"{settings.mean}-{seed}-{time.time_ns()}").touch()
        if seed == settings.bad_seed and settings.how in ("raise", "exit", "die"):
            self.fail(settings.how)
        time.sleep(settings.sleep)
        weights = rng.normal(size=(64, 64)).astype(np.float32)
        product = weights @ weights.T  # would show another thread count in its last bits
        x = settings.mean + settings.spread * rng.uniform(-1, 1)
        result = {
            "x": x,
            "third": np.float32(x) / np.float32(3),
            "matrix": product[:3, :3],
            "words": ["a", "b"],
            "threads": os.environ.get("MINITX_THREADS"),
            "nothing": None,
        }
        if seed == settings.bad_seed and settings.how == "nan":
            result["x"] = np.nan
        if seed == settings.bad_seed and settings.how == "unstorable":
            result["x"] = object()
        if seed == settings.bad_seed and settings.how == "missing":
            del result["x"]
        if seed == settings.bad_seed and settings.how == "array":
            result["x"] = np.zeros(3)
        return result

    def fail(self, how):
        if how == "raise":
            raise RuntimeError("the made-up fault\nwith a second line")
        if how == "exit":
            sys.exit(3)
        time.sleep(0.3)  # let others be in flight
        os.kill(os.getpid(), signal.SIGKILL)

    def draw(self, results):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 2))
        axes = figure.subplots()
        for name in results:
            axes.plot(results.finished_seeds(name), results.values(name, "x"))
        return figure

    def example(self, rng):
        return f"Draw [1] of {rng.integers(10)}: the number is **known**."


@register
class Supported(MadeUp):
    name = "madeup.supported"
    arms = {"high": arm(mean=3.0, text="drawn around 3"), "low": arm(control=True)}
    claims = [
        at_least("x", 1.0, arm="high", text="High is high."),
        at_least("x", 1.5, arm="high", minus="low", text="High is above low."),
        at_most("x", 1.0, arm="low", control=True, text="Low is low."),
    ]


@register
class Refuted(MadeUp):
    name = "madeup.refuted"
    arms = {"low": arm()}
    claims = [at_least("x", 5.0, arm="low", text="Low is high, which is wrong.")]


@register
class Inconclusive(MadeUp):
    name = "madeup.inconclusive"
    arms = {"low": arm(), "high": arm(mean=3.0)}
    claims = [at_least("x", 0.0, arm="low"), at_most("x", 9.0, arm="high")]


@register
class Failing(MadeUp):
    name = "madeup.failing"
    arms = {"good": arm(mean=3.0, bad_seed=-1), "bad": arm(mean=3.0, bad_seed=1)}
    claims = [at_least("x", 1.0, arm="good"), at_least("x", 1.0, arm="bad")]


@register
class NoFigure(MadeUp):
    name = "madeup.nofigure"
    arms = {"low": arm()}
    claims = [at_most("x", 1.0, arm="low")]

    def draw(self, results):
        raise ZeroDivisionError("no figure today")
