"""The grader's end of the student process: start it, ask it, stop it, survive it."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from minitx.errors import MinitxError
from minitx.grading import wire


@dataclass(frozen=True)
class Limits:
    """What one student process may use.

    Attributes
    ----------
    start : float
        Seconds for Python and NumPy to start.
    call : float
        Wall seconds for loading the file, and for each call.
    call_cpu : int
        CPU seconds for the same: what ends an endless loop, where the system can count them.
    cpu : int
        CPU seconds for the life of the process.
    memory : int
        Bytes of address space, NumPy included.
    """

    start: float = 60.0
    call: float = 15.0
    call_cpu: int = 2
    cpu: int = 60
    memory: int = 2 * 1024**3


class ChildFault(Exception):
    """The student process timed out, ended or sent nonsense. ``kind`` says which."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class Child:
    """One process that runs one student file.

    Parameters
    ----------
    source : str
        The student's file, as text.
    filename : str
        Its name, for messages.
    limits : Limits
        Time and memory.
    """

    def __init__(self, source: str, filename: str, limits: Limits | None = None) -> None:
        self.source, self.filename, self.limits = source, filename, limits or Limits()
        self._process: subprocess.Popen | None = None
        self._folder: tempfile.TemporaryDirectory | None = None
        self.loaded: dict[str, Any] = {}

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def ask(self, action: str, **message: Any) -> dict[str, Any]:
        """Send one request and wait for its reply, starting the process if there is none.

        Raises
        ------
        ChildFault
            If the process takes too long, ends, or sends something that is no reply.
        """
        if self._process is None:
            self._start()
            self.loaded = self._exchange("load", source=self.source, filename=self.filename)
        return self.loaded if action == "load" else self._exchange(action, **message)

    def close(self) -> None:
        """End the process and everything it started."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        here = Path(__file__).parent
        command = [sys.executable, "-I", "-S", str(here / "child.py"), str(here / "wire.py")]
        command.append(str(Path(np.__file__).parents[1]))
        command += [str(n) for n in (self.limits.memory, self.limits.cpu, self.limits.call_cpu)]
        keep = ("SYSTEMROOT", "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = "1"
        self._folder = tempfile.TemporaryDirectory(prefix="minitx-grade-")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder.name,
            env=environment,
            start_new_session=os.name == "posix",
        )
        self._replies: queue.SimpleQueue = queue.SimpleQueue()
        self._noise: list[bytes] = []
        for target in (self._read_replies, self._drain_noise):
            threading.Thread(target=target, args=(self._process,), daemon=True).start()
        if not (self._next(self.limits.start, "start") or {}).get("ready"):
            noise = b"".join(self._noise)[-400:].decode(errors="replace").strip()
            raise MinitxError(f"The process for the student's code could not be started: {noise}")

    def _read_replies(self, process: subprocess.Popen) -> None:
        replies = self._replies
        try:
            while (reply := wire.receive(cast(BinaryIO, process.stdout))) is not None:
                replies.put(reply)
            replies.put(None)
        except (wire.WireError, OSError, ValueError) as error:
            replies.put(error)

    def _drain_noise(self, process: subprocess.Popen) -> None:
        """Read what is written past ``sys.stdout`` so that the process never blocks on it."""
        noise, stderr = self._noise, cast(io.BufferedReader, process.stderr)
        with contextlib.suppress(OSError, ValueError):
            while chunk := stderr.read1(65536):
                if len(noise) < 4:
                    noise.append(chunk[:1000])

    def _next(self, seconds: float, action: str) -> dict[str, Any] | None:
        try:
            reply = self._replies.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise _took_too_long(action, seconds) from None
        if isinstance(reply, Exception):
            self.close()
            raise ChildFault(
                "garbled",
                "the code wrote to the grader's own channel, so its answers are not counted.",
            )
        return reply

    def _exchange(self, action: str, **message: Any) -> dict[str, Any]:
        ticket = secrets.token_hex(8)
        process = cast(subprocess.Popen, self._process)  # `ask` has started it
        with contextlib.suppress(OSError):  # it may have ended: the reader says how
            wire.send(cast(BinaryIO, process.stdin), {"id": ticket, "action": action, **message})
        reply = self._next(self.limits.call, action)
        if reply is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1.0)
            code = process.returncode
            self.close()
            if code is not None and -code == getattr(signal, "SIGXCPU", None):
                raise _took_too_long(action, self.limits.call_cpu)
            raise ChildFault("died", _how_it_ended(code))
        if reply.get("id") != ticket:
            self.close()
            raise ChildFault(
                "garbled",
                "the code wrote to the grader's own channel, so its answers are not counted.",
            )
        return reply


def _took_too_long(action: str, seconds: float) -> ChildFault:
    what = "loading the file" if action == "load" else "one call"
    return ChildFault(
        "timeout",
        f"{what} took longer than {seconds:g} s and was stopped: is there a loop that never ends?",
    )


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"the code crashed the Python process ({signal.Signals(-code).name})."
    return f"the code ended the Python process (exit code {code}): remove os._exit and the like."
