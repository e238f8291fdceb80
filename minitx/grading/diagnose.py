"""What is wrong with an answer, and which known mistake explains it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.grading.exercise import Function, Part
from minitx.grading.wire import Opaque

NUMBERS = (int, float, np.number, np.bool_)


@dataclass
class Observation:
    """One call of the student's function; ``error`` is a sentence if it raised an exception."""

    arguments: tuple
    expected: Any
    got: Any = None
    error: str = ""
    error_type: str = ""
    failure: str = ""


def tolerance(values: Any) -> tuple[float, float]:
    """Relative and absolute tolerance: wider if any of the arrays is single precision or less."""
    single = any(
        isinstance(v, (np.ndarray, np.generic)) and v.dtype.kind == "f" and v.dtype.itemsize <= 4
        for v in values
    )
    return (1e-4, 1e-5) if single else (1e-6, 1e-8)


def type_in_words(value: Any) -> str:
    """``None``, ``a list``, ``an array of shape (2, 3)``, ..."""
    if value is None:
        return "None (is a return statement missing?)"
    if isinstance(value, Opaque):
        return f"{'an' if value.type_name[:1] in 'aeiou' else 'a'} {value.type_name}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, (bool, int, float, np.generic)):
        return "a single number"
    name = type(value).__name__
    return (
        f"a {name} of length {len(value)}"
        if isinstance(value, (list, tuple, dict))
        else f"a {name}"
    )


def wrong_kind(expected: Any, got: Any) -> str | None:
    """A sentence if type or shape of an answer is not the expected one."""
    if isinstance(expected, np.ndarray):
        wanted = f"an array of shape {expected.shape}"
        if not isinstance(got, np.ndarray) and not (
            expected.ndim == 0 and isinstance(got, NUMBERS) and not isinstance(got, str)
        ):
            return f"it returned {type_in_words(got)}; expected {wanted}"
        if np.shape(got) != expected.shape:
            return f"it returned an array of shape {np.shape(got)}; expected {wanted}"
    elif isinstance(expected, (int, float)):
        scalar = isinstance(got, NUMBERS) or (isinstance(got, np.ndarray) and got.ndim == 0)
        if not scalar:
            return f"it returned {type_in_words(got)}; expected a single number"
    if np.asarray(got).dtype.kind == "c":
        return "it returned complex numbers; expected real ones"
    return None


def close(expected: Any, got: Any, arguments: Sequence[Any] = ()) -> bool:
    """Whether two answers agree: same structure, numbers within the tolerance, NaN equal to NaN."""
    if isinstance(expected, (np.ndarray, *NUMBERS)):
        if not isinstance(got, (np.ndarray, *NUMBERS)) or np.shape(got) != np.shape(expected):
            return False
        rtol, atol = tolerance([*arguments, expected])
        return bool(np.allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True))
    return type(expected) is type(got) and expected == got


def unchanged(before: Any, after: Any) -> bool:
    """Whether an argument is the same after the call."""
    if isinstance(before, np.ndarray):
        return (
            isinstance(after, np.ndarray)
            and before.dtype == after.dtype
            and np.array_equal(before, after, equal_nan=before.dtype.kind == "f")
        )
    return type(before) is type(after) and before == after


def likely_mistake(function: Function, part: Part, seen: Sequence[Observation]) -> str:
    """A sentence: the known mistake that agrees with everything seen, else a general hint."""
    failing = [o for o in seen if o.failure]
    for observed in (list(seen), failing if len(failing) >= 3 else []):
        for mistake in function.mistakes:
            if observed and _explains(mistake.wrong, function, observed):
                return f"Likely mistake: {mistake.hint}"
    if general := _general(seen, failing):
        return f"Likely mistake: {general}"
    return f"Hint: {part.hint}" if part.hint else ""


def _explains(wrong: Any, function: Function, seen: Sequence[Observation]) -> bool:
    differs = False
    for o in seen:
        try:
            with np.errstate(all="ignore"):
                answer = wrong(*deepcopy(o.arguments))
        except Exception:
            answer = Opaque("error")
        if isinstance(answer, Opaque) or o.error:
            if not (isinstance(answer, Opaque) and o.error):
                return False
        elif not close(answer, o.got, o.arguments):
            return False
        right = function.judge(o.arguments, answer) is None if function.judge else None
        if right is None:
            right = close(o.expected, answer, o.arguments)
        differs = differs or not right
    return differs


def _general(seen: Sequence[Observation], failing: Sequence[Observation]) -> str:
    """Hints that hold for any exercise."""
    if any(o.error_type == "RecursionError" for o in failing):
        return ""  # the part knows better
    answers = [
        (np.asarray(o.expected, float), np.asarray(o.got, float), o.arguments)
        for o in failing
        if not o.error
        and isinstance(o.expected, (np.ndarray, float))
        and isinstance(o.got, (np.ndarray, *NUMBERS))
        and np.shape(o.got) == np.shape(o.expected)
        and np.asarray(o.got).dtype.kind != "c"
    ]
    if len(answers) < len(failing) or not answers:
        return ""
    if any(np.isnan(got).any() and not np.isnan(right).any() for right, got, _ in answers):
        return "NaN comes from 0 / 0, inf - inf or log(0): look for a row where that can happen."
    if any(np.isinf(got).any() and not np.isinf(right).any() for right, got, _ in answers):
        return "inf comes from dividing by zero or from exp of a large number."
    if len(answers) >= 2 and all(close(right, -got, a) for right, got, a in answers):
        return "the sign is wrong: your answer is minus the right one."
    if len(answers) >= 2 and (factor := _factor(answers)):
        return f"your answer is {factor:.4g} times the right one, everywhere."
    if _square_only(seen):
        return "it is right for square arrays only: rows and columns are mixed up somewhere."
    return ""


def _factor(answers: Sequence[tuple]) -> float | None:
    right, got, _ = max(answers, key=lambda a: np.abs(a[0]).max(initial=0.0))
    if not right.size or np.abs(right).max() == 0 or not np.isfinite(right).all():
        return None
    largest = np.unravel_index(np.abs(right).argmax(), right.shape)
    factor = float(got[largest] / right[largest])
    if not all(close(factor * right, got, a) for right, got, a in answers):
        return None
    return factor


def _square_only(seen: Sequence[Observation]) -> bool:
    """All failures have a first argument that is not square, and square ones pass."""
    shapes: dict[bool, set] = {True: set(), False: set()}  # failed -> shapes
    for o in seen:
        if not isinstance(o.arguments[0], np.ndarray) or o.arguments[0].ndim < 2:
            return False
        shapes[bool(o.failure)].add(o.arguments[0].shape[-2:])
    square = {failed: [a == b for a, b in pairs] for failed, pairs in shapes.items()}
    passed_square = any(a == b > 1 for a, b in shapes[False])
    return bool(square[True]) and not any(square[True]) and all(square[False]) and passed_square
