"""Interventions on concrete models: literal values, hook safety, gradients, messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import no_grad, ops
from minitx.errors import MinitxError, ShapeError
from minitx.interp import interventions as iv
from minitx.interp import patching, running
from minitx.interp.attribution import decompose_resid, gradients, logit_lens
from minitx.nn import Transformer, TransformerConfig
from tests.nn.small import KINDS


def make(seed=0, **config):
    config = {
        "vocab_size": 9,
        "max_len": 8,
        "d_model": 8,
        "n_heads": 2,
        "dtype": "float64",
    } | config
    model = Transformer(TransformerConfig(**config), np.random.default_rng(seed))
    model.flat[:] += 0.3 * np.random.default_rng(seed + 1).normal(size=model.flat.shape)
    return model.eval()


@pytest.fixture
def model():
    return make()


@pytest.fixture
def tokens(rng):
    return rng.integers(0, 9, size=(4, 6))


def same(got, expected):
    """Equal up to rounding: hooks on scores or patterns take the step-by-step path."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def seen(model, tokens, hooks, name):
    """The activation at ``name`` while the hooks act (added first, so they run first)."""
    with model.hooks(hooks):
        return model.run_with_cache(tokens, name)[1][name]


# --- ablation -----------------------------------------------------------------------------------


def test_zero_mean_and_resample_put_in_what_they_say(model, tokens, rng):
    name = "blocks.0.attn.hook_z"
    _, cache = model.run_with_cache(tokens)
    z = cache[name]
    expected = {
        "zero": np.zeros_like(z),
        "mean": np.broadcast_to(z.mean(0), z.shape),
        "resample": z[iv.another_sample(4, np.random.default_rng(7))],
    }
    for how, value in expected.items():
        hooks = iv.ablate_heads([(0, 1)], how=how, cache=cache, rng=np.random.default_rng(7))
        got = seen(model, tokens, hooks, name)
        same(got[:, :, 0], z[:, :, 0])
        same(got[:, :, 1], value[:, :, 1])
    hooks = iv.ablate_heads([(0, 1)], how="mean", cache=cache, per_position=False)
    got = seen(model, tokens, hooks, name)
    same(got[:, :, 1], np.broadcast_to(z.mean((0, 1))[1], (4, 6, 4)))


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_another_sample_is_a_permutation_that_leaves_nothing_in_place(n, seed):
    order = iv.another_sample(n, np.random.default_rng(seed))
    assert sorted(order) == list(range(n))
    assert (order != np.arange(n)).all()


def test_every_derangement_cycle_is_as_likely(rng):
    draws = [tuple(iv.another_sample(4, rng)) for _ in range(1200)]
    counts = np.unique(draws, axis=0, return_counts=True)[1]
    assert len(counts) == 6  # the 3! cycles of length 4
    assert counts.min() > 140


def test_positions_and_layers_are_the_ones_asked_for(model, tokens):
    _, cache = model.run_with_cache(tokens)
    mlp = seen(model, tokens, iv.ablate_mlps([1], positions=[0, 3]), "blocks.1.hook_mlp_out")
    assert not mlp[:, [0, 3]].any()
    same(mlp[:, 1], cache["mlp_out", 1][:, 1])
    name = "blocks.1.hook_resid_pre"
    for positions, index in ((2, [2]), (slice(1, 3), [1, 2]), (-1, [5])):
        resid = seen(model, tokens, iv.ablate_positions(name, positions), name)
        kept = np.setdiff1d(np.arange(6), index)
        assert not resid[:, index].any()
        same(resid[:, kept], cache[name][:, kept])


def test_keeping_heads_is_ablating_the_others(model, tokens):
    kept = model.run_with_hooks(tokens, iv.keep_heads(model, [(0, 1), (1, 0)])).data
    others = model.run_with_hooks(tokens, iv.ablate_heads([(0, 0), (1, 1)])).data
    same(kept, others)
    with pytest.raises(MinitxError, match=r"\(2, 0\)"):
        iv.keep_heads(model, [(2, 0)])


def test_ablated_directions_are_gone_and_the_rest_stays(model, tokens, rng):
    name = "blocks.1.hook_resid_pre"
    _, cache = model.run_with_cache(tokens)
    directions = rng.normal(size=(8, 2))
    basis = np.linalg.qr(directions)[0]
    x = cache[name]
    got = seen(model, tokens, iv.ablate_directions(name, directions), name)
    same(got, x - x @ basis @ basis.T)
    got = seen(model, tokens, iv.ablate_directions(name, directions, how="mean", cache=cache), name)
    there = np.broadcast_to(x.mean(0), x.shape)
    same(got @ basis, there @ basis)
    got = seen(model, tokens, iv.ablate_directions(name, directions[:, 0], positions=2), name)
    same(got[:, 2] @ directions[:, 0], 0)
    same(got[:, 3], x[:, 3])


