"""Grade a file: run each part's inputs through the student's function and compare the answers.

Inputs are drawn and shrunk by Hypothesis, and compared, in this process; the student's code runs in
another (``sandbox.py``) and sees nothing but inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minitx.errors import MinitxError
from minitx.grading import diagnose
from minitx.grading.diagnose import Observation
from minitx.grading.exercise import Exercise, Function, Part
from minitx.grading.sandbox import Child, ChildFault, Limits

SEARCH_SECONDS = 30.0  # for a part's inputs
SHRINK_SECONDS = 4.0  # for making a counterexample smaller
PROBES = 12  # more calls, to tell one mistake from another
KEPT = 40  # calls of a search that are kept for the same purpose
MAX_BYTES = 200_000  # of a student's file


@dataclass
class PartResult:
    """How a part went: ``what`` is one sentence, ``example`` the smallest failing input."""

    part: Part
    function: str = ""
    passed: bool = False
    what: str = ""
    hint: str = ""
    example: Observation | None = None
    printed: str = ""

    @property
    def points(self) -> float:
        return self.part.points if self.passed else 0


@dataclass
class Grade:
    """How an exercise went. ``fault`` says what kept the whole file from being tried."""

    exercise: Exercise
    file: str
    parts: list[PartResult] = field(default_factory=list)
    fault: str = ""
    started: bool = True

    @property
    def points(self) -> float:
        return sum(result.points for result in self.parts)

    @property
    def passed(self) -> bool:
        return not self.fault and all(result.passed for result in self.parts)


class _Wrong(Exception):
    """A failing example, for Hypothesis."""


class _Stop(BaseException):
    """Ends a search at once; Hypothesis lets it through."""


def grade(exercise: Exercise, file: Path, seed: int = 0, limits: Limits | None = None) -> Grade:
    """Grade one file.

    Parameters
    ----------
    exercise : Exercise
    file : Path
    seed : int
        The same seed draws the same inputs.
    limits : Limits, optional
        Time and memory for the student's process.

    Returns
    -------
    Grade
        Never raises for what the student's code does.

    Raises
    ------
    MinitxError
        If the file cannot be read.
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise MinitxError(f"Cannot read {file}: {reason}.") from None
    if len(raw) > MAX_BYTES:
        return _all_wrong(exercise, file, f"{file.name} is larger than {MAX_BYTES // 1000} kB.")
    try:
        source = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _all_wrong(exercise, file, f"{file.name} is not a text file in UTF-8.")
    with Child(source, file.name, limits) as child:
        if fault := _load_fault(child, exercise, source):
            return _all_wrong(exercise, file, fault)
        result = Grade(exercise, file.name)
        missing = {f.name: _signature_fault(child, f, file.name) for f in exercise.functions}
        slow = 0
        for number, part in enumerate(exercise.parts):
            function = exercise.function_of(part)
            outcome = PartResult(part, function.name, what=missing[function.name])
            if not outcome.what and slow >= 2:
                outcome.what = "not tried, because earlier parts ran out of time."
            elif not outcome.what:
                examiner = _Examiner(child, function, part, source)
                outcome = examiner.examine(seed * 1000 + number)
                slow += examiner.ran_out
            result.parts.append(outcome)
        return result


def _all_wrong(exercise: Exercise, file: Path, fault: str) -> Grade:
    parts = [PartResult(part, what="not tried.") for part in exercise.parts]
    return Grade(exercise, file.name, parts, fault)


def _load_fault(child: Child, exercise: Exercise, source: str) -> str:
    try:
        reply = child.ask("load")
    except ChildFault as fault:
        return f"The file cannot be loaded: {fault}"
    if "error" in reply:
        return f"The file cannot be loaded: {_error_sentence(reply, source)}"
    return ""


def _signature_fault(child: Child, function: Function, filename: str) -> str:
    wanted = f"{function.name}({', '.join(function.parameters)})"
    try:
        reply = child.ask("signature", function=function.name, arguments=len(function.parameters))
        found = child.loaded.get("functions", [])
    except ChildFault as fault:
        return f"the file cannot be loaded: {fault}"
    if "error" in reply:
        return "the file does something with its functions that the grader cannot follow."
    if not reply.get("found"):
        have = f" It has {', '.join(map(str, found[:6]))}." if found else ""
        return f"`{filename}` has no function `{function.name}`; keep the stub's name.{have}"
    if not reply.get("fits"):
        have = f"{function.name}({', '.join(map(str, reply.get('parameters', [])))})"
        return f"the signature was changed: it is {have}, and is called as {wanted}."
    return ""


