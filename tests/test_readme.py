"""The README says what is true: its snippets run as written, its commands are the real ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from minitx import phenomena
from minitx.lab.experiment import registry

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
EXPERIMENT = next(code for code in SNIPPETS if "class Tiny" in code)


def test_the_snippets_run_one_after_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    from minitx.nn import ATTENTION

    before = dict(ATTENTION)
    scope = {"__name__": "readme"}
    try:
        for code in SNIPPETS:
            if code is not EXPERIMENT:
                exec(compile(code, str(README), "exec"), scope)
    finally:
        ATTENTION.clear()
        ATTENTION.update(before)
    assert (tmp_path / "model.npz").exists()


def test_the_experiment_of_the_readme_runs_from_its_file(tmp_path):
    (tmp_path / "tiny.py").write_text(EXPERIMENT, encoding="utf-8")
    command = [sys.executable, "-m", "minitx", "run", "tiny.py", "--seeds", "2", "--set", "steps=2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "own.tiny" / "figure.png").exists()
    assert "supported" in done.stdout


def test_both_commands_are_one_line_each_and_make_their_own_environment():
    lines = [line for line in TEXT.splitlines() if line.startswith("python3 -m venv ")]
    assert len(lines) == 2
    assert lines[0].endswith("minitx run sinks.emergence") and lines[1].endswith("pytest")
    assert all(" && .venv/bin/pip install " in line for line in lines)


def test_its_pictures_exist():
    pictures = re.findall(r"\]\((tutorials/[^)]+\.png)\)", TEXT) + re.findall(
        r'src="([^"]+)"', TEXT
    )
    assert pictures
    assert all((README.parent / picture).exists() for picture in pictures)


@pytest.mark.parametrize("word", ["positions", "attention", "mask", "mlp"])
def test_the_table_of_choices_lists_what_there_is(word):
    from minitx.nn import ATTENTION, MASKS, POSITIONS
    from minitx.nn.layers import ACTIVATIONS

    known = {"positions": POSITIONS, "attention": ATTENTION, "mask": MASKS, "mlp": ACTIVATIONS}[
        word
    ]
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{word}`"))
    for name in known:
        assert re.search(rf"\b{name}\b", row), f"{name} is not in the README's row {word}"


def test_every_experiment_is_in_its_table():
    phenomena.load_all()
    for name in registry:
        assert f"`{name}`" in TEXT, f"{name} is missing from the README's table of experiments"
