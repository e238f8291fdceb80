"""The softmax family, gates and extra keys: what each promises."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minitx.autograd import Tensor, ops
from minitx.errors import MinitxError
from minitx.nn import (
    ATTENTION,
    Transformer,
    TransformerConfig,
    build_mask,
    masked,
    register_attention,
)
from tests.nn.small import KINDS, build, configs, seeds, tokens_for

CONFIG = TransformerConfig(vocab_size=3, max_len=10)


def weights(kind, scores, mask=None, config=CONFIG):
    return ATTENTION[kind](Tensor(np.asarray(scores, dtype=np.float64)), mask, config).data


def random_scores(seed, *shape, spread=3.0):
    return spread * np.random.default_rng(seed).standard_normal(shape)


# --- how scores become weights


@given(seeds, st.integers(1, 6), st.floats(-50, 50))
def test_softmax_rows_sum_to_one_and_shifts_do_not_matter(seed, S, shift):
    scores = random_scores(seed, 2, 1, 3, S)
    w = weights("softmax", scores)
    assert np.allclose(w.sum(-1), 1) and np.all(w > 0)
    assert np.allclose(w, weights("softmax", scores + shift))


@given(seeds, st.integers(1, 6), st.sampled_from([1.0, 30.0, 800.0]))
def test_softmax1_is_softmax_with_a_zero_logit_whose_value_is_nothing(seed, S, spread):
    scores = random_scores(seed, 1, 2, 3, S, spread=spread)
    w = weights("softmax1", scores)
    longer = np.concatenate([scores, np.zeros((1, 2, 3, 1))], axis=-1)
    assert np.allclose(w, weights("softmax", longer)[..., :-1], atol=1e-12)
    assert np.all(w.sum(-1) <= 1 + 1e-12) and np.isfinite(w).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_may_look_nowhere_is_zero_and_others_stay_inside_the_mask(kind):
    mask = np.array([[True, False, True], [False, False, False]])
    w = weights(kind, random_scores(0, 1, 1, 2, 3), mask)
    assert np.all(w[0, 0, 1] == 0) and w[0, 0, 0, 1] == 0
    assert np.isfinite(w).all()


@pytest.mark.parametrize("kind", ["sigmoid", "relu", "linear"])
@given(seed=seeds)
def test_unnormalised_weights_do_not_notice_another_key(kind, seed):
    scores = random_scores(seed, 1, 1, 2, 5)
    scores[..., 4] = scores.max() + 1
    assert np.allclose(weights(kind, scores)[..., :4], weights(kind, scores[..., :4]), atol=1e-15)
    longer = weights("softmax", scores)[..., :4]  # while softmax does
    assert not np.allclose(longer, weights("softmax", scores[..., :4]))


def test_unnormalised_weights_are_their_formulas():
    scores = np.array([[[[-2.0, 0.0, 3.0]]]])
    assert np.allclose(weights("sigmoid", scores), 1 / (1 + np.exp(-scores)))
    assert np.allclose(weights("relu", scores), [[[[0, 0, 0.3]]]])  # max_len is 10
    assert np.array_equal(weights("linear", scores), scores)


@given(seeds, st.floats(-0.3, 0.0), st.floats(1.0, 1.3))
def test_clipped_softmax_is_its_formula(seed, gamma, zeta):
    config = CONFIG.replace(clip_gamma=gamma, clip_zeta=zeta)
    scores = random_scores(seed, 1, 1, 2, 6)
    p = weights("softmax", scores)
    expected = np.clip((zeta - gamma) * p + gamma, 0, 1)
    assert np.allclose(weights("clipped_softmax", scores, None, config), expected)
    if gamma == 0 and zeta == 1:
        assert np.allclose(weights("clipped_softmax", scores, None, config), p)


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_equal_scores_share(n):
    """Selectivity limit: of n keys with the same score, each gets 1/n."""
    assert np.allclose(weights("softmax", np.full((1, 1, 1, n), 5.0)), 1 / n)


@given(seeds, st.integers(1, 5), st.integers(1, 3))
def test_a_prefix_does_not_change_relative_attention_over_the_rest(seed, S, P):
    """He et al. (2022); Petrov et al. (2024): prefix keys only rescale the content's pattern."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((1, n, 2, 4)) for n in (3, S, S))
    pk, pv = rng.standard_normal((2, 1, P, 2, 4))
    _, alone = run_attention(q, k, v)
    z, both = run_attention(q, np.concatenate([pk, k], 1), np.concatenate([pv, v], 1))
    mass = both[..., P:].sum(-1, keepdims=True)
    assert np.allclose(both[..., P:] / mass, alone)
    content = run_attention(q, k, v)[0]
    prefix = run_attention(q, pk, pv)[0]
    share = np.swapaxes(mass, 1, 2)
    assert np.allclose(z, share * content + (1 - share) * prefix)


