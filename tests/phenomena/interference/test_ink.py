"""The first drop of ink: the closed form is exact and convex, and every arm can be measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import no_grad
from minitx.kernels import reference
from minitx.lab import run
from minitx.phenomena.interference._circuit import look
from minitx.phenomena.interference._memory import needle_attention
from minitx.phenomena.interference.ink import DROP, FITTED, SHARES, Ink, Settings, drop
from minitx.phenomena.recipe import train
from minitx.tasks.needles import EASY, HARD, NEEDLE, Needles

gaps = st.floats(0.0, 12.0)


@pytest.mark.law("interference.ink")
@given(n=st.integers(1, 300), hard=st.integers(0, 300), gap_hard=gaps, gap_easy=gaps)
def test_closed_form_is_the_softmax_of_equal_gaps(n, hard, gap_hard, gap_easy):
    hard = min(hard, n)
    scores = np.concatenate([[0.0], np.full(hard, -gap_hard), np.full(n - hard, -gap_easy)])
    weight = reference.softmax(scores)[0]
    assert np.isclose(weight, needle_attention(hard / n, n, gap_hard, gap_easy), rtol=1e-9)


@pytest.mark.law("interference.ink")
@given(n=st.integers(1, 1000), gap_hard=gaps, further=gaps)
def test_closed_form_falls_convexly_and_most_steeply_at_nought(n, gap_hard, further):
    p = np.linspace(0, 1, 41)
    curve = needle_attention(p, n, gap_hard, gap_hard + further)
    steps = np.diff(curve)
    assert (steps <= 1e-12).all()
    assert (np.diff(steps) >= -1e-12).all()  # convex
    assert np.argmin(steps) == 0 or np.ptp(steps) < 1e-12
    # Hence the first fifth does at least a fifth of the harm.
    if curve[0] - curve[-1] > 1e-6:
        assert (curve[0] - curve[8]) / (curve[0] - curve[-1]) >= 0.2 - 1e-6


@given(score=st.floats(0.5, 6.0), n=st.integers(64, 1000))
def test_additive_scores_over_more_attributes_make_the_first_drop_larger(score, n):
    def first_fifth(attributes):
        p = np.array([0.0, 0.2, 1.0])
        curve = needle_attention(p, n, score, attributes * score)
        return (curve[0] - curve[1]) / (curve[0] - curve[2])

    assert first_fifth(3) > first_fifth(2) > 0.2


def test_drop_is_a_share_of_the_fall():
    line = 1.0 - 0.5 * np.array(SHARES)
    assert np.isclose(drop(line), 0.2)
    assert np.isnan(drop(np.ones(len(SHARES))))
    assert SHARES[DROP] == 0.2 and SHARES[FITTED] == 0.5


def test_look_reads_scores_and_attention_of_the_last_query():
    settings = Settings(steps=30, d_model=16)
    model, rng = train(Needles(), settings, seed=0, max_len=12)
    batch = Needles(10, 0.4).sample(7, rng)
    seen = look(model, batch, chunk=3)
    assert look(model, batch, 100) == pytest.approx(seen)
    with no_grad():
        logits, cache = model.run_with_cache(batch.tokens)
    kind = batch.info["kind"]
    scores = cache["blocks.0.attn.hook_attn_scores"][:, 0, -1].astype(float)  # [B, S]
    pattern = cache["blocks.0.attn.hook_pattern"][:, 0, -1]
    gap = scores[kind == NEEDLE][:, None] - scores
    assert np.isclose(seen["hard_gap"], gap[kind == HARD].mean(), atol=1e-4)
    assert np.isclose(seen["easy_gap"], gap[kind == EASY].mean(), atol=1e-4)
    assert np.isclose(seen["needle"], pattern[kind == NEEDLE].mean(), atol=1e-6)
    right = logits.data[:, -1].argmax(-1) == batch.targets[:, -1]
    assert np.isclose(seen["accuracy"], right.mean())
    assert np.isnan(look(model, Needles(10, 0.0).sample(3, rng))["hard"])


def test_every_arm_measures_what_it_says_and_can_be_drawn(tmp_path):
    tiny = {"steps": 3, "d_model": 8, "test_distractors": 20, "test_sequences": 6}
    outcome = run(Ink(), seeds=2, overrides=tiny, out=tmp_path, backend="sequential")
    assert not outcome.errors
    for name in Ink.arms:
        for each in outcome.results[name]:
            assert set(each.measurements) == set(Ink.measured)
            assert each["attention"].shape == (len(SHARES),)
            # Read off at p = .5, so there (but for the query's look at itself) the form is exact.
            assert abs(each["attention"][FITTED] - each["predicted"][FITTED]) < 0.02
    assert Ink().draw(outcome.results).axes


def test_the_example_marks_the_needle():
    text = Ink().example(np.random.default_rng(0))
    assert "(hard)" in text and text.count("**") == 4


@pytest.mark.slow
def test_the_first_drop_appears_in_a_short_run():
    settings = Ink().settings(quick=True)
    treated = Ink().measure(settings["easy training"], seed=0)
    control = Ink().measure(settings["hard as easy"], seed=0)
    assert treated["accuracy_0"] > 0.9 > 0.6 > treated["accuracy_1"]
    assert treated["attention_drop"] > 0.5
    assert control["accuracy_1"] > 0.9
