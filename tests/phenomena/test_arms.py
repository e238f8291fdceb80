"""Arms of one seed start alike: same first weights where they share a part, same first batch."""

import copy

import numpy as np
import pytest

from minitx import phenomena
from minitx.lab.experiment import registry
from minitx.phenomena import recipe

phenomena.load_all()
NOT_TRAINED = {"position.init_bias"}  # a model at birth: there is no training to look at


class Started(Exception):
    """Raised in place of the first training step."""


def start_of(experiment, settings, seed, monkeypatch):
    """First weights, task and first batch of an arm; None if it trains nothing."""
    seen = {}

    def record(model, task, *, batch_size, rng, callbacks=(), **others):
        seen["scale"] = getattr(settings, "init_std", 1.0)
        seen["weights"] = {name: p.data.copy() for name, p in model.named_parameters()}
        data_rng, _ = copy.deepcopy(rng).spawn(2)
        sample = task.sample if hasattr(task, "sample") else task
        seen["task"] = task
        # A task that steps into the training as a callback draws nothing before it has started.
        seen["batch"] = None if task in callbacks else sample(batch_size, data_rng)
        raise Started

    monkeypatch.setattr(recipe, "fit", record)
    try:
        experiment.measure(settings, seed)
    except Started:
        return seen
    return None


@pytest.mark.parametrize("name", sorted(registry.keys() - NOT_TRAINED))
def test_arms_share_first_weights_and_first_batch(name, monkeypatch):
    experiment = phenomena.load(name)
    started = {
        arm: start_of(experiment, settings, 3, monkeypatch)
        for arm, settings in experiment.settings(quick=True).items()
    }
    started = {arm: seen for arm, seen in started.items() if seen is not None}
    assert started, "no arm trains through the common recipe"
    for arm, seen in started.items():
        for other, theirs in started.items():
            for part in seen["weights"].keys() & theirs["weights"].keys():
                mine, yours = seen["weights"][part], theirs["weights"][part]
                if mine.shape == yours.shape and seen["scale"] == theirs["scale"]:
                    np.testing.assert_array_equal(mine, yours, err_msg=f"{part}: {arm}, {other}")
            if seen["task"] == theirs["task"] and seen["batch"] is not None:
                np.testing.assert_array_equal(seen["batch"].tokens, theirs["batch"].tokens)
                np.testing.assert_array_equal(seen["batch"].targets, theirs["batch"].targets)
