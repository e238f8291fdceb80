"""Which kernels are active, and what happens when Numba is missing."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minitx import kernels
from minitx.errors import MinitxError

NO_NUMBA = "import sys; sys.modules['numba'] = None\n"  # Python's own mark of a missing module


def python(code, **environment):
    """Run code in a fresh interpreter; (stdout, stderr)."""
    env = {k: v for k, v in os.environ.items() if k != "MINITX_KERNELS"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture
def restore():
    before = kernels.active()
    yield
    kernels.use(before)


def test_use_switches_and_says_so(restore):
    for name in ("numpy", "numba", "numpy"):
        kernels.use(name)
        assert kernels.active() == name
        assert kernels.softmax.__module__.startswith("minitx.kernels")
        assert (kernels.gelu.__module__ == "minitx.kernels.reference") == (name == "numpy")


def test_unknown_names_are_refused(restore):
    with pytest.raises(MinitxError, match="numpy"):
        kernels.use("nunpy")
    with pytest.raises(AttributeError, match="sofmax"):
        kernels.sofmax  # noqa: B018


def test_import_loads_neither_kernels_nor_numba():
    out, _ = python(
        "import sys, minitx.kernels;"
        "print([m for m in sys.modules if 'numba' in m or 'compiled' in m])"
    )
    assert out == "[]"


def test_environment_chooses_numpy():
    out, _ = python(
        "import sys; from minitx import kernels as k; k.softmax;"
        "print(k.active(), 'numba' in sys.modules)",
        MINITX_KERNELS="numpy",
    )
    assert out == "numpy False"


def test_environment_with_an_unknown_name():
    code = "from minitx import kernels\ntry: kernels.softmax\nexcept Exception as e: print(e)"
    out, _ = python(code, MINITX_KERNELS="cuda")
    assert "'cuda'" in out and "numba, numpy" in out


def test_without_numba_the_reference_is_used():
    out, _ = python(NO_NUMBA + "from minitx import kernels\nprint(kernels.active())")
    assert out == "numpy"


def test_asking_for_numba_without_numba_is_an_error():
    code = "from minitx import kernels\ntry: kernels.softmax\nexcept Exception as e: print(repr(e))"
    out, _ = python(NO_NUMBA + code, MINITX_KERNELS="numba")
    assert out.startswith("MinitxError") and "pip install numba" in out


def test_warm_up_tells_when_it_compiles_and_only_then(tmp_path):
    pytest.importorskip("numba")
    code = (
        "from minitx import kernels as k, errors\n"
        "from minitx.kernels import compile_ahead as c\n"
        "c._tiny_calls = lambda dtype, all=c._tiny_calls: all(dtype)[:2]\n"
        "k.warm_up()"
    )
    _, first = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    _, second = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert "Compiling" in first and second == ""


def test_a_change_of_shared_parts_renews_the_disk_cache():
    """Numba's cache looks only at the file of the kernel itself; see ``_math.py``."""
    folder = Path(kernels.__file__).parent
    parts = [
        (folder / name).read_bytes()
        for name in ("_math.py", "_gemm.py", "_registers.py", "_tiles.py")
    ]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:12]
    for path in sorted(folder.glob("compiled*.py")):
        assert digest in path.read_text(), f"{path.name} must name the digest {digest}"
