"""The command line as a user meets it: what it prints, how it ends, what it writes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minitx import kernels, phenomena
from minitx.cli import main
from minitx.lab import registry

ROOT = Path(__file__).resolve().parents[1]
MADE_UP = ROOT / "tests" / "lab" / "made_up.py"
ONE = """
from minitx.lab import Experiment, arm, at_least
class One(Experiment):
    name = "user.one"
    question = "Is one [bold]at least[/bold] half?"
    measured = {{"x": "one"}}
    arms = {{"a": arm()}}
    claims = [at_least("x", {threshold}, arm="a", text="One is [much].")]
    def measure(self, settings, seed):
        {body}
        return {{"x": 1.0}}
    def draw(self, results):
        from matplotlib.figure import Figure
        return Figure(figsize=(1, 1))
"""


@pytest.fixture(autouse=True)
def no_compiling(monkeypatch):
    """These tests are about the command line; the kernels are tested elsewhere."""
    monkeypatch.setattr(kernels, "active", lambda: "numpy")
    monkeypatch.setattr(kernels, "warm_up", lambda progress=None: None)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MINITX_THREADS", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def one(tmp_path):
    """A function that writes an experiment of one arm and returns its path."""

    def write(threshold=0.5, body="pass", name="one.py"):
        path = tmp_path / name
        path.write_text(ONE.format(threshold=threshold, body=body))
        return str(path)

    return write


@pytest.fixture
def cli(tmp_path, capsys):
    """Call ``minitx`` in this process: (exit code, standard output, standard error)."""

    def call(*arguments, out=True):
        arguments = [str(argument) for argument in arguments]
        if arguments and arguments[0] == "run" and "--help" not in arguments:
            arguments += ["--jobs", "1"] if "--jobs" not in arguments else []
            arguments += ["--out", str(tmp_path / "runs")] if out else []
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def process(*arguments, **options):
    """A real process with ``python -m minitx``."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "MINITX_KERNELS": "numpy"}
    command = [sys.executable, "-m", "minitx", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, **options)


# ------------------------------------------------------------------ running


@pytest.mark.parametrize(
    ("threshold", "code", "word"), [(0.5, 0, "✓ supported"), (1.5, 1, "✗ refuted")]
)
def test_run_ends_with_a_table_and_the_figure(cli, one, tmp_path, threshold, code, word):
    result, out, err = cli("run", one(threshold), "--seeds", 3)
    assert result == code
    assert word in out
    assert f"≥ {threshold}" in out
    assert "One is [much]." in out  # brackets are not markup
    assert f"Figure  {tmp_path}/runs/user.one/figure.png" in out
    assert "seeds 0-2" in out
    assert "3 runs" in err
    verdicts = json.loads((tmp_path / "runs" / "user.one" / "verdicts.json").read_text())
    assert verdicts["seeds"] == [0, 1, 2] and not verdicts["quick"]


def test_output_that_is_no_terminal_is_clean_and_narrow(cli, one):
    _, out, err = cli("run", MADE_UP)
    for text in (out, err):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", text)
        assert not re.search(r" +\n", text)
    assert max(map(len, out.splitlines())) <= 80 or "errors.log" in out or "Figure" in out
    tables = [line for line in out.splitlines() if "Figure" not in line and "failed" not in line]
    assert max(map(len, tables)) <= 80


def test_a_file_of_several_goes_on_after_failures_and_sums_up(cli):
    code, out, err = cli("run", MADE_UP)
    assert code == 1
    summary = out[out.index("All experiments") :]
    for name in ("supported", "refuted", "inconclusive", "failing", "nofigure"):
        assert f"madeup.{name}" in summary
    assert "3 of 3 ✓ supported" in summary
    assert "1 of 1 ✗ refuted" in summary
    assert "1 of 2 ? inconclusive" in summary
    assert summary.count("! failed 1") == 2
    assert "Does the lab judge rightly?" in summary
    assert "arm 'bad', seed 1 failed: RuntimeError: the made-up fault" in err
    assert "ZeroDivisionError: no figure today" in out


def test_treatment_and_control_are_told_apart(cli):
    _, out, _ = cli("run", MADE_UP)
    table = out[: out.index("Figure")]
    assert re.search(r"effect +High is high", table)
    assert re.search(r"control +Low is low", table)


def test_a_second_time_uses_what_is_stored(cli, one):
    path = one(body="print('RUN', seed)")
    _, out, _ = cli("run", path, "--seeds", 2)
    assert out.count("RUN") == 2
    _, out, err = cli("run", path, "--seeds", 2)
    assert out.count("RUN") == 0 and "all stored" in err
    _, out, err = cli("run", path, "--seeds", 2, "--seed-start", 1)
    assert out.count("RUN") == 1 and "1 stored" in err
    _, out, _ = cli("run", path, "--seeds", 2, "--fresh")
    assert out.count("RUN") == 2


