"""``minitx exercises`` and ``minitx grade``: listing, starting, grading folders and classes."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from minitx.errors import MinitxError
from minitx.grading import commands
from minitx.grading.exercise import exercises, stub_path

ANSWERS = Path(__file__).parent / "answers"


def put(folder, name, answer):
    text = (ANSWERS / name / f"{answer}.py").read_text(encoding="utf-8")
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


def run(*arguments, **options):
    """Run ``minitx grade``: exit code and output."""
    said = []
    code = commands.run_grade(*arguments, echo=said.append, **options)
    return code, "\n".join(said)


def test_the_six_exercises_come_from_easy_to_hard():
    assert list(exercises()) == [
        "unbroadcast",
        "softmax_backward",
        "topological_order",
        "causal_attention",
        "sink_metric",
        "induction_score",
    ]


@pytest.mark.parametrize("name", list(exercises()))
def test_stub_says_its_points_and_place(name):
    text = stub_path(name).read_text(encoding="utf-8")
    each = exercises()[name]
    assert f"Exercise {each.level} of {len(exercises())}" in text
    assert f"{each.points:g} points" in text
    assert "raise NotImplementedError" in text and ">>>" in text
    for function in each.functions:
        assert f"def {function.name}(" in text


@pytest.mark.parametrize("name", list(exercises()))
def test_worked_example_of_the_stub_is_true(name):
    """Run the stub's docstrings with the reference in place of the function."""
    import doctest
    import types

    module = types.ModuleType(name)
    exec(compile(stub_path(name).read_text(encoding="utf-8"), name, "exec"), module.__dict__)
    scope = {**module.__dict__, **{f.name: f.reference for f in exercises()[name].functions}}
    ran = 0
    for function in exercises()[name].functions:
        document = module.__dict__[function.name].__doc__
        test = doctest.DocTestParser().get_doctest(document, dict(scope), name, name, 0)
        said = []
        result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
        assert result.failed == 0, "".join(said)
        ran += result.attempted
    assert ran >= 2


def test_listing_shows_progress(tmp_path):
    assert {row["state"] for row in commands.list_exercises(tmp_path)} == {"not started"}
    commands.start("unbroadcast", tmp_path)
    commands.start("softmax_backward.py", tmp_path)
    put(tmp_path, "sink_metric", "right_vectorised")
    run("unbroadcast", tmp_path)
    run("sink_metric", tmp_path / "sink_metric.py")
    rows = {row["name"]: row for row in commands.list_exercises(tmp_path)}
    assert (rows["unbroadcast"]["state"], rows["unbroadcast"]["earned"]) == ("graded", 0)
    assert (rows["sink_metric"]["state"], rows["sink_metric"]["earned"]) == ("done", 10)
    assert (rows["softmax_backward"]["state"], rows["softmax_backward"]["earned"]) == (
        "not graded",
        None,
    )
    (tmp_path / "sink_metric.py").write_text("# start again\n")
    assert "changed since it was graded" in commands.exercises_in_words(tmp_path)
    assert "10 of 60 points" in commands.exercises_in_words(tmp_path)


@pytest.mark.parametrize(
    "nonsense", ["", "[1]", '{"unbroadcast": 3}', '{"unbroadcast": {"points": "x"}}']
)
def test_progress_file_of_someone_else_is_ignored(tmp_path, nonsense):
    (tmp_path / commands.PROGRESS).write_text(nonsense)
    (tmp_path / "unbroadcast.py").write_text("")
    assert "0 of 60 points" in commands.exercises_in_words(tmp_path)


def test_start_never_overwrites(tmp_path):
    (path,) = commands.start("unbroadcast", tmp_path)
    assert path.read_bytes() == stub_path("unbroadcast").read_bytes()
    path.write_text("mine")
    with pytest.raises(MinitxError, match="exists already"):
        commands.start("unbroadcast", tmp_path)
    assert len(commands.start("all", tmp_path)) == 5
    assert path.read_text() == "mine"
    with pytest.raises(MinitxError, match="nothing was written"):
        commands.start("all", tmp_path)
    with pytest.raises(MinitxError, match="Known: "):
        commands.start("unbrodcast", tmp_path)
    with pytest.raises(MinitxError, match="Cannot write"):
        commands.start("unbroadcast", tmp_path / "nowhere")


def test_exit_codes_and_gradescope_json(tmp_path):
    put(tmp_path, "softmax_backward", "wrong_mean_for_sum")
    results = tmp_path / "results.json"
    code, said = run("softmax_backward", tmp_path / "softmax_backward.py", json_file=results)
    assert code == 1 and "Likely mistake" in said
    written = json.loads(results.read_text())
    assert written["score"] == 0
    assert sum(test["max_score"] for test in written["tests"]) == 10
    for test in written["tests"]:
        assert test["status"] == "failed" and test["score"] == 0
        assert "mean of g * y" in " ".join(test["output"].split())
        assert isinstance(test["name"], str) and test["visibility"] == "visible"
    put(tmp_path, "softmax_backward", "right_formula")
    code, said = run("softmax_backward", tmp_path, json_file=results)
    assert code == 0 and "10 of 10 points" in said
    written = json.loads(results.read_text())
    assert written["score"] == 10 and {t["status"] for t in written["tests"]} == {"passed"}