# --- attention and steering ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_knock_out_in_one_head_leaves_the_other_and_renormalises(kind, tokens):
    model = make(attention=kind)
    name = "blocks.0.attn.hook_pattern"
    _, cache = model.run_with_cache(tokens)
    forbidden = np.zeros((6, 6), dtype=bool)
    forbidden[3:, 1] = forbidden[2] = True  # a key for some queries; and all keys for query 2
    got = seen(model, tokens, iv.knock_out(0, forbidden, heads=[1]), name)
    same(got[:, 0], cache[name][:, 0])
    assert not got[:, 1][:, forbidden].any()
    if kind == "softmax":
        kept = np.where(forbidden, 0, cache[name][:, 1])
        total = kept.sum(-1, keepdims=True)
        same(got[:, 1], kept / np.where(total > 0, total, 1))
    if kind in ("sigmoid", "relu", "linear"):  # these weights do not depend on one another
        same(got[:, 1], np.where(forbidden, 0, cache[name][:, 1]))


def test_reweighting_scales_and_keeps_the_sum(model, tokens):
    name = "blocks.1.attn.hook_pattern"
    _, cache = model.run_with_cache(tokens)
    p, factor = cache[name], np.ones(6)
    factor[0] = 0.25
    got = seen(model, tokens, iv.reweight_attention(1, factor, heads=[0]), name)
    scaled = p[:, 0] * factor
    same(got[:, 0], scaled / scaled.sum(-1, keepdims=True))
    same(got[:, 1], p[:, 1])
    plain = seen(model, tokens, iv.reweight_attention(1, factor, renormalise=False), name)
    same(plain, p * factor)
    nothing = seen(model, tokens, iv.reweight_attention(1, np.zeros(6)), name)
    assert not nothing.any()


def test_steering_adds_the_vector(model, tokens, rng):
    name = "blocks.0.hook_resid_post"
    _, cache = model.run_with_cache(tokens)
    vector = rng.normal(size=8)
    got = seen(model, tokens, iv.steer(name, vector, -2.0, positions=[1, -1]), name)
    same(got[:, [1, -1]], cache[name][:, [1, -1]] - 2 * vector)
    same(got[:, 0], cache[name][:, 0])
    a, b = rng.normal(size=(3, 5, 8)), rng.normal(size=(2, 8))
    same(iv.steering_vector(a, b), a.mean((0, 1)) - b.mean(0))


# --- safety -------------------------------------------------------------------------------------


def every_hook(model, cache, rng):
    """One of each intervention."""
    return (
        iv.ablate_heads([(0, 0)], how="resample", cache=cache, rng=rng)
        + iv.ablate_mlps([0], how="mean", cache=cache)
        + iv.ablate_directions("blocks.1.hook_resid_pre", np.eye(8)[:, 0])
        + iv.knock_out([0, 1], [(3, 0), (4, 2)])
        + iv.reweight_attention(1, np.full(6, 0.5), renormalise=False)
        + iv.steer("hook_embed", np.ones(8))
    )


def test_the_model_and_the_cache_are_as_before(model, tokens, rng):
    logits, cache = model.run_with_cache(tokens)
    before = {name: cache[name].tobytes() for name in cache}
    weights = model.flat.tobytes()
    changed = model.run_with_hooks(tokens, every_hook(model, cache, rng)).data
    assert np.abs(changed - logits.data).max() > 1e-3
    same(model(tokens).data, model(tokens).data)
    assert {name: cache[name].tobytes() for name in cache} == before
    assert model.flat.tobytes() == weights
    assert all(p.grad is None for p in model.parameters())


def test_after_an_exception_only_the_users_own_hooks_are_left(model, tokens, rng):
    _, cache = model.run_with_cache(tokens)
    calls = []
    remove = model.add_hook("blocks.0.hook_resid_pre", lambda x, hook: calls.append(hook.name))

    def fails(x, hook):
        raise RuntimeError("stop")

    with (
        model.hooks(iv.steer("hook_embed", np.ones(8))),
        pytest.raises(RuntimeError, match="stop"),
    ):
        model.run_with_hooks(
            tokens, [*every_hook(model, cache, rng), ("ln_final.hook_scale", fails)]
        )
    left = {n: len(point.hooks) for n, point in model.hook_dict.items() if point.hooks}
    assert left == {"blocks.0.hook_resid_pre": 1}
    model(tokens)
    assert len(calls) == 2
    with pytest.raises(RuntimeError, match="stop"):
        patching.activation_patch(
            model, tokens, tokens, lambda _: fails(0, 0), [("hook_embed", ...)]
        )
    assert sum(len(point.hooks) for point in model.hook_dict.values()) == 1
    remove()


