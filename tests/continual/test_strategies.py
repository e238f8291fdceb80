"""Strategies: what each leaves alone, what each adds, and that nothing happens at strength zero."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx.continual import EWC, L2, Freeze, Replay, ShrinkAndPerturb, Strategy
from minitx.errors import MinitxError
from minitx.optim import SGD
from minitx.tasks.facts import Facts
from minitx.training import Callback, State, fit
from tests.continual.small import small_model

SERIES = [Facts(index=i, n_tasks=3, n_facts=6, n_labels=3, n_symbols=5) for i in range(3)]


def learn(*keep, steps=4, tasks=SERIES, dtype="float64"):
    """Train through a series and return the model."""
    model = small_model(tasks[0], dtype=dtype)
    rng, keep_rng = np.random.default_rng(0).spawn(2)
    for task in tasks:
        fit(model, task, steps=steps, batch_size=6, lr=1e-2, rng=rng, callbacks=keep)
        for each in keep:
            each.end_task(model, task.everything(), keep_rng)
    return model


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return all(np.array_equal(a[name], b[name]) for name in a)


def state_of(model):
    return State(model, SGD(model.parameters(), 0.1), 0, 1, np.random.default_rng(0), None)


# ------------------------------------------------------------------ EWC


def test_ewc_of_strength_zero_is_bit_identical_to_naive_and_a_positive_one_is_not():
    naive = learn(Strategy())
    assert same(naive, learn(EWC(0.0)))
    assert not same(naive, learn(EWC(10.0)))


@given(st.integers(0, 50), st.floats(0.1, 1000))
@settings(max_examples=10)
def test_the_penalty_and_its_gradient_are_the_formula(seed, strength):
    model, keep = small_model(SERIES[0], seed), EWC(strength)
    keep.end_task(model, SERIES[0].everything(), np.random.default_rng(seed))
    assert keep.penalty(state_of(model)).item() == 0  # at the anchor, with zero gradient
    keep.penalty(state_of(model)).backward()
    assert all(not np.any(p.grad) for p in model.parameters())
    model.zero_grad()

    rng = np.random.default_rng(seed + 1)
    moves = {name: rng.standard_normal(p.shape) for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        p.data += moves[name]
    penalty = keep.penalty(state_of(model))
    fisher = keep.kept[0][0]
    expected = strength / 2 * sum((fisher[name] * moves[name] ** 2).sum() for name in moves)
    assert penalty.item() == pytest.approx(expected, rel=1e-9)
    penalty.backward()
    for name, p in model.named_parameters():
        assert np.allclose(p.grad, strength * fisher[name] * moves[name], rtol=1e-7, atol=1e-12)


def test_every_earlier_task_has_its_own_anchor():
    keep = EWC(1.0)
    learn(keep)
    anchors = [anchor["unembed.weight"] for _, anchor in keep.kept]
    assert len(anchors) == 3 and not np.array_equal(anchors[0], anchors[1])


# ------------------------------------------------------------------ replay, freezing


class Watch(Callback):
    """Record which keys the batches hold."""

    def __init__(self):
        self.seen = []

    def on_batch(self, state, batch):
        self.seen.append(batch.tokens[:, :2])
        return batch


@pytest.mark.parametrize(("per_step", "extra"), [(None, 4), (1, 1)])
def test_replay_adds_stored_facts_of_earlier_tables_only(per_step, extra):
    keep, watch = Replay(per_task=4, per_step=per_step), Watch()
    model, rng = small_model(SERIES[0]), np.random.default_rng(0)
    keep.end_task(model, SERIES[0].everything(), rng)
    fit(model, SERIES[1], steps=3, batch_size=6, rng=rng, callbacks=[keep, watch])
    old = {tuple(row) for row in SERIES[0].everything().tokens[:, :2]}
    for keys in watch.seen:
        assert len(keys) == 6 + extra
        assert all(tuple(row) in old for row in keys[6:])
        assert not any(tuple(row) in old for row in keys[:6])


def test_replay_stores_each_fact_once():
    keep = Replay(per_task=6)
    keep.end_task(None, SERIES[0].everything(), np.random.default_rng(0))
    stored = keep.memory[0].tokens
    assert len(np.unique(stored, axis=0)) == len(stored) == 6


def test_frozen_parameters_stay_bit_identical_and_the_rest_moves():
    frozen = Freeze(lambda name: name.startswith("blocks."))
    start, end = small_model(SERIES[0]).state_dict(), learn(frozen).state_dict()
    for name in start:
        assert np.array_equal(start[name], end[name]) == name.startswith("blocks."), name


def test_freezing_may_wait_for_the_first_task():
    frozen = Freeze(lambda name: name.startswith("blocks."), after_first_task=True)
    one = learn(frozen, tasks=SERIES[:1]).state_dict()
    frozen = Freeze(lambda name: name.startswith("blocks."), after_first_task=True)
    three = learn(frozen).state_dict()
    start = small_model(SERIES[0]).state_dict()
    name = (
        "blocks.0.attn.O.weight"
        if "blocks.0.attn.O.weight" in start
        else next(key for key in start if key.startswith("blocks.0.mlp"))
    )
    assert not np.array_equal(start[name], one[name])
    assert np.array_equal(one[name], three[name])


def test_freezing_nothing_is_refused():
    with pytest.raises(MinitxError, match="picks none of the parameters"):
        learn(Freeze(lambda name: name == "head"))


# ------------------------------------------------------------------ pulls on the weights


def test_l2_adds_its_share_to_the_gradient():
    model = small_model(SERIES[0])
    for p in model.parameters():
        p.grad = np.ones_like(p.data)
    L2(0.5).after_backward(state_of(model))
    assert all(np.allclose(p.grad, 1 + 0.5 * p.data) for p in model.parameters())


def test_shrinking_without_noise_is_a_pull_towards_the_start():
    model = small_model(SERIES[0])
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    ShrinkAndPerturb(0.1, 0.0).after_step(state_of(model))
    for name, p in model.named_parameters():
        gain = "ln" in name and name.endswith("weight")
        rest = 1.0 if gain else 0.0
        assert np.allclose(p.data, 0.9 * before[name] + 0.1 * rest), name


def test_the_noise_has_the_size_that_was_asked_for():
    model = small_model(SERIES[0])
    before = np.concatenate([p.data.ravel().copy() for p in model.parameters()])
    ShrinkAndPerturb(0.0, 0.3).after_step(state_of(model))
    after = np.concatenate([p.data.ravel() for p in model.parameters()])
    assert (after - before).std() == pytest.approx(0.3, rel=0.15)


@pytest.mark.parametrize(
    "keep", [L2(0.0), ShrinkAndPerturb(0.0, 0.0), Replay(1)], ids=lambda keep: type(keep).__name__
)
def test_at_strength_zero_training_is_naive(keep):
    tasks = SERIES[:1]
    assert same(learn(Strategy(), tasks=tasks), learn(keep, tasks=tasks))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "make", [lambda: EWC(1.0), lambda: L2(0.1), lambda: ShrinkAndPerturb(0.1, 0.1)]
)
def test_weights_keep_their_dtype(make, dtype):
    model = learn(make(), dtype=dtype)
    assert {p.data.dtype.name for p in model.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EWC(-1.0), "must not be negative"),
        (lambda: Replay(0), "per_task >= 1"),
        (lambda: L2(-1.0), "must not be negative"),
        (lambda: ShrinkAndPerturb(2.0, 0.0), r"Shrink lies in \[0, 1\]"),
    ],
)
def test_impossible_strengths_are_refused(make, words):
    with pytest.raises(MinitxError, match=words):
        make()
