"""Hooks look and replace, and are gone afterwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import ops
from minitx.errors import MinitxError, ShapeError
from minitx.nn import ActivationCache, TransformerConfig, get_act_name
from tests.nn.small import KINDS, SCHEMES, build, configs, seeds, tokens_for

PATTERN = "blocks.0.attn.hook_pattern"


def hooks_in(model):
    return {name: list(point.hooks) for name, point in model.hook_dict.items() if point.hooks}


@pytest.fixture
def model():
    return build(configs_example(), 0)


def configs_example(**changes):
    base = {"vocab_size": 7, "max_len": 12, "d_model": 6, "n_heads": 2, "d_head": 4}
    return TransformerConfig(**{**base, "dtype": "float64", **changes})


@pytest.fixture
def tokens(model):
    return tokens_for(model.config, 0, 5)


@given(configs(), seeds)
def test_looking_changes_nothing(config, seed):
    """Fused path, path in steps, and path with every hook point in use give the same logits."""
    model = build(config, seed)
    tokens = tokens_for(config, seed, 6)
    plain = model(tokens).data
    logits, cache = model.run_with_cache(tokens)
    assert np.allclose(logits.data, plain, rtol=1e-9, atol=1e-9)
    assert set(cache) == set(model.hook_dict)
    assert not hooks_in(model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_fused_path_is_the_path_in_steps(scheme, kind):
    """For each pair, with a mask and without: also to be sure that none is left out."""
    model = build(configs_example(positions=scheme, attention=kind, init_std=0.6, embed_std=1.0), 0)
    tokens = tokens_for(model.config, 0, 6)
    some = np.random.default_rng(0).random((2, 6, 6)) < 0.7
    for mask in (None, some[0], some):
        plain, (looked, _) = model(tokens, mask=mask), model.run_with_cache(tokens, mask=mask)
        assert np.allclose(plain.data, looked.data, rtol=1e-9, atol=1e-9)


@given(configs(), seeds, st.data())
def test_an_activation_replaced_by_itself_changes_nothing(config, seed, data):
    model = build(config, seed)
    tokens = tokens_for(config, seed, 5)
    name = data.draw(st.sampled_from(sorted(model.hook_dict)))
    logits, cache = model.run_with_cache(tokens, name)
    again = model.run_with_hooks(tokens, [(name, lambda activation, hook: cache[name])])
    assert np.array_equal(again.data, logits.data)


@given(configs(), seeds, st.data())
def test_gradients_flow_through_a_replaced_activation(config, seed, data):
    """Scaling by a hook scales what the rest of the model sees: against finite differences."""
    model = build(config, seed)
    tokens = tokens_for(config, seed, 4)
    name = data.draw(st.sampled_from(sorted(model.hook_dict)))
    weights = np.random.default_rng(seed).standard_normal((2, 4, config.n_outputs))

    def run(factor):
        logits = model.run_with_hooks(
            tokens, [(name, lambda activation, hook: activation * factor)]
        )
        return ops.sum(logits * weights)

    model.zero_grad()
    run(1.5).backward()
    p = model.embed.weight
    along = np.random.default_rng([seed, 2]).standard_normal(p.shape)
    expected = float((p.grad * along).sum()) if p.grad is not None else 0.0
    h, start, values = 1e-6, p.data.copy(), []
    for sign in (1, -1):
        p.data[...] = start + sign * h * along
        values.append(run(1.5).item())
    p.data[...] = start
    found = (values[0] - values[1]) / (2 * h)
    assert abs(found - expected) <= 2e-4 * max(1.0, abs(expected), abs(values[0]))


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "mlp": "swiglu"},
        {"gate": "head", "norm": "rmsnorm"},
        {"attention": "sigmoid", "norm_position": "post", "residual": False},
    ],
)
def test_every_replacement_is_what_the_rest_of_the_model_sees(changes):
    model = build(configs_example(init_std=0.5, embed_std=1.0, **changes), 0)
    tokens = tokens_for(model.config, 0, 5)
    plain = model(tokens).data
    for name in model.hook_dict:

        def replace(activation, hook):
            return np.random.default_rng(1).standard_normal(activation.shape)

        moved = model.run_with_hooks(tokens, [(name, replace)]).data
        assert np.abs(moved - plain).max() > 1e-3, name


def test_shapes_and_names_are_those_people_know(model, tokens):
    _, cache = model.run_with_cache(tokens)
    B, T, H, K, D = 2, 5, 2, 4, 6
    for name in "qkvz":
        assert cache[name, 0].shape == (B, T, H, K)
    assert cache["pattern", 1].shape == cache["attn_scores", 1].shape == (B, H, T, T)
    assert cache["result", 0].shape == (B, T, H, D)
    assert cache["pre", 0].shape == cache["post", 0].shape == (B, T, 24)
    assert cache["scale", 0, "ln1"].shape == (B, T, 1)
    stream = ["embed", "pos_embed"]
    stream += [
        (name, 1) for name in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
    ]
    stream += [("normalized", 0, "ln2"), "normalized"]
    for key in stream:
        assert cache[key].shape == (B, T, D), key


def test_rotary_adds_the_turned_queries(tokens):
    model = build(configs_example(positions="rotary"), 0)
    _, cache = model.run_with_cache(tokens)
    assert "pos_embed" not in cache
    assert not np.allclose(cache["rot_q", 0][:, 1:], cache["q", 0][:, 1:])
    lengths = [np.linalg.norm(cache[name, 0], axis=-1) for name in ("q", "rot_q")]
    assert np.allclose(*lengths)


def test_short_forms():
    assert get_act_name("pattern", 3) == "blocks.3.attn.hook_pattern"
    assert get_act_name("post", 0) == "blocks.0.mlp.hook_post"
    assert get_act_name("resid_mid", 1) == "blocks.1.hook_resid_mid"
    assert get_act_name("normalized", 2, "ln2") == "blocks.2.ln2.hook_normalized"
    assert get_act_name("scale") == "ln_final.hook_scale"
    assert get_act_name("hook_embed") == get_act_name("embed") == "hook_embed"


def test_the_cache_is_read_only_and_a_copy(model, tokens):
    _, cache = model.run_with_cache(tokens)
    assert isinstance(cache, ActivationCache) and len(cache) == len(list(cache))
    with pytest.raises(ValueError, match="read-only"):
        cache["pattern", 0][0, 0, 0, 0] = 0
    before = {name: array.copy() for name, array in cache.items()}
    model.flat += 1.0  # training must not reach into an old cache
    for name, array in cache.items():
        assert array.flags.owndata and np.array_equal(array, before[name])


def test_cache_look_up(model, tokens):
    _, cache = model.run_with_cache(tokens, lambda name: name.endswith("pattern"))
    assert np.array_equal(cache["pattern", -1], cache["blocks.1.attn.hook_pattern"])
    assert ("pattern", 0) in cache and ("z", 0) not in cache and 3 not in cache
    assert cache.get(("z", 0)) is None and cache.get(("z", 0), 5) == 5
    with pytest.raises(MinitxError, match=r"'blocks.0.attn.hook_z'.*Known: .*hook_pattern"):
        _ = cache["z", 0]


@pytest.mark.parametrize("names", [PATTERN, [PATTERN], lambda name: name == PATTERN])
def test_a_filter_keeps_what_it_names(model, tokens, names):
    assert list(model.run_with_cache(tokens, names)[1]) == [PATTERN]


@pytest.mark.parametrize("names", ["blocks.0.attn.hook_patern", ["hook_embd"], lambda name: False])
def test_unknown_names_and_empty_predicates_are_refused(model, tokens, names):
    with pytest.raises(MinitxError, match="hook_embed"):
        model.run_with_cache(tokens, names)
    assert not hooks_in(model)


def test_hooks_are_gone_after_an_exception(model, tokens):
    own = []
    model.add_hook(PATTERN, lambda activation, hook: own.append(1))
    before = hooks_in(model)

    def fail(activation, hook):
        raise RuntimeError("from the hook")

    with pytest.raises(RuntimeError, match="from the hook"):
        model.run_with_hooks(tokens, [("hook_embed", lambda a, hook: a), (PATTERN, fail)])
    with pytest.raises(RuntimeError), model.hooks([(PATTERN, fail)]):
        model.run_with_cache(tokens)
    with pytest.raises(MinitxError):  # the second name is wrong: the first must not stay
        model.run_with_hooks(tokens, [("hook_embed", fail), ("hook_embod", fail)])
    assert hooks_in(model) == before
    model(tokens)
    assert own  # the user's own is still called


def test_nested_blocks_each_take_their_own_away(model, tokens):
    calls = []

    def say(word):
        return lambda activation, hook: calls.append(word)

    same = say("twice")
    with model.hooks([(PATTERN, say("outer")), (PATTERN, same)]):
        with model.hooks([(PATTERN, same)]):
            model(tokens)
        assert calls == ["outer", "twice", "twice"]
        calls.clear()
        model(tokens)
        assert calls == ["outer", "twice"]
    calls.clear()
    model(tokens)
    assert not calls and not hooks_in(model)


def test_a_permanent_hook_is_removed_by_its_own_handle(model, tokens):
    calls = []
    remove = model.add_hook(
        lambda name: name.endswith("pattern"), lambda a, hook: calls.append(hook)
    )
    model(tokens)
    assert [(h.name, h.layer) for h in calls] == [(PATTERN, 0), (PATTERN.replace("0", "1"), 1)]
    remove()
    remove()  # once more does no harm
    assert not hooks_in(model)


def test_hooks_run_in_order_each_on_what_the_last_one_returned(model, tokens):
    hooks = [("hook_embed", lambda a, hook: a * 0.0), ("hook_embed", lambda a, hook: a + 1.0)]
    seen = []
    hooks.append(("hook_embed", lambda a, hook: seen.append(a.data)))
    model.run_with_hooks(tokens, hooks)
    assert np.array_equal(seen[0], np.ones((2, 5, 6)))


def test_a_wrong_answer_of_a_hook_is_refused(model, tokens):
    with pytest.raises(ShapeError, match=r"'hook_embed' returned shape \(2, 4, 6\).*\(2, 5, 6\)"):
        model.run_with_hooks(tokens, [("hook_embed", lambda a, hook: a[:, :4])])
    with pytest.raises(MinitxError, match="'hook_embed' returned float"):
        model.run_with_hooks(tokens, [("hook_embed", lambda a, hook: 0.0)])


def test_zeroing_z_of_a_head_ablates_it(model, tokens):
    """The head's share of the attention's output, and nothing else, is gone."""

    def zero(z, hook):
        return z * np.array([1.0, 0.0])[:, None]

    _, whole = model.run_with_cache(tokens)
    with model.hooks([("blocks.1.attn.hook_z", zero)]):
        _, cut = model.run_with_cache(tokens)
    share = whole["result", 1][:, :, 1]
    assert np.allclose(whole["attn_out", 1] - cut["attn_out", 1], share)
    w_o = model.W_O.copy()
    w_o[1, 1] = 0
    model.W_O[...] = w_o  # the same, by the weights
    assert np.allclose(model.run_with_cache(tokens)[1]["attn_out", 1], cut["attn_out", 1])
