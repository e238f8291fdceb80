"""A command line to call, and an experiment to call it with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minitx import kernels, phenomena
from minitx.cli import main
from minitx.lab import registry
from minitx.lab.loading import experiments_in

ROOT = Path(__file__).resolve().parents[2]
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
    monkeypatch.setattr(kernels, "warm_up", lambda *given, **more: None)
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


@pytest.fixture
def process():
    """A function that starts ``python -m minitx`` in a process of its own."""

    def start(*arguments, **options):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "MINITX_KERNELS": "numpy"}
        environment.update(options.pop("env", {}))
        command = [sys.executable, "-m", "minitx", *map(str, arguments)]
        # A shell makes what it starts in the background deaf to Ctrl-C, and that is inherited.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(command, env=environment, text=True, **options)
        finally:
            signal.signal(signal.SIGINT, before)

    return start


@pytest.fixture(scope="session")
def made_up_file():
    """A file with several experiments, some of which fail."""
    return MADE_UP


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
    return {each.name: type(each) for each in experiments_in(MADE_UP)}
