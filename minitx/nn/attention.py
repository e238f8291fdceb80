"""Attention: each position looks at others and takes a weighted sum of what it finds there.

How raw scores become weights is one small function in `ATTENTION`. Add your own:

>>> from minitx.nn import register_attention
>>> @register_attention("squared_relu")
... def squared_relu(scores, mask, config):
...     return masked(ops.relu(scores) ** 2, mask)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minitx.autograd import Tensor, ops
from minitx.errors import choose
from minitx.nn.hooks import HookPoint
from minitx.nn.layers import Linear
from minitx.nn.module import Module, Parameter, streams
from minitx.nn.positions import POSITIONS, Positions

if TYPE_CHECKING:
    from minitx.nn.config import TransformerConfig
    from minitx.nn.generate import KVCache

WeightFunction = Callable[[Tensor, "np.ndarray | None", "TransformerConfig"], Tensor]


# --- how scores become weights ------------------------------------------------------------------
# scores [B, H, T, S]; mask bool, broadcastable to it, True = may attend, or None.
# -> weights [B, H, T, S], zero where the mask forbids.


def softmax(scores, mask, config):
    """Positive, each row sums to one (Vaswani et al., 2017)."""
    return ops.softmax(scores, mask=mask)


def softmax1(scores, mask, config):
    """exp(s) / (1 + Σ exp(s)): a row may sum to less than one, down to nothing (Miller, 2023)."""
    return ops.softmax(scores, mask=mask, off_by_one=True)


def sigmoid(scores, mask, config):
    """Each weight in (0, 1) by itself, not normalised (Gu et al., 2024)."""
    return masked(ops.sigmoid(scores), mask)


def relu(scores, mask, config):
    """max(s, 0) / max_len (Wortsman et al., 2023, divide by the sequence length).

    The constant max_len, not the number of visible keys: so that a weight does not change when
    another key appears, and a KV cache gives what the full pass gives.
    """
    return masked(ops.relu(scores) / config.max_len, mask)


def linear(scores, mask, config):
    """The score itself, of either sign: q reads a linear memory Σ v kᵀ (Schlag et al., 2021)."""
    return masked(scores, mask)


def clipped_softmax(scores, mask, config):
    """clip((ζ − γ) p + γ, 0, 1), p = softmax: reaches exact zeros (Bondarenko et al., 2023)."""
    p = ops.softmax(scores, mask=mask)
    stretched = p * (config.clip_zeta - config.clip_gamma) + config.clip_gamma
    return masked(ops.clip(stretched, 0.0, 1.0), mask)


def selective(scores, mask, config):
    """Softmax after each query has hidden, from all later ones, what it finds no longer needed.

    Head 0's positive scores add up along the queries; the sum over *earlier* queries is subtracted
    from the scores of all heads (Leviathan et al., 2024). No query hides itself, nor what it may not
    see, nor the first token (of its document): one that sees nothing before it.
    """
    T, S = scores.shape[-2:]
    earlier = np.tri(T, S, -1, dtype=bool) if mask is None else np.tri(T, S, -1, dtype=bool) & mask
    starts = ~earlier.any(axis=-1)  # [T] or [B, 1, T]
    may_hide = earlier.copy()  # a key_bias or sink_logit makes S = T + 1; nothing hides that one
    may_hide[..., :T] &= ~starts[..., None, :]
    hides = ops.where(may_hide, ops.relu(scores[:, :1]), 0.0)  # [B, 1, T, S]
    hidden = ops.cumsum(hides, axis=-2) - hides
    return ops.softmax(scores - hidden, mask=mask)


ATTENTION: dict[str, WeightFunction] = {
    "softmax": softmax,
    "softmax1": softmax1,
    "sigmoid": sigmoid,
    "relu": relu,
    "linear": linear,
    "clipped_softmax": clipped_softmax,
    "selective": selective,
}

FUSED: dict[WeightFunction, bool] = {softmax: False, softmax1: True}
"""The weight functions that one fused kernel computes, and its ``off_by_one``."""

LOOKS_AT_OTHER_QUERIES: set[str] = {"selective"}
"""Weight functions whose rows depend on earlier queries' scores, which a KV cache forgets."""

GATES: dict[str, Callable[[TransformerConfig], int]] = {
    "none": lambda config: 0,
    "head": lambda config: 1,
    "elementwise": lambda config: config.head_width,
}
"""How many sigmoid gates each head's output has (Qiu et al., 2025; Bondarenko et al., 2023)."""


