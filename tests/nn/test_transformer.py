"""The whole model: symmetry, causality, gradients, configs, files."""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minitx.autograd import ops
from minitx.errors import MinitxError
from minitx.nn import GATES, Transformer, TransformerConfig, positions_in_segments
from minitx.nn.layers import NORMS
from tests.nn import plain
from tests.nn.small import (
    CACHED_KINDS,
    CAUSAL,
    KINDS,
    MLPS,
    SCHEMES,
    build,
    configs,
    seeds,
    tokens_for,
)

SMALL = TransformerConfig(vocab_size=7, max_len=12, d_model=8, n_heads=2, dtype="float64")


CHOICES = [
    *({"positions": name} for name in SCHEMES),
    *({"attention": kind} for kind in KINDS),
    *({"attention": kind, "gate": gate} for kind in KINDS for gate in GATES),
    *({"norm": n, "norm_position": p} for n in NORMS for p in ("pre", "post")),
    *({"mlp": name} for name in MLPS),
    {"mask": "bidirectional"},
    {"mask": "prefix", "prefix_len": 3},
    {"mask": "window_sinks", "window": 2, "n_sinks": 1},
    {"mask": "sliding_window", "window": 2},
    {"tied": True},
    {"residual": False},
    {"bias": False},
    {"final_norm": False},
    {"key_bias": True},
    {"sink_logit": True},
    {"key_bias": True, "sink_logit": True, "attention": "softmax1", "positions": "alibi"},
]


# --- meaning


