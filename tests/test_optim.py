"""Optimisers against their formulas written out, and against closed forms."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx import optim
from minitx.autograd import Tensor
from minitx.errors import MinitxError, ShapeError
from minitx.nn import Transformer, TransformerConfig

seeds = st.integers(0, 2**32 - 1)
rates = st.floats(1e-4, 0.5)
shares = st.floats(0.0, 0.99)
SHAPES = [(3,), (2, 4), ()]
LAYOUTS = ["buffer", "apart", "transposed"]
layouts = st.sampled_from(LAYOUTS)


def start(seed, layout):
    """Parameters, laid out in memory in one of several ways, and gradients for five steps."""
    rng = np.random.default_rng(seed)
    sizes = [math.prod(shape) for shape in SHAPES]
    flat = rng.standard_normal(sum(sizes))
    params, at = [], 0
    for shape, size in zip(SHAPES, sizes, strict=True):
        part = flat[at : at + size].reshape(shape)
        if layout == "apart":
            part = part.copy()
        elif layout == "transposed":  # not contiguous, and its neighbours are no neighbours
            part = np.array(part, order="F")
        params.append(Tensor(part, requires_grad=True))
        at += size
    grads = [[rng.standard_normal(shape) for shape in SHAPES] for _ in range(5)]
    return params, grads


def run(optimizer, params, grads):
    for step in grads:
        for p, g in zip(params, step, strict=True):
            p.grad = np.array(g)
        optimizer.step()
    return [p.data.copy() for p in params]


@given(seeds, rates, shares, st.floats(0, 0.3), st.booleans(), layouts)
def test_sgd_is_its_formula(seed, lr, momentum, decay, nesterov, layout):
    params, grads = start(seed, layout)
    nesterov = nesterov and momentum > 0
    expected = []
    for i, p in enumerate(params):
        x, b = p.data.copy(), None
        for step in grads:
            g = step[i] + decay * x
            b = g if b is None else momentum * b + g
            x = x - lr * (g + momentum * b if nesterov else b)
        expected.append(x)
    got = run(optim.SGD(params, lr, momentum, decay, nesterov), params, grads)
    for a, b in zip(got, expected, strict=True):
        assert np.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("decoupled", [True, False])
@given(seeds, rates, shares, shares, st.floats(0, 0.3), layouts)
def test_adam_and_adamw_are_their_formulas(decoupled, seed, lr, beta1, beta2, decay, layout):
    params, grads = start(seed, layout)
    expected = []
    for i, p in enumerate(params):
        x, m, v = p.data.copy(), 0.0, 0.0
        for t, step in enumerate(grads, 1):
            g = step[i] if decoupled else step[i] + decay * x
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g**2
            move = (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
            x = x - lr * move - (lr * decay * x if decoupled else 0)
        expected.append(x)
    kind = optim.AdamW if decoupled else optim.Adam
    got = run(kind(params, lr, (beta1, beta2), 1e-8, decay), params, grads)
    for a, b in zip(got, expected, strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-11)


def test_closed_forms():
    """On x²/2 gradient descent shrinks by (1 − lr) a step; Adam's first step is lr · sign(g)."""
    x = Tensor(np.array([2.0, -3.0]), requires_grad=True)
    opt = optim.SGD([x], lr=0.1)
    for _ in range(7):
        x.grad = x.data.copy()
        opt.step()
    assert np.allclose(x.data, np.array([2.0, -3.0]) * 0.9**7)
    y = Tensor(np.array([2.0, -3.0]), requires_grad=True)
    y.grad = np.array([1e-3, -50.0])
    optim.Adam([y], lr=0.1).step()
    assert np.allclose(y.data, [1.9, -2.9], atol=1e-5)
    z = Tensor(np.array([2.0]), requires_grad=True)
    z.grad = np.zeros(1)
    optim.AdamW([z], lr=0.1, weight_decay=0.5).step()
    assert np.allclose(z.data, 2 * (1 - 0.05))


