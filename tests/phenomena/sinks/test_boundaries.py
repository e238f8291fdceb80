"""``sinks.boundaries``: every setting of the map runs, and the map draws."""

import io
import warnings

import numpy as np
import pytest

from minitx.lab import Results, Run, judge
from minitx.lab.results import from_json, to_json
from minitx.phenomena.sinks.boundaries import PLACES, Boundaries
from minitx.phenomena.sinks.emergence import Emergence

ARMS = Boundaries().settings({"steps": 2, "batch_size": 4, "length": 16, "eval_sequences": 8})


@pytest.fixture(scope="module")
def tiny_results():
    experiment, runs = Boundaries(), {}
    for name, settings in ARMS.items():
        for seed in (0, 1):
            measured = from_json(to_json(experiment.measure(settings, seed)))
            runs[name, seed] = Run(name, seed, measured, 0.1)
    results = Results(experiment.name, tuple(ARMS), (0, 1), runs, ARMS)
    results.claims = [judge(claim, results) for claim in experiment.claims]
    return results


def test_every_setting_measures_finite_numbers(tiny_results):
    assert len(ARMS) == 2 * len(PLACES)
    for name in ARMS:
        for measure in Boundaries.measured:
            assert np.isfinite(tiny_results.values(name, measure)).all(), (name, measure)


def test_the_figure_draws(tiny_results):
    fig = Boundaries().draw(tiny_results)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fig.savefig(io.BytesIO(), format="png", dpi=40)


def test_the_map_starts_from_the_setting_of_emergence():
    mine, theirs = Boundaries().settings(), Emergence().settings()
    assert mine["softmax_recipe"] == theirs["softmax"]
    assert mine["softmax1_recipe"] == theirs["softmax1"]
