"""The one shape that errors about names take."""

import pytest

from minitx.errors import MinitxError, choose, unknown


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    error = unknown("attention", "sofmax", ["sigmoid", "softmax", "relu"])
    assert str(error) == (
        "Unknown attention 'sofmax'. Did you mean 'softmax'? Known: relu, sigmoid, softmax."
    )


def test_choose_returns_the_entry_or_refuses():
    assert choose({"a": 1}, "a", "letter") == 1
    with pytest.raises(MinitxError, match=r"Unknown letter 'b'.*Known: a\."):
        choose({"a": 1}, "b", "letter")


def test_choose_refuses_an_unhashable_name():
    with pytest.raises(MinitxError, match=r"Unknown letter \['a'\]"):
        choose({"a": 1}, ["a"], "letter")


def test_users_may_catch_it_as_a_value_error():
    assert issubclass(MinitxError, ValueError)