def test_defaults_and_quick(cli, one, tmp_path):
    config = tmp_path / "runs" / "user.one" / "config.json"
    cli("run", one())
    assert json.loads(config.read_text())["seeds"] == [0, 1, 2, 3, 4]
    code, out, _ = cli("run", one(), "--quick")
    assert code == 0
    assert "quick run" in out and "first look" in out
    assert json.loads(config.read_text())["seeds"] == [0, 1, 2]
    cli("run", one(), "--quick", "--seeds", 4, "--seed-start", 7)
    assert json.loads(config.read_text())["seeds"] == [7, 8, 9, 10]


def test_set_changes_settings_that_arms_do_not_pin(cli, a_registry, tmp_path):
    code, _, err = cli("run", "madeup.supported", "--set", "spread=0.5", "--set", "mean=0.25")
    assert code == 0
    assert "madeup.supported: arm high keeps mean as it is." in err
    config = json.loads((tmp_path / "runs" / "madeup.supported" / "config.json").read_text())
    assert config["settings"]["high"]["spread"] == 0.5
    assert (config["settings"]["high"]["mean"], config["settings"]["low"]["mean"]) == (3.0, 0.25)


def test_a_damaged_line_is_told(cli, one, tmp_path):
    cli("run", one(), "--seeds", 2)
    with open(tmp_path / "runs" / "user.one" / "results.jsonl", "ab") as file:
        file.write(b'{"arm": "a", "se')
    code, _, err = cli("run", one(), "--seeds", 2)
    assert code == 0
    assert "results.jsonl: line 3 cannot be read" in err


def test_kernels_are_compiled_before_the_runs_and_only_for_them(cli, one, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(kernels, "warm_up", lambda progress=None: print("WARM"))
    _, out, _ = cli("run", one(body="print('RUN')"), "--seeds", 1)
    assert re.findall("WARM|RUN", out) == ["WARM", "RUN"]
    _, out, _ = cli("run", one(body="print('RUN')"), "--seeds", 1)
    assert re.findall("WARM|RUN", out) == told


def test_other_kernels_are_other_results(cli, one, monkeypatch):
    path = one(body="print('RUN')")
    cli("run", path, "--seeds", 1)
    monkeypatch.setattr(kernels, "active", lambda: "numba")
    _, out, _ = cli("run", path, "--seeds", 1)
    assert out.count("RUN") == 1


# ------------------------------------------------------------------ families, names, lists


@pytest.fixture
def a_registry(monkeypatch, made_up_classes):
    """The made-up experiments in place of our own."""
    monkeypatch.setattr(phenomena, "modules", lambda: [])
    before = dict(registry)
    registry.clear()
    registry.update(made_up_classes)
    yield
    registry.clear()
    registry.update(before)


@pytest.fixture(scope="session")
def made_up_classes():
    from minitx.lab.loading import experiments_in

    return {each.name: type(each) for each in experiments_in(MADE_UP)}


def test_list(cli, a_registry):
    code, out, _ = cli("list")
    assert code == 0
    assert "madeup.supported" in out and "Does the lab judge rightly?" in out and "1.0 s" in out
    code, out, _ = cli("list", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)
    assert rows[0] == {
        "name": "madeup.failing",
        "family": "madeup",
        "question": "Does the lab judge rightly?",
        "seconds": 1.0,
    }


def test_show_runs_nothing_and_tells_all(cli, a_registry, tmp_path):
    code, out, _ = cli("show", "madeup.supported")
    assert code == 0
    words = " ".join(out.split())
    for part in (
        "Does the lab judge rightly?",
        "Numbers are drawn around a mean that we know.",
        "a number drawn around `mean`",
        "drawn around 3 (mean=3.0)",
        "effect High is high. [x, high ≥ 1]",
        "effect High is above low. [x, high minus low ≥ 1.5]",
        "control Low is low. [x, low ≤ 1]",
        "spread 1.0 (--quick: 0.5)",
        "Made up (2024)",
        "Draw [1] of 8: the number is **known**.",
    ):
        assert part in words, part
    assert not (tmp_path / "runs").exists()


def test_a_family_and_all(cli, a_registry):
    for target in ("madeup", "all"):
        code, out, _ = cli("run", target, "--seeds", 2)
        assert code == 1
        assert "All experiments" in out and "madeup.refuted" in out
    code, out, _ = cli("run", "madeup.supported", "--seeds", 2)
    assert code == 0 and "All experiments" not in out
    code, out, _ = cli("run", "madeup.supported", "madeup.refuted", "--seeds", 2)
    assert code == 1 and "All experiments" in out


def test_a_file_that_cannot_be_imported_hides_no_other(cli, a_registry, monkeypatch):
    broken = {"minitx.phenomena.madeup.broken": ImportError("no such thing")}
    monkeypatch.setattr(phenomena, "load_all", lambda: broken)
    code, out, err = cli("list")
    assert code == 0 and "madeup.supported" in out
    assert "madeup.broken cannot be imported: ImportError: no such thing" in err
    code, out, _ = cli("run", "all", "--seeds", 2)
    assert code == 1 and "madeup.broken" in out and "! failed" in out
    assert "3 of 3" in out


def test_an_experiment_that_fails_as_a_whole_does_not_stop_the_others(
    cli, a_registry, monkeypatch, tmp_path
):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "madeup.refuted").write_text("a file is in the way")
    code, out, err = cli("run", "all", "--seeds", 2)
    assert code == 1
    assert "madeup.refuted is a file, not a folder" in err
    assert "3 of 3" in out[out.index("All experiments") :]


