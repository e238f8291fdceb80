"""Batches refuse what does not fit; tasks hand models only what models take."""

import numpy as np
import pytest

from minitx.errors import MinitxError, ShapeError
from minitx.tasks import IGNORE, Batch, Task, mark, next_token_targets


def test_model_kwargs_hold_only_what_was_given():
    tokens = np.zeros((2, 3), np.int64)
    assert Batch(tokens, tokens).model_kwargs() == {}
    kwargs = Batch(tokens, tokens, positions=np.arange(3), info={"x": tokens}).model_kwargs()
    assert list(kwargs) == ["positions"]


def test_features_are_a_third_axis():
    assert Batch(np.zeros((2, 3, 4), np.int64), np.zeros((2, 3), np.int64)).size == 2


@pytest.mark.parametrize(
    "tokens, targets", [((2, 3), (2, 4)), ((3,), (3,)), ((2, 3, 4), (2, 3, 4))]
)
def test_shapes_that_do_not_fit_are_restated(tokens, targets):
    with pytest.raises(ShapeError, match=str(tokens[-1])):
        Batch(np.zeros(tokens, np.int64), np.zeros(targets, np.int64))


def test_float_tokens_are_refused():
    with pytest.raises(MinitxError, match="integer tokens; got float64"):
        Batch(np.zeros((2, 3)), np.zeros((2, 3), np.int64))


def test_a_task_must_say_how_to_sample():
    class Half(Task):
        def describe(self, rng):
            return ""

    with pytest.raises(TypeError, match="sample"):
        Half()


def test_next_token_targets_look_one_ahead():
    tokens = np.array([[0, 5, 6, 7]])
    assert next_token_targets(tokens).tolist() == [[5, 6, 7, IGNORE]]
    assert tokens.tolist() == [[0, 5, 6, 7]]


def test_mark_shows_the_answer():
    assert mark(["a", 4, "?"], answers=[1]) == "a **4** ?"
