"""The cache gives what the full pass gives; with eviction, what a naive stream gives."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor
from minitx.errors import MinitxError, ShapeError
from minitx.nn import KVCache, TransformerConfig
from tests.nn.small import CACHED_KINDS, SCHEMES, build, configs, seeds, tokens_for

SMALL = TransformerConfig(vocab_size=7, max_len=12, d_model=8, n_heads=2, dtype="float64")


@given(configs(kinds=CACHED_KINDS), seeds, st.integers(1, 9), st.data())
def test_cache_equals_full_pass_at_every_split(config, seed, T, data):
    model = build(config, seed)
    tokens = tokens_for(config, seed, T)
    cuts = sorted(data.draw(st.sets(st.integers(1, T))) | {0, T})
    cache, pieces = KVCache(model), []
    for start, end in pairwise(cuts):
        pieces.append(model(tokens[:, start:end], cache=cache).data)
    assert cache.length == cache.seen == T
    full = model(tokens).data
    assert np.allclose(np.concatenate(pieces, axis=1), full, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", CACHED_KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_scheme_and_no_kind_is_left_out(scheme, kind):
    """The same law for each pair, at every single cut and token by token."""
    config = SMALL.replace(positions=scheme, attention=kind, init_std=0.6, embed_std=1.0)
    model = build(config, 0)
    tokens = tokens_for(config, 0, 5)
    full = model(tokens).data
    for cuts in ((0, 1, 2, 3, 4, 5), *((0, cut, 5) for cut in range(1, 5))):
        cache = KVCache(model)
        got = [model(tokens[:, a:b], cache=cache).data for a, b in pairwise(cuts)]
        assert np.allclose(np.concatenate(got, axis=1), full, rtol=1e-8, atol=1e-8), cuts


def test_a_cache_takes_positions_of_your_own():
    for scheme in SCHEMES:
        model = build(SMALL.replace(positions=scheme), 0)
        tokens = tokens_for(SMALL, 0, 6)
        at = np.array([[0, 3, 4, 5, 9, 11], [0, 1, 2, 3, 4, 5]])
        cache = KVCache(model)
        parts = [
            model(tokens[:, s], positions=at[:, s], cache=cache) for s in (slice(4), slice(4, 6))
        ]
        got = np.concatenate([p.data for p in parts], axis=1)
        assert np.allclose(got, model(tokens, positions=at).data)


def naive_stream(model, tokens, window, n_sinks):
    """Logits [T, V] of one stream. For each token: which earlier ones are left, and where?

    Plain NumPy from the model's weights, layer by layer, with every key computed anew.
    """
    config = model.config
    K = config.head_width
    inputs: list[list[np.ndarray]] = [[] for _ in model.blocks]  # of each block, by token
    out = []
    for t, token in enumerate(tokens):
        left = [j for j in range(t + 1) if j < n_sinks or j > t - window]
        at = np.arange(len(left))
        x = model.W_E[token]
        place = model.pos_embed.embed(at[-1:])
        if place is not None:
            x = x + array(place)[0]
        for i, block in enumerate(model.blocks):
            inputs[i].append(norm(block.ln1, x))
            seen = np.stack([inputs[i][j] for j in left])  # [S, D]
            q, k, v = (
                (seen @ layer.weight.data.T + layer.bias.data).reshape(len(left), -1, K)
                for layer in (block.attn.query, block.attn.key, block.attn.value)
            )
            angles = model.pos_embed.angles(at)
            if angles is not None:
                q, k = (turn(y, *angles) for y in (q, k))
            scores = np.einsum("hk,shk->hs", q[-1], k) / np.sqrt(K)
            bias = model.pos_embed.bias(at[-1:], at)
            if bias is not None:
                scores = scores + array(bias)[:, 0]
            weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
            z = np.einsum("hs,shk->hk", weights, v).reshape(-1)
            x = x + block.attn.output.weight.data @ z + block.attn.output.bias.data
        out.append(model.W_U.T @ norm(model.ln_final, x))
    return np.stack(out)


def array(x):
    return x.data if isinstance(x, Tensor) else x


def norm(layer, x):
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    return x * layer.weight.data + layer.bias.data


def turn(x, cos, sin):
    a, b = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(seed=seeds, window=st.integers(1, 4), n_sinks=st.integers(0, 2), data=st.data())
def test_eviction_equals_a_naive_stream(scheme, seed, window, n_sinks, data):
    """However the stream is cut into pieces, and far beyond max_len."""
    config = SMALL.replace(positions=scheme, mlp="none", init_std=0.6, embed_std=1.0, max_len=6)
    model = build(config, seed)
    T = data.draw(st.integers(1, 14))
    tokens = np.random.default_rng(seed).integers(0, 7, (1, T))
    cuts = sorted(data.draw(st.sets(st.integers(1, T))) | {0, T})
    cache = KVCache(model, window=window, n_sinks=n_sinks)
    pieces = [model(tokens[:, a:b], cache=cache).data[0] for a, b in pairwise(cuts)]
    assert cache.seen == T and cache.length == min(T, window + n_sinks)
    expected = naive_stream(model, tokens[0], window, n_sinks)
    assert np.allclose(np.concatenate(pieces), expected, rtol=1e-8, atol=1e-8)


@given(seeds, st.integers(1, 4), st.integers(0, 2))
def test_without_positions_eviction_is_the_window_sinks_mask(seed, window, n_sinks):
    config = SMALL.replace(positions="none", init_std=0.6, embed_std=1.0)
    model = build(config, seed)
    masked = build(config.replace(mask="window_sinks", window=window, n_sinks=n_sinks), 0)
    masked.load_state_dict(model.state_dict())
    tokens = tokens_for(config, seed, 10)
    got = model(tokens, cache=KVCache(model, window=window, n_sinks=n_sinks)).data
    assert np.allclose(got, masked(tokens).data, atol=1e-8)


def test_an_error_in_the_middle_leaves_the_cache_as_it_was():
    model = build(SMALL, 0)
    tokens = tokens_for(SMALL, 0, 6)
    cache = KVCache(model)
    model(tokens[:, :3], cache=cache)

    def fail(activation, hook):
        raise RuntimeError

    with pytest.raises(RuntimeError), model.hooks([("blocks.1.attn.hook_q", fail)]):
        model(tokens[:, 3:], cache=cache)
    assert cache.length == 3
    assert np.allclose(model(tokens[:, 3:], cache=cache).data, model(tokens).data[:, 3:])


@pytest.mark.parametrize(
    ("changes", "kw", "message"),
    [
        ({"mask": "bidirectional"}, {}, "no token sees a later one, not 'bidirectional'"),
        ({"mask": "documents"}, {}, "not 'documents'"),
        ({"attention": "selective"}, {}, "'selective' compares queries with one another"),
        ({}, {"n_sinks": 2}, "set window too"),
        ({}, {"window": 0}, "window >= 1"),
        ({}, {"window": 11, "n_sinks": 2}, "13 is more than max_len = 12"),
        ({"mask": "sliding_window", "window": 2}, {"window": 3}, "evicts needs mask='causal'"),
    ],
)
def test_caches_that_make_no_sense_are_refused(changes, kw, message):
    with pytest.raises(MinitxError, match=message):
        KVCache(build(SMALL.replace(**changes), 0), **kw)


def test_wrong_use_of_a_cache():
    model = build(SMALL, 0)
    tokens = tokens_for(SMALL, 0, 6)
    cache = KVCache(model)
    model(tokens, cache=cache)
    with pytest.raises(MinitxError, match="6 tokens in the cache and 7 new ones are more than"):
        model(np.zeros((2, 7), int), cache=cache)
    with pytest.raises(ShapeError, match="2 sequences, the new tokens are of 1"):
        model(tokens[:1, :1], cache=cache)
    with pytest.raises(MinitxError, match="another model"):
        build(SMALL.replace(tied=True), 0)(tokens, cache=cache)
    with pytest.raises(MinitxError, match="no segments"):
        model(tokens, cache=KVCache(model), segments=np.zeros((2, 6), int))
    with pytest.raises(MinitxError, match="counts positions itself"):
        model(tokens, cache=KVCache(model, window=3), positions=np.arange(6))
    prefix = build(SMALL.replace(mask="prefix", prefix_len=4), 0)
    with pytest.raises(MinitxError, match="prefix of 4 tokens must be fed"):
        prefix(tokens[:, :3], cache=KVCache(prefix))
    whole = KVCache(prefix)
    parts = [prefix(tokens[:, s], cache=whole).data for s in (slice(4), slice(4, 6))]
    assert np.allclose(np.concatenate(parts, axis=1), prefix(tokens).data)


# --- generate


@given(configs(), seeds)
def test_generation_is_the_same_with_and_without_cache(config, seed):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 4)
    got = model.generate(tokens, 5)
    assert got.shape == (2, 9) and np.array_equal(got[:, :4], tokens)
    assert np.array_equal(got, model.generate(tokens, 5, use_cache=False))
    for t in range(4, 9):
        assert np.array_equal(got[:, t], model(got[:, :t]).data[:, -1].argmax(-1))


def test_sampling_follows_the_softmax():
    model = build(SMALL, 3)
    tokens = np.zeros((4000, 1), int)
    drawn = model.generate(tokens, 1, rng=np.random.default_rng(0), temperature=2.0)[:, 1]
    logits = model(tokens[:1]).data[0, 0] / 2.0
    p = np.exp(logits - logits.max())
    p /= p.sum()
    shares = np.bincount(drawn, minlength=7) / 4000
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p * (1 - p) / 4000) + 1e-3)
    again = model.generate(tokens, 1, rng=np.random.default_rng(0), temperature=2.0)[:, 1]
    assert np.array_equal(drawn, again)


def test_generate_leaves_the_mode_alone_and_drops_nothing():
    model = build(SMALL.replace(dropout=0.5), 0)
    tokens = tokens_for(SMALL, 0, 3)
    first = model.generate(tokens, 4)
    assert model.training and np.array_equal(first, model.generate(tokens, 4))


@pytest.mark.parametrize(
    ("changes", "kw", "message"),
    [
        ({}, {"n": 11}, "do not fit in max_len = 12"),
        ({}, {"n": 1, "temperature": 1.0}, "rng=np.random.default_rng"),
        ({"out_size": 3}, {"n": 1}, "out_size equal to vocab_size"),
    ],
)
def test_generation_that_cannot_be(changes, kw, message):
    with pytest.raises(MinitxError, match=message):
        build(SMALL.replace(**changes), 0).generate(np.zeros((1, 2), int), **kw)
