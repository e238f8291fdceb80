"""Memory against context: what is exact about the dose, and that every arm can be measured."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import no_grad
from minitx.lab import run
from minitx.nn import Transformer
from minitx.phenomena.interference.conflict import DOSES, Conflict, Settings
from minitx.phenomena.recipe import train
from minitx.tasks.conflict import MemoryOrContext

seeds = st.integers(0, 999)


@pytest.mark.law("interference.conflict")
@given(seed=seeds)
def test_at_full_dose_the_context_is_redundant(seed):
    # Every open-book answer is memory's too: no loss can tell which of the two was used.
    task = MemoryOrContext(truth=1.0, world_seed=seed)
    batch = task.sample(50, np.random.default_rng(seed))
    assert np.array_equal(batch.targets[:, -1], batch.info["memory"])


@pytest.mark.law("interference.conflict")
@given(seed=seeds)
def test_at_no_dose_memory_is_never_right_in_open_book(seed):
    task = MemoryOrContext(truth=0.0, world_seed=seed)
    batch = task.sample(50, np.random.default_rng(seed))
    opened = batch.info["stated"] >= 0
    assert (batch.targets[opened, -1] != batch.info["memory"][opened]).all()


@pytest.mark.law("interference.conflict")
@given(seed=seeds)
def test_the_order_of_the_statements_does_not_matter(seed):
    # One layer without positions: the query sees a set of statements, whatever the weights.
    rng = np.random.default_rng(seed)
    task = MemoryOrContext()
    config = Settings(d_model=12, n_heads=2, init_std=0.5).config(task).replace(dtype="float64")
    model = Transformer(config, rng).eval()
    batch = task.sample(3, rng)
    order = np.append(rng.permutation(task.n_statements), task.n_statements)
    with no_grad():
        one, two = model(batch.tokens).data, model(batch.tokens[:, order]).data
    assert np.allclose(one[:, -1], two[:, -1], atol=1e-9)


def test_arms_differ_in_the_dose_alone():
    settings = Conflict().settings()
    for name, q in DOSES.items():
        assert settings[name] == dataclasses.replace(Settings(), truth=q)
    control = settings["no closed book"]
    assert control == dataclasses.replace(settings["q=0"], closed_share=0.0)


def test_every_arm_measures_what_it_says_and_can_be_drawn(tmp_path):
    tiny = {"steps": 2, "d_model": 8, "batch_size": 4, "test_sequences": 50}
    outcome = run(Conflict(), seeds=2, overrides=tiny, out=tmp_path, backend="sequential")
    assert not outcome.errors
    for name in Conflict.arms:
        for each in outcome.results[name]:
            assert set(each.measurements) == set(Conflict.measured)
            assert 0 <= each["p_memory"] + each["p_context"] <= 1
    assert Conflict().draw(outcome.results).axes
    assert "in memory" in Conflict().example(np.random.default_rng(0))


def test_worlds_differ_by_seed():
    task = MemoryOrContext(world_seed=1)
    assert not np.array_equal(task.world(), MemoryOrContext(world_seed=2).world())
    model, _ = train(task, Settings(steps=1, d_model=8, batch_size=4), seed=1)
    assert model.config.n_outputs == task.n_values


@pytest.mark.slow
def test_the_dose_shifts_the_answer_in_a_short_run():
    settings = Conflict().settings(quick=True)
    p = {name: Conflict().measure(settings[name], 0)["p_memory"] for name in ("q=0", "q=1")}
    assert p["q=1"] > 0.8 and p["q=1"] - p["q=0"] > 0.4
