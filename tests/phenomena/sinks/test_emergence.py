"""``sinks.emergence``: every arm runs, measures what it says, and cannot be tuned unnoticed."""

import dataclasses
import io
import warnings

import numpy as np
import pytest

from minitx.autograd import Tensor
from minitx.lab import Results, Run, judge, run
from minitx.lab.results import from_json, to_json
from minitx.nn.transformer import Transformer
from minitx.phenomena.recipe import train
from minitx.phenomena.sinks._recipe import SinkSettings, sink_head
from minitx.phenomena.sinks.emergence import Emergence

TINY = {"steps": 3, "batch_size": 4, "length": 33, "eval_sequences": 16}
UNDEFINED = {("no_triggers", "trigger_share"), ("no_triggers", "copy_accuracy")}
ARMS = Emergence().settings(TINY)


@pytest.fixture(scope="module")
def tiny_results():
    """Two seeds of every arm, after a few steps, as a figure would get them."""
    experiment, runs = Emergence(), {}
    for name, settings in ARMS.items():
        for seed in (0, 1):
            measured = from_json(to_json(experiment.measure(settings, seed)))
            runs[name, seed] = Run(name, seed, measured, 0.1)
    controls = frozenset(name for name, each in Emergence.arms.items() if each.control)
    results = Results(experiment.name, tuple(ARMS), (0, 1), runs, ARMS, controls)
    results.claims = [judge(claim, results) for claim in experiment.claims]
    return results


def test_every_arm_measures_finite_numbers_and_all_that_it_promises(tiny_results):
    for name in tiny_results.arms:
        assert len(tiny_results[name]) == 2
        for run_ in tiny_results[name]:
            assert set(run_.measurements) == set(Emergence.measured)
            for measure in Emergence.measured:
                undefined = (name, measure) in UNDEFINED
                assert (np.isnan if undefined else np.isfinite)(run_[measure]).all(), (
                    name,
                    measure,
                )


def test_an_untrained_head_looks_everywhere_alike(tiny_results):
    """The effect is not in the measurement: at the start the share is that of uniform rows."""
    uniform = np.mean(1.0 / np.arange(2, TINY["length"] + 1))
    for name in ("softmax", "weight_decay", "no_triggers"):
        assert tiny_results.values(name, "idle_share") == pytest.approx(uniform, abs=0.02)
        assert tiny_results.values(name, "unspent") == pytest.approx(0.0, abs=1e-6)
        assert (tiny_results.values(name, "drain") > 0.5).all()  # and no value is drained


def test_the_figure_draws_also_when_runs_are_missing(tiny_results):
    some = {key: each for key, each in tiny_results.runs.items() if key[0] != "sgd"}
    for runs in (tiny_results.runs, some):
        fig = Emergence().draw(dataclasses.replace(tiny_results, runs=runs))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fig.savefig(io.BytesIO(), format="png", dpi=40)


def test_same_seed_same_numbers_and_another_seed_others():
    one, two, other = (Emergence().measure(ARMS["softmax"], seed) for seed in (3, 3, 4))
    assert to_json(one) == to_json(two) != to_json(other)


def test_arms_of_a_seed_share_table_batches_and_first_weights():
    """What differs between arms is attention alone: with no steps of training, nothing does."""
    still = {name: dataclasses.replace(settings, lr=0.0) for name, settings in ARMS.items()}
    task = still["softmax"].task(5)
    model, rng = train(task, still["softmax"], seed=5)
    expected = task.sample(2, rng).tokens
    for name in ("softmax1", "sigmoid", "relu"):
        assert still[name].task(5) == task
        other, same_rng = train(task, still[name], seed=5)
        assert np.array_equal(task.sample(2, same_rng).tokens, expected)
        assert np.array_equal(other.flat, model.flat)


def test_thresholds_are_those_written_down_before_the_first_run():
    claims = Emergence.claims
    idle = {claim.arm: claim.threshold for claim in claims if claim.measure == "idle_share"}
    assert idle == {
        **{"softmax": 0.6, "weight_decay": 0.6, "sgd": 0.6},
        **{"softmax1": 0.05, "sigmoid": 0.05, "relu": 0.05, "key_bias": 0.05, "sink_logit": 0.05},
        **{"head_gate": 0.2, "no_bos": 0.1, "no_triggers": 0.1},
    }
    others = {(c.measure, c.arm): c.threshold for c in claims if c.measure != "idle_share"}
    assert others.pop(("drain", "softmax")) == 0.2
    assert others.pop(("trigger_share", "softmax")) == 0.05
    assert others.pop(("unspent", "key_bias")) == others.pop(("unspent", "sink_logit")) == 0.6
    assert set(others.values()) == {0.95} and len(others) == len(ARMS) - 1
    controls = {name for name, each in Emergence.arms.items() if each.control}
    assert controls == {c.arm for c in claims if c.measure == "idle_share" and c.control}


def test_the_head_that_sinks_most_is_the_one_reported(rng):
    settings = SinkSettings(n_layers=2, n_heads=2, length=12)
    task = settings.task(seed=0)
    model = Transformer(settings.config(task), rng=rng)

    def park(pattern, hook):
        parked = np.array(pattern.data)
        parked[:, 1] = 0.0
        parked[:, 1, :, 0] = 1.0
        return Tensor(parked)

    with model.hooks([("blocks.1.attn.hook_pattern", park)]):
        seen = sink_head(model, task.sample(4, rng))
    assert (seen.layer, seen.head) == (1, 1)
    assert (seen.weights[..., 0] == 1.0).all() and seen.values.shape == (4, 12, 1, 32)


def test_the_example_marks_its_answers(rng):
    assert "**" in Emergence().example(rng)


@pytest.mark.slow
def test_a_quick_run_ends_in_verdicts_and_shows_the_contrast(tmp_path):
    outcome = run(Emergence(), seeds=2, quick=True, jobs=1, backend="sequential", out=tmp_path)
    assert not outcome.errors and outcome.figure.is_file()
    assert {each.verdict for each in outcome.results.claims} <= {
        *("supported", "refuted", "inconclusive"),
    }
    share = {name: outcome.results.values(name, "idle_share").mean() for name in ARMS}
    assert share["softmax"] > 3 * max(share["softmax1"], share["sigmoid"], share["relu"])
