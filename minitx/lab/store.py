"""Results on disk: a folder for each experiment.

``results.jsonl`` only ever grows: one line for each finished run, on disk before the next is waited
for. What was cut off by a kill is recognised and done again; nothing of the user's is deleted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minitx.errors import MinitxError
from minitx.lab.results import Run, from_json

RESULTS, VERDICTS, CONFIG, FIGURE = "results.jsonl", "verdicts.json", "config.json", "figure.png"
ERRORS, LOCK = "errors.log", ".lock"


def settings_dict(settings: Any, where: str) -> dict[str, Any]:
    """Settings as JSON has them.

    Raises
    ------
    MinitxError
        If a value is not a finite number, string, bool, None, or a tuple, list or dict of these.
    """
    values = dataclasses.asdict(settings)
    for key, value in values.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise MinitxError(
                f"Setting {key!r} of {where} is {value!r}, which cannot be stored; settings are "
                "finite numbers, strings, true or false, none, or tuples of these."
            ) from None
    return values


def run_key(settings: dict, code: str, context: dict) -> str:
    """What a stored run must agree on to be used again (besides arm and seed)."""
    text = json.dumps([settings, code, context], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_folder(folder: Path) -> None:
    """Make the folder, and see that files can be written there.

    Raises
    ------
    MinitxError
        If a file is in the way, or the folder cannot be made or written.
    """
    for part in (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise MinitxError(f"Cannot write to {folder}: {part} is a file, not a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MinitxError(
            f"Cannot write to {folder}: {error.strerror or error}; choose another --out."
        ) from None


class Store:
    """The folder of one experiment, held by one process at a time.

    Use as a context manager: entering makes the folder and takes its lock.

    Raises
    ------
    MinitxError
        If the folder cannot be made or written, or another process is working in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.damaged: list[int] = []  # numbers of unreadable lines, from 1
        self._lock: Any = None

    def __enter__(self) -> Store:
        check_folder(self.folder)
        self._lock = self._guard(lambda: (self.folder / LOCK).open("a+"))  # held until __exit__
        if not _try_lock(self._lock):
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise MinitxError(
                f"Another minitx (process {holder}) is working in {self.folder}; wait for it "
                "to end or choose another --out."
            )
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.close()  # lets go of the lock, as the end of the process would

    def load(self) -> dict[tuple[str, str, int], Run]:
        """Finished runs by (key, arm, seed); the last line counts. Sets ``damaged``."""
        self.damaged, runs = [], {}
        path = self.folder / RESULTS
        content = self._guard(lambda: path.read_bytes() if path.exists() else b"")
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                key, run = _read_line(line)
            except (ValueError, KeyError, TypeError):
                self.damaged.append(number)
                continue
            runs[key, run.arm, run.seed] = run
        return runs

    def append(self, record: dict[str, Any]) -> Run:
        """Add a line and return it as read back; it is on the disk when this returns."""
        line = json.dumps(record, allow_nan=False).encode()

        def write() -> None:
            with open(self.folder / RESULTS, "ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # cut off by a kill: leave it on a line of its own
                        file.write(b"\n")
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())

        self._guard(write)
        return _read_line(line)[1]

    def write_json(self, name: str, content: dict[str, Any]) -> Path:
        """Write a JSON file whole or not at all."""
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        return self._replace(name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_figure(self, figure: Any, dpi: int = 150) -> Path:
        """Save a Matplotlib figure whole or not at all."""
        return self._replace(FIGURE, lambda path: figure.savefig(path, dpi=dpi, format="png"))

    def log_error(self, text: str) -> None:
        """Add a traceback to ``errors.log``."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")

        def write() -> None:
            with open(self.folder / ERRORS, "a", encoding="utf-8") as file:
                file.write(f"[{stamp}] {text.rstrip()}\n\n")

        self._guard(write)

    def _replace(self, name: str, write: Callable[[Path], Any]) -> Path:
        """Write beside the file, force it to disk, then rename: a reader never sees half of it."""
        path, beside = self.folder / name, self.folder / f".{name}.{os.getpid()}.tmp"

        def replace() -> None:
            try:
                write(beside)
                with open(beside, "rb+") as file:
                    os.fsync(file.fileno())
                os.replace(beside, path)
            finally:
                beside.unlink(missing_ok=True)

        self._guard(replace)
        return path

    def _guard(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except OSError as error:
            raise MinitxError(
                f"Cannot use {self.folder}: {error.strerror or error}; what was stored is kept."
            ) from error


def _read_line(line: bytes) -> tuple[str, Run]:
    """One line of ``results.jsonl``; damage raises ValueError, KeyError or TypeError."""
    record = from_json(line)
    measurements, seed = record["measurements"], record["seed"]
    if not isinstance(measurements, dict) or not isinstance(seed, int):
        raise ValueError("not a result")
    seconds, finished = float(record["seconds"]), float(record.get("finished", 0.0))
    return str(record["key"]), Run(str(record["arm"]), seed, measurements, seconds, finished)


def _try_lock(file: Any) -> bool:
    """Take an exclusive lock that ends with the process; False if another holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        windows: Any = msvcrt  # whose names mypy knows on Windows alone
        try:
            # A far byte: a locked region cannot be read, and the process id must be.
            file.seek(1 << 20)
            windows.locking(file.fileno(), windows.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: go on without
    return True
