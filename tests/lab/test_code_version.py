"""A stored result counts only for the code that made it; a restyled figure trains nothing anew."""

import subprocess
import sys
from pathlib import Path

import pytest

from minitx.lab import code_version as cv
from minitx.lab.loading import experiments_in

EXPERIMENT = '''
"""An experiment of a user's."""
from minitx.lab import Experiment, arm, at_least
from minitx.errors import MinitxError
import helper


class Mine(Experiment):
    name = "my.own"
    question = "Does it matter?"
    measured = {"x": "a number"}
    arms = {"a": arm()}
    claims = [at_least("x", 0.0, arm="a")]

    def measure(self, settings, seed):
        """Measure."""
        return {"x": helper.number(seed)}
'''
HELPER = "from deeper import scale\n\ndef number(seed):\n    return scale * seed\n"


def version(folder):
    [experiment] = experiments_in(folder / "mine.py")
    return cv.code_version(experiment)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("helper", "deeper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine.py").write_text(EXPERIMENT)
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "deeper.py").write_text("scale = 2.0\n")
    (tmp_path / "stranger.py").write_text("scale = 2.0\n")
    yield tmp_path
    for name in ("helper", "deeper"):
        sys.modules.pop(name, None)


def test_code_that_is_reached_counts(folder):
    first = version(folder)
    assert version(folder) == first
    (folder / "deeper.py").write_text("scale = 2.5\n")
    second = version(folder)
    assert second != first
    (folder / "helper.py").write_text(HELPER.replace("*", "+"))
    assert version(folder) not in (first, second)


def test_the_experiments_own_file_counts(folder):
    first = version(folder)
    (folder / "mine.py").write_text(EXPERIMENT.replace('at_least("x", 0.0', 'at_least("x", 0.5'))
    assert version(folder) != first


def test_comments_docstrings_layout_and_strangers_do_not_count(folder):
    first = version(folder)
    (folder / "stranger.py").write_text("scale = 3.0\n")
    (folder / "helper.py").write_text(
        '"""New."""\n' + HELPER.replace("scale * seed", "(scale*seed)")
    )
    changed = EXPERIMENT.replace('"""Measure."""', '"""Measure it."""  # really')
    (folder / "mine.py").write_text(changed)
    assert version(folder) == first


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package named like ours, in a folder of its own."""
    root = tmp_path / "minitx"
    files = {
        "__init__.py": "from minitx import nn, tasks\nfrom minitx.nn import Model\n__all__ = []\n",
        "nn/__init__.py": "from minitx.nn.model import Model\nfrom .masks import causal as tri\n",
        "nn/model.py": "from minitx import kernels\nclass Model: pass\n",
        "nn/masks.py": "def causal(): pass\n",
        "kernels/__init__.py": "_MODULES = {'numba': 'minitx.kernels.fast'}\n"
        "def __getattr__(name):\n    import importlib\n",
        "kernels/fast.py": "def softmax(): pass\n",
        "tasks/__init__.py": "from .lists import Lists\n",
        "tasks/lists.py": "class Lists: pass\n",
        "tasks/facts.py": "class Facts: pass\n",
        "plots/__init__.py": "from .style import figure\n",
        "plots/style.py": "def figure(): pass\n",
        "lab/__init__.py": "class Experiment: pass\n",
        "phenomena/__init__.py": "def load(): pass\n",
        "phenomena/sinks/__init__.py": "",
        "phenomena/sinks/one.py": "from minitx.nn import Model\nfrom minitx import plots\n"
        "from minitx.plots.style import figure\nfrom minitx.lab import Experiment\n"
        "from minitx.phenomena.sinks._shared import train\n",
        "phenomena/sinks/_shared.py": "def train():\n    from ...tasks.lists import Lists\n",
        "phenomena/sinks/two.py": "import minitx as tx\n",
        "phenomena/sinks/three.py": "from minitx.nn import *\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(cv, "PACKAGE", root)
    monkeypatch.setattr(cv, "DISCOVERY", root / "phenomena" / "__init__.py")
    return root


def reached(package, name):
    return {str(path.relative_to(package)) for path in cv.reached(package / name)}


def test_imports_are_followed_name_by_name(package):
    assert reached(package, "phenomena/sinks/one.py") == {
        "phenomena/sinks/one.py",
        "phenomena/sinks/__init__.py",  # no imports to look through: it might hold anything
        "phenomena/sinks/_shared.py",  # a helper
        "tasks/lists.py",  # imported inside a function, relatively
        "nn/model.py",  # through a package that only gathers names, without nn/masks.py
        "kernels/__init__.py",  # holds code of its own
        "kernels/fast.py",  # imported on demand, by a name in a string
    }


def test_a_whole_package_is_all_that_it_imports(package):
    everything = reached(package, "phenomena/sinks/two.py")
    assert {"__init__.py", "nn/__init__.py", "nn/masks.py", "tasks/lists.py"} <= everything
    assert "tasks/facts.py" not in everything
    assert not {name for name in everything if name.startswith(("plots", "lab"))}
    assert {"nn/model.py", "nn/masks.py"} <= reached(package, "phenomena/sinks/three.py")


def test_file_that_is_not_python_counts_by_its_bytes(package):
    path = package / "nn" / "model.py"
    path.write_text("class Model: pass  # one\n")
    good = cv._parsed(path).digest
    path.write_text("class Model pass\n")
    assert cv._parsed(path).digest != good


def test_our_own_experiments_reach_the_kernels_but_not_the_lab():
    path = cv.PACKAGE / "phenomena" / "sinks" / "emergence.py"
    if not path.is_file():
        pytest.skip("not there yet")
    names = {str(Path(p).relative_to(cv.PACKAGE)) for p in cv.reached(path)}
    assert {"kernels/compiled.py", "kernels/reference.py", "tasks/bigram.py", "optim.py"} <= names
    assert not {n for n in names if n.split("/")[0] in cv.APART}


NOTEBOOK = """
import sys
from minitx.lab import Experiment, Reporter, arm, at_least, run

{scale} = {value}

def number(seed):
    return [{scale} * s for s in [seed]][0]

class Mine(Experiment):
    name = "my.notebook"
    question = "Does it run from a notebook?"
    measured = {{"x": "a number"}}
    arms = {{"a": arm()}}
    claims = [at_least("x", 0.0, arm="a")]
    def measure(self, settings, seed):
        return {{"x": number(seed)}}
    def draw(self, results):
        from matplotlib.figure import Figure
        return Figure(figsize=(1, 1))

class Count(Reporter):
    def on_run(self, done):
        print(done.seed, done.measurements or done.error)

outcome = run(Mine(), seeds=2, jobs=int(sys.argv[1]), out=sys.argv[2], reporter=Count())
assert outcome.supported, outcome.errors
"""


def test_an_experiment_in_a_notebook(tmp_path):
    """It has no file: it is sent to the workers by value, and known by its compiled code."""

    def runs(jobs, value=2.0, scale="scale"):
        code = NOTEBOOK.format(scale=scale, value=value)
        done = subprocess.run(
            [sys.executable, "-c", code, str(jobs), str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        return sorted(done.stdout.splitlines())

    assert runs(2) == ['0 {"x": 0.0}', '1 {"x": 2.0}']
    assert runs(1) == []  # stored
    assert runs(1, value=3.0) == ['0 {"x": 0.0}', '1 {"x": 3.0}']