def _error_sentence(reply: dict[str, Any], source: str) -> str:
    kind, message, line = reply["error"], str(reply.get("message", "")).strip(), reply.get("line")
    lines = source.splitlines()
    where = ""
    if isinstance(line, int) and 0 < line <= len(lines):
        where = f" in line {line}, `{lines[line - 1].strip()[:80]}`"
    if kind == "SystemExit":
        return f"the code calls sys.exit (or exit, quit){where}; return instead."
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        return f"it is not valid Python: {message}{where}."
    if kind in ("ModuleNotFoundError", "ImportError") and reply.get("name"):
        if str(reply["name"]).split(".")[0] == "minitx":
            return "it imports minitx, which is not there while grading: write it with NumPy alone."
        return (
            f"it imports {reply['name']!r}, which is not there while grading: NumPy and the "
            "standard library are."
        )
    if kind == "MemoryError":
        return f"the code needs more memory than it may use{where}."
    return f"the code raises {kind}{where}" + (f": {message.rstrip('.')}." if message else ".")


class _Examiner:
    """Looks for the smallest input on which one function fails one part."""

    def __init__(self, child: Child, function: Function, part: Part, source: str) -> None:
        self.child, self.function, self.part, self.source = child, function, part, source
        self.ran_out = False
        self.last: tuple[str, Observation, str] | None = None
        self.smallest: tuple[tuple, str, Observation, str] | None = None
        self.seen: list[Observation] = []

    def examine(self, seed: int) -> PartResult:
        """Search, then diagnose."""
        part = self.part
        result = PartResult(part, self.function.name)
        self.deadline = time.monotonic() + SEARCH_SECONDS
        flaky = False
        try:
            flaky = _search(part.inputs(), self._trial, part.examples, seed)
        except _Stop:
            if self.smallest is not None:
                self.last = self.smallest[1:]
        if flaky:
            result.what = "the same input gives different answers from one call to the next."
            result.hint = (
                "Hint: the answer must depend on the arguments alone: nothing random, no memory."
            )
        elif self.last is None and not self.ran_out:
            result.passed, result.what = True, part.tells
        elif self.last is None:
            result.what = (
                f"too slow: the part's inputs took longer than {SEARCH_SECONDS:g} seconds."
            )
            result.hint = part.timeout_hint and f"Likely mistake: {part.timeout_hint}"
        else:
            result.what, result.example, result.printed = self.last
            result.hint = self._hint(result.example, seed)
            if result.example.error_type == "NotImplementedError":
                result.example = None
        return result

    def _hint(self, example: Observation, seed: int) -> str:
        if example.error_type == "fault":
            slow = self.part.timeout_hint if self.ran_out else ""
            return slow and f"Likely mistake: {slow}"
        if example.error_type in ("NotImplementedError", "manners", "SystemExit", "MemoryError"):
            return ""
        if not self.part.known_mistakes:
            return f"Hint: {self.part.hint}"
        seen = [example, *self.seen]
        self.deadline = time.monotonic() + SHRINK_SECONDS

        def probe(arguments: tuple) -> None:
            if time.monotonic() > self.deadline:
                raise _Stop
            seen.append(self._observe(arguments)[0])

        with suppress(_Stop, ChildFault):
            _search(self.part.inputs(), probe, PROBES, seed + 1)
        return diagnose.likely_mistake(self.function, self.part, seen)

    def _trial(self, arguments: tuple) -> None:
        if time.monotonic() > self.deadline:
            self.ran_out = self.last is None
            raise _Stop
        try:
            seen, printed = self._observe(arguments)
        except ChildFault as fault:
            self.ran_out = fault.kind == "timeout"
            expected = self.function.reference(*deepcopy(arguments))
            seen = Observation(arguments, expected, error=str(fault), error_type="fault")
            self._remember(str(fault), seen, "")
            raise _Stop from None
        if len(self.seen) < KEPT:
            self.seen.append(seen)
        if seen.failure:
            if self.last is None:
                self.deadline = time.monotonic() + SHRINK_SECONDS
            self._remember(seen.failure, seen, printed)
            if seen.error_type == "MemoryError":  # slow to reach, and no smaller input helps
                raise _Stop
            raise _Wrong

    def _remember(self, what: str, seen: Observation, printed: str) -> None:
        self.last = (what, seen, printed)
        size = _size(seen.arguments)
        if self.smallest is None or size <= self.smallest[0]:
            self.smallest = (size, *self.last)

    def _observe(self, arguments: tuple) -> tuple[Observation, str]:
        """Call the student's function once and say what is wrong with the answer."""
        with np.errstate(all="ignore"):
            expected = self.function.reference(*deepcopy(arguments))
        reply = self.child.ask("call", function=self.function.name, arguments=list(arguments))
        seen = Observation(arguments, expected, reply.get("result"))
        printed = str(reply.get("printed", ""))[:500]
        if "error" in reply:
            seen.error_type = str(reply["error"])
            seen.error = seen.failure = self._raised(reply)
        elif reply.get("moved_random_state"):
            seen.error_type = "manners"
            seen.failure = (
                "it changes the global random state (np.random.seed, np.random.rand, random.random "
                "or the like); no randomness is needed here."
            )
        else:
            seen.failure = self._judge(seen, reply) or ""
        return seen, printed

    def _raised(self, reply: dict[str, Any]) -> str:
        if reply["error"] == "NotImplementedError":
            return f"`{self.function.name}` is not written yet (it raises NotImplementedError)."
        return _error_sentence(reply, self.source)

    def _judge(self, seen: Observation, reply: dict[str, Any]) -> str | None:
        part, expected, got = self.part, seen.expected, seen.got
        if self.function.judge:
            wrong = self.function.judge(seen.arguments, got)
        else:
            wrong = diagnose.wrong_kind(expected, got)
            if not wrong:
                see = part.view or (lambda answer: answer)
                if not diagnose.close(see(expected), see(got), seen.arguments):
                    piece = f" ({part.view_name})" if part.view_name else ""
                    wrong = f"the answer{piece} is wrong"
        if wrong:
            return wrong.rstrip(".") + "."
        if part.keeps_dtype and np.asarray(got).dtype != np.asarray(expected).dtype:
            seen.error_type = "manners"
            return (
                f"the numbers are right, but {np.asarray(expected).dtype} inputs give a "
                f"{np.asarray(got).dtype} answer: keep the dtype (a Python float does, "
                "np.float64 does not)."
            )
        if part.leaves_inputs:
            after = reply.get("after")
            after = after if isinstance(after, list) else []
            for name, before, now in zip(
                self.function.parameters, seen.arguments, after, strict=False
            ):
                if not diagnose.unchanged(before, now):
                    seen.error_type = "manners"
                    return (
                        f"the answer is right, but the argument {name!r} is changed in place "
                        "(+=, out=, item assignment, pop): work on a new object."
                    )
        return None


def _size(value: Any) -> tuple[int, float]:
    """How large arguments are: number of entries, then the sum of their sizes."""
    if isinstance(value, np.ndarray):
        return value.size, float(np.abs(value).sum())
    if isinstance(value, (list, tuple, dict)):
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        sizes = [_size(item) for item in items]
        return sum(s[0] for s in sizes), sum(s[1] for s in sizes)
    return 1, float(abs(value)) if isinstance(value, (int, float)) else 0.0


def _search(strategy: Any, trial: Callable[[tuple], None], examples: int, seed: int) -> bool:
    """Run ``trial`` on drawn arguments; the last call that raised ``_Wrong`` had the smallest.

    Returns whether the same arguments sometimes failed and sometimes did not.
    """
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity, errors, reporting

    options = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
    )

    @hypothesis.seed(seed)
    @options
    @hypothesis.given(strategy)
    def run(arguments):
        trial(arguments)

    with reporting.with_reporter(lambda *_: None):
        try:
            run()
        except _Wrong:
            return False
        except errors.Flaky:
            return True
    return False
