"""Layers against their formulas."""

import numpy as np
import pytest

from minitx.autograd import Tensor
from minitx.errors import MinitxError
from minitx.nn import MLP, Dropout, Embedding, LayerNorm, Linear, RMSNorm, TransformerConfig
from minitx.nn.layers import Identity

CONFIG = TransformerConfig(vocab_size=3, max_len=3, d_model=4, n_heads=1, d_mlp=5, dtype="float64")


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 3, 4))


def test_linear(x, rng):
    layer = Linear(4, 5, rng=rng, std=1.0, dtype="float64")
    layer.bias.data[...] = rng.standard_normal(5)
    expected = np.einsum("bti,oi->bto", x, layer.weight.data) + layer.bias.data
    assert np.allclose(layer(Tensor(x)).data, expected)
    assert Linear(4, 5, bias=False, rng=rng).bias is None


def test_embedding_sums_fused_features(rng):
    layer = Embedding(6, 4, rng=rng)
    tokens = rng.integers(0, 6, (2, 3, 2))
    assert np.allclose(layer(tokens).data, layer.weight.data[tokens].sum(axis=2))
    assert np.array_equal(layer(tokens[..., 0]).data, layer.weight.data[tokens[..., 0]])
    with pytest.raises(MinitxError, match="6 is out of range"):
        layer(np.array([[6]]))


@pytest.mark.parametrize("hooked", [False, True])
def test_norms(x, rng, hooked):
    for layer in (LayerNorm(4, dtype="float64"), RMSNorm(4, dtype="float64")):
        layer.weight.data[...] = rng.standard_normal(4)
        scales, outputs = [], []
        if hooked:
            add_hook(layer.hook_scale, lambda s, hook, seen=scales: seen.append(s.data))
            add_hook(layer.hook_normalized, lambda y, hook, seen=outputs: seen.append(y.data))
        y = layer(Tensor(x)).data
        centred = x - x.mean(-1, keepdims=True) if isinstance(layer, LayerNorm) else x
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        assert np.allclose(y, centred / scale * layer.weight.data)
        if hooked:
            assert np.allclose(scales[0], scale) and np.array_equal(outputs[0], y)


def add_hook(point, function):
    from minitx.nn.hooks import _Hook

    point.hooks.append(_Hook(function))


def test_a_biased_layer_norm_shifts_and_identity_does_not(x):
    layer = LayerNorm(4, dtype="float64")
    layer.bias.data[...] = 3.0
    assert np.allclose(layer(Tensor(x)).data.mean(-1), 3.0)
    assert LayerNorm(4, bias=False).bias is None
    assert Identity()(x) is x


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("name", "activation"), [("gelu", gelu), ("relu", lambda x: np.maximum(x, 0))]
)
def test_mlp(x, rng, name, activation):
    mlp = MLP(CONFIG.replace(mlp=name, init_std=0.5), rng, out_std=0.5)
    mlp.up.bias.data[...] = rng.standard_normal(5)
    mlp.down.bias.data[...] = rng.standard_normal(4)
    hidden = activation(x @ mlp.W_in + mlp.up.bias.data)
    assert np.allclose(mlp(Tensor(x)).data, hidden @ mlp.W_out + mlp.down.bias.data)
    assert mlp.W_in.shape == (4, 5) and np.shares_memory(mlp.W_out, mlp.down.weight.data)


def test_swiglu(x, rng):
    mlp = MLP(CONFIG.replace(mlp="swiglu", init_std=0.5, bias=False), rng, out_std=0.5)
    gate = x @ mlp.gate.weight.data.T
    hidden = gate / (1 + np.exp(-gate)) * (x @ mlp.W_in)
    assert np.allclose(mlp(Tensor(x)).data, hidden @ mlp.W_out)


def test_dropout_keeps_the_mean(rng):
    drop = Dropout(0.25, rng)
    ones = Tensor(np.ones((200, 200), np.float32))
    y = drop(ones).data
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert drop.eval()(ones) is ones and Dropout(0.0, rng)(ones) is ones
    with pytest.raises(MinitxError, match=r"\[0, 1\), got 1"):
        Dropout(1, rng)