@given(seeds, st.sampled_from(["SGD", "Adam", "AdamW"]))
def test_one_buffer_or_many_gives_the_same_bits(seed, name):
    results = []
    for layout in LAYOUTS:
        params, grads = start(seed, layout)
        results.append(run(getattr(optim, name)(params, lr=0.1), params, grads))
    for a, b, c in zip(*results, strict=True):
        assert np.array_equal(a, b) and np.array_equal(a, c)


def test_a_transformer_is_updated_in_one_pass_and_stays_in_its_buffer(monkeypatch):
    model = Transformer(TransformerConfig(vocab_size=5, max_len=4), np.random.default_rng(0))
    opt = optim.AdamW(model.parameters())
    passes = []
    update = opt._update
    monkeypatch.setattr(
        opt, "_update", lambda values, *rest: (passes.append(values.size), update(values, *rest))
    )
    before = model.flat.copy()
    for p in model.parameters():
        p.grad = np.ones_like(p.data)
    opt.step()
    assert passes == [model.num_parameters()] and np.all(model.flat != before)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_without_gradient_a_parameter_and_its_state_stay_bit_identical(name):
    params, grads = start(0, "buffer")
    kind = getattr(optim, name)
    opt = kind(params, lr=0.1)
    frozen = params[1].data.copy()
    for step in grads:
        for i, p in enumerate(params):
            p.grad = None if i == 1 else step[i].copy()
        opt.step()
    assert np.array_equal(params[1].data, frozen) and opt.steps == [5, 0, 5]
    assert not any(array[opt._places[1]].any() for array in opt.state.values())
    # released late, it starts as a fresh one would: its own step count
    alone = Tensor(frozen.copy(), requires_grad=True)
    other = kind([alone], lr=0.1)
    for p, g in zip(params, grads[0], strict=True):
        p.grad = g.copy()
    alone.grad = grads[0][1].copy()
    opt.step(), other.step()
    assert np.array_equal(params[1].data, alone.data)


def test_gradients_are_not_changed_by_the_step():
    for kind in (optim.SGD, optim.Adam, optim.AdamW):
        params, grads = start(0, "buffer")
        opt = kind(params, lr=0.1, weight_decay=0.1)
        for p, g in zip(params, grads[0], strict=True):
            p.grad = g.copy()
        opt.step()
        assert all(np.array_equal(p.grad, g) for p, g in zip(params, grads[0], strict=True))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_state_dict_continues_bit_identically(name):
    kind = getattr(optim, name)
    kw = {"momentum": 0.9} if name == "SGD" else {}
    params, grads = start(0, "buffer")
    straight = run(kind(params, lr=0.1, **kw), params, grads)
    params, grads = start(0, "buffer")
    first = kind(params, lr=0.1, **kw)
    run(first, params, grads[:2])
    state = first.state_dict()
    second = kind(params, lr=0.7, **kw)
    second.load_state_dict(state)
    rest = run(second, params, grads[2:])
    assert second.lr == 0.1
    assert all(np.array_equal(a, b) for a, b in zip(rest, straight, strict=True))