def test_our_own_experiments_hold_together(cli):
    """Each can be imported, is listed, and can be shown."""
    code, out, err = cli("list", "--json")
    assert code == 0 and err == ""
    names = [row["name"] for row in json.loads(out)]
    for name in names:
        code, out, err = cli("show", name)
        assert (code, err) == (0, "") and name in out
        assert max(map(len, out.splitlines())) <= 80


# ------------------------------------------------------------------ wrong usage: one sentence


WRONG = [
    (["run", "madeup.suported"], r"Unknown experiment 'madeup.suported'. Did you mean 'madeup"),
    (["show", "maddup"], r"Unknown experiment 'maddup'. Did you mean .*'madeup'"),
    (["run", "madeup.supported", "--seeds", "0"], "number of seeds is at least 1, got 0"),
    (["run", "madeup.supported", "--seeds", "-2"], "number of seeds is at least 1, got -2"),
    (["run", "madeup.supported", "--seeds", "many"], "'--seeds': expected a whole number, got"),
    (["run", "madeup.supported", "--seed-start", "-1"], "first seed is at least 0, got -1"),
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
    (["run"], "Missing argument 'NAME.*'"),
    (["run", "madeup.supported", "--sedes", "3"], "No such option: --sedes"),
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


def test_out_is_a_file_or_cannot_be_written(cli, one, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    code, _, err = cli("run", one(), "--out", tmp_path / "file", out=False)
    assert code == 2 and "file is a file, not a folder" in err and err.count("\n") == 1

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
        (ONE.format(threshold="'high'", body="pass"), "ValueError: could not convert"),
        (ONE.format(threshold=1, body="pass").replace("arm=", "minus='b', arm="), "arm 'b'"),
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
        for command in ("list", "show", "run", "exercises", "grade"):
            assert f"\n  {command} " in out
    code, out, _ = cli("--version")
    assert code == 0 and re.fullmatch(r"minitx \d+\.\d+\.\d+\n", out)
    code, out, _ = cli("run", "--help")
    assert code == 0 and "--seed-start" in out


# ------------------------------------------------------------------ exercises


def test_exercises_and_grade(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli("exercises")
    assert code == 0 and "unbroadcast" in out
    code, out, _ = cli("exercises", "start", "unbroadcast")
    assert code == 0 and (tmp_path / "unbroadcast.py").exists()
    code, _, err = cli("exercises", "start", "unbroadcast")
    assert code == 2 and "exists already" in err


# ------------------------------------------------------------------ real processes


IMPORTS = """
import sys
{code}
heavy = [m for m in {modules} if m in sys.modules]
assert not heavy, heavy
"""
LIBRARIES = ["numba", "matplotlib", "typer", "rich", "joblib"]


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import minitx, minitx.lab", LIBRARIES),
        ("import minitx.cli", LIBRARIES),
        ("from minitx.cli import main; assert main(['--help']) == 0", ["numba", "matplotlib"]),
        ("from minitx.cli import main; assert main(['list']) == 0", ["numba", "matplotlib"]),
    ],
)
def test_what_is_not_needed_is_not_imported(code, modules):
    subprocess.run(
        [sys.executable, "-c", IMPORTS.format(code=code, modules=modules)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_ctrl_c_says_how_to_go_on(one, tmp_path):
    """The signal goes to the whole group, as a terminal sends it."""
    path, out = one(body="import time; time.sleep(0 if seed < 2 else 60)"), tmp_path / "runs"
    running = process(
        *("run", path, "--out", out, "--jobs", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    results, deadline = out / "user.one" / "results.jsonl", time.monotonic() + 60
    while not (results.exists() and results.read_bytes().count(b"\n") >= 2):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)  # it does not wait for the minute to pass
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "Stopped with 2 of 5 runs stored" in err and "the same command goes on" in err


def test_a_terminal_shows_bars_and_colours(one, tmp_path):
    main_end, other_end = pty.openpty()
    path = one(body="import time; time.sleep(0.3)")
    running = process(
        *("run", path, "--out", tmp_path / "runs", "--jobs", 1, "--seeds", 3),
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
    )
    os.close(other_end)
    shown = b""
    while True:
        try:
            chunk = os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(main_end)
    assert running.wait(timeout=60) == 0
    text = shown.decode()
    assert "━" in text and "/3" in text and " left" in text
    assert "\x1b[32m✓ supported" in text
    assert text.rstrip().endswith("figure.png\x1b[0m") or "figure.png" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is back


def test_a_terminal_without_unicode_gets_plain_signs(one, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "MINITX_KERNELS": "numpy"}
    done = subprocess.run(
        [sys.executable, "-m", "minitx", "run", one(), "--out", tmp_path / "r", "-j", "1"],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "+ supported" in done.stdout and ">= 0.5" in done.stdout


def test_a_reader_who_leaves_early():
    running = process("show", MADE_UP, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(timeout=60) == 1