def test_a_folder_grades_all_of_its_exercises(tmp_path):
    put(tmp_path, "softmax_backward", "right_formula")
    (tmp_path / "unbroadcast.py").write_text("def unbroadcast(grad, shape) return grad\n")
    code, said = run(str(tmp_path), None)
    assert code == 1
    assert "Together: 10 of 60 points" in said and "not valid Python" in said
    assert "There is no file causal_attention.py" in said
    assert run("all", tmp_path)[1] == said


def test_an_empty_hand_in_gets_no_points_but_a_result(tmp_path):
    results = tmp_path / "results.json"
    code, said = run("all", tmp_path, json_file=results)
    written = json.loads(results.read_text())
    assert code == 1 and "0 of 60 points" in said
    assert written["score"] == 0 and sum(test["max_score"] for test in written["tests"]) == 60


def test_a_file_alone_is_graded_by_its_name(tmp_path):
    put(tmp_path, "unbroadcast", "right_loop")
    assert run(str(tmp_path / "unbroadcast.py"), None)[0] == 0
    other = tmp_path / "solution.py"
    other.write_text((tmp_path / "unbroadcast.py").read_text())
    assert run("unbroadcast", other)[0] == 0


def test_a_class_is_graded_in_one_go(tmp_path):
    for student, answer in (("ada", "right_formula"), ("bob", "wrong_no_coupling")):
        (tmp_path / student).mkdir()
        put(tmp_path / student, "softmax_backward", answer)
    table = tmp_path / "grades.csv"
    code, said = run(str(tmp_path), None, csv_file=table)
    assert code == 1 and "ada: 10 points" in said and "bob: 0 points" in said
    assert not list(tmp_path.glob("*/.*"))  # students' folders are left as they were handed in
    rows = list(csv.DictReader(table.open()))
    assert [(row["student"], row["points"]) for row in rows] == [("ada", "10"), ("bob", "0")]


@pytest.mark.parametrize(
    ("name", "target", "sentence"),
    [
        ("softmax_backwards", None, "Did you mean 'softmax_backward'"),
        ("softmax_backwards", "softmax_backward.py", "Did you mean 'softmax_backward'"),
        ("unbroadcast", None, "begin with: minitx exercises start unbroadcast"),
        ("unbroadcast", "nothing.py", "There is no file"),
        (None, None, "has no exercise in it"),
        ("all", "nothing", "is not a folder"),
    ],
)
def test_wrong_usage(tmp_path, monkeypatch, name, target, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MinitxError, match=sentence):
        run(name, Path(target) if target else None)


def test_wrong_options(tmp_path):
    put(tmp_path, "softmax_backward", "right_formula")
    with pytest.raises(MinitxError, match="Cannot write"):
        run("softmax_backward", tmp_path, json_file=tmp_path / "no" / "results.json")
    with pytest.raises(MinitxError, match="--csv is for a folder of students"):
        run("softmax_backward", tmp_path, csv_file=tmp_path / "grades.csv")
    with pytest.raises(MinitxError, match="--seed"):
        run("softmax_backward", tmp_path, seed=-1)


def test_without_hypothesis_exercises_are_listed_and_grading_says_what_is_missing(tmp_path):
    code = """
import sys
sys.modules["hypothesis"] = None
from pathlib import Path
from minitx.grading import commands
assert "unbroadcast" in commands.exercises_in_words(Path())
commands.start("unbroadcast", Path())
try:
    commands.run_grade("unbroadcast")
except ValueError as error:
    assert "minitx[course]" in str(error), error
else:
    raise AssertionError
assert "numba" not in sys.modules and "matplotlib" not in sys.modules
"""
    root = str(Path(commands.__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"],
        cwd=tmp_path,
        check=True,
    )


def test_the_command_line(tmp_path, capsys):
    from minitx.cli import main

    put(tmp_path, "softmax_backward", "right_formula")
    assert main(["exercises", "--folder", str(tmp_path)]) == 0
    assert main(["exercises", "start", "unbroadcast", "--folder", str(tmp_path)]) == 0
    assert main(["exercises", "start", "unbroadcast", "--folder", str(tmp_path)]) == 2
    assert main(["grade", "softmax_backward", str(tmp_path / "softmax_backward.py")]) == 0
    assert main(["grade", "unbroadcast", str(tmp_path / "unbroadcast.py"), "--seed", "3"]) == 1
    assert main(["grade", "nonsense", str(tmp_path)]) == 2
    assert main(["grade", "unbroadcast", str(tmp_path / "nothing.py")]) == 2
    said = capsys.readouterr()
    assert "exists already" in said.err and "Traceback" not in said.err
    assert "not written yet" in said.out
