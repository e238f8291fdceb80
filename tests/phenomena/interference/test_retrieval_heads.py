"""Retrieval heads: what is exchanged, penalised and taught; a tiny run; and (slow) one real seed."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.lab import run
from minitx.nn import Transformer
from minitx.phenomena.interference import _circuit
from minitx.phenomena.interference.retrieval_heads import RetrievalHeads
from minitx.tasks.recall import AssociativeRecall


def recalled(tokens):
    """The value that followed the last occurrence of the final token."""
    before = np.flatnonzero(tokens[:-1] == tokens[-1])
    return tokens[before[-1] + 1]


@pytest.mark.law("interference.retrieval_heads")
@given(st.integers(2, 8), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_exchanged_keys_change_the_answer_and_nothing_else(n_active, more, seed):
    rng = np.random.default_rng(seed)
    task = AssociativeRecall(n_active=n_active, n_pairs=n_active + 1 + more)
    batch = task.sample(5, rng)
    before = batch.tokens.copy()
    clean, corrupted, answer, other = _circuit.swapped(batch, rng)
    np.testing.assert_array_equal(batch.tokens, before)
    for b in range(5):
        assert recalled(clean[b]) == answer[b] == batch.tokens[b, -1]
        assert recalled(corrupted[b]) == other[b] != answer[b]
        changed = np.flatnonzero(clean[b] != corrupted[b])
        assert len(changed) and (changed % 2 == 0).all() and changed.max() < len(clean[b]) - 1
        assert len(set(clean[b, changed])) == 2
        # Still a well-formed sequence: each key has one value.
        pairs = {tuple(pair) for pair in corrupted[b, :-1].reshape(-1, 2)}
        assert len(pairs) == len({key for key, _ in pairs}) == len({value for _, value in pairs})


def test_the_lasso_is_the_sum_of_norms_and_starts_late():
    settings = RetrievalHeads.Settings(d_model=8, n_heads=2)
    model = Transformer(settings.config(AssociativeRecall()), np.random.default_rng(0))
    lasso = _circuit.HeadLasso((0.1, 0.5), start=0.2)
    state = SimpleNamespace(model=model, step=20, steps=100)
    sizes = np.linalg.norm(model.W_O.reshape(2, 2, -1), axis=-1)  # [L, H]
    expected = 0.1 * sizes[0].sum() + 0.5 * sizes[1].sum()
    assert lasso.penalty(state).item() == pytest.approx(expected, rel=1e-5)
    assert lasso.penalty(SimpleNamespace(model=model, step=19, steps=100)) is None
    assert _circuit.HeadLasso((0.0, 0.0), 0.0).penalty(state) is None
    model.blocks[1].attn.output.weight.data[:] = 0  # a head at zero has a gradient all the same
    penalty = lasso.penalty(state)
    penalty.backward()
    assert np.isfinite(model.blocks[1].attn.output.weight.grad).all()


def test_the_curriculum_follows_the_step():
    curriculum = _circuit.Curriculum(AssociativeRecall())
    rng = np.random.default_rng(0)
    active = {}
    for step in (0, 19, 20, 39, 40, 99):
        curriculum.on_start(SimpleNamespace(step=step, steps=100))
        batch = curriculum.sample(64, rng)
        active[step] = int(batch.info["pair"].max()) + 1, batch.tokens.shape[1] // 2
    assert active == {0: (2, 16), 19: (2, 16), 20: (4, 16), 39: (4, 16), 40: (8, 24), 99: (8, 24)}


TINY = {"d_model": 16, "batch_size": 4, "steps": 3, "test_sequences": 8, "curve_every": 2}


@pytest.mark.parametrize("how", ["zero", "mean"])
def test_every_arm_measures_what_its_claims_need(how):
    experiment = RetrievalHeads()
    for name, settings in experiment.settings().items():
        got = experiment.measure(dataclasses.replace(settings, **TINY, ablation=how), seed=0)
        assert set(got) == set(experiment.measured)
        for claim in experiment.claims:
            if claim.arm == name:
                assert np.isfinite(got[claim.measure]), claim.id


def test_a_run_is_reproducible_and_can_be_drawn(tmp_path):
    outcome = run(RetrievalHeads(), seeds=2, jobs=1, overrides=TINY, out=tmp_path)
    again = RetrievalHeads().measure(outcome.results.settings["two layers"], 0)
    first = outcome.results["two layers"][0]
    assert first["accuracy"] == again["accuracy"]
    np.testing.assert_array_equal(first["previous_scores"], again["previous_scores"])
    figure = RetrievalHeads().draw(outcome.results)
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert "What is left of recall" in titles and len(titles) == 6


@pytest.mark.slow
def test_one_seed_shows_the_circuit():
    experiment = RetrievalHeads()
    got = {
        name: experiment.measure(settings, seed=101)  # two heads share the role on some seeds
        for name, settings in experiment.settings().items()
        if name != "no lasso"
    }
    for claim in experiment.claims:
        value = got[claim.arm][claim.measure]
        above = value >= claim.threshold
        assert above if claim.direction == "at_least" else value <= claim.threshold, claim.id
    assert got["two layers"]["previous_score"] >= 0.9
