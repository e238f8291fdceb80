"""Definitions that do not hold together are refused; settings come together in a fixed order."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.lab import Experiment, arm, at_least, find, register, registry, validate
from minitx.lab.experiment import collecting
from minitx.lab.settings import parse_value, split_assignment


@dataclass(frozen=True)
class Settings:
    steps: int = 100
    lr: float = 0.1
    kind: str = "plain"


class Good(Experiment):
    name = "made.up"
    question = "Is it good?"
    measured = {"x": "a number"}
    Settings = Settings
    arms = {"one": arm(kind="fancy"), "two": arm(kind="other", steps=7, control=True)}
    claims = [at_least("x", 0.0, arm="one")]
    quick = {"steps": 10, "lr": 0.5}

    def measure(self, settings, seed):
        return {"x": 0.0}


def variant(**attributes: Any) -> type[Experiment]:
    return type("Variant", (Good,), attributes)


def test_a_good_one_passes():
    validate(Good)
    validate(Good())


@dataclass(frozen=True)
class Incomplete:
    steps: int


class Thawed:
    steps = 100


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"name": "nofamily"}, "family.short.*'nofamily'"),
        ({"name": "A.B"}, "family.short"),
        ({"question": " "}, "question"),
        ({"question": "One?\nTwo?"}, "one line"),
        ({"Settings": Thawed}, "frozen dataclass"),
        ({"Settings": Incomplete}, "default"),
        ({"arms": {}}, "at least one arm"),
        ({"arms": {"one": {"steps": 3}}}, r"arm 'one' is made with arm\(...\)"),
        ({"arms": {"one": arm(step=3)}}, r"\(arm one\) setting 'step'\. Did you mean 'steps'"),
        ({"quick": {"stops": 3}}, r"\(quick\) setting 'stops'.*'steps'"),
        ({"claims": []}, "at least one claim"),
        ({"claims": [at_least("x", 0.0, arm="won")]}, "arm 'won'.*Did you mean .*'one'"),
        ({"claims": [at_least("x", 0.0, arm="one", minus="tow")]}, "arm 'tow'.*Did you mean 'two'"),
        ({"claims": [at_least("y", 0.0, arm="one")]}, "'y'.*`measured`.*known: x"),
        ({"claims": [at_least("x", 0.0, arm="one")] * 2}, "two claims have the id"),
        ({"measure": Experiment.measure}, "measure.*is missing"),
    ],
)
def test_what_does_not_hold_together_is_refused(attributes, words):
    with pytest.raises(MinitxError, match=words):
        validate(variant(**attributes))


def test_order_of_settings_is_default_quick_override_pin():
    plain = Good().settings()
    assert plain == {"one": Settings(100, 0.1, "fancy"), "two": Settings(7, 0.1, "other")}
    quick = Good().settings(quick=True)
    assert quick == {"one": Settings(10, 0.5, "fancy"), "two": Settings(7, 0.5, "other")}
    both = Good().settings({"steps": "33"}, quick=True)
    assert both == {"one": Settings(33, 0.5, "fancy"), "two": Settings(7, 0.5, "other")}


def test_a_key_that_every_arm_pins_cannot_be_set():
    with pytest.raises(MinitxError, match="'kind'.*every arm.*one: 'fancy', two: 'other'"):
        Good().settings({"kind": "third"})


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(MinitxError, match="'stepz'.*Did you mean 'steps'.*kind, lr, steps"):
        Good().settings({"stepz": "3"})


def test_a_value_that_does_not_fit_says_what_would():
    with pytest.raises(MinitxError, match="'steps' of made.up takes a whole number, got 'many'"):
        Good().settings({"steps": "many"})


def test_a_setting_that_the_experiment_itself_refuses():
    @dataclass(frozen=True)
    class Fussy:
        steps: int = 1

        def __post_init__(self):
            if self.steps < 1:
                raise ValueError("steps must be positive")

    cls = variant(Settings=Fussy, arms={"one": arm()}, quick={})
    with pytest.raises(MinitxError, match="made.up cannot be run with steps=-1: steps must be"):
        cls().settings({"steps": "-1"})


def test_register_find_and_collecting():
    with collecting() as found:
        register(Good)
        assert find("made.up").name == "made.up"
        with pytest.raises(MinitxError, match="Unknown experiment 'made.pu'.*'made.up'"):
            find("made.pu")
        register(Good)  # the same module again: a reloaded notebook cell
        stranger = variant(__module__="elsewhere")
        with pytest.raises(MinitxError, match="already registered by"):
            register(stranger)
    assert found == {"made.up": Good}
    assert "made.up" not in registry


GOOD_VALUES = [
    ("3", int, 3),
    ("1e3", int, 1000),
    ("1_000", int, 1000),
    ("-2", int, -2),
    ("0.5", float, 0.5),
    ("3", float, 3.0),
    ("yes", bool, True),
    ("False", bool, False),
    ("0", bool, False),
    ("word", str, "word"),
    ("none", str | None, None),
    ("word", str | None, "word"),
    ("none", int | None, None),
    ("4", int | None, 4),
    ("b", Literal["a", "b"], "b"),
    ("2", Literal[1, 2], 2),
    ("1,2,4", tuple[int, ...], (1, 2, 4)),
    ("(1, 2)", tuple[int, ...], (1, 2)),
    ("", tuple[int, ...], ()),
    ("3,x", tuple[int, str], (3, "x")),
    ("0.1,2", list[float], [0.1, 2.0]),
]


@pytest.mark.parametrize(("text", "hint", "value"), GOOD_VALUES)
def test_values_are_parsed_by_type(text, hint, value):
    parsed = parse_value(text, hint)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "hint", "words"),
    [
        ("3.5", int, "a whole number"),
        ("inf", int, "a whole number"),
        ("x", float, "a number"),
        ("nan", float, "a finite number"),
        ("inf", float, "a finite number"),
        ("maybe", bool, "true or false"),
        ("x", int | None, "a whole number or none"),
        ("c", Literal["a", "b"], "one of 'a', 'b'"),
        ("1,x", tuple[int, ...], "values with commas between, each a whole number"),
        ("1", tuple[int, int], "2 values with commas between"),
        ("x", dict, "dict, which cannot be given as text"),
    ],
)
def test_values_that_do_not_fit(text, hint, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        parse_value(text, hint)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
def test_what_is_printed_can_be_given_again(value):
    assert parse_value(str(value), type(value)) == value


def test_assignments():
    assert split_assignment(" a = b=c ") == ("a", "b=c")
    assert split_assignment("a=") == ("a", "")
    for text in ("a", "=3", ""):
        with pytest.raises(MinitxError, match="--set takes key=value, got"):
            split_assignment(text)
