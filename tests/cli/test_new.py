"""``minitx new`` writes a file that runs as it is, and refuses what would not."""

import json
import re
import zipfile
from pathlib import Path

import pytest

from minitx import kernels
from minitx.cli.new import TEMPLATE
from minitx.lab.loading import experiments_in
from tests.cli.conftest import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_written_runs(cli, folder):
    code, out, err = cli("new", "sinks.my_own")
    assert (code, err) == (0, "") and "minitx run my_own.py --quick" in out
    [experiment] = experiments_in(folder / "my_own.py")
    assert (experiment.name, type(experiment).__name__) == ("sinks.my_own", "MyOwn")
    assert {each.control for each in experiment.arms.values()} == {True, False}
    assert len(experiment.arms) == 2 and len(experiment.claims) == 1
    code, out, err = cli("run", "my_own.py", "--quick", "--seeds", 2, "--set", "steps=3")
    assert code in (0, 1) and "failed" not in out + err, out + err
    stored = folder / "runs" / "sinks.my_own"
    assert (stored / "figure.png").exists()
    verdicts = json.loads((stored / "verdicts.json").read_text())
    assert verdicts["errors"] == [] and len(verdicts["claims"][0]["values"]) == 2
    assert cli("show", "my_own.py")[0] == 0


@pytest.mark.slow
def test_as_it_is_its_claim_holds(cli, folder, monkeypatch):
    monkeypatch.setattr(kernels, "active", lambda: "numba")
    cli("new", "sinks.my_own")
    code, out, err = cli("run", "my_own.py", "--seeds", 5)
    assert code == 0, out + err


def test_each_place_to_fill_in_is_marked_and_only_there(cli, folder):
    cli("new", "mine.first")
    text = (folder / "first.py").read_text(encoding="utf-8")
    assert text.count("TODO") >= 8
    assert not re.search(r"\{(name|file|cls)\}", text) and "{{" not in text
    compile(text, "first.py", "exec")


def test_a_file_of_yours_is_kept(cli, folder):
    (folder / "first.py").write_text("mine")
    code, out, err = cli("new", "mine.first")
    assert (code, out) == (2, "") and "first.py exists already and is kept" in err
    assert (folder / "first.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("first", "named FAMILY.NAME, .* got 'first'"),
        ("a.b.c", "named FAMILY.NAME, .* got 'a.b.c'"),
        ("Mine.first", "named FAMILY.NAME"),
        ("mine.1st", "named FAMILY.NAME"),
        ("mine.fi-rst", "named FAMILY.NAME"),
        ("../mine.first", "named FAMILY.NAME"),
        ("", "named FAMILY.NAME"),
        ("class.first", "'class' is a word of Python"),
        ("mine.import", "'import' is a word of Python"),
        ("mine.random", "random.py would hide the module 'random'"),
        ("mine.numpy", "numpy.py would hide the module 'numpy'"),
        ("mine.__", "NAME needs a letter"),
        ("sinks.emergence", "minitx has an experiment sinks.emergence of its own"),
    ],
)
def test_a_name_that_will_not_do(cli, folder, name, words):
    code, out, err = cli("new", name)
    assert (code, out) == (2, "")
    assert re.search(words, err) and err.count("\n") == 1, err
    assert not any(folder.iterdir())


def test_a_folder_that_cannot_be_written(cli, folder, monkeypatch):
    before = Path.open

    def refuse(path, mode="r", *args, **kwargs):
        if "x" in mode:
            raise PermissionError(13, "Permission denied")
        return before(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    code, _, err = cli("new", "mine.first")
    assert code == 2 and "Cannot write first.py: Permission denied" in err


def test_the_template_is_in_the_wheel(tmp_path, monkeypatch):
    build = pytest.importorskip("hatchling.build", reason="comes with the extra dev")
    monkeypatch.chdir(ROOT)
    wheel = zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path)))
    packed = wheel.read("minitx/cli/templates/experiment.py.txt")
    assert packed == TEMPLATE.read_bytes()
