"""The committed notebooks are complete and up to date; run anew, they work and draw something."""

import importlib.util
import inspect
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest

TUTORIALS = Path(__file__).parents[2] / "tutorials"
jupytext = pytest.importorskip("jupytext")


def _load(name):
    spec = importlib.util.spec_from_file_location(f"tutorials_{name}", TUTORIALS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _load("build")
SCRIPTS = build.scripts()
each_tutorial = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def test_there_are_four():
    assert [script.name[0] for script in SCRIPTS] == ["1", "2", "3", "4"]


@each_tutorial
def test_notebook_is_built_from_the_script_as_it_is(script):
    """``python tutorials/build.py`` after an edit."""
    committed = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    fresh = build.read(script)
    assert [(c.cell_type, c.source) for c in committed.cells] == [
        (c.cell_type, c.source) for c in fresh.cells
    ]


@each_tutorial
def test_notebook_is_committed_with_clean_outputs(script):
    committed = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(committed)
    assert build.complaints(committed) == []
    for cell in committed.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is not None


@each_tutorial
def test_tutorial_says_what_it_teaches_and_asks_before_it_tells(script):
    text = script.read_text(encoding="utf-8")
    assert text.index("At the end you will") < text.index("%matplotlib")
    assert text.index("# Knobs") < text.index("# ## 1.")
    assert text.count("**Question.**") >= 4
    imported = {
        line.split()[1].split(".")[0]
        for line in text.splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported <= {"minitx", "numpy", "pathlib", "subprocess", "sys", "dataclasses"}


def test_tutorial_1_quotes_the_source():
    from minitx.autograd import ops

    source = inspect.getsource(inspect.unwrap(ops.multiply)).strip()
    text = (TUTORIALS / "1_autograd.py").read_text(encoding="utf-8")
    quoted = "\n".join(f"# {line}" for line in ["```python", *source.splitlines(), "```"])
    assert quoted in text, f"the tutorial should quote:\n{source}"


def test_the_experiment_of_tutorial_4_is_the_file_beside_it():
    script = build.read(TUTORIALS / "4_your_own.py")
    (cell,) = [c.source for c in script.cells if c.source.startswith("%%writefile")]
    written = (TUTORIALS / "my_experiment.py").read_text(encoding="utf-8")
    assert written.strip() == cell.split("\n", 1)[1].strip()


def test_the_experiment_of_tutorial_4_holds_together():
    from minitx.lab.loading import experiments_in

    (experiment,) = experiments_in(TUTORIALS / "my_experiment.py")
    assert experiment.name == "tutorial.reversal"
    assert any(claim.control for claim in experiment.claims)
    assert any(arm.control for arm in experiment.arms.values())
    assert "**" in experiment.example(np.random.default_rng(0))


def test_links_in_the_tutorials_lead_somewhere():
    import re

    for file in [*SCRIPTS, TUTORIALS / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (TUTORIALS / target).exists(), (file.name, target)


def _png(pixels):
    from matplotlib.image import imsave

    out = io.BytesIO()
    imsave(out, pixels)
    return out.getvalue()


def test_empty_pictures_are_noticed():
    white = np.ones((40, 60, 3))
    assert build.picture_is_empty(_png(white))
    drawn = white.copy()
    drawn[10:30, 20:40] = [0.0, 0.4, 0.7]
    assert not build.picture_is_empty(_png(drawn))
    assert not build.picture_is_empty(build.smaller(_png(drawn)))


def test_complaints_name_what_must_not_be_committed():
    cell = nbformat.v4.new_code_cell("1 / 0")
    cell.outputs = [
        nbformat.v4.new_output("error", ename="ZeroDivisionError", evalue="division by zero"),
        nbformat.v4.new_output("stream", name="stderr", text="UserWarning: old"),
        nbformat.v4.new_output("stream", name="stdout", text="saved to /home/ada/runs"),
        nbformat.v4.new_output("display_data", data={"text/plain": "<Figure size 3x3>"}),
    ]
    found = "\n".join(build.complaints(nbformat.v4.new_notebook(cells=[cell])))
    for word in ("ZeroDivisionError", "standard error", "a path", "shown as text", "no picture"):
        assert word in found


@pytest.mark.slow
@each_tutorial
def test_tutorial_runs_without_errors_and_draws_pictures(script, tmp_path):
    notebook = build.execute(script, tmp_path)
    assert build.complaints(notebook) == []


@pytest.mark.slow
def test_the_experiment_of_tutorial_4_runs_from_the_command_line(tmp_path):
    from minitx.cli import main

    out = ["--out", str(tmp_path)]
    assert main(["run", str(TUTORIALS / "my_experiment.py"), "--seeds", "5", *out]) == 0
    assert (tmp_path / "tutorial.reversal" / "figure.png").is_file()