@given(configs(masks=[*CAUSAL, "bidirectional", "prefix"]), seeds)
def test_every_config_means_what_plain_numpy_says(config, seed):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 6)
    got, state = model(tokens).data, model.state_dict()
    for b in range(2):
        expected = plain.forward(config, state, tokens[b])
        assert np.allclose(got[b], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("changes", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
def test_no_choice_is_left_out(changes):
    """The same for each single choice, so that none hangs on luck."""
    base = {"d_model": 6, "d_head": 4, "d_mlp": 8, "window": 3, "n_sinks": 1, "prefix_len": 2}
    config = SMALL.replace(**{**base, "init_std": 0.7, "embed_std": 1.0, **changes})
    model = build(config, 2)
    tokens = tokens_for(config, 2, 6)
    expected = plain.forward(config, model.state_dict(), tokens[0])
    assert np.allclose(model(tokens).data[0], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("changes", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
def test_every_dtype_comes_out_as_it_went_in(changes):
    """Values in one pass and in steps, every activation, and gradients."""
    for dtype in ("float32", "float64"):
        model = build(SMALL.replace(dtype=dtype, **changes), 0)
        tokens = tokens_for(model.config, 0, 5)
        whole, (logits, cache) = model(tokens), model.run_with_cache(tokens)
        assert {n: a.dtype for n, a in cache.items()} == dict.fromkeys(cache, np.dtype(dtype))
        for way, out in [("in one pass", whole), ("in steps", logits)]:
            assert out.dtype == dtype, f"{way}: {out.dtype}"
            model.zero_grad()
            ops.cross_entropy(out, tokens).backward()
            grads = {n: p.grad.dtype for n, p in model.named_parameters()}
            assert grads == dict.fromkeys(grads, np.dtype(dtype)), way


# --- causality and symmetry


@given(configs(mask="causal"), st.sampled_from([*CAUSAL, "documents"]), seeds, st.integers(0, 5))
def test_later_tokens_do_not_matter(config, mask, seed, t):
    config = config.replace(mask=mask)
    model = build(config, seed)
    tokens = tokens_for(config, seed, 7)
    changed = tokens.copy()
    changed[:, t + 1 :] = (changed[:, t + 1 :] + 1) % config.vocab_size
    kw = {"segments": np.array([[0, 0, 0, 1, 1, 2, 2]] * 2)} if mask == "documents" else {}
    before, after = model(tokens, **kw).data, model(changed, **kw).data
    assert np.array_equal(before[:, : t + 1], after[:, : t + 1])
    if not kw:
        shorter = model(tokens[:, : t + 1]).data
        assert np.allclose(before[:, : t + 1], shorter, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", [*CAUSAL, "documents"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_mask_scheme_or_kind_looks_ahead(mask, scheme, kind):
    """The same law for each triple, on the path in steps too."""
    config = SMALL.replace(
        mask=mask, positions=scheme, attention=kind, window=2, n_sinks=1, init_std=0.6
    )
    model = build(config, 0)
    tokens = tokens_for(config, 0, 5)
    changed = tokens.copy()
    changed[:, 3] = (changed[:, 3] + 1) % 7
    kw = {"segments": np.zeros((2, 5), int)} if mask == "documents" else {}
    for run in (model, lambda *args, **kw: model.run_with_cache(*args, **kw)[0]):
        before, after = run(tokens, **kw).data, run(changed, **kw).data
        assert np.array_equal(before[:, :3], after[:, :3])
        assert np.abs(before[:, 3] - after[:, 3]).max() > 1e-9


@given(configs(mask="prefix", residual=True), seeds)
def test_a_prefix_sees_itself_whole_and_the_rest_is_causal(config, seed):
    model = build(config.replace(prefix_len=3), seed)
    tokens = tokens_for(config, seed, 6)
    for at, first_moved in ((2, 0), (3, 3), (4, 4)):
        changed = tokens.copy()
        changed[:, at] = (changed[:, at] + 1) % config.vocab_size
        moved = np.abs(model(changed).data - model(tokens).data).max(axis=(0, 2))
        assert not moved[:first_moved].any()
    pattern = model.run_with_cache(tokens)[1]["pattern", 0]
    if config.attention in ("softmax", "softmax1", "sigmoid"):
        assert np.all(pattern[:, :, 0, 2] > 0)


@given(configs(positions="none", mask="bidirectional", kinds=CACHED_KINDS), seeds)
def test_without_positions_and_mask_order_does_not_matter(config, seed):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 6)
    order = np.random.default_rng(seed).permutation(6)
    straight, shuffled = model(tokens).data, model(tokens[:, order]).data
    assert np.allclose(straight[:, order], shuffled, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "none"])
def test_with_positions_order_matters(scheme):
    model = build(SMALL.replace(positions=scheme, mask="bidirectional"), 1)
    tokens = tokens_for(SMALL, 1, 6)
    order = np.array([2, 0, 1, 5, 3, 4])
    assert np.abs(model(tokens[:, order]).data - model(tokens).data[:, order]).max() > 1e-6


@given(configs(mask="documents"), seeds, st.integers(1, 6))
def test_packed_documents_are_as_each_alone(config, seed, cut):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 7)
    segments = np.repeat(np.arange(2), [cut, 7 - cut])[None].repeat(2, axis=0)
    packed = model(tokens, segments=segments, positions=positions_in_segments(segments)).data
    for part in (slice(None, cut), slice(cut, None)):
        piece = tokens[:, part]
        alone = model(piece, segments=np.zeros_like(piece)).data
        assert np.allclose(packed[:, part], alone, rtol=1e-8, atol=1e-8)


@given(configs(), seeds, st.integers(0, 5))
def test_relative_schemes_do_not_notice_a_shift(config, seed, shift):
    assume(config.positions in ("rotary", "alibi", "none"))
    model = build(config, seed)
    tokens = tokens_for(config, seed, 6)
    moved = model(tokens, positions=np.arange(6) + shift)
    assert np.allclose(moved.data, model(tokens).data, rtol=1e-7, atol=1e-7)


@given(configs(), seeds)
def test_sequences_of_a_batch_do_not_mix(config, seed):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 5, B=3)
    alone = model(tokens[1:2]).data
    assert np.allclose(model(tokens).data[1:2], alone, rtol=1e-8, atol=1e-8)
    positions = np.stack([np.arange(5), np.arange(5)[::-1], np.arange(5)])
    batched = model(tokens, positions=positions).data
    assert np.allclose(batched[[0, 2]], model(tokens).data[[0, 2]], rtol=1e-8, atol=1e-8)
    assert np.allclose(batched[1:2], model(tokens[1:2], positions=positions[1]).data, atol=1e-8)


def test_fused_features_add_up():
    model = build(SMALL, 0)
    tokens = tokens_for(SMALL, 0, 5)
    fused = np.stack([tokens, (tokens + 1) % 7, np.zeros_like(tokens)], axis=-1)
    _, cache = model.run_with_cache(fused, "hook_embed")
    assert np.allclose(cache["embed"], model.W_E[fused].sum(axis=2))
    assert model(fused).shape == (2, 5, 7)


# --- gradients of the whole model


@pytest.mark.parametrize("changes", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
@pytest.mark.parametrize("in_steps", [False, True])
def test_gradients_of_every_parameter(changes, in_steps):
    """Along a random direction in each parameter, against central differences."""
    config = SMALL.replace(d_model=6, d_mlp=5, d_head=4, init_std=0.5, embed_std=1.0, **changes)
    model = build(config, 5)
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, 7, (2, 5))
    targets = np.where(rng.random((2, 5)) < 0.3, -100, rng.integers(0, 7, (2, 5)))
    look = [(lambda name: True, lambda activation, hook: None)] if in_steps else []

    def loss():
        return ops.cross_entropy(model.run_with_hooks(tokens, look), targets)

    loss().backward()
    for name, p in model.named_parameters():
        along = rng.standard_normal(p.shape)
        start, h = p.data.copy(), 1e-6
        values = []
        for sign in (1, -1):
            p.data[...] = start + sign * h * along
            values.append(loss().item())
        p.data[...] = start
        slope = (values[0] - values[1]) / (2 * h)
        assert abs((p.grad * along).sum() - slope) < 1e-7 + 1e-6 * abs(slope), name


# --- size, start, shape


def test_gpt2_small_has_as_many_parameters_as_published(monkeypatch):
    """124,439,808; counted on empty arrays, since the numbers themselves do not matter."""

    class Blank(np.random.Generator):
        def standard_normal(self, shape):
            return Zero(shape)

    class Zero:
        def __init__(self, shape):
            self.shape = shape

        def __rmul__(self, other):
            return self

        def astype(self, dtype):
            return np.broadcast_to(np.zeros((), dtype), self.shape)

    monkeypatch.setattr(Transformer, "_share_one_buffer", lambda self: None)
    config = TransformerConfig(
        vocab_size=50257, max_len=1024, d_model=768, n_heads=12, n_layers=12, tied=True
    )
    model = Transformer(config, Blank(np.random.PCG64(0)))
    assert model.num_parameters() == 124_439_808
    assert 124_439_808 - model.W_pos.size - model.W_E.size == 12 * 7_087_872 + 2 * 768


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_starts_at_log_v(scheme, kind):
    config = TransformerConfig(vocab_size=50, max_len=32, positions=scheme, attention=kind)
    model = Transformer(config, np.random.default_rng(0))
    tokens = np.random.default_rng(1).integers(0, 50, (8, 32))
    loss = ops.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).item()
    assert abs(loss - np.log(50)) < 0.1


