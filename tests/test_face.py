"""What a reader finds under ``import minitx as tx``."""

import importlib.resources
import subprocess
import sys

import pytest

import minitx as tx


def test_every_name_of_the_face_is_there():
    assert [name for name in tx.__all__ if not hasattr(tx, name)] == []


def test_primitive_makes_a_differentiable_op_from_the_face():
    @tx.primitive
    def twice(x):
        return 2 * x, lambda g: 2 * g

    x = tx.tensor([1.0, 3.0], requires_grad=True)
    twice(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_interp_files_load_when_first_named_and_not_before():
    code = (
        "import sys, minitx as tx\n"
        "assert 'minitx.interp.scores' not in sys.modules\n"
        "tx.interp.scores.first_token_share\n"
        "assert 'minitx.interp.scores' in sys.modules\n"
        "assert 'patching' in dir(tx.interp)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_file_of_interp_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'score'"):
        _ = tx.interp.score


def test_type_checkers_are_told_of_the_hints():
    assert importlib.resources.files("minitx").joinpath("py.typed").is_file()
