"""What an exercise is: functions to write, parts that each test one mechanism, known mistakes.

A new exercise is a stub in ``tutorials/exercises/NAME.py``, a reference in ``references.py``, a
check in ``checks/NAME.py`` that sets ``EXERCISE``, and wrong answers in
``tests/grading/answers/NAME/``. Nothing else needs to know of it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from minitx.errors import MinitxError, choose

Judge = Callable[[tuple, Any], str | None]


@dataclass(frozen=True)
class Mistake:
    """A wrong way to write a function, and the hint for whoever wrote it that way.

    When a part fails, the grader compares the student's answers with those of each mistake; the
    first that agrees on every input tried (and differs from the right answer on one) is named.
    """

    hint: str
    wrong: Callable[..., Any]


@dataclass(frozen=True)
class Function:
    """One function that the student writes.

    Attributes
    ----------
    reference : callable
        The right answer; its name and parameters are those of the student's function.
    mistakes : tuple of Mistake
        Tried in this order.
    judge : callable, optional
        ``judge(arguments, answer)`` returns None or a sentence saying what is wrong, for answers
        of which more than one is right. Without it answers are compared with the reference's.
    """

    reference: Callable[..., Any]
    mistakes: tuple[Mistake, ...] = ()
    judge: Judge | None = None

    @property
    def name(self) -> str:
        return self.reference.__name__

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.reference).parameters)


@dataclass(frozen=True)
class Part:
    """One mechanism, tested alone.

    Attributes
    ----------
    name : str
        Short: "length one".
    points : float
    tells : str
        What is right when the part passes.
    inputs : callable
        Returns the Hypothesis strategy that draws tuples of arguments. A callable, so that an
        exercise can be listed where Hypothesis is not installed.
    function : str, optional
        Which of the exercise's functions; its first by default.
    view : callable, optional
        Which piece of an answer is compared, for example its first row.
    view_name : str
        That piece in words.
    leaves_inputs : bool
        Also require that arguments are not changed.
    keeps_dtype : bool
        Also require the reference's dtype.
    examples : int
        How many inputs are tried.
    hint : str
        For a failure that no known mistake explains.
    known_mistakes : bool
        Whether to compare with the function's mistakes; not where their own code would not end.
    timeout_hint : str
        For a call that takes too long here.
    """

    name: str
    points: float
    tells: str
    inputs: Callable[[], Any]
    function: str = ""
    view: Callable[[Any], Any] | None = None
    view_name: str = ""
    leaves_inputs: bool = False
    keeps_dtype: bool = False
    examples: int = 40
    hint: str = ""
    known_mistakes: bool = True
    timeout_hint: str = ""


@dataclass(frozen=True)
class Exercise:
    """An exercise: its stub has the same name."""

    name: str
    title: str
    level: int
    functions: tuple[Function, ...]
    parts: tuple[Part, ...]

    @property
    def points(self) -> float:
        """The points of all parts."""
        return sum(part.points for part in self.parts)

    def function_of(self, part: Part) -> Function:
        """The function that a part tests."""
        if not part.function:
            return self.functions[0]
        return choose({f.name: f for f in self.functions}, part.function, "function")


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by name, from easy to hard: every module of ``minitx.grading.checks``."""
    from minitx.grading import checks

    found = []
    for module in pkgutil.iter_modules(checks.__path__):
        found.append(importlib.import_module(f"{checks.__name__}.{module.name}").EXERCISE)
    return {e.name: e for e in sorted(found, key=lambda e: (e.level, e.name))}


def exercise(name: str) -> Exercise:
    """The exercise of that name.

    Raises
    ------
    MinitxError
        If there is none; the known names are listed.
    """
    return choose(exercises(), name, "exercise")


def stub_path(name: str) -> Path:
    """Where the stub of an exercise is: in the installed package, or in a source checkout.

    Raises
    ------
    MinitxError
        If the stub is missing from this installation.
    """
    here = Path(__file__).parent
    for folder in (here / "stubs", here.parents[1] / "tutorials" / "exercises"):
        if (path := folder / f"{name}.py").is_file():
            return path
    raise MinitxError(f"The stub of exercise {name!r} is missing from this installation of minitx.")
