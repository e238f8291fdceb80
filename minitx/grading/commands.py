"""What ``minitx exercises`` and ``minitx grade`` do; ``minitx/cli.py`` only parses and prints.

Each function raises `MinitxError` on wrong usage (exit code 2 of the command line).
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from minitx.errors import MinitxError, unknown
from minitx.grading.exercise import Exercise, exercise, exercises, stub_path

if TYPE_CHECKING:
    from minitx.grading.grader import Grade

PROGRESS = ".minitx-progress.json"  # points of the last grading, beside the student's files


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _read_progress(folder: Path) -> dict[str, dict]:
    try:
        stored = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _write_progress(folder: Path, grades: list[Grade]) -> None:
    """Remember points for the list of exercises, if the folder can be written."""
    progress = _read_progress(folder)
    for grade in grades:
        file = folder / grade.file
        if grade.started and file.is_file() and file.stem == grade.exercise.name:
            progress[grade.exercise.name] = {"points": grade.points, "sha256": _digest(file)}
    try:
        text = json.dumps(progress, indent=1, sort_keys=True)
        (folder / PROGRESS).write_text(text + "\n", encoding="utf-8")
    except OSError:
        pass


def _state(each: Exercise, folder: Path, progress: dict[str, dict]) -> tuple[str, float | None]:
    file = folder / f"{each.name}.py"
    if not file.is_file():
        return "not started", None
    last = progress.get(each.name)
    if isinstance(last, dict) and isinstance(last.get("points"), (int, float)):
        if last.get("sha256") == _digest(file):
            return "done" if last["points"] == each.points else "graded", last["points"]
        return "changed since it was graded", last["points"]
    return "not graded", None


def list_exercises(folder: Path = Path()) -> list[dict]:
    """The exercises from easy to hard, with this folder's progress.

    Parameters
    ----------
    folder : Path
        Where the student works.

    Returns
    -------
    list of dict
        ``name``, ``title``, ``points``, ``earned`` (None if never graded) and ``state``.
    """
    progress = _read_progress(folder)
    rows = []
    for each in exercises().values():
        state, earned = _state(each, folder, progress)
        row = {"name": each.name, "title": each.title, "points": each.points}
        rows.append({**row, "earned": earned, "state": state})
    return rows


def exercises_in_words(folder: Path = Path()) -> str:
    """The table that ``minitx exercises`` prints."""
    rows = list_exercises(folder)
    width = max(len(row["name"]) for row in rows)
    title = max(len(row["title"]) for row in rows)
    lines = []
    for row in rows:
        points = f"{'-' if row['earned'] is None else format(row['earned'], 'g')}/{row['points']:g}"
        lines.append(
            f"  {row['name']:<{width}}  {row['title']:<{title}}  {points:>6}  {row['state']}"
        )
    earned = sum(row["earned"] or 0 for row in rows)
    total = sum(row["points"] for row in rows)
    lines.append(f"\n  {earned:g} of {total:g} points in this folder.")
    lines.append("  Begin with: minitx exercises start NAME      Check with: minitx grade NAME")
    return "\n".join(lines)


def start(name: str, folder: Path = Path()) -> list[Path]:
    """Copy the stub of an exercise (or of ``all``) into a folder; never overwrites.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    MinitxError
        If the exercise is unknown, its file exists already (for ``all``: every file does), or the
        folder cannot be written.
    """
    names = list(exercises()) if name == "all" else [exercise(_stem(name)).name]
    written = []
    for each in names:
        target = folder / f"{each}.py"
        source = stub_path(each).read_text(encoding="utf-8")
        try:
            with target.open("x", encoding="utf-8") as stream:  # "x" fails if it exists
                stream.write(source)
        except FileExistsError:
            if name == "all":
                continue
            raise MinitxError(
                f"{target} exists already and is left as it is; move it away to start afresh."
            ) from None
        except OSError as error:
            raise MinitxError(f"Cannot write {target}: {error.strerror}.") from None
        written.append(target)
    if not written:
        raise MinitxError(f"All exercises are in {folder} already; nothing was written.")
    return written


def _stem(name: str) -> str:
    return name.removesuffix(".py")


def _find(name: str | None, target: Path | None) -> list[tuple[Exercise, Path]]:
    """Which exercises to grade, in which files."""
    if name is None:
        target = target or Path()
    elif name != "all" and _stem(name) not in exercises():
        if target is not None:
            raise unknown("exercise", name, [*exercises(), "all"])
        path = Path(name)  # ``minitx grade FOLDER`` or ``minitx grade some/NAME.py``
        if not path.exists():
            raise unknown("exercise, and no file or folder:", name, exercises())
        name, target = (None, path) if path.is_dir() else (path.stem, path)
    target = target or Path()
    if name in (None, "all"):
        if not target.is_dir():
            raise MinitxError(
                f"{target} is not a folder; to grade one file: minitx grade NAME FILE."
            )
        return [(each, target / f"{each.name}.py") for each in exercises().values()]
    wanted = exercise(_stem(name))
    file = target / f"{wanted.name}.py" if target.is_dir() else target
    if not file.is_file():
        raise MinitxError(
            f"There is no file {file}; begin with: minitx exercises start {wanted.name}."
        )
    return [(wanted, file)]


def grade_files(
    name: str | None, target: Path | None, seed: int = 0, remember: bool = True
) -> list[Grade]:
    """Grade one file, or every exercise of a folder (one that was not started gets no points).

    Parameters
    ----------
    name : str or None
        An exercise; ``all`` or None for a folder. A path alone works too.
    target : Path or None
        A file or a folder; the working directory by default.
    seed : int
        The same seed draws the same inputs.
    remember : bool
        Whether to note the points in the folder, for the list of exercises.

    Raises
    ------
    MinitxError
        On wrong usage: unknown exercise, no such file, Hypothesis not installed.
    """
    from minitx.grading import draw  # noqa: F401  (says so if Hypothesis is missing)
    from minitx.grading.grader import Grade, PartResult, grade

    if seed < 0:
        raise MinitxError(f"--seed is {seed}; it must be 0 or more.")
    found = _find(name, target)
    # "all" grades an empty hand-in too (no points); without it, an empty folder is a slip.
    if name != "all" and len(found) > 1 and not any(file.is_file() for _, file in found):
        raise MinitxError(
            f"{found[0][1].parent} has no exercise in it; begin with: minitx exercises start NAME."
        )
    grades = []
    for each, file in found:
        if file.is_file():
            grades.append(grade(each, file, seed))
        else:
            parts = [PartResult(part, what="not started.") for part in each.parts]
            missing = f"There is no file {file.name}."
            grades.append(Grade(each, file.name, parts, missing, started=False))
    if remember:
        _write_progress(found[0][1].parent, grades)
    return grades


def run_grade(
    name: str | None = None,
    target: Path | None = None,
    seed: int = 0,
    json_file: Path | None = None,
    csv_file: Path | None = None,
    echo: Callable[[str], None] = print,
) -> int:
    """The command ``minitx grade``.

    A folder without exercises of its own but with subfolders that have some is a class: each
    subfolder is a student and gets one line.

    Returns
    -------
    int
        0 if everything passed, 1 if not.

    Raises
    ------
    MinitxError
        On wrong usage (exit code 2).
    """
    from minitx.grading import report

    students = _students(name, target)
    if students:
        if json_file is not None:
            raise MinitxError("--json is for one student; for a class use --csv FILE.")
        return _grade_class(students, seed, csv_file, echo)
    if csv_file is not None:
        raise MinitxError("--csv is for a folder of students' folders; for one student use --json.")
    grades = grade_files(name, target, seed)
    colour = echo is print and sys.stdout.isatty()
    echo("\n\n".join(report.in_words(grade, colour) for grade in grades))
    if len(grades) > 1:
        total = sum(grade.exercise.points for grade in grades)
        echo(f"\nTogether: {sum(grade.points for grade in grades):g} of {total:g} points.")
    if json_file is not None:
        _write(json_file, json.dumps(report.gradescope(grades), indent=1) + "\n")
    return 0 if all(grade.passed for grade in grades) else 1


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise MinitxError(f"Cannot write {file}: {error.strerror}.") from None


def _has_exercises(folder: Path) -> bool:
    return any((folder / f"{each}.py").is_file() for each in exercises())


def _students(name: str | None, target: Path | None) -> list[Path]:
    """The students' folders, if what is to be graded is a class."""
    if name is not None and name != "all" and _stem(name) not in exercises():
        target = target or Path(name)
        name = None
    if name not in (None, "all") or target is None or not target.is_dir() or _has_exercises(target):
        return []
    return sorted(path for path in target.iterdir() if path.is_dir() and _has_exercises(path))


def _grade_class(
    students: list[Path], seed: int, csv_file: Path | None, echo: Callable[[str], None]
) -> int:
    import io

    names = list(exercises())
    table, everything = io.StringIO(), True
    writer = csv.writer(table)
    writer.writerow(["student", *names, "points"])
    for folder in students:
        grades = grade_files("all", folder, seed, remember=False)
        everything &= all(grade.passed for grade in grades)
        points = [grade.points for grade in grades]
        writer.writerow([folder.name, *(f"{p:g}" for p in points), f"{sum(points):g}"])
        each = "  ".join(f"{n} {p:g}" for n, p in zip(names, points, strict=True))
        echo(f"{folder.name}: {sum(points):g} points  ({each})")
    if csv_file is not None:
        _write(csv_file, table.getvalue())
    return 0 if everything else 1
