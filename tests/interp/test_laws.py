"""Laws of looking inside, over random models: every position scheme, norm, attention and gate."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minitx.autograd import Tensor, ops
from minitx.interp import attribution, interventions, patching
from minitx.nn import GATES, Transformer, TransformerConfig, get_act_name
from minitx.nn.config import NORM_POSITIONS
from minitx.nn.layers import NORMS
from tests.nn.small import CAUSAL, KINDS, MLPS, SCHEMES

few = settings(max_examples=15)


@st.composite
def models(draw, **fixed):
    """A small float64 model whose every parameter is drawn, biases too, and tokens for it."""
    choice = {
        "positions": SCHEMES,
        "attention": KINDS,
        "mask": [*CAUSAL, "bidirectional", "prefix"],
        "gate": list(GATES),
        "norm": list(NORMS),
        "norm_position": NORM_POSITIONS,
        "mlp": MLPS,
        **{name: [True, False] for name in ("bias", "tied", "residual", "final_norm", "key_bias")},
        "sink_logit": [True, False],
    }
    drawn = {name: draw(st.sampled_from(values)) for name, values in choice.items()} | fixed
    config = TransformerConfig(
        vocab_size=7, max_len=6, d_model=8, n_heads=2, d_mlp=6, window=3, n_sinks=1,
        prefix_len=2, dtype="float64",
        d_head=draw(st.sampled_from([None, 6])), n_layers=draw(st.integers(1, 3)),
        dropout=draw(st.sampled_from([0.0, 0.3])), **drawn,
    )  # fmt: skip
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    model = Transformer(config, rng)
    model.flat[:] = 0.4 * rng.standard_normal(model.flat.shape)
    for name, parameter in model.named_parameters():
        if ".ln" in name and name.endswith("weight"):
            parameter.data[...] += 1
    model.eval()
    tokens = rng.integers(0, 7, size=(2, draw(st.integers(1, 6))))
    return model, tokens, rng


def close(got, expected, tolerance=1e-9):
    """Equal up to rounding, measured against the largest entry."""
    size = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * size)


def frozen_copy(cache):
    return {name: cache[name].copy() for name in cache}


def unchanged(cache, before):
    for name, array in before.items():
        assert array.tobytes() == cache[name].tobytes(), f"{name} was edited"


def last_logit(logits):
    return float(logits[:, -1, 2].sum())


# --- the cache and the hooks themselves ---------------------------------------------------------


@few
@given(models())
def test_hooked_run_is_the_fast_run(drawn):
    model, tokens, _ = drawn
    fast = model(tokens).data
    logits, cache = model.run_with_cache(tokens)
    close(logits.data, fast)
    B, T = tokens.shape
    H, K = model.config.n_heads, model.config.head_width
    for layer in range(model.config.n_layers):
        for name in "qkvz":
            assert cache[name, layer].shape == (B, T, H, K)
        assert cache["pattern", layer].shape == (B, H, T, T)
        assert cache["result", layer].shape == (B, T, H, model.config.d_model)
        close(attribution.head_results(model, cache, layer), cache["result", layer])
    assert not any(point.hooks for point in model.hook_dict.values())
    np.testing.assert_array_equal(model(tokens).data, fast)


@few
@given(models(), st.data())
def test_identity_hooks_change_nothing_wherever_they_sit(drawn, data):
    model, tokens, _ = drawn
    name = data.draw(st.sampled_from(sorted(model.hook_dict)))
    fast = model(tokens).data
    close(model.run_with_hooks(tokens, [(name, lambda x, hook: None)]).data, fast)
    close(model.run_with_hooks(tokens, [(name, lambda x, hook: x)]).data, fast)
    close(model.run_with_hooks(tokens, [(name, lambda x, hook: x.data.copy())]).data, fast)


# --- attribution --------------------------------------------------------------------------------


@given(models(), st.booleans())
def test_residual_parts_sum_to_the_stream_at_every_layer(drawn, per_head):
    model, tokens, _ = drawn
    _, cache = model.run_with_cache(tokens)
    before = frozen_copy(cache)
    for layer in range(model.config.n_layers + 1):
        parts = attribution.decompose_resid(model, cache, layer, per_head=per_head)
        last = model.config.n_layers == layer
        whole = cache["resid_post", layer - 1] if last else cache["resid_pre", layer]
        close(parts.total, whole)
        assert len(set(parts.labels)) == len(parts) == len(parts.parts)
    unchanged(cache, before)


@given(models(), st.booleans())
def test_attributed_logits_sum_to_the_logits(drawn, per_head):
    model, tokens, rng = drawn
    logits, cache = model.run_with_cache(tokens)
    before = frozen_copy(cache)
    parts = attribution.logit_attribution(model, cache, per_head=per_head)
    close(parts.total, logits.data)
    right, wrong = rng.integers(0, 7, size=(2, *tokens.shape))
    at = np.ix_(*map(np.arange, tokens.shape))
    one = attribution.logit_attribution(model, cache, right, per_head=per_head)
    close(one.total, logits.data[(*at, right)])
    difference = attribution.logit_attribution(model, cache, right, wrong, per_head=per_head)
    close(difference.total, logits.data[(*at, right)] - logits.data[(*at, wrong)])
    unchanged(cache, before)


@given(models())
def test_logit_lens_ends_in_the_logits_under_both_norms(drawn):
    model, tokens, _ = drawn
    logits, cache = model.run_with_cache(tokens)
    before = frozen_copy(cache)
    own = attribution.logit_lens(model, cache)
    final = attribution.logit_lens(model, cache, norm="final")
    assert own.shape == final.shape == (model.config.n_layers + 1, *logits.shape)
    close(own[-1], logits.data)
    close(final[-1], logits.data)
    # "own" is what the model says when every later block is skipped.
    if model.config.final_norm:
        skipped = model.ln_final(Tensor(cache["resid_pre", 0]))
        close(own[0], skipped.data @ model.W_U)
    unchanged(cache, before)


@few
@given(models(attention="softmax"))
def test_gradients_are_those_of_small_steps(drawn):
    model, tokens, rng = drawn
    name = get_act_name("resid_pre", model.config.n_layers - 1)
    grads_before = [p.grad for p in model.parameters()]

    def metric(logits):
        return ops.sum(logits[:, -1, 2])

    x, grads, value = attribution.gradients(model, tokens, metric, ["hook_embed", name])
    direction = rng.normal(size=x[name].shape)
    step = 1e-6

    def moved(size):
        return last_logit(
            model.run_with_hooks(tokens, [(name, lambda a, hook: a.data + size * direction)]).data
        )

    slope = (moved(step) - moved(-step)) / (2 * step)
    close((grads[name] * direction).sum(), slope, 1e-4)
    close(value, last_logit(model(tokens).data))
    product = attribution.gradient_x_activation(model, tokens, metric, name)[name]
    close(product, x[name] * grads[name])
    assert [p.grad for p in model.parameters()] == grads_before
    assert all(p.requires_grad for p in model.parameters())


@settings(max_examples=8)
@given(models(attention="softmax", mlp="gelu", norm="none"))  # norms bend the path sharply
def test_integrated_gradients_are_complete(drawn):
    model, tokens, rng = drawn
    assume(model.config.n_layers < 3)  # without norms, so does a third block, for 1 model in 400
    _, cache = model.run_with_cache(tokens, "hook_embed")
    start = cache["embed"] + 0.3 * rng.normal(size=(*tokens.shape, 8))

    def metric(logits):
        return ops.sum(logits[:, -1, 2])

    parts = attribution.integrated_gradients(model, tokens, metric, baseline=start, steps=24)
    at_start = model.run_with_hooks(tokens, [("hook_embed", lambda x, hook: start)]).data
    whole = last_logit(model(tokens).data) - last_logit(at_start)
    close(parts.sum(), whole, 1e-3)


# --- patching and ablation ----------------------------------------------------------------------


@few
@given(models())
def test_patching_an_activation_with_its_own_value_changes_nothing(drawn):
    model, tokens, _ = drawn
    places = [(name, ...) for name in model.hook_dict]
    result = patching.activation_patch(model, tokens, tokens, last_logit, places)
    close(result.values, np.full(len(places), result.clean))
    assert np.isnan(result.recovered).all() or result.clean != result.corrupted


@few
@given(models())
def test_patching_the_whole_stream_gives_the_clean_run(drawn):
    model, clean, rng = drawn
    corrupted = rng.integers(0, 7, size=clean.shape)
    L, T = model.config.n_layers, clean.shape[1]
    last = patching.patch_resid_post(model, clean, corrupted, last_logit)
    assert last.values.shape == (L, T)
    # At the last layer the last position alone carries the logit that is measured.
    close(last.values[-1, -1], last.clean)
    close(last.values[-1, :-1], np.full(T - 1, last.corrupted))
    everything = [[(get_act_name("resid_post", L - 1), np.s_[:, t]) for t in range(T)]]
    whole = patching.activation_patch(model, clean, corrupted, last_logit, everything)
    close(whole.values, [whole.clean])


@few
@given(models(), st.data())
def test_ablating_a_head_is_zeroing_its_z_or_its_result(drawn, data):
    model, tokens, _ = drawn
    layer = data.draw(st.integers(0, model.config.n_layers - 1))
    head = data.draw(st.integers(0, 1))
    got = model.run_with_hooks(tokens, interventions.ablate_heads([(layer, head)])).data

    def zero(x, hook):
        x = x.data.copy()
        x[:, :, head] = 0
        return x

    for name in ("z", "result"):
        hooks = [(get_act_name(name, layer), zero)]
        close(got, model.run_with_hooks(tokens, hooks).data)
    # Or its output weights.
    weights = model.blocks[layer].attn.W_O
    kept = weights[head].copy()
    weights[head] = 0
    close(got, model(tokens).data)
    weights[head] = kept


@few
@given(models(), st.data())
def test_a_knocked_out_pair_is_a_masked_pair(drawn, data):
    model, tokens, rng = drawn
    T = tokens.shape[1]
    forbidden = rng.random((T, T)) < 0.4
    if model.config.attention == "selective":  # a mask also says who is the first of a document
        forbidden[np.arange(1, T), np.arange(T - 1)] = False
    layers = range(model.config.n_layers)
    got = model.run_with_hooks(tokens, interventions.knock_out(layers, forbidden)).data
    close(got, model(tokens, mask=~forbidden).data)
    pairs = [(int(t), int(s)) for t, s in np.argwhere(forbidden)]
    close(model.run_with_hooks(tokens, interventions.knock_out(layers, pairs)).data, got)


@few
@given(models(norm_position="pre", residual=True, gate="none"))
def test_direct_path_patching_moves_the_stream_by_what_the_sender_changed(drawn):
    model, clean, rng = drawn
    corrupted = rng.integers(0, 7, size=clean.shape)
    _, a = model.run_with_cache(clean)
    _, b = model.run_with_cache(corrupted)
    L = model.config.n_layers
    result = patching.path_patch(model, clean, corrupted, last_logit, (0, 1), "logits")
    change = (attribution.head_results(model, a, 0) - attribution.head_results(model, b, 0))[
        :, :, 1
    ]
    moved = b["resid_post", L - 1] + change
    expected = model.run_with_hooks(
        corrupted, [(get_act_name("resid_post", L - 1), lambda x, hook: moved)]
    ).data
    close(result.values, last_logit(expected))
