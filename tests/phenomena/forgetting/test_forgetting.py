"""Forgetting: that every arm measures what its claims need, on a tiny run."""

import dataclasses

import numpy as np
import pytest

from minitx.phenomena.forgetting import plasticity, sequential, spurious

EXPERIMENTS = [sequential.Sequential, plasticity.Plasticity, spurious.Spurious]
TINY = {
    "forgetting.sequential": {"steps": 2, "facts": 4, "labels": 3, "replay": 2, "d_model": 8},
    "forgetting.plasticity": {"tasks": 6, "steps": 2, "items": 8, "d_model": 8},
    "forgetting.spurious": {"steps": 2, "damage_steps": 50, "recovery_steps": 5, "batch_size": 4},
}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_every_arm_measures_what_its_claims_need(experiment):
    experiment = experiment()
    for name, settings in experiment.settings().items():
        settings = dataclasses.replace(settings, **TINY[experiment.name])
        got = experiment.measure(settings, seed=0)
        assert set(got) == set(experiment.measured)
        for claim in experiment.claims:
            if name in (claim.arm, claim.minus) and claim.measure != "spurious_fraction":
                assert np.isfinite(got[claim.measure]), (name, claim.measure)


def test_joint_training_has_no_intransigence_by_definition():
    settings = sequential.Settings(steps=3, facts=4, labels=3, d_model=8)
    joint = dataclasses.replace(settings, strategy="joint")
    got = sequential.Sequential().measure(joint, 0)
    kept = sequential.Sequential().measure(dataclasses.replace(settings, ewc=7.0), 0)
    final = got["matrix"][-1]
    assert got["intransigence"] == (final - np.diag(got["matrix"])).mean()
    assert kept["intransigence"] == (final - np.diag(kept["matrix"])).mean()


def test_arms_with_one_seed_see_the_same_tables():
    settings = sequential.Settings()
    tables = [task.table[0] for task in settings.series(3)]
    again = [task.table[0] for task in dataclasses.replace(settings, strategy="ewc").series(3)]
    assert all(np.array_equal(a, b) for a, b in zip(tables, again, strict=True))


def test_the_second_tasks_differ_in_whom_they_ask_and_what_counts_as_right():
    world = spurious.Settings().world(0)
    refuse, overwrite = (spurious.SECOND[name](world) for name in ("refuse", "overwrite"))
    assert np.array_equal(refuse.world, world.world) and np.array_equal(
        overwrite.world, world.world
    )
    assert refuse.people[0] >= spurious.PEOPLE  # new people only
    assert set(refuse.everything().targets[:, 2]) == {world.refuse}
    assert (overwrite.taught != world.world).all()


def test_what_one_arm_does_to_the_shared_model_does_not_reach_the_next():
    experiment = spurious.Spurious()
    arms = {
        name: dataclasses.replace(settings, **TINY[experiment.name])
        for name, settings in experiment.settings().items()
    }
    spurious.learnt.cache_clear()
    alone = experiment.measure(arms["refuse, frozen"], seed=1)
    spurious.learnt.cache_clear()
    for name in ("overwrite", "refuse"):
        experiment.measure(arms[name], seed=1)
    assert spurious.learnt.cache_info().misses == 1
    after = experiment.measure(arms["refuse, frozen"], seed=1)
    for measure, value in alone.items():
        assert np.array_equal(after[measure], value, equal_nan=True), measure
