"""``sinks.streaming``: the law of the cache that keeps the first tokens, and the measurement."""

import dataclasses
import io
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx.autograd import no_grad, ops
from minitx.lab import Results, Run, judge, run
from minitx.lab.results import from_json, to_json
from minitx.nn.generate import KVCache
from minitx.nn.transformer import Transformer, TransformerConfig
from minitx.phenomena.sinks.streaming import Streaming, in_tens, read, without_bos
from minitx.tasks.bigram import BigramBackcopy

TINY = {"steps": 2, "batch_size": 4, "length": 16, "stream": 40, "scored_from": 30, "streams": 4}
ARMS = Streaming().settings(TINY)


def build(seed: int, n_layers: int = 1, **changes) -> Transformer:
    config = TransformerConfig(
        vocab_size=12,
        max_len=32,
        d_model=8,
        n_heads=2,
        n_layers=n_layers,
        positions="rotary",
        mlp="none",
        init_std=0.6,
        embed_std=1.0,
        dtype="float64",
    )
    return Transformer(config.replace(**changes), rng=np.random.default_rng(seed))


@pytest.mark.law("sinks.streaming")
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    window=st.integers(1, 5),
    n_sinks=st.integers(0, 2),
    length=st.integers(1, 20),
)
def test_window_and_sinks_equal_a_fresh_look_at_what_is_left(seed, window, n_sinks, length):
    """One layer: each query sees the sinks and its window as if they were the whole text.

    Its keys depend on the tokens alone, so the cache must give exactly the full pass over
    [sinks, window] with positions 0, 1, 2, ... counted within it.
    """
    model = build(seed)
    tokens = np.random.default_rng(seed).integers(0, 12, (2, length))
    with no_grad():
        streamed = model(tokens, cache=KVCache(model, window=window, n_sinks=n_sinks)).data
        for t in range(length):
            left = [j for j in range(t + 1) if j < n_sinks or j > t - window]
            np.testing.assert_allclose(streamed[:, t], model(tokens[:, left]).data[:, -1], 1e-8)


@pytest.mark.law("sinks.streaming")
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), window=st.integers(1, 5), n_sinks=st.integers(0, 2))
def test_window_and_sinks_equal_their_mask_in_a_full_pass(seed, window, n_sinks):
    """Any depth, without position encoding: the cache is the mask `window_sinks`."""
    model = build(seed, n_layers=3, positions="none")
    masked = build(0, 3, positions="none", mask="window_sinks", window=window, n_sinks=n_sinks)
    masked.load_state_dict(model.state_dict())
    tokens = np.random.default_rng(seed).integers(0, 12, (2, 17))
    with no_grad():
        streamed = model(tokens, cache=KVCache(model, window=window, n_sinks=n_sinks)).data
        np.testing.assert_allclose(streamed, masked(tokens).data, 1e-8)


def test_reading_with_a_full_cache_is_the_loss_of_a_full_pass(rng):
    task = BigramBackcopy(length=20, n_normal=8)
    batch = task.sample(5, rng)
    model = build(0)
    with no_grad():
        losses = ops.cross_entropy(model(batch.tokens), batch.targets, reduction="none").data
    np.testing.assert_allclose(read(model, batch), losses.mean(axis=0), 1e-8)
    small = read(model, batch, window=2, n_sinks=1)
    np.testing.assert_allclose(small[:3], losses.mean(axis=0)[:3], 1e-8)
    assert not np.allclose(small[3:], losses.mean(axis=0)[3:])


def test_streams_without_bos_are_the_same_streams(rng):
    batch = BigramBackcopy(length=12).sample(3, rng)
    rest = without_bos(batch)
    assert np.array_equal(rest.tokens, batch.tokens[:, 1:])
    assert np.array_equal(rest.targets, batch.targets[:, 1:])


def test_curves_are_means_over_ten_positions():
    assert in_tens(np.arange(25.0)).tolist() == [4.5, 14.5]


@pytest.fixture(scope="module")
def tiny_results():
    experiment, runs = Streaming(), {}
    for name, each in ARMS.items():
        for seed in (0, 1):
            measured = from_json(to_json(experiment.measure(each, seed)))
            runs[name, seed] = Run(name, seed, measured, 0.1)
    controls = frozenset(name for name, each in Streaming.arms.items() if each.control)
    results = Results(experiment.name, tuple(ARMS), (0, 1), runs, ARMS, controls)
    results.claims = [judge(claim, results) for claim in experiment.claims]
    return results


def test_every_arm_measures_finite_numbers_and_all_that_it_promises(tiny_results):
    for name in tiny_results.arms:
        for measure in Streaming.measured:
            assert np.isfinite(tiny_results.values(name, measure)).all(), (name, measure)
        assert all(set(r.measurements) == set(Streaming.measured) for r in tiny_results[name])
        # Differences are differences of the losses that are reported.
        gap = tiny_results.values(name, "loss_window") - tiny_results.values(name, "loss_sink")
        np.testing.assert_allclose(tiny_results.values(name, "gap_small"), gap)


def test_the_figure_draws_also_when_an_arm_is_missing(tiny_results):
    some = {key: each for key, each in tiny_results.runs.items() if key[0] == "softmax"}
    for runs in (tiny_results.runs, some):
        fig = Streaming().draw(dataclasses.replace(tiny_results, runs=runs))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fig.savefig(io.BytesIO(), format="png", dpi=40)


def test_thresholds_are_those_written_down_before_the_first_run():
    assert {(c.measure, c.arm): c.threshold for c in Streaming.claims} == {
        ("bos_share", "softmax"): 0.6,
        ("gap_small", "softmax"): 0.3,
        ("gap_small_clear", "softmax"): 1.0,
        ("full_minus_sink", "softmax"): 0.2,
        ("gap_other", "softmax"): 0.1,
        ("gap_small", "head_gate"): 0.02,
    }


@pytest.mark.slow
def test_a_quick_run_ends_in_verdicts(tmp_path):
    outcome = run(Streaming(), seeds=2, quick=True, jobs=1, backend="sequential", out=tmp_path)
    assert not outcome.errors and outcome.figure.is_file()
    assert len(outcome.results.claims) == len(Streaming.claims)
