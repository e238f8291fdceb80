"""The layers between the attentions: linear maps, embeddings, norms, MLP, dropout.

Each draws its initial weights from the generator that it is given: 2-D weights N(0, std²),
biases 0, norms 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from minitx.autograd import Tensor, ops
from minitx.errors import MinitxError, choose
from minitx.nn.hooks import HookPoint
from minitx.nn.module import Module, Parameter, streams

if TYPE_CHECKING:
    from minitx.nn.config import TransformerConfig


class Linear(Module):
    """``x @ weight.T + bias``, weight [out, in] as in PyTorch.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    rng : numpy.random.Generator
    std : float
        Standard deviation of the initial weights.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        rng: np.random.Generator,
        std: float = 0.02,
        dtype: str = "float32",
    ):
        self.weight = Parameter(
            (std * rng.standard_normal((out_features, in_features))).astype(dtype)
        )
        self.bias = Parameter(np.zeros(out_features, dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:  # [..., in] -> [..., out]
        return ops.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A vector for each token; several tokens at one position (a last axis F) are summed."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        rng: np.random.Generator,
        std: float = 0.02,
        dtype: str = "float32",
    ):
        self.weight = Parameter((std * rng.standard_normal((vocab_size, d_model))).astype(dtype))

    def forward(self, tokens: np.ndarray) -> Tensor:  # [B, T] or [B, T, F] -> [B, T, D]
        tokens = np.asarray(tokens)
        vectors = ops.embedding(tokens, self.weight)
        return ops.sum(vectors, axis=2) if tokens.ndim == 3 else vectors


class LayerNorm(Module):
    """Centre each vector, divide by its standard deviation, scale and shift (Ba et al., 2016).

    ``hook_scale`` [B, T, 1] is the divisor √(variance + eps); ``hook_normalized`` [B, T, D] is the
    output.
    """

    def __init__(self, size: int, bias: bool = True, eps: float = 1e-5, dtype: str = "float32"):
        self.weight = Parameter(np.ones(size, dtype))
        self.bias = Parameter(np.zeros(size, dtype)) if bias else None
        self.eps = eps
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        if not self.hook_scale.hooks:
            return self.hook_normalized(ops.layer_norm(x, self.weight, self.bias, self.eps))
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(centred * centred, axis=-1, keepdims=True)
        y = centred / self.hook_scale(ops.sqrt(variance + self.eps)) * self.weight
        return self.hook_normalized(y if self.bias is None else y + self.bias)


class RMSNorm(Module):
    """Divide each vector by its root mean square and scale it (Zhang & Sennrich, 2019); no bias.

    Hooks as in `LayerNorm`.
    """

    def __init__(self, size: int, bias: bool = False, eps: float = 1e-5, dtype: str = "float32"):
        self.weight = Parameter(np.ones(size, dtype))
        self.eps = eps
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        if not self.hook_scale.hooks:
            return self.hook_normalized(ops.rms_norm(x, self.weight, self.eps))
        scale = self.hook_scale(ops.sqrt(ops.mean(x * x, axis=-1, keepdims=True) + self.eps))
        return self.hook_normalized(x / scale * self.weight)


class Identity(Module):
    """No norm: the input itself. It has no hook points."""

    def __init__(self, size: int = 0, bias: bool = False, eps: float = 0.0, dtype: str = "float32"):
        pass

    def forward(self, x: Tensor) -> Tensor:
        return x


NORMS: dict[str, type[Module]] = {"layernorm": LayerNorm, "rmsnorm": RMSNorm, "none": Identity}


def make_norm(config: TransformerConfig) -> Module:
    """The norm that the config names, over the model width."""
    kind = choose(NORMS, config.norm, "norm")
    bias = config.bias if config.norm_bias is None else config.norm_bias
    return kind(config.d_model, bias=bias, dtype=config.dtype)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "gelu": ops.gelu,  # tanh approximation, as in GPT-2 (Hendrycks & Gimpel, 2016)
    "relu": ops.relu,
    "swiglu": ops.silu,  # and a second, linear branch that it multiplies (Shazeer, 2020)
    "none": None,
}


class MLP(Module):
    """One hidden layer at every position alike: ``down(activation(up(x)))``.

    swiglu has a gate: ``down(silu(gate(x)) * up(x))``. ``hook_pre`` [B, T, M] is what goes into the
    activation, ``hook_post`` what goes into ``down``; with swiglu, ``hook_pre_linear`` is
    ``up(x)``.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator, out_std: float):
        rng, for_gate = streams(rng, 2)
        shared = {"bias": config.bias, "rng": rng, "dtype": config.dtype}
        D, M = config.d_model, config.mlp_width
        self.activation = choose(ACTIVATIONS, config.mlp, "mlp")
        self.gated = config.mlp == "swiglu"
        self.hook_pre = HookPoint()
        if self.gated:
            self.gate = Linear(D, M, std=config.init_std, **{**shared, "rng": for_gate})
            self.hook_pre_linear = HookPoint()
        self.up = Linear(D, M, std=config.init_std, **shared)
        self.hook_post = HookPoint()
        self.down = Linear(M, D, std=out_std, **shared)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        if self.gated:
            hidden = self.activation(self.hook_pre(self.gate(x)))
            hidden = hidden * self.hook_pre_linear(self.up(x))
        else:
            hidden = self.activation(self.hook_pre(self.up(x)))
        return self.down(self.hook_post(hidden))

    @property
    def W_in(self) -> np.ndarray:
        """[D, M], a view of the weights."""
        return self.up.weight.data.T

    @property
    def W_out(self) -> np.ndarray:
        """[M, D], a view of the weights."""
        return self.down.weight.data.T


class Dropout(Module):
    """In training mode, zero each number with probability p and divide the rest by 1 − p.

    Srivastava et al. (2014). ``rng`` is a stream of the layer's own.
    """

    def __init__(self, p: float, rng: np.random.Generator):
        if not 0.0 <= p < 1.0:
            raise MinitxError(f"The dropout probability must lie in [0, 1), got {p}.")
        self.p, self.rng = p, rng

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        return ops.dropout(x, self.p, self.rng, training=True)
