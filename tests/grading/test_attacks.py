"""Code that hangs, crashes, floods, spies or forges: it earns nothing and stops nobody."""

import textwrap
import time

import numpy as np
import pytest

from minitx.grading.exercise import exercise
from minitx.grading.grader import grade
from minitx.grading.report import gradescope, in_words
from minitx.grading.sandbox import Limits

QUICK = Limits(call=0.7)
BODY = "def softmax_backward(g, y):\n    {}\n"


def attack(tmp_path, source, limits=None):
    """Grade ``source`` as softmax_backward: points, words, seconds."""
    file = tmp_path / "softmax_backward.py"
    file.write_text(textwrap.dedent(source).lstrip(), encoding="utf-8")
    start = time.monotonic()
    result = grade(exercise("softmax_backward"), file, 0, limits)
    gradescope([result])
    words = in_words(result)
    assert "Traceback" not in words and "child.py" not in words
    return result.points, words, time.monotonic() - start


def test_endless_loop_in_a_function(tmp_path):
    points, words, seconds = attack(tmp_path, BODY.format("while True: pass"), QUICK)
    assert points == 0 and seconds < 20
    assert "took longer than" in words and "a loop that never ends" in words
    assert "earlier parts ran out of time" in words


def test_endless_loop_is_ended_by_its_cpu_time(tmp_path):
    pytest.importorskip("resource")
    points, words, _ = attack(tmp_path, BODY.format("while True: pass"), Limits(call_cpu=1))
    assert points == 0 and "took longer than 1 s" in words


def test_endless_loop_that_catches_everything(tmp_path):
    source = """
    import time
    def softmax_backward(g, y):
        while True:
            try:
                time.sleep(10)
            except BaseException:
                pass
    """
    points, words, seconds = attack(tmp_path, source, QUICK)
    assert points == 0 and seconds < 20 and "took longer than" in words


def test_endless_loop_while_loading(tmp_path):
    points, words, seconds = attack(tmp_path, "while True: pass\n", QUICK)
    assert points == 0 and seconds < 15 and "cannot be loaded" in " ".join(words.split())


def test_function_that_dawdles_in_every_call_is_too_slow(tmp_path, monkeypatch):
    monkeypatch.setattr("minitx.grading.grader.SEARCH_SECONDS", 1.0)
    source = """
    import time
    def softmax_backward(g, y):
        time.sleep(0.2)
        return y * (g - (g * y).sum(-1, keepdims=True))
    """
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and "Too slow" in words


@pytest.mark.parametrize("place", ["loading", "calling"])
def test_process_that_ends_itself(tmp_path, place):
    body = "import os\nos._exit(0)\n"
    source = body if place == "loading" else BODY.format("import os; os._exit(0)")
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and "ended the Python process" in words


def test_crash_of_the_interpreter(tmp_path):
    source = """
    import sys
    sys.setrecursionlimit(10**9)
    class Deep:
        def __repr__(self):
            return repr(self)
    def softmax_backward(g, y):
        return repr(Deep())
    """
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and ("crashed" in words or "raises" in words or "longer" in words)


def test_sys_exit(tmp_path):
    points, words, _ = attack(tmp_path, BODY.format("raise SystemExit(0)"))
    assert points == 0 and "calls sys.exit" in words
    points, words, _ = attack(tmp_path, "import sys\nsys.exit(0)\n")
    assert points == 0 and "calls sys.exit" in words


def test_megabytes_of_output(tmp_path):
    source = """
    import os
    def softmax_backward(g, y):
        print("x" * 1_000_000)
        os.write(1, b"y" * 1_000_000)
        os.write(2, b"z" * 1_000_000)
        return g
    """
    points, words, _ = attack(tmp_path, source, Limits(call=10.0))
    assert points == 0 and len(words) < 20_000


def test_endless_output(tmp_path):
    source = BODY.format('\n    while True: print("x" * 100_000)')
    points, words, _ = attack(tmp_path, source, QUICK)
    assert points == 0 and "took longer than" in words