def test_initial_spread_is_what_the_config_says():
    config = TransformerConfig(
        vocab_size=500, max_len=50, d_model=128, n_layers=2, init_std=0.1, embed_std=0.5,
        scale_residual_init=True,
    )  # fmt: skip
    model = Transformer(config, np.random.default_rng(0))
    assert abs(model.W_E.std() - 0.5) < 0.02 and abs(model.W_pos.std() - 0.5) < 0.02
    assert abs(model.W_Q.std() - 0.1) < 0.004 and abs(model.W_U.std() - 0.1) < 0.004
    assert abs(model.W_O.std() - 0.05) < 0.002  # / sqrt(2 · 2 layers)
    assert abs(model.blocks[0].mlp.W_out.std() - 0.05) < 0.002
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.data.any()
        elif ".ln" in name or name.startswith("ln"):
            assert np.all(p.data == 1)


def test_same_seed_same_model():
    first, again, other = (Transformer(SMALL, np.random.default_rng(s)) for s in (0, 0, 1))
    assert np.array_equal(first.flat, again.flat) and not np.array_equal(first.flat, other.flat)


@pytest.mark.parametrize("tied", [False, True])
def test_weights_per_head_are_views(tied):
    model = build(SMALL.replace(n_layers=3, d_head=3, tied=tied), 0)
    L, H, D, K = 3, 2, 8, 3
    assert model.W_Q.shape == model.W_K.shape == model.W_V.shape == (L, H, D, K)
    assert model.W_O.shape == (L, H, K, D) and model.W_U.shape == (D, 7)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        whole = getattr(model, name)
        assert np.shares_memory(whole, model.flat)
        for block, own in zip(model.blocks, whole, strict=True):
            assert np.array_equal(getattr(block.attn, name), own)
            assert np.shares_memory(getattr(block.attn, name), model.flat)
    assert (model.W_U.T is model.W_E) or np.shares_memory(model.W_U, model.W_E) == tied
    x = np.random.default_rng(0).standard_normal((4, D))
    attn = model.blocks[1].attn
    q = (x @ attn.query.weight.data.T).reshape(4, H, K)
    assert np.allclose(q, np.einsum("td,hdk->thk", x, model.W_Q[1]))
    z = np.random.default_rng(1).standard_normal((4, H, K))
    out = z.reshape(4, H * K) @ attn.output.weight.data.T
    assert np.allclose(out, np.einsum("thk,hkd->td", z, model.W_O[1]))
    model.W_Q[2, 1, 0, 0] = 99.0
    assert model.blocks[2].attn.query.weight.data[3, 0] == 99.0
    attn.query.weight.data = attn.query.weight.data.copy()  # out of the buffer: no longer one view
    assert np.array_equal(model.W_Q[1], attn.W_Q) and not model.W_Q.flags.writeable
    with pytest.raises(MinitxError, match="without blocks has no W_O"):
        _ = build(SMALL.replace(n_layers=0), 0).W_O
    with pytest.raises(MinitxError, match="'rotary' has no W_pos"):
        _ = build(SMALL.replace(positions="rotary"), 0).W_pos