def run_attention(q, k, v):
    pattern = ops.softmax(np.einsum("bthk,bshk->bhts", q, k) / 2).data
    assert np.allclose(ops.attention(q, k, v).data, np.einsum("bhts,bshk->bthk", pattern, v))
    return ops.attention(q, k, v).data, pattern


# --- selective attention


@given(seeds, st.integers(1, 3), st.integers(1, 6), st.booleans())
def test_selective_is_its_definition(seed, H, T, batched):
    """Leviathan et al. (2024), as loops: who hides what from whom, then softmax."""
    scores = random_scores(seed, 2, H, T, T)
    mask = np.tri(T, dtype=bool)
    if batched:
        mask = (np.random.default_rng(seed).random((2, 1, T, T)) < 0.7) & mask
    seen = np.broadcast_to(mask, scores.shape)
    lowered = scores.copy()
    for b in range(2):
        for t in range(T):
            for j in range(1, T):  # the first token is never hidden
                if not seen[b, 0, j, :j].any():  # nor the first of a document
                    continue
                for i in range(j + 1, t):  # from t, by queries strictly between j and t
                    if seen[b, 0, i, j]:
                        lowered[b, :, t, j] -= max(scores[b, 0, i, j], 0.0)
    assert np.allclose(weights("selective", scores, mask), weights("softmax", lowered, mask))


def test_selective_by_hand():
    """Query 2 wants token 1 gone (score 5): query 3 no longer sees it, query 2 itself does."""
    scores = np.zeros((1, 1, 4, 4))
    scores[0, 0, 2] = [9, 5, 7, 8]  # neither the first token, nor itself, nor the future
    rows = weights("selective", scores, np.tri(4, dtype=bool))[0, 0]
    total = 3 + np.exp(-5)
    assert np.allclose(rows[3], [1 / total, np.exp(-5) / total, 1 / total, 1 / total])
    assert np.allclose(rows[2], weights("softmax", [9.0, 5.0, 7.0, -np.inf]))


@given(seeds, st.integers(1, 6))
def test_selective_without_positive_scores_in_head_0_is_softmax(seed, T):
    scores = random_scores(seed, 1, 3, T, T)
    scores[:, 0] = -np.abs(scores[:, 0])
    mask = np.tri(T, dtype=bool)
    assert np.allclose(weights("selective", scores, mask), weights("softmax", scores, mask))


# --- in a model


@given(configs(attention="softmax", bias=True, norm="layernorm", norm_position="pre"), seeds)
def test_a_key_bias_is_redundant_under_softmax(config, seed):
    """It adds the same q·b to all scores of a query.

    Not so once it is turned with its key, or once an extra key does not have it.
    """
    assume(config.positions != "rotary")
    redundant = not (config.key_bias or config.sink_logit)
    check_key_bias(config, seed, redundant)


@pytest.mark.parametrize("kind", ["softmax1", "sigmoid", "relu", "linear"])
def test_a_key_bias_is_not_redundant_elsewhere(kind):
    config = TransformerConfig(
        vocab_size=7, max_len=12, d_model=6, n_heads=2, n_layers=1, positions="none",
        attention=kind, init_std=0.7, embed_std=1.0, dtype="float64",
    )  # fmt: skip
    check_key_bias(config, 3, redundant=False)


def check_key_bias(config, seed, redundant):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 5)
    before = model(tokens)
    size = max(1.0, np.abs(before.data).max())
    ops.sum(before * random_scores(seed, *before.shape)).backward()
    layers = [block.attn.key for block in model.blocks]
    slopes = [np.abs(layer.bias.grad).max() for layer in layers]
    for layer in layers:
        layer.bias.data += random_scores(seed, *layer.bias.shape)
    moved = np.abs(model(tokens).data - before.data).max()
    if redundant:
        assert moved < 1e-9 * size and max(slopes) < 1e-9 * size
    elif config.attention != "softmax":
        assert moved > 1e-3 and max(slopes) > 1e-4


@given(configs(positions="none", mask="causal", attention="softmax"), seeds, st.integers(1, 8))
def test_identical_tokens_share_equally(config, seed, T):
    """NoPE, causal, identical tokens: row t is 1/t, but for the rounding of the scores.

    Without norms these grow from layer to layer, to 1e10 in the third.
    """
    assume(not (config.key_bias or config.sink_logit))
    model = build(config, seed)
    tokens = np.full((1, T), seed % config.vocab_size)
    _, cache = model.run_with_cache(tokens)
    expected = np.tri(T) / np.arange(1, T + 1)[:, None]
    for layer in range(config.n_layers):
        scores = cache["attn_scores", layer]
        size = np.abs(scores[np.isfinite(scores)]).max()
        assert np.allclose(cache["pattern", layer], expected, atol=1e-9 + 1e-14 * size)