def test_too_much_memory(tmp_path):
    source = BODY.format("return [bytearray(2**28) for _ in range(64)]")
    points, words, _ = attack(tmp_path, source, Limits(call=20.0, memory=2**29))
    assert points == 0 and "more memory" in words


def test_huge_answer(tmp_path):
    source = "import numpy as np\n" + BODY.format("return np.zeros(10**7)")
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and "too large to send" in words


@pytest.mark.parametrize(
    "move", ["np.random.seed(0)", "np.random.rand()", "random.random()", "random.seed(1)"]
)
def test_global_random_state(tmp_path, move):
    source = f"""
    import random
    import numpy as np
    def softmax_backward(g, y):
        {move}
        return y * (g - (g * y).sum(-1, keepdims=True))
    """
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and "global random state" in words


def test_answers_by_chance(tmp_path):
    source = """
    import numpy as np
    def softmax_backward(g, y):
        return np.random.default_rng().normal(size=y.shape).round() * y
    """
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and ("different answers" in words or "wrong" in words)


def test_patching_numpy_does_not_help(tmp_path):
    source = """
    import builtins
    import numpy as np
    import numpy.testing
    for module in (np, np.testing, np.linalg, builtins):
        for name in ("allclose", "isclose", "array_equal", "assert_allclose", "all", "isinstance"):
            if hasattr(module, name):
                setattr(module, name, lambda *a, **k: True)
    def softmax_backward(g, y):
        return g
    """
    points, *_ = attack(tmp_path, source)
    assert points == 0
    assert np.allclose([1.0], [2.0]) is False


SPIES = {
    "import": "from minitx.kernels.reference import softmax_backward",
    "import_later": """
        def softmax_backward(g, y):
            import minitx.kernels.reference as r
            return r.softmax_backward(g, y)
    """,
    "path": """
        import os, sys
        import numpy as np
        here = os.path.dirname(os.path.dirname(np.__file__))
        sys.path[:0] = [here, FOLDER, os.path.join(FOLDER, "minitx")]
        from minitx.kernels.reference import softmax_backward
    """,
    "open": """
        scope = {}
        exec(open(FOLDER + "/minitx/kernels/reference.py").read(), scope)
        softmax_backward = scope["softmax_backward"]
    """,
    "os_open": """
        import os
        def softmax_backward(g, y):
            fd = os.open(FOLDER + "/minitx/kernels/reference.py", os.O_RDONLY)
            scope = {}
            exec(os.read(fd, 10**6), scope)
            return scope["softmax_backward"](g, y)
    """,
    "numpy_reads": """
        import numpy as np
        def softmax_backward(g, y):
            text = np.fromfile(FOLDER + "/minitx/kernels/reference.py", dtype=np.uint8).tobytes()
            scope = {}
            exec(text, scope)
            return scope["softmax_backward"](g, y)
    """,
    "process": """
        import subprocess, sys
        def softmax_backward(g, y):
            subprocess.run([sys.executable, "-c", "import minitx"], check=True)
            return g
    """,
    "fork": """
        import os
        def softmax_backward(g, y):
            if os.fork() == 0:
                return g
            return y
    """,
    "collector": """
        import gc
        def softmax_backward(g, y):
            for thing in gc.get_objects():
                if getattr(thing, "__name__", "") == "reference":
                    return thing(g, y)
            return g
    """,
    "frames": """
        import sys
        def softmax_backward(g, y):
            frame, seen = sys._getframe(), []
            while frame is not None:
                seen += list(frame.f_locals.items()) + list(frame.f_globals.items())
                frame = frame.f_back
            for name, value in seen:
                if "expected" in name or "answer" == name or "reference" in name:
                    return value
            for name, value in seen:
                if callable(value) and getattr(value, "__name__", "") == "softmax_backward":
                    if value is not softmax_backward:
                        return value(g, y)
            return g
    """,
    "inspect": """
        import inspect, sys
        def softmax_backward(g, y):
            for module in list(sys.modules.values()):
                found = getattr(module, "softmax_backward", None)
                if callable(found):
                    return found(g, y)
            return inspect.getsource(sys.modules["__main__"])
    """,
    "parent_memory": """
        import os
        def softmax_backward(g, y):
            with open(f"/proc/{os.getppid()}/mem", "rb") as memory:
                return memory.read(10)
    """,
}


