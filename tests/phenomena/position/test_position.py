"""Position bias: exact laws, and that every arm measures finite numbers on a tiny run."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor
from minitx.nn import Transformer
from minitx.phenomena.position import init_bias, lost_in_the_middle, nope
from minitx.phenomena.position._recipe import Settings, serial_accuracy, serial_shape

TINY = {
    "position.lost_in_the_middle": {
        "items": 9, "queries": 4, "values": 4, "steps": 2, "eval_sequences": 40
    },
    "position.nope": {"items": 8, "queries": 4, "values": 4, "eval_sequences": 12},
    "position.init_bias": {"length": 16, "d_model": 16, "sequences": 2, "directions": 1},
}  # fmt: skip
EXPERIMENTS = [lost_in_the_middle.LostInTheMiddle, nope.NoPE, init_bias.InitBias]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_every_arm_measures_what_its_claims_need(experiment):
    experiment = experiment()
    for name, settings in experiment.settings().items():
        small = {**TINY[experiment.name]}
        if getattr(settings, "steps", 0):
            small["steps"] = 2
        settings = settings.__class__(**{**settings.__dict__, **small, **_pins(experiment, name)})
        got = experiment.measure(settings, seed=0)
        assert set(got) == set(experiment.measured)
        for claim in experiment.claims:
            if name == claim.arm:
                assert np.isfinite(got[claim.measure]), (name, claim.measure)


def _pins(experiment, name):
    pins = dict(experiment.arms[name].overrides)
    return {k: v for k, v in pins.items() if k not in ("steps",)} | (
        {"steps": 0} if pins.get("steps") == 0 else {}
    )


# ------------------------------------------------------------------ the rollout's closed form


def test_the_rollout_of_the_published_example():
    row = init_bias.residual_rollout(64, 0.5, 4)
    assert row[0] == pytest.approx(0.100, abs=5e-4)
    assert row[32] == pytest.approx(0.009, abs=5e-4)
    assert row[-1] == pytest.approx(0.067, abs=6e-4)


@pytest.mark.law("position.init_bias")
@given(st.integers(2, 24), st.floats(0, 1), st.integers(0, 6))
def test_the_rollout_is_the_binomial_sum_over_paths(length, alpha, depth):
    uniform = np.tri(length) / np.arange(1, length + 1)[:, None]
    expected = sum(
        comb(depth, k)
        * (1 - alpha) ** (depth - k)
        * alpha**k
        * np.linalg.matrix_power(uniform, k)[-1]
        for k in range(depth + 1)
    )
    row = init_bias.residual_rollout(length, alpha, depth)
    assert np.allclose(row, expected, atol=1e-12)
    assert row.sum() == pytest.approx(1)


@pytest.mark.law("position.init_bias")
@given(st.integers(4, 24), st.integers(1, 6))
def test_without_a_residual_the_rollout_has_no_recency(length, depth):
    row = init_bias.residual_rollout(length, 1.0, depth)
    assert (np.diff(row) <= 1e-12).all()


@pytest.mark.law("position.init_bias")
@given(st.integers(3, 24), st.floats(0.05, 0.95), st.integers(1, 6))
def test_primacy_of_the_rollout_never_falls_with_depth(length, alpha, depth):
    shallow = init_bias.residual_rollout(length, alpha, depth)[0]
    assert init_bias.residual_rollout(length, alpha, depth + 1)[0] >= shallow - 1e-12


# ------------------------------------------------------------------ influence


def test_influence_respects_the_causal_mask_and_sees_the_residual_stream():
    settings = init_bias.Settings(length=8, d_model=16, vocab=8)
    model = Transformer(settings.config(2), rng=np.random.default_rng(0))
    tokens = np.random.default_rng(1).integers(8, size=(4, 8))
    seen = init_bias.influence(model, tokens, 2, np.random.default_rng(2))
    assert (seen > 0).all() and seen.argmax() == 7
    assert all(p.grad is None or np.isfinite(p.grad).all() for p in model.parameters())


def test_influence_is_the_jacobian_of_the_last_logits():
    settings = init_bias.Settings(length=5, d_model=8, n_heads=2, vocab=3)
    model = Transformer(
        settings.config(1).replace(dtype="float64", vocab_size=3), rng=np.random.default_rng(0)
    )
    tokens = np.array([[0, 2, 1, 1, 0]])
    embedded = model.W_E[tokens]
    step = 1e-6

    class Fixed:
        def standard_normal(self, n):
            return np.eye(n)[1]

    def last(x):
        logits = model.run_with_hooks(
            tokens, fwd_hooks=[("hook_embed", lambda activation, hook: Tensor(x))]
        )
        return logits.data[0, -1, 1]

    for i in (0, 4):
        slope = []
        for d in range(8):
            shift = np.zeros_like(embedded)
            shift[0, i, d] = step
            slope.append((last(embedded + shift) - last(embedded - shift)) / (2 * step))
        got = init_bias.influence(model, tokens, 1, Fixed())[i]
        assert got == pytest.approx(np.linalg.norm(slope), rel=1e-5)


# ------------------------------------------------------------------ serial-position curves


def test_the_shape_of_a_curve_by_hand():
    curve = np.r_[np.full(3, 0.9), np.full(18, 0.2), np.full(3, 0.7)]
    shape = serial_shape(curve)
    assert shape["first_minus_middle"] == pytest.approx(0.7)
    assert shape["last_minus_middle"] == pytest.approx(0.5)
    assert shape["first_minus_last"] == pytest.approx(0.2)
    assert shape["u"] == shape["abs_u"] == pytest.approx(0.6)


@pytest.mark.law("position.lost_in_the_middle")
@given(st.floats(0, 1), st.integers(9, 40))
def test_a_flat_curve_has_no_u(level, items):
    assert serial_shape(np.full(items, level))["abs_u"] == pytest.approx(0, abs=1e-12)


class Knows(Transformer):
    """A stand-in that answers the first half of the list right and the rest wrong."""

    def __init__(self, task):
        self.task = task

    def __call__(self, tokens, **kwargs):
        item = tokens - self.task.bos - 1
        values = tokens[:, 1 : 1 + self.task.n_items]
        answer = np.take_along_axis(values, np.clip(item, 0, self.task.n_items - 1), axis=1)
        answer = np.where(item < self.task.n_items // 2, answer, (answer + 1) % self.task.n_values)
        return Tensor(np.eye(self.task.n_values, dtype=np.float32)[answer])


def test_serial_accuracy_counts_each_position_by_itself():
    task = Settings(items=10, values=5).make_task("uniform")
    accuracy = serial_accuracy(Knows(task), task, 50, np.random.default_rng(0))
    assert np.array_equal(accuracy, np.r_[np.ones(5), np.zeros(5)])
