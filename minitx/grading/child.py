"""The process in which a student's code runs. It knows inputs, never answers.

The grader starts this file by its path with ``python -I -S``: no site-packages, no environment, and
minitx cannot be imported. It loads the student's source, calls the functions asked for, and sends
back what they return. Drawing inputs, comparing and counting points happen in the grader's own
process, so nothing that the student's code does to NumPy, to this file or to the pipe can earn a
point: all it can send is an answer.

The audit hook at the end keeps honest people honest (no files, processes, network). It is no
sandbox against an attacker: grade code that you do not trust in a container as well.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys


def limit_call(seconds: int) -> None:
    """Let the next call use ``seconds`` of CPU time; then the system ends the process (SIGXCPU).

    CPU time, so that a busy machine does not cut an honest answer short. The grader's clock stands
    behind this: for code that sleeps, and where there is no such limit.
    """
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft if hard < 0 else min(soft, hard), hard))
    except (ImportError, ValueError, OSError):
        return


def limit_resources(memory: int, cpu_seconds: int) -> None:
    """Cap memory (bytes), CPU time, file size and core dumps, where the system can."""
    try:
        import resource
    except ImportError:  # Windows: the grader's own clock is the only limit
        return
    wanted = (
        ("RLIMIT_AS", memory),
        ("RLIMIT_CPU", cpu_seconds),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
    )
    for name, value in wanted:
        if hasattr(resource, name):
            with contextlib.suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS
                resource.setrlimit(getattr(resource, name), (value, value))


class CappedText(io.TextIOBase):
    """Keeps the first ``limit`` characters printed and drops the rest."""

    def __init__(self, limit: int = 2000) -> None:
        self.limit, self.size = limit, 0
        self.parts: list[str] = []

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.size < self.limit:
            self.parts.append(text[: self.limit - self.size])
        self.size += len(text)
        return len(text)

    def take(self) -> str:
        text = "".join(self.parts)
        self.parts, self.size = [], 0
        return text


REFUSED = """
os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.startfile
subprocess.Popen os.kill os.killpg signal.pthread_kill os.remove os.rename os.rmdir
os.mkdir os.link os.symlink os.truncate os.chmod os.chown os.chdir os.putenv os.unsetenv
shutil.rmtree shutil.copyfile shutil.move sqlite3.connect gc.get_objects
gc.get_referrers gc.get_referents sys._current_frames sys.settrace sys.setprofile
pty.spawn webbrowser.open mmap.__new__ code.__new__ winreg.OpenKey tempfile.mkstemp
tempfile.mkdtemp
"""


def lock_down(library: tuple[str, ...], numpy_folder: str) -> None:
    """Refuse files outside the standard library and NumPy, processes, network and memory tricks.

    Everything the hook needs is bound beforehand, so that replacing a builtin does not open it.
    """
    refused = frozenset(REFUSED.split())
    families = (
        "socket.",
        "ctypes.",
        "urllib.",
        "http.",
        "ftplib.",
        "smtplib.",
        "winreg.",
        "_winapi.",
    )
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def hook(event, args, *, type=type, str=str, int=int, PermissionError=PermissionError):
        if event == "open":
            path, _, flags = args
            if type(path) is int:
                return
            reading = type(flags) is not int or not flags & writing
            if type(path) is str and ".." not in path and reading:
                # Outside a virtual environment site-packages lies inside the standard library.
                installed = "site-packages" in path or "dist-packages" in path
                if path.startswith(numpy_folder) or (path.startswith(library) and not installed):
                    return
            raise PermissionError("files cannot be opened while grading")
        if event in refused or event.startswith(families):
            raise PermissionError(f"{event} is not allowed while grading")
        if event == "object.__setattr__" and args[1] == "__code__":
            raise PermissionError("functions cannot be rewritten while grading")

    sys.addaudithook(hook)


def describe_error(error: BaseException, filename: str) -> dict:
    """Type, message and the last line of the student's own file that the error passed through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno if error.filename == filename else line
        message = error.msg
    else:
        try:
            message = str(error)
        except BaseException:  # an exception class of the student's own
            message = ""
    return {
        "error": type(error).__name__,
        "message": str(message)[:500],
        "line": line,
        "name": str(getattr(error, "name", "") or "")[:100],
    }


def serve(wire, requests, replies, np, call_seconds) -> None:
    """Answer requests until the pipe closes."""
    import inspect
    import random
    import types

    printed = CappedText()
    module = types.ModuleType("answer")
    filename = "answer.py"

    def reseed(number):
        """A state that no student's seed gives: seeding again and again must not go unnoticed."""
        np.random.seed(0xC0FFEE + number)
        random.seed(0xC0FFEE + number)

    def random_state():
        name, keys, at, has_gauss, gauss = np.random.get_state()
        return name, keys.tobytes(), at, has_gauss, gauss, random.getstate()

    def load(request):
        nonlocal filename
        filename = request["filename"]
        module.__dict__["__name__"] = filename.removesuffix(".py")
        exec(compile(request["source"], filename, "exec"), module.__dict__)
        names = [k for k, v in module.__dict__.items() if isinstance(v, types.FunctionType)]
        return {"functions": names}

    def signature(request):
        function = module.__dict__.get(request["function"])
        if not callable(function):
            return {"found": False}
        try:
            shape = inspect.signature(function)
        except (TypeError, ValueError):
            return {"found": True, "fits": True}
        try:
            shape.bind(*range(request["arguments"]))
            return {"found": True, "fits": True}
        except TypeError:
            return {"found": True, "fits": False, "parameters": list(shape.parameters)}

    def call(request):
        arguments = request["arguments"]
        result = module.__dict__[request["function"]](*arguments)
        return {"result": result, "after": arguments}

    actions = {"load": load, "signature": signature, "call": call}
    served = 0
    while (request := wire.receive(requests)) is not None:
        sys.stdout = sys.stderr = printed
        served += 1
        reseed(served)
        limit_call(call_seconds)
        before = random_state()
        try:
            reply = actions[request["action"]](request)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too
            reply = describe_error(error, filename)
        reply["id"], reply["printed"] = request["id"], printed.take()
        reply["moved_random_state"] = random_state() != before
        wire.send(replies, reply)


def main() -> None:
    """Set up pipes, limits and imports, then serve."""
    wire_path, numpy_parent, memory, cpu_seconds, call_seconds = sys.argv[1:6]
    del sys.argv[1:]
    # The protocol moves away from the descriptors that students write to.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    library = [path for path in sys.path if path]
    sys.path.append(numpy_parent)
    import warnings

    import numpy as np
    import numpy.linalg
    import numpy.random

    warnings.simplefilter("ignore")
    spec = importlib.util.spec_from_file_location("wire", wire_path)
    assert spec and spec.loader  # it is a file with the ending .py
    wire = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wire)
    sys.path[:] = library  # NumPy is loaded; nothing else of site-packages may be
    folders = tuple(path + os.sep for path in library if os.path.isdir(path))
    limit_resources(int(memory), int(cpu_seconds))
    wire.send(replies, {"ready": True})
    lock_down(folders, os.path.dirname(np.__file__) + os.sep)
    serve(wire, requests, replies, np, int(call_seconds))


if __name__ == "__main__":
    main()