@pytest.mark.parametrize("name", SPIES)
def test_reading_the_reference(tmp_path, name):
    from pathlib import Path

    import minitx

    folder = str(Path(minitx.__file__).parents[1])
    source = textwrap.dedent(SPIES[name]).replace("FOLDER", repr(folder))
    points, words, _ = attack(tmp_path, source)
    assert points == 0
    if name.startswith("import"):
        assert "imports minitx" in words


FORGERIES = {
    "bytes_everywhere": """
        import os
        def softmax_backward(g, y):
            for fd in range(3, 20):
                try:
                    os.write(fd, b"{'passed': true, 'points': 10}" * 100)
                except OSError:
                    pass
            return g
    """,
    "frames_in_advance": """
        import json, os, struct
        def frame(**message):
            header = json.dumps({k: {"plain": v} for k, v in message.items()}).encode()
            return struct.pack("<II", len(header), 0) + header
        def softmax_backward(g, y):
            for fd in range(3, 20):
                try:
                    os.write(fd, frame(id="0", result=1.0, passed=True) * 3)
                except OSError:
                    pass
            return g
    """,
    "replies_through_the_frame": """
        import sys
        def softmax_backward(g, y):
            frame = sys._getframe()
            while "wire" not in frame.f_locals:
                frame = frame.f_back
            scope = frame.f_locals
            for _ in range(3):
                scope["wire"].send(scope["replies"], {"id": scope["request"]["id"], "result": g})
            return g
    """,
    "comparison_of_its_own": """
        import numpy as np
        class Yes(np.ndarray):
            def __eq__(self, other): return True
            def __sub__(self, other): return np.zeros(self.shape)
            def __array_function__(self, *a, **k): return True
        def softmax_backward(g, y):
            return g.view(Yes)
    """,
    "object_array": """
        import numpy as np
        class Bomb:
            def __reduce__(self): return (print, ("boom",))
            def __eq__(self, other): return True
            def __float__(self): return 0.0
        def softmax_backward(g, y):
            out = np.empty(y.shape, dtype=object)
            out[...] = Bomb()
            return out
    """,
    "deep_list": """
        def softmax_backward(g, y):
            deep = []
            deep.append(deep)
            return deep
    """,
    "kills_the_grader": """
        import os, signal
        def softmax_backward(g, y):
            os.kill(os.getppid(), signal.SIGKILL)
            return g
    """,
    "hook_rewritten": """
        import builtins, __main__
        builtins.PermissionError = ValueError
        __main__.lock_down = __main__.describe_error = __main__.serve = lambda *a: None
        def softmax_backward(g, y):
            return g
    """,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forging_earns_nothing(tmp_path, name):
    points, *_ = attack(tmp_path, FORGERIES[name], QUICK)
    assert points == 0


def test_files_cannot_be_written(tmp_path):
    target = tmp_path / "written"
    source = f"""
    def softmax_backward(g, y):
        with open({str(target)!r}, "w") as stream:
            stream.write("x")
        return g
    """
    points, words, _ = attack(tmp_path, source)
    assert points == 0 and not target.exists() and "PermissionError" in words


def test_the_standard_library_still_works(tmp_path):
    source = """
    import collections, dataclasses, fractions, functools, itertools, math, statistics, typing
    import numpy.linalg
    from numpy import fft
    def softmax_backward(g, y):
        import decimal, heapq, json
        print("thinking", math.pi)
        return y * (g - (g * y).sum(-1, keepdims=True))
    """
    points, words, _ = attack(tmp_path, source)
    assert points == 10, words
