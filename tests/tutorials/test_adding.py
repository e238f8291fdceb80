"""What `tutorials/adding.md` says works: its code runs as written, and its laws accept it."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from minitx.autograd import ops
from minitx.lab.experiment import collecting
from minitx.nn import ATTENTION
from minitx.nn.layers import ACTIVATIONS
from tests.autograd.test_ops import check_operation
from tests.nn import plain

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "tutorials" / "adding.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def as_before():
    """Whatever the page registers is gone afterwards."""
    tables = [ATTENTION, ACTIVATIONS, plain.WEIGHTS, plain.MLPS, vars(ops)]
    before = [dict(table) for table in tables]
    with collecting() as found:
        yield found
    for table, old in zip(tables, before, strict=True):
        for name in set(table) - set(old):
            del table[name]
        assert dict(table) == old


def test_the_code_runs_in_order(tmp_path, monkeypatch, as_before):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "adding"}
    for number, code in enumerate(BLOCKS):
        exec(compile(code, f"adding.md, block {number}", "exec"), scope)
    case = scope["softplus_case"]
    given(case.examples)(lambda drawn: check_operation(case, drawn, np.random.default_rng(0)))()
    assert scope["test_equal_weights_give_the_majority"].is_hypothesis_test


def test_the_files_it_names_are_there():
    for path in re.findall(r"`((?:minitx|tests)/[\w/.]+)`", TEXT):
        if "majority" not in path and "FAMILY" not in path:
            assert (ROOT / path).exists(), path
    for line in re.findall(r"^# ((?:minitx|tests)/\S+?),", TEXT, flags=re.MULTILINE):
        assert (ROOT / line).exists(), line
    for name in ("CASES", "WEIGHTS", "MLPS", "OWED", "ACTIVATIONS"):
        (path,) = set(re.findall(rf"^# (\S+), in {name}$", TEXT, flags=re.MULTILINE))
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