def test_nested_interventions_add_up_and_come_off_one_by_one(model, tokens):
    plain = model(tokens).data
    outer, inner = iv.ablate_heads([(0, 0)]), iv.ablate_heads([(0, 1)])
    with model.hooks(outer):
        one = model(tokens).data
        with model.hooks(inner):
            both = model(tokens).data
        same(model(tokens).data, one)
    same(model(tokens).data, plain)
    same(model.run_with_hooks(tokens, outer + inner).data, both)


def test_gradients_flow_through_what_is_left(model, tokens):
    def gradient(hooks):
        model.zero_grad()
        ops.sum(model.run_with_hooks(tokens, hooks)[..., 0]).backward()
        return model.blocks[0].attn.output.weight.grad.reshape(8, 2, 4).copy()

    free, ablated = gradient([]), gradient(iv.ablate_heads([(0, 1)]))
    assert np.abs(free[:, 1]).max() > 1e-6
    assert not ablated[:, 1].any()
    assert np.abs(ablated[:, 0]).max() > 1e-6
    model.zero_grad()


def test_gradients_are_found_where_they_are_switched_off(model, tokens):
    with no_grad():
        _, grads, _ = gradients(model, tokens, lambda logits: ops.sum(logits), "hook_embed")
    assert np.abs(grads["hook_embed"]).max() > 0
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(MinitxError, match="scalar Tensor"):
        gradients(model, tokens, lambda logits: float(logits.data.sum()), "hook_embed")


def test_a_model_without_blocks_has_a_lens_and_a_decomposition(tokens):
    model = make(n_layers=0)
    logits, cache = model.run_with_cache(tokens)
    same(logit_lens(model, cache)[0], logits.data)
    assert decompose_resid(model, cache).labels == ["embed", "pos_embed"]
    with pytest.raises(MinitxError, match="between 0 and 0"):
        decompose_resid(model, cache, layer=1)


def test_analyses_switch_dropout_off_and_on_again(tokens):
    model = make(dropout=0.5).train()
    model.drop.training = False  # a user's own choice of mode comes back too
    result = patching.patch_heads(model, tokens, tokens, lambda x: float(x.sum()))
    assert np.ptp([*result.values.ravel(), result.clean, result.corrupted]) < 1e-9
    assert model.training and not model.drop.training
    with pytest.raises(RuntimeError), running.frozen(model):
        assert not any(p.requires_grad for p in model.parameters())
        raise RuntimeError
    assert all(p.requires_grad for p in model.parameters())


def test_mistakes_are_told(model, tokens, rng):
    _, cache = model.run_with_cache(tokens)
    cases = [
        (lambda: iv.ablate("hook_embed", how="median"), "Known: mean, resample, zero"),
        (lambda: iv.ablate_heads([(0, 0)], how="mean"), "cache"),
        (lambda: iv.ablate_heads([(0, 0)], how="resample", cache=cache), "rng"),
        (lambda: iv.ablate_heads([(0, 0)], hwo="mean"), "did you mean 'how'"),
        (lambda: iv.another_sample(1, rng), "two or more"),
        (lambda: iv.ablate_heads([(5, 0)]), None),
    ]
    for call, message in cases:
        if message is None:
            with pytest.raises(MinitxError, match="hook point"):
                model.run_with_hooks(tokens, call())
        else:
            with pytest.raises(MinitxError, match=f"(?i){message}"):
                call()
    with pytest.raises(ShapeError, match="hook_z"):
        model.run_with_hooks(tokens, iv.ablate_heads([(0, 2)]))
    with pytest.raises(ShapeError, match="same shape"):
        hooks = iv.ablate_heads([(0, 0)], how="mean", cache=cache)
        model.run_with_hooks(tokens[:, :3], hooks)
    with pytest.raises(ShapeError, match="alike"):
        patching.activation_patch(model, tokens, tokens[:2], float, [("hook_embed", ...)])
    with pytest.raises(MinitxError, match="does not come after"):
        patching.path_patch(model, tokens, tokens, float, (1, 0), (1, 1, "k"))
    with pytest.raises(MinitxError, match="Known: k, q, v"):
        patching.path_patch(model, tokens, tokens, float, (0, 0), (1, 1, "z"))
