"""Interference by updates: what is exact about it, and that every arm can be measured."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import no_grad
from minitx.lab import run
from minitx.nn import Transformer
from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.interference.proactive import LAGS, UPDATES, Proactive, line
from minitx.tasks.updates import KeyValueUpdates, UpdateProbe, hide_overwritten

STREAM = KeyValueUpdates(n_slots=10, n_keys=12, n_values=6, n_queries=2)


def a_model(n_layers: int, seed: int, **changes) -> Transformer:
    """An untrained model with large weights, in double precision: laws hold for any weights."""
    recipe = Recipe(n_layers=n_layers, d_model=12, n_heads=2, init_std=0.5, embed_std=1.0)
    config = recipe.config(STREAM).replace(dtype="float64", **changes)
    return Transformer(config, np.random.default_rng(seed)).eval()


def logits(model, batch):
    with no_grad():
        return model(batch.tokens, **batch.model_kwargs()).data


@pytest.mark.law("interference.proactive")
@given(seed=st.integers(0, 999), n_updates=st.integers(1, 5))
def test_one_layer_without_positions_cannot_tell_the_last_value_from_the_first(seed, n_updates):
    # The query sees a set: whatever the order of the writes, it answers the same. That the last
    # value can be found at all takes a second layer, in which entries know what stood before them.
    rng = np.random.default_rng(seed)
    batch = UpdateProbe(n_updates, stream=STREAM).sample(3, rng)
    order = np.concatenate([[0], 1 + rng.permutation(STREAM.n_slots), [STREAM.n_slots + 1]])
    shuffled = dataclasses.replace(batch, tokens=batch.tokens[:, order])
    one, two = a_model(1, seed), a_model(2, seed)
    assert np.allclose(logits(one, batch)[:, -1], logits(one, shuffled)[:, -1], atol=1e-9)
    if not np.array_equal(order, np.sort(order)):
        assert not np.allclose(logits(two, batch)[:, -1], logits(two, shuffled)[:, -1], atol=1e-9)


@pytest.mark.law("interference.proactive")
@given(seed=st.integers(0, 999), n_updates=st.integers(2, 5))
def test_under_the_oracle_mask_overwritten_values_do_not_reach_the_answer(seed, n_updates):
    batch = UpdateProbe(n_updates, stream=STREAM).sample(3, np.random.default_rng(seed))
    target = batch.info["key"] == batch.info["key"][:, -1:]
    stale = target & batch.info["write"]
    last = stale.shape[1] - 1 - stale[:, ::-1].argmax(axis=1)
    stale[np.arange(3), last] = False
    tokens = batch.tokens.copy()
    tokens[stale, 1] = (tokens[stale, 1] + 1) % STREAM.n_values
    changed = dataclasses.replace(batch, tokens=tokens)
    model = a_model(1, seed)
    before, after = (logits(model, hide_overwritten(b))[:, -1] for b in (batch, changed))
    assert np.array_equal(before, after)
    assert not np.allclose(logits(model, batch)[:, -1], logits(model, changed)[:, -1])


@given(
    slope=st.floats(-2, 2),
    offset=st.floats(-2, 2),
    x=st.lists(st.integers(0, 20), min_size=3, max_size=9, unique=True),
)
def test_line_finds_an_exact_line(slope, offset, x):
    x = np.array(sorted(x), float)
    found, r2 = line(x, slope * x + offset)
    assert np.isclose(found, slope, atol=1e-9)
    assert np.isclose(r2, 1.0) or abs(slope) < 1e-6


def test_line_by_hand():
    slope, r2 = line([0, 1, 2, 3], [9, 0, 2, 1], start=1)  # the first point is left out
    assert np.isclose(slope, 0.5) and np.isclose(r2, 0.25)
    assert np.isnan(line([0, 1, 2], [1, 1, 1])[1])


def test_the_range_of_the_slope_is_the_stated_one():
    assert UPDATES[UPDATES.index(3) :] == (3, 4, 6, 8, 12, 16)


def test_every_arm_measures_what_it_says_and_can_be_drawn(tmp_path):
    tiny = {"steps": 2, "d_model": 8, "batch_size": 4, "test_sequences": 8}
    outcome = run(Proactive(), seeds=2, overrides=tiny, out=tmp_path, backend="sequential")
    assert not outcome.errors
    for name in Proactive.arms:
        for each in outcome.results[name]:
            assert set(each.measurements) == set(Proactive.measured)
            assert each["accuracy"].shape == each["yoked"].shape == (len(UPDATES),)
            assert each["lags"].shape == (LAGS,)
            assert 0.0 <= each["stale_share"] <= 1.0 and each["lags"].sum() <= 1.0
    assert {"NoPE", "learned"} <= {claim.claim.arm for claim in outcome.results.claims}
    assert Proactive().draw(outcome.results).axes


def test_the_example_marks_the_last_value():
    text = Proactive().example(np.random.default_rng(0))
    assert "written 4x" in text and "**v" in text


@pytest.mark.slow
def test_interference_appears_in_a_short_run(tmp_path):
    settings = Proactive().settings(quick=True)["NoPE"]
    measured = Proactive().measure(settings, seed=0)
    assert measured["at_2"] > 0.9 and measured["yoked_worst"] > 0.9
    assert measured["at_16"] < 0.5 and measured["stale_share"] > 0.8
    assert measured["oracle_at_16"] > 0.9
