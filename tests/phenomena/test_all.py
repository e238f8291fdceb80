"""What every experiment owes its readers, whichever it is."""

import json
import re
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx import lab, phenomena
from minitx.lab.experiment import registry, validate
from tests.phenomena import laws

BROKEN = phenomena.load_all()
NAMES = sorted(registry)


def test_every_file_can_be_imported():
    assert not BROKEN
    families = {"sinks", "position", "interference", "forgetting"}
    assert families <= {name.split(".")[0] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_says_what_a_reader_needs(name):
    experiment = phenomena.load(name)
    validate(experiment)
    assert type(experiment).__module__ == f"minitx.phenomena.{name}"  # found by its name
    assert experiment.question.endswith("?") and len(experiment.question) < 110
    assert len(experiment.mechanism) > 100
    assert re.search(r"\(\d{4}\)", experiment.source), "a source has a year"
    # 3 minutes at 5 seeds on 2 cores; a slow machine may need a little more.
    assert experiment.seconds <= 210
    assert any(each.control for each in experiment.arms.values()), "there is a control"
    assert any(claim.control for claim in experiment.claims)
    assert any(not claim.control for claim in experiment.claims)
    for words in experiment.measured.values():
        assert len(words) > 10


LAWS = laws.laws(laws.test_modules())


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_has_a_law(name):
    assert LAWS.get(name), (
        f"No test carries @pytest.mark.law({name!r}) and uses Hypothesis: "
        "write a property that must hold of it, whatever the numbers are."
    )


def test_laws_name_experiments():
    assert set(LAWS) <= set(NAMES)


def test_only_a_property_test_that_runs_is_a_law():
    def plain():
        def test(n):
            pass

        return test

    law, drawn = pytest.mark.law, given(st.integers())
    made_up = ModuleType("made_up")
    made_up.test_law = law("a.law")(drawn(plain()))
    made_up.test_inner = drawn(law("a.law_within")(plain()))
    made_up.test_without_cases = law("a.single_case")(plain())
    made_up.test_skipped = pytest.mark.skip(law("a.skipped_law")(drawn(plain())))
    made_up.helper = law("a.helper")(drawn(plain()))
    made_up.test_unmarked = drawn(plain())
    assert set(laws.laws([made_up])) == {"a.law", "a.law_within"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_ends_in_verdicts_and_a_figure_with_something_in_it(name, tmp_path):
    outcome = lab.run(phenomena.load(name), seeds=2, quick=True, out=tmp_path)
    assert not outcome.errors
    folder = tmp_path / name
    verdicts = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    assert verdicts["quick"] and verdicts["seeds"] == [0, 1]
    assert {claim["verdict"] for claim in verdicts["claims"]} <= {
        "supported",
        "refuted",
        "inconclusive",
    }
    for claim in verdicts["claims"]:
        assert np.isfinite([claim["estimate"], claim["low"], claim["high"]]).all(), claim["id"]
    from matplotlib.image import imread

    picture = imread(folder / "figure.png")[..., :3]
    assert picture.std() > 0.02 and min(picture.shape[:2]) > 300