def test_identical_tokens_share_equally_as_numbers():
    model = build(CONFIG.replace(positions="none", dtype="float64"), 0)
    _, cache = model.run_with_cache(np.zeros((1, 4), int))
    rows = cache["pattern", 0][0, 0]
    third, quarter = 1 / 3, 1 / 4
    expected = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [third] * 3 + [0], [quarter] * 4]
    assert np.allclose(rows, expected, atol=1e-12)


@given(configs(attention="softmax", key_bias=True, sink_logit=False, n_layers=1), seeds)
def test_an_extra_key_is_a_key_whose_value_is_zero(config, seed):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 5)
    _, cache = model.run_with_cache(tokens)
    extra = np.einsum("bthk,hk->bht", cache["q", 0], model.blocks[0].attn.extra_key.data) / 2
    raised = np.exp(cache["attn_scores", 0])
    raised = raised * build_mask(config, 5, 5)
    total = raised.sum(-1) + np.exp(extra)
    assert np.allclose(cache["pattern", 0], raised / total[..., None])


@given(configs(attention="softmax", key_bias=False, sink_logit=True), seeds)
def test_a_sink_logit_of_zero_is_softmax1(config, seed):
    model, other = (
        build(config, seed),
        build(config.replace(sink_logit=False, attention="softmax1"), 0),
    )
    for block in model.blocks:
        block.attn.sink_logit.data[...] = 0
    other.load_state_dict(model.state_dict(), strict=False)
    tokens = tokens_for(config, seed, 5)
    assert np.allclose(model(tokens).data, other(tokens).data, atol=1e-9)


@given(configs(gate="head"), seeds)
def test_an_open_gate_is_no_gate_and_a_shut_one_nothing(config, seed):
    model = build(config, seed)
    other = build(config.replace(gate="none"), 0)
    other.load_state_dict(model.state_dict(), strict=False)
    tokens = tokens_for(config, seed, 4)

    def set_gates(value):
        return model.run_with_hooks(
            tokens, [(lambda name: name.endswith("hook_gate"), lambda g, hook: g * 0.0 + value)]
        ).data

    assert np.allclose(set_gates(1.0), other(tokens).data, atol=1e-9)
    zero = other.run_with_hooks(
        tokens, [(lambda name: name.endswith("hook_z"), lambda z, hook: z * 0.0)]
    )
    assert np.allclose(set_gates(0.0), zero.data, atol=1e-9)


@pytest.mark.parametrize(("gate", "width"), [("head", 1), ("elementwise", 4)])
def test_gates_are_sigmoids_of_the_input(gate, width):
    config = CONFIG.replace(gate=gate, n_layers=1, n_heads=2, d_head=4, d_model=6, dtype="float64")
    model = build(config, 0)
    _, cache = model.run_with_cache(tokens_for(config, 0, 3))
    layer = model.blocks[0].attn.gate
    raw = cache["normalized", 0, "ln1"] @ layer.weight.data.T + layer.bias.data
    assert cache["gate", 0].shape == (2, 3, 2, width)
    assert np.allclose(cache["gate", 0], 1 / (1 + np.exp(-raw.reshape(2, 3, 2, width))))


def test_a_variant_of_your_own():
    @register_attention("squared_relu")
    def squared_relu(scores, mask, config):
        return masked(ops.relu(scores) ** 2, mask)

    try:
        config = CONFIG.replace(attention="squared_relu")
        model = Transformer(config, np.random.default_rng(0))
        tokens = tokens_for(config, 0, 4)
        loss = ops.cross_entropy(model(tokens), tokens)
        loss.backward()
        _, cache = model.run_with_cache(tokens)
        scores = cache["attn_scores", 0]
        assert np.allclose(cache["pattern", 0], np.maximum(scores, 0) ** 2 * np.tri(4))
    finally:
        del ATTENTION["squared_relu"]
    with pytest.raises(MinitxError, match="squared_relu"):
        CONFIG.replace(attention="squared_relu")


def test_replacing_a_known_variant_takes_effect():
    """The fused kernel belongs to the function, not to its name."""
    original = ATTENTION["softmax"]
    try:
        ATTENTION["softmax"] = lambda scores, mask, config: masked(scores * 0.0 + 1.0, mask)
        model = build(CONFIG.replace(n_layers=1), 0)
        tokens = tokens_for(CONFIG, 0, 4)
        plain, (looked, cache) = model(tokens), model.run_with_cache(tokens)
        assert np.array_equal(cache["pattern", 0][0, 0], np.tri(4))
        assert np.allclose(plain.data, looked.data, atol=1e-6)
    finally:
        ATTENTION["softmax"] = original