def test_dropout_is_for_training_alone():
    model = build(SMALL.replace(dropout=0.5), 0)
    plain = build(SMALL, 0)
    plain.load_state_dict(model.state_dict())
    tokens = tokens_for(SMALL, 0, 6)
    assert np.abs(model(tokens).data - model(tokens).data).max() > 1e-6
    assert np.array_equal(model.eval()(tokens).data, plain(tokens).data)


# --- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "sofmax"}, r"attention 'sofmax'\. Did you mean 'softmax'.*sigmoid"),
        ({"positions": "rope"}, "position scheme 'rope'.*Known: alibi, learned"),
        ({"mask": "casual"}, "Did you mean 'causal'"),
        ({"norm": "batchnorm"}, "norm 'batchnorm'.*layernorm"),
        ({"norm_position": "mid"}, "norm position 'mid'.*post, pre"),
        ({"mlp": "tanh"}, "mlp 'tanh'"),
        ({"gate": "per_head"}, "gate 'per_head'.*Known: elementwise, head, none"),
        ({"dtype": "float16"}, "dtype 'float16'"),
        ({"n_head": 2}, "config key 'n_head'.*Did you mean 'n_heads'"),
        ({"d_model": 0}, "d_model must be a positive whole number, got 0"),
        ({"n_heads": 3}, r"d_model \(8\) is not a multiple of n_heads \(3\)"),
        ({"d_head": 3, "positions": "rotary"}, "must be even, got 3"),
        ({"mask": "sliding_window"}, "needs window"),
        ({"mask": "window_sinks", "window": 2}, "needs n_sinks"),
        ({"mask": "prefix"}, "needs prefix_len"),
        ({"tied": True, "out_size": 3}, r"vocab_size \(7\), got 3"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"clip_gamma": 0.1}, "clip_gamma <= 0"),
        ({"n_sinks": -1}, "n_sinks must be a whole number of at least 0"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(MinitxError, match=message):
        SMALL.replace(**changes)
    with pytest.raises(MinitxError, match=message):
        TransformerConfig(**{**SMALL.to_dict(), **changes})


def test_a_config_is_frozen_and_goes_through_a_dict():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 3
    assert TransformerConfig.from_dict(SMALL.to_dict()) == SMALL
    with pytest.raises(MinitxError, match="lacks the key 'max_len'"):
        TransformerConfig.from_dict({"vocab_size": 3})


@pytest.mark.parametrize(
    ("tokens", "kw", "message"),
    [
        ([[0, 7]], {}, "Token id 7 lies outside of the vocabulary 0 … 6"),
        ([[0, -1]], {}, "Token id -1"),
        ([[0.0, 1.0]], {}, "whole numbers, got an array of float64"),
        ([0, 1], {}, r"shape \[B, T\].*got \(2,\).*tokens\[None\]"),
        ([[]], {}, "whole numbers|shape"),
        ([[0] * 13], {}, "13 tokens exceeds max_len = 12"),
        ([[0, 1]], {"positions": np.arange(3)}, r"T = 2, got int64 \(3,\)"),
        ([[0, 1]], {"positions": np.array([0, 12])}, "Position 12 lies outside"),
        ([[0, 1]], {"mask": np.ones((3, 3), bool)}, r"\(2, 2\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tokens, kw, message):
    with pytest.raises(MinitxError, match=message):
        build(SMALL, 0)(np.array(tokens), **kw)


def test_a_model_needs_a_config_and_a_generator():
    for args in ((SMALL, 0), ({"vocab_size": 3}, np.random.default_rng(0))):
        with pytest.raises(MinitxError, match="default_rng"):
            Transformer(*args)
