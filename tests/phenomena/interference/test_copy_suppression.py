"""Copy suppression: what is exact about circuit and prediction; every arm can be measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import no_grad
from minitx.interp.circuits import copying_score
from minitx.lab import run
from minitx.nn import Transformer
from minitx.phenomena.interference.copy_suppression import (
    CopySuppression,
    Settings,
    item_circuit,
)
from minitx.tasks.decks import Deck

seeds = st.integers(0, 999)


def a_model(seed: int) -> Transformer:
    """An untrained model with large weights, in double precision: laws hold for any weights."""
    config = Settings(d_model=12, n_heads=3, init_std=0.5).config(Deck()).replace(dtype="float64")
    return Transformer(config, np.random.default_rng(seed)).eval()


@pytest.mark.law("interference.copy_suppression")
@given(seed=seeds, t=st.integers(2, 15))
def test_a_prediction_depends_on_which_items_came_not_on_their_order(seed, t):
    rng = np.random.default_rng(seed)
    model, tokens = a_model(seed), Deck().sample(3, rng).tokens[:, : t + 1]
    order = np.concatenate([[0], 1 + rng.permutation(t - 1), [t]])  # BOS and the last stay
    with no_grad():
        one, two = model(tokens).data, model(tokens[:, order]).data
    assert np.allclose(one[:, -1], two[:, -1], atol=1e-9)


@given(seed=seeds, shift=st.floats(-5, 5))
def test_what_the_norms_remove_does_not_reach_the_score(seed, shift):
    # Layer norms take away the mean over features: a shift of all features of the embeddings, and
    # one of all weights of a logit, change neither the predictions nor the copying score.
    model = a_model(seed)
    tokens = Deck().sample(2, np.random.default_rng(seed)).tokens
    before = copying_score(*item_circuit(model, 16))
    with no_grad():
        logits = model(tokens).data
    model.W_E[...] += shift
    model.W_U[...] += shift
    with no_grad():
        assert np.allclose(model(tokens).data, logits, atol=1e-6)
    assert np.allclose(copying_score(*item_circuit(model, 16)), before, atol=1e-6)


@pytest.mark.law("interference.copy_suppression")
@given(seed=seeds)
def test_the_score_changes_sign_with_what_a_head_writes(seed):
    model = a_model(seed)
    before = copying_score(*item_circuit(model, 16))
    assert (np.abs(before) <= 1 + 1e-9).all()
    model.blocks[0].attn.output.weight.data[...] *= -1.0
    assert np.allclose(copying_score(*item_circuit(model, 16)), -before, atol=1e-9)


@given(seed=seeds)
def test_half_of_the_items_of_a_permutation_were_seen_on_average(seed):
    seen = Deck().sample(4, np.random.default_rng(seed)).info["seen"][:, 1:16]
    assert np.array_equal(seen.sum(axis=-1), np.broadcast_to(np.arange(1, 16), (4, 15)))
    assert seen.mean() == 0.5


def test_every_arm_measures_what_it_says_and_can_be_drawn(tmp_path):
    tiny = {"steps": 2, "d_model": 8, "batch_size": 4, "test_sequences": 20}
    outcome = run(CopySuppression(), seeds=2, overrides=tiny, out=tmp_path, backend="sequential")
    assert not outcome.errors
    for name in CopySuppression.arms:
        for each in outcome.results[name]:
            assert set(each.measurements) == set(CopySuppression.measured)
            assert each["score"].shape == (4,) and each["circuit"].shape == (16, 16)
    assert CopySuppression().draw(outcome.results).axes
    assert "**i" in CopySuppression().example(np.random.default_rng(0))


@pytest.mark.slow
def test_heads_suppress_or_copy_in_a_short_run():
    settings = CopySuppression().settings(quick=True)
    measure = CopySuppression().measure
    assert measure(settings["permutation"], 0)["score_max"] < -0.8
    assert measure(settings["topics"], 0)["score_min"] > 0.8
