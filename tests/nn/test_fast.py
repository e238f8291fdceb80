"""The fast path of a block gives what its steps give, values and gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx import kernels
from minitx.autograd import ops
from minitx.autograd.engine import detect_anomaly
from minitx.nn import Transformer, TransformerConfig, fast

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def compiled():
    before = kernels.active()
    kernels.use("numba")
    yield
    kernels.use(before)


CONFIGS = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["learned", "rotary", "alibi", "none"]),
        "attention": st.sampled_from(["softmax", "softmax1"]),
        "mask": st.sampled_from(["causal", "bidirectional", "sliding_window"]),
        "norm": st.sampled_from(["layernorm", "rmsnorm", "none"]),
        "mlp": st.sampled_from(["gelu", "relu", "none"]),
        "bias": st.booleans(),
        "residual": st.booleans(),
    }
)


def loss_and_gradients(model, tokens, targets, segments=None):
    model.zero_grad()
    loss = ops.cross_entropy(model(tokens, segments=segments), targets)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


@given(CONFIGS, st.booleans(), st.integers(0, 9))
def test_the_fast_path_is_the_slow_one(choices, packed, seed):
    config = TransformerConfig(
        vocab_size=5, max_len=9, d_model=8, n_heads=2, n_layers=2, window=3, dtype="float64",
        init_std=0.3, **choices,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    model = Transformer(config, rng)
    tokens, targets = rng.integers(0, 5, (2, 3, 9))
    segments = np.sort(rng.integers(0, 2, (3, 9)), axis=1) if packed else None
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("attention_block", "mlp_block"):
            real = getattr(fast, name)
            patch.setattr(fast, name, lambda *a, r=real, **k: calls.append(r) or r(*a, **k))
        loss, gradients = loss_and_gradients(model, tokens, targets, segments)
    assert len(calls) == (2 if config.mlp == "none" else 4)  # it was taken at all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "_plain", lambda *a: False)
        slow_loss, slow_gradients = loss_and_gradients(model, tokens, targets, segments)
    assert loss == pytest.approx(slow_loss, rel=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, slow_gradients[name], rtol=0, atol=1e-11, err_msg=name)


def small(**choices):
    config = TransformerConfig(vocab_size=5, max_len=6, d_model=8, n_heads=2, n_layers=1, **choices)
    return Transformer(config, np.random.default_rng(0))


def test_a_hook_inside_gets_its_activation():
    model, tokens = small(), np.zeros((1, 6), int)
    for name in model.hook_dict:
        seen = []
        model.run_with_hooks(tokens, [(name, lambda x, hook, s=seen: s.append(hook.name))])
        assert seen == [name]


@pytest.mark.parametrize(
    "choices",
    [
        {"norm_position": "post"},
        {"dropout": 0.5},
        {"attention": "sigmoid", "mlp": "none"},
        {"gate": "head", "mlp": "swiglu"},
        {"key_bias": True, "mlp": "swiglu"},
    ],
)
def test_other_kinds_of_block_take_their_steps(choices, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("the fast path does not know this kind")

    monkeypatch.setattr(fast, "attention_block", fail)
    monkeypatch.setattr(fast, "mlp_block", fail)
    small(**choices)(np.zeros((1, 6), int))


def test_the_search_for_the_first_nan_goes_step_by_step(monkeypatch):
    monkeypatch.setattr(fast, "mlp_block", None)
    monkeypatch.setattr(fast, "attention_block", None)
    with detect_anomaly():
        small()(np.zeros((1, 6), int))
