"""A grade in words, and in Gradescope's JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from minitx.grading.grader import Grade, PartResult
from minitx.grading.wire import Opaque

WIDTH = 96
LONGEST = 600  # characters of a value


def number(value: float) -> str:
    """Points without a needless ``.0``."""
    return f"{value:g}"


def show(value: Any) -> str:
    """A value as a student would type it; arrays with shape and dtype."""
    if isinstance(value, Opaque):
        return f"<{value.type_name}>"
    if isinstance(value, np.ndarray):
        value = value + 0.0 if value.dtype.kind == "f" else value  # no -0.
        text = np.array2string(
            value, precision=5, suppress_small=True, separator=", ", threshold=60
        )
        return f"{text}   shape {value.shape}, {value.dtype}"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    if len(text) > LONGEST:
        size = f" ({len(value)} entries)" if hasattr(value, "__len__") else ""
        return f"{text[: LONGEST // 3]} ...{size}"
    return text


def _labelled(label: str, value: str, width: int) -> str:
    head = f"      {label:<{width}}  "
    return head + value.replace("\n", "\n" + " " * len(head))


def part_in_words(result: PartResult, parameters: Sequence[str] = ()) -> str:
    """What is wrong with a part: sentence, smallest failing input, answer, expected, hint."""
    lines = [_wrap(result.what, "      ")]
    example = result.example
    if example is not None:
        names = [f"{name} =" for name in parameters]
        width = max(map(len, [*names, "your answer", "expected"]))
        lines.append("      smallest failing input:")
        for name, value in zip(names, example.arguments, strict=False):
            lines.append(_labelled(name, show(value), width))
        if not example.error and example.error_type != "manners":
            lines.append(_labelled("your answer", show(example.got), width))
        if example.error_type != "manners":
            lines.append(_labelled("expected", show(example.expected), width))
    if result.printed:
        lines.append(_labelled("it printed", result.printed.rstrip(), len("it printed")))
    if result.hint:
        lines.append(_wrap(result.hint, "      "))
    return "\n".join(lines)


def _wrap(text: str, indent: str) -> str:
    text = text[:1].upper() + text[1:]  # sentences that begin with a name put it in `backticks`
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def in_words(grade: Grade, colour: bool = False) -> str:
    """The whole report of one exercise."""

    def paint(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if colour else text

    exercise = grade.exercise
    head = f"{exercise.name}: {number(grade.points)} of {number(exercise.points)} points"
    lines = [paint(head, "1")]
    if grade.fault:
        lines.append(_wrap(grade.fault, "  "))
        return "\n".join(lines)
    said: dict[str, str] = {}  # hint or sentence -> the part that it was first said of
    for result in grade.parts:
        part = result.part
        score = f"({number(result.points)}/{number(part.points)})"
        if result.passed:
            lines.append(f"  {paint('ok', '32')}    {part.name} {score}: {result.what}")
            continue
        lines.append(f"  {paint('wrong', '31')} {part.name} {score}")
        key = result.hint or result.what
        if key in said:
            lines.append(f"      The same as in {said[key]!r}.")
            continue
        said[key] = part.name
        lines.append(part_in_words(result, exercise.function_of(part).parameters))
    return "\n".join(lines)


def gradescope(grades: Sequence[Grade]) -> dict[str, Any]:
    """Gradescope's ``results.json``: one test a part, all visible to the student."""
    tests = []
    for grade in grades:
        for place, result in enumerate(grade.parts, 1):
            part = result.part
            if grade.fault:
                output = grade.fault
            elif result.passed:
                output = result.what
            else:
                parameters = grade.exercise.function_of(part).parameters
                output = textwrap.dedent(part_in_words(result, parameters))
            tests.append(
                {
                    "name": f"{grade.exercise.name}: {part.name}",
                    "number": f"{grade.exercise.level}.{place}",
                    "score": result.points,
                    "max_score": part.points,
                    "status": "passed" if result.passed else "failed",
                    "output": output,
                    "output_format": "text",
                    "visibility": "visible",
                }
            )
    return {
        "score": sum(test["score"] for test in tests),
        "output": f"{sum(g.passed for g in grades)} of {len(grades)} exercises are complete.",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }
