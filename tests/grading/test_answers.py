"""The grader against wrong answers that students would write, and right ones written differently.

``answers/NAME/wrong_*.py`` begin with what the report must say and which parts must fail (the
others must pass: each part isolates one mechanism); ``right_*.py`` must get all the points.
"""

import os
from pathlib import Path

import pytest

from minitx.grading.exercise import exercise, exercises
from minitx.grading.grader import grade
from minitx.grading.report import in_words

ANSWERS = Path(__file__).parent / "answers"
FILES = sorted(ANSWERS.glob("*/*.py"))
RIGHT = [f for f in FILES if f.stem.startswith("right_")]
WRONG = [f for f in FILES if f.stem.startswith("wrong_")]
MORE_SEEDS = range(1, 20)  # with seed 0: twenty
# For the wrong ones all twenty take half an hour: MINITX_SWEEP=20 asks for them.
WRONG_SEEDS = range(1, int(os.environ.get("MINITX_SWEEP", "4")))
AT_ONCE = 5  # wrong answers of an exercise in the quick run (and one right); the slow run has all


def _label(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def _quick_first(files: list[Path], quick: int) -> list:
    """The files as parameters, all but the first few of each exercise marked slow."""
    places = [
        sum(other.parent == file.parent for other in files[:i]) for i, file in enumerate(files)
    ]
    return [
        pytest.param(file, id=_label(file), marks=[pytest.mark.slow] if place >= quick else [])
        for file, place in zip(files, places, strict=True)
    ]


def _promises(file: Path, key: str) -> list[str]:
    start = f"# {key}: "
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def _names(file: Path, key: str) -> set[str]:
    return {name.strip() for line in _promises(file, key) for name in line.split(",")} - {""}


def _check_wrong(file: Path, seed: int) -> None:
    result = grade(exercise(file.parent.name), file, seed)
    words = " ".join(in_words(result).split()).lower()
    assert not result.fault
    failed = {part.part.name for part in result.parts if not part.passed}
    assert failed - _names(file, "may fail") == _names(file, "fails"), words
    assert not result.passed and result.points < result.exercise.points
    assert _promises(file, "says")
    for sentence in _promises(file, "says"):
        assert sentence.lower() in words, words
    assert "traceback" not in words


@pytest.mark.parametrize("file", _quick_first(WRONG, AT_ONCE))
def test_wrong_answer_is_rejected_and_its_mistake_named(file):
    _check_wrong(file, seed=0)


@pytest.mark.parametrize("file", _quick_first(RIGHT, 1))
def test_right_answer_gets_all_points(file):
    result = grade(exercise(file.parent.name), file, 0)
    assert result.passed and result.points == result.exercise.points, in_words(result)


@pytest.mark.slow
@pytest.mark.parametrize("file", WRONG, ids=_label)
def test_wrong_answer_is_rejected_by_every_seed(file):
    for seed in WRONG_SEEDS:
        _check_wrong(file, seed)


@pytest.mark.slow
@pytest.mark.parametrize("file", RIGHT, ids=_label)
def test_right_answer_is_accepted_by_every_seed(file):
    for seed in MORE_SEEDS:
        result = grade(exercise(file.parent.name), file, seed)
        assert result.passed, in_words(result)


def test_every_exercise_has_enough_answers():
    assert {file.parent.name for file in FILES} == set(exercises())
    for name in exercises():
        assert sum(file.parent.name == name for file in WRONG) >= 5
        assert sum(file.parent.name == name for file in RIGHT) >= 2