def test_states_that_do_not_belong_are_refused():
    params, _ = start(0, "buffer")
    with pytest.raises(MinitxError, match="state of a Adam holds"):
        optim.Adam(params).load_state_dict(optim.SGD(params, lr=1).state_dict())
    with pytest.raises(ShapeError, match="other parameters"):
        optim.Adam(params).load_state_dict(optim.Adam(params[:2]).state_dict())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optim.Adam([]), "at least one parameter"),
        (lambda p: optim.Adam([np.zeros(3)]), "model.parameters()"),
        (lambda p: optim.Adam([p[0], p[0]]), "twice"),
        (lambda p: optim.SGD(p, lr=-1), "not be negative, got -1"),
        (lambda p: optim.SGD(p, lr=1, nesterov=True), "momentum above 0"),
        (lambda p: optim.AdamW(p, betas=(0.9, 1.0)), r"betas must lie in \[0, 1\)"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(MinitxError, match=message):
        make(start(0, "buffer")[0])


def test_a_gradient_of_another_shape_is_refused():
    params, _ = start(0, "buffer")
    params[0].grad = np.zeros(2)
    with pytest.raises(ShapeError, match=r"\(3,\) has a gradient of shape \(2,\)"):
        optim.SGD(params, lr=1).step()


@given(seeds, st.floats(0.01, 20.0))
def test_clipping_keeps_the_direction_and_bounds_the_norm(seed, max_norm):
    params, grads = start(seed, "apart")
    for p, g in zip(params, grads[0], strict=True):
        p.grad = g.copy()
    params[2].grad = None
    joint = np.concatenate([g.ravel() for g in grads[0][:2]])
    norm = optim.clip_grad_norm_(params, max_norm)
    assert np.isclose(norm, np.linalg.norm(joint))
    clipped = np.concatenate([p.grad.ravel() for p in params[:2]])
    assert np.allclose(clipped, joint * min(1.0, max_norm / norm))
    assert optim.clip_grad_norm_(params, None) <= max_norm * (1 + 1e-9)


def test_schedules_as_numbers():
    flat = optim.constant()
    assert {flat(i, 10) for i in range(10)} == {1.0}
    assert [optim.warmup(4)(i, 10) for i in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    decay = optim.linear_decay(start=0.7, end=0.05)
    assert [decay(i, 100) for i in (0, 50, 70)] == [1, 1, 1]
    assert np.isclose(decay(85, 100), 0.525) and np.isclose(decay(100, 100), 0.05)
    wave = optim.cosine(warmup=50, floor=0.1)
    for i in range(200):
        expected = min(1, (i + 1) / 50) * (0.1 + 0.45 * (1 + np.cos(np.pi * i / 200)))
        assert np.isclose(wave(i, 200), expected)


def test_a_parameter_that_got_another_array_is_followed_there():
    model = Transformer(
        TransformerConfig(vocab_size=5, max_len=4, d_model=4, n_heads=1, n_layers=1),
        rng=np.random.default_rng(0),
    )
    optimiser = optim.SGD(model.parameters(), lr=1.0)
    for p in model.parameters():
        p.grad = np.ones(p.shape, p.dtype)
    optimiser.step()
    left_behind = model.embed.weight.data
    before = left_behind.copy()
    model.embed.weight.data = left_behind + 10
    optimiser.step()
    np.testing.assert_array_equal(left_behind, before)
    np.testing.assert_array_equal(model.embed.weight.data, before + 10 - 1)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_copy_of_an_optimiser_moves_its_own_parameters(name):
    flat = np.arange(4.0)
    params = [Tensor(flat[:2], requires_grad=True), Tensor(flat[2:], requires_grad=True)]
    for p, view in zip(params, (flat[:2], flat[2:]), strict=True):
        p.data, p.grad = view, np.ones(2)
    optimiser = optim.OPTIMIZERS[name](params, lr=0.5)
    optimiser.step()
    twin = copy.deepcopy(optimiser)
    before = flat.copy()
    for p in twin.params:
        p.grad = np.ones(2)
    twin.step()
    optimiser.step()
    assert (flat < before).all()
    for p, q in zip(twin.params, params, strict=True):
        np.testing.assert_array_equal(p.data, q.data)


def test_an_array_with_gaps_right_behind_another_gets_its_own_gradient():
    flat = np.zeros(11)
    params = [Tensor(np.zeros(3), requires_grad=True), Tensor(np.zeros((2, 4)), requires_grad=True)]
    for p, view in zip(params, (flat[:3], flat[3:].reshape(4, 2).T), strict=True):
        p.data, p.grad = view, np.arange(1.0, p.size + 1).reshape(p.shape)
    optim.SGD(params, lr=1.0).step()
    for p in params:
        np.testing.assert_array_equal(p.data, -p.grad)
