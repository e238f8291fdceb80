"""The command in real processes: what is imported, terminals, signals, pipes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")  # not on Windows
ROOT = Path(__file__).resolve().parents[2]


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
def test_what_is_not_needed_is_not_imported(code, modules, process):
    subprocess.run(
        [sys.executable, "-c", IMPORTS.format(code=code, modules=modules)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_ctrl_c_says_how_to_go_on(one, tmp_path, process):
    """The signal goes to the whole group, as a terminal sends it."""
    path, out = one(body="import time; time.sleep(0 if seed < 2 else 60)"), tmp_path / "runs"
    running = process(
        *("run", path, "--out", out, "--jobs", 2, "--seeds", 5),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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
    assert err.count("\n") == 2, err  # what is run, and how to go on; no worker has its say
    assert "Stopped with 2 of 5 runs stored" in err and "the same command goes on" in err


def test_a_terminal_shows_bars_and_colours(one, tmp_path, process):
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


def test_a_terminal_without_unicode_gets_plain_signs(one, tmp_path, process):
    running = process(
        *("run", one(), "--out", tmp_path / "runs", "--jobs", 1),
        stdout=subprocess.PIPE,
        env={"PYTHONIOENCODING": "ascii"},
    )
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "+ supported" in out and ">= 0.5" in out


def test_a_reader_who_leaves_early(made_up_file, process):
    running = process("show", made_up_file, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait(timeout=60) == 1