def masked(weights: Tensor, mask: np.ndarray | None) -> Tensor:
    """Zero where the mask forbids."""
    return weights if mask is None else ops.where(mask, weights, 0.0)


def register_attention(name: str) -> Callable[[WeightFunction], WeightFunction]:
    """Decorator: make ``function(scores, mask, config) -> weights`` known as ``attention=name``."""

    def add(function: WeightFunction) -> WeightFunction:
        ATTENTION[name] = function
        return function

    return add


# --- multi-head attention -----------------------------------------------------------------------


@dataclass
class Scene:
    """What one forward pass tells every attention layer: who stands where, and who may see whom.

    Attributes
    ----------
    mask : bool [T, S] or [B, 1, T, S], or None if ``causal`` says it all
    causal : bool
        The mask is exactly lower-triangular, T = S.
    bias : array or Tensor broadcastable to [B, H, T, S], or None
        Added to the scores (ALiBi).
    query_angles, key_angles : (cos, sin) or None
        For rotary positions.
    cache : KVCache or None
    """

    mask: np.ndarray | None = None
    causal: bool = False
    bias: np.ndarray | Tensor | None = None
    query_angles: tuple[np.ndarray, np.ndarray] | None = None
    key_angles: tuple[np.ndarray, np.ndarray] | None = None
    cache: KVCache | None = None


