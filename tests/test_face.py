"""What a reader finds under ``import minitx as tx``."""

import importlib.resources
import subprocess
import sys

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


def test_interp_files_are_there_without_a_further_import():
    code = "import minitx as tx; tx.interp.scores.first_token_share"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_type_checkers_are_told_of_the_hints():
    assert importlib.resources.files("minitx").joinpath("py.typed").is_file()
