"""kill -9 in the middle, in real processes: the same command goes on, with the same numbers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from minitx.lab import run

MADE_UP = Path(__file__).with_name("made_up.py")
CODE = """
import sys
from pathlib import Path

from minitx.lab import run
from minitx.lab import run
from minitx.lab.loading import experiments_in
if __name__ == "__main__":
    path, out, marks, sleep = sys.argv[1:]
    [experiment] = [e for e in experiments_in(Path(path)) if e.name == "madeup.supported"]
    overrides = {"sleep": sleep, "marks": marks}
    run(experiment, out=out, jobs=2, seeds=4, overrides=overrides)
"""


def start(script, out, marks, sleep="0.2"):
    arguments = [sys.executable, str(script), str(MADE_UP), str(out), str(marks), sleep]
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
    )


def wait_for_the_end_of(group):
    """Orphans are to end by themselves, not work off what was queued."""
    deadline = time.monotonic() + 15
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "orphans go on working"
        time.sleep(0.05)


def measured(out):
    lines = (out / "madeup.supported" / "results.jsonl").read_bytes().splitlines()
    found = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record["arm"], record["seed"]] = json.dumps(record["measurements"], sort_keys=True)
    return found


def test_killed_and_started_again(made_up, tmp_path):
    script, out, marks, whole = (tmp_path / n for n in ("run.py", "out", "marks", "whole"))
    script.write_text(CODE)
    marks.mkdir()
    results = out / "madeup.supported" / "results.jsonl"

    process = start(script, out, marks)
    deadline = time.monotonic() + 60
    while not (results.exists() and results.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = results.read_bytes()
    stored = before.count(b"\n")
    assert 2 <= stored < 8
    with open(results, "ab") as file:  # as if the kill had come in the middle of a line
        file.write(b'{"arm": "high", "seed": 3, "measurem')

    wait_for_the_end_of(process.pid)
    started = len(list(marks.iterdir()))
    again = start(script, out, marks)
    assert again.wait(timeout=60) == 0
    assert results.read_bytes().startswith(before)  # nothing that was stored is touched
    done_again = len(list(marks.iterdir())) - started
    assert done_again == 8 - stored
    assert len(measured(out)) == 8

    # Uninterrupted, in one process, with the same settings: the same numbers.
    overrides = {"sleep": "0.2", "marks": str(marks)}
    run(made_up["supported"], out=whole, backend="sequential", seeds=4, overrides=overrides)
    assert measured(whole) == measured(out)
    verdicts = [
        json.loads((folder / "madeup.supported" / "verdicts.json").read_text())["claims"]
        for folder in (whole, out)
    ]
    assert verdicts[0] == verdicts[1]


def test_orphans_do_not_go_on(tmp_path):
    script, marks = tmp_path / "run.py", tmp_path / "marks"
    script.write_text(CODE)
    marks.mkdir()
    process = start(script, tmp_path / "out", marks, sleep="100")
    try:
        deadline = time.monotonic() + 60
        while not list(marks.iterdir()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.wait()
        wait_for_the_end_of(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