class Attention(Module):
    """Multi-head attention with a hook at every step.

    ``query``, ``key``, ``value`` map [B, T, D] to [B, T, H·K], ``output`` maps back. Hook points:
    q, k, v (before rotary; rot_q, rot_k after), attn_scores (before the mask), pattern, z (after
    the gate: what ``output`` reads), result (z through ``output`` per head, without bias), gate.
    """

    def __init__(
        self, config: TransformerConfig, rng: np.random.Generator, layer: int, out_std: float
    ):
        H, K, D = config.n_heads, config.head_width, config.d_model
        rng, for_gate, for_extra_key = streams(rng, 3)
        shared = {"bias": config.bias, "rng": rng, "dtype": config.dtype}
        self.config, self.layer = config, layer
        self.weigh = choose(ATTENTION, config.attention, "attention")
        self.scale = 1.0 / np.sqrt(K)
        self.query = Linear(D, H * K, std=config.init_std, **shared)
        self.key = Linear(D, H * K, std=config.init_std, **shared)
        self.value = Linear(D, H * K, std=config.init_std, **shared)
        self.output = Linear(H * K, D, std=out_std, **shared)
        self.gates = choose(GATES, config.gate, "gate")(config)
        if self.gates:
            self.gate = Linear(
                D, H * self.gates, std=config.init_std, **{**shared, "rng": for_gate}
            )
        # An extra key, seen by every query, that holds nothing: attention may rest on it.
        if config.key_bias:
            self.extra_key = Parameter(
                (config.init_std * for_extra_key.standard_normal((H, K))).astype(config.dtype)
            )
        if config.sink_logit:
            self.sink_logit = Parameter(np.zeros(H, config.dtype))
        self.has_extra = config.key_bias or config.sink_logit
        names = ["q", "k", "v", "attn_scores", "pattern", "z", "result"]
        turns = POSITIONS[config.positions].angles is not Positions.angles
        names += ["rot_q", "rot_k"] if turns else []
        names += ["gate"] if self.gates else []
        for name in names:
            setattr(self, f"hook_{name}", HookPoint())

    def forward(self, x: Tensor, scene: Scene) -> Tensor:  # [B, T, D] -> [B, T, D]
        q = self.hook_q(self._split(self.query(x)))  # [B, T, H, K]
        k = self.hook_k(self._split(self.key(x)))
        v = self.hook_v(self._split(self.value(x)))
        if scene.cache is not None:  # before keys are turned: their places in the cache may change
            k, v = scene.cache.extend(self.layer, k, v)  # [B, S, H, K]
        turned_q, turned_k = self._rotate(q, k, scene)
        looked_at = self.hook_attn_scores.hooks or self.hook_pattern.hooks
        if looked_at or self.has_extra or self.weigh not in FUSED:
            z = self._in_steps(turned_q, turned_k, v, q, scene)
        else:
            z = ops.attention(
                turned_q, turned_k, v, scene.mask, scene.bias, self.scale,
                off_by_one=FUSED[self.weigh], causal=scene.causal,
            )  # fmt: skip
        if self.gates:
            z = z * self.hook_gate(ops.sigmoid(self._split(self.gate(x), self.gates)))
        return self._combine(self.hook_z(z))

    def _split(self, x: Tensor, width: int | None = None) -> Tensor:  # [B, T, H·K] -> [B, T, H, K]
        B, T, _ = x.shape
        return ops.reshape(x, (B, T, self.config.n_heads, width or self.config.head_width))

    def _rotate(self, q: Tensor, k: Tensor, scene: Scene) -> tuple[Tensor, Tensor]:
        if scene.query_angles is None:
            return q, k
        q, k = ops.rotary(q, *scene.query_angles), ops.rotary(k, *scene.key_angles)
        return self.hook_rot_q(q), self.hook_rot_k(k)

    def _in_steps(
        self, q: Tensor, k: Tensor, v: Tensor, unturned_q: Tensor, scene: Scene
    ) -> Tensor:
        """What the fused kernel does, one step at a time, with the hooks between the steps."""
        queries = ops.transpose(q, (0, 2, 1, 3))  # [B, H, T, K]
        scores = ops.matmul(queries, ops.transpose(k, (0, 2, 3, 1))) * self.scale  # [B, H, T, S]
        if scene.bias is not None:
            scores = scores + scene.bias
        scores = self.hook_attn_scores(scores)
        mask = scene.mask
        if scene.causal and mask is None:
            mask = np.tri(scores.shape[-1], dtype=bool)
        weights = self._weights(scores, mask, unturned_q)
        pattern = self.hook_pattern(weights)
        z = ops.matmul(pattern, ops.transpose(v, (0, 2, 1, 3)))  # [B, H, T, K]
        return ops.transpose(z, (0, 2, 1, 3))

    def _weights(self, scores: Tensor, mask: np.ndarray | None, q: Tensor) -> Tensor:
        if not self.has_extra:
            return self.weigh(scores, mask, self.config)
        # The extra key is one more column of scores. Its value is zero: it can be dropped again.
        extra = self._extra_scores(q)  # [B, H, T, 1]
        if mask is not None:
            mask = np.concatenate([mask, np.ones((*mask.shape[:-1], 1), bool)], axis=-1)
        weights = self.weigh(ops.concatenate([scores, extra], axis=-1), mask, self.config)
        return weights[..., :-1]

    def _extra_scores(self, q: Tensor) -> Tensor:  # [B, T, H, K] -> [B, H, T, 1]
        B, T, H, _ = q.shape
        extra = ops.broadcast_to(np.zeros((), self.config.dtype), (B, T, H))
        if self.config.key_bias:  # met by the query before it is turned: at the same place for all
            extra = extra + ops.sum(q * self.extra_key, axis=-1) * self.scale
        if self.config.sink_logit:
            extra = extra + self.sink_logit
        return ops.expand_dims(ops.swapaxes(extra, 1, 2), -1)

    def _combine(self, z: Tensor) -> Tensor:  # [B, T, H, K] -> [B, T, D]
        B, T, H, K = z.shape
        if not self.hook_result.hooks:
            return self.output(ops.reshape(z, (B, T, H * K)))
        w_o = ops.reshape(self.output.weight, (-1, H, K))  # [D, H, K]
        result = ops.matmul(ops.expand_dims(z, 3), ops.transpose(w_o, (1, 2, 0)))  # [B, T, H, 1, D]
        result = self.hook_result(ops.squeeze(result, 3))
        total = ops.sum(result, axis=2)
        return total if self.output.bias is None else total + self.output.bias

    # --- weights per head, as views: writing to them changes the model --------------------------

    def _per_head(self, layer: Linear) -> np.ndarray:  # [H, D, K]
        H = self.config.n_heads
        return layer.weight.data.reshape(H, -1, self.config.d_model).transpose(0, 2, 1)

    @property
    def W_Q(self) -> np.ndarray:
        """[H, D, K], a view."""
        return self._per_head(self.query)

    @property
    def W_K(self) -> np.ndarray:
        """[H, D, K], a view."""
        return self._per_head(self.key)

    @property
    def W_V(self) -> np.ndarray:
        """[H, D, K], a view."""
        return self._per_head(self.value)

    @property
    def W_O(self) -> np.ndarray:
        """[H, K, D], a view."""
        return self.output.weight.data.T.reshape(self.config.n_heads, -1, self.config.d_model)
