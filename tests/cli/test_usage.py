"""Wrong usage ends in one sentence and exit code 2, a fault of ours in one sentence and a log."""

import re
from pathlib import Path

import pytest

from minitx.cli import main

WRONG = [
    (["run", "madeup.suported"], r"Unknown experiment 'madeup.suported'. Did you mean 'madeup"),
    (["show", "maddup"], r"Unknown experiment 'maddup'. Did you mean .*'madeup'"),
    (["run", "madeup.supported", "--seeds", "0"], "number of seeds is at least 1, got 0"),
    (["run", "madeup.supported", "--seeds", "-2"], "number of seeds is at least 1, got -2"),
    (["run", "madeup.supported", "--seeds", "many"], "'--seeds': expected a whole number, got"),
    (["run", "madeup.supported", "--seed-start", "-1"], "first seed is at least 0, got -1"),
    (["run", "madeup.supported", "--design", "--seeds", "21"], "There are 20 design seeds .*got --seeds 21"),
    (["run", "madeup.supported", "--design", "--seed-start", "3"], "leave out --seed-start"),
    (["run", "madeup.supported", "--jobs", "0"], "number of jobs is at least 1, got 0"),
    (["run", "madeup.supported", "--set", "spread"], "--set takes key=value, got 'spread'"),
    (["run", "madeup.supported", "--set", "spread=wide"], "'spread' .* takes a number, got 'wide'"),
    (["run", "madeup.supported", "--set", "flag=2"], "'flag' .* takes true or false, got '2'"),
    (["run", "madeup.supported", "--set", "how=so"], "'how' .* takes one of 'raise', .* got 'so'"),
    (["run", "madeup.supported", "--set", "spred=1"], "setting 'spred'. Did you mean 'spread'"),
    (["run", "madeup.failing", "--set", "mean=1"], "'mean' .* cannot be set: every arm has"),
    (["run", "madeup.supported", "--set", "a=1", "--set", "a=2"], "--set a is given twice"),
    (["run", "madeup.supported", "--backend", "desk"], "Unknown backend 'desk'. Did you mean"),
    (["run", "nowhere/file.py"], "There is no file .*nowhere/file.py"),
    (["run", "/"], "/ is a folder; name a Python file in it"),
    (["run"], "Missing argument 'NAME.*'"),
    (["run", "madeup.supported", "--sedes", "3"], "No such option:? .?--sedes"),
    (["rnu"], "No such command 'rnu'"),
    (["grade", "no_such_exercise", "x.py"], "no_such_exercise"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_usage_is_one_sentence_and_exit_code_2(cli, a_registry, tmp_path, arguments, words):
    code, out, err = cli(*arguments)
    assert code == 2
    assert out == ""
    assert re.search(words, err), err
    assert err.startswith("minitx: ") and err.count("\n") == 1
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_out_is_a_file_or_cannot_be_written(cli, one, made_up_file, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    for target in (one(), made_up_file):  # also where several experiments would be run
        code, out, err = cli("run", target, "--out", tmp_path / "file", out=False)
        assert code == 2 and "file is a file, not a folder" in err and err.count("\n") == 1
        assert out == ""

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    code, _, err = cli("run", one(), "--out", tmp_path / "new", out=False)
    assert code == 2 and "Permission denied; choose another --out" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "defines no experiment"),
        ("x = = 1\n", r"SyntaxError: invalid syntax \(line 1\)"),
        ("\nimport nothing_such\n", r"ModuleNotFoundError: .*'nothing_such' \(line 2\)"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (
            "from minitx.lab import at_least\nat_least('x', 'high', arm='a')",
            r"ValueError.*\(line 2\)",
        ),
        (
            "from minitx.lab import Experiment\nclass E(Experiment):\n    name = 'bad'",
            "Experiment bad: the name is 'family.short'",
        ),
    ],
)
def test_a_users_file_that_is_wrong(cli, tmp_path, text, words):
    path = tmp_path / "wrong.py"
    path.write_text(text)
    code, _, err = cli("run", path)
    assert code == 2
    assert re.search(words, err), err
    assert err.count("\n") == 1


def test_a_fault_of_ours_is_a_sentence_and_a_log(cli, one, monkeypatch):
    def fail(*args, **kwargs):
        raise KeyError("oh")

    monkeypatch.setattr("minitx.cli.running.run", fail)
    code, _, err = cli("run", one())
    assert code == 1
    found = re.search(
        r"Something went wrong \(KeyError: 'oh'\); the traceback is in (\S+)\.\n", err
    )
    assert "Traceback" not in err
    log = Path(found[1])
    assert "Traceback" in log.read_text() and "KeyError" in log.read_text()
    log.unlink()
    with pytest.raises(KeyError):
        main(["--debug", "run", one()])


def test_help_and_version(cli):
    for arguments in ([], ["--help"], ["-h"]):
        code, out, err = cli(*arguments)
        assert (code, err) == (0, "")
        for command in ("list", "show", "run", "power", "new", "exercises", "grade"):
            assert f"\n  {command} " in out
    code, out, _ = cli("--version")
    assert code == 0 and re.fullmatch(r"minitx \d+\.\d+\.\d+\n", out)
    code, out, _ = cli("run", "--help")
    assert code == 0 and "--seed-start" in out


def test_exercises_and_grade(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli("exercises")
    assert code == 0 and "unbroadcast" in out
    code, out, _ = cli("exercises", "start", "unbroadcast")
    assert code == 0 and (tmp_path / "unbroadcast.py").exists()
    code, _, err = cli("exercises", "start", "unbroadcast")
    assert code == 2 and "exists already" in err
