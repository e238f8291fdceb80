"""Position schemes: how a transformer knows where a token stands.

A scheme may act in three places: add something to the embeddings (`embed`), turn queries and
keys by an angle (`angles`), or add something to the attention scores (`bias`). Each scheme
overrides what it uses. Add your own with ``POSITIONS["mine"] = Class``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minitx.autograd import Tensor, ops
from minitx.errors import MinitxError
from minitx.nn.module import Module, Parameter

if TYPE_CHECKING:
    from minitx.nn.config import TransformerConfig


class Positions(Module):
    """No positions at all (NoPE, Haviv et al., 2022), and the base of the other schemes.

    Positions come as an int array [T] or [B, T]; ``dtype`` is the model's.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        self.dtype = np.dtype(config.dtype)

    def embed(self, positions: np.ndarray) -> Tensor | np.ndarray | None:
        """What is added to the embeddings, [T, D] or [B, T, D]; None for nothing."""
        return None

    def angles(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Cosine and sine of what turns queries and keys, each [T, K/2] or [B, T, K/2]."""
        return None

    def bias(
        self, query_positions: np.ndarray, key_positions: np.ndarray
    ) -> Tensor | np.ndarray | None:
        """What is added to the scores, broadcastable to [B, H, T, S]; None for nothing."""
        return None


class Learned(Positions):
    """A trained vector for each absolute position (GPT-2)."""

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        super().__init__(config, rng)
        shape = (config.max_len, config.d_model)
        self.weight = Parameter(
            (config.embedding_std * rng.standard_normal(shape)).astype(self.dtype)
        )

    def embed(self, positions: np.ndarray) -> Tensor:
        check_range(positions, self.weight.shape[0], "learned")
        return ops.embedding(positions, self.weight)


class Sinusoidal(Positions):
    """Fixed sines and cosines of geometric frequencies (Vaswani et al., 2017).

    Their amplitude is the embeddings' standard deviation: the paper scales the embeddings up
    by √D instead, which gives the same ratio of content to position.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        super().__init__(config, rng)
        self.amplitude, self.d_model = config.embedding_std, config.d_model

    def embed(self, positions: np.ndarray) -> np.ndarray:
        half = (self.d_model + 1) // 2
        rates = 10000.0 ** (-2.0 * np.arange(half) / self.d_model)
        turn = positions[..., None] * rates  # [..., D/2]
        waves = np.stack([np.sin(turn), np.cos(turn)], axis=-1)  # interleaved, as in the paper
        waves = waves.reshape(*positions.shape, 2 * half)[..., : self.d_model]
        return (self.amplitude * waves).astype(self.dtype)


class Rotary(Positions):
    """Turn each pair of query and key features by position × rate (RoPE; Su et al., 2021).

    Scores then depend on the offset between query and key alone.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        super().__init__(config, rng)
        width = config.head_width
        self.rates = config.rope_base ** (-2.0 * np.arange(width // 2) / width)  # [K/2]
        self.table = self._turn(np.arange(config.max_len))

    def _turn(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        turn = positions[..., None] * self.rates
        return np.cos(turn).astype(self.dtype), np.sin(turn).astype(self.dtype)

    def angles(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cos, sin = self.table
        if positions.min() >= 0 and positions.max() < len(cos):
            return cos[positions], sin[positions]
        return self._turn(positions)  # no end of positions: only learned schemes run out of them


class ALiBi(Positions):
    """Scores fall linearly with distance, at a fixed slope per head (Press et al., 2022).

    Without a causal mask the distance is |i − j|.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        super().__init__(config, rng)
        self.slopes = alibi_slopes(config.n_heads)  # [H]

    def bias(self, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        query, key = (np.asarray(p, dtype=np.int64) for p in (query_positions, key_positions))
        distance = np.abs(query[..., :, None] - key[..., None, :])  # [.., T, S]
        return (-self.slopes[:, None, None] * distance[..., None, :, :]).astype(self.dtype)


class LogitBias(Positions):
    """A trained number per head and absolute key position, added to the scores of every layer."""

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        super().__init__(config, rng)
        self.weight = Parameter(np.zeros((config.max_len, config.n_heads), self.dtype))

    def bias(self, query_positions: np.ndarray, key_positions: np.ndarray) -> Tensor:
        check_range(key_positions, self.weight.shape[0], "logit_bias")
        per_key = ops.embedding(key_positions, self.weight)  # [S, H] or [B, S, H]
        return ops.expand_dims(ops.swapaxes(per_key, -1, -2), -2)  # [..., H, 1, S]


POSITIONS: dict[str, type[Positions]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
    "alibi": ALiBi,
    "none": Positions,
    "logit_bias": LogitBias,
}


def alibi_slopes(n_heads: int) -> np.ndarray:
    """2^(−8h/n) for heads h = 1 … n, if n is a power of two (Press et al., 2022).

    Otherwise the slopes of the power below, filled up with every second one of the power above.
    """

    def of_power(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]

    below = 2 ** int(np.log2(n_heads))
    return np.array(of_power(below) + of_power(2 * below)[0::2][: n_heads - below])


def check_range(positions: np.ndarray, max_len: int, scheme: str) -> None:
    """Raise `MinitxError` unless all positions lie in [0, max_len)."""
    if positions.size and (positions.min() < 0 or positions.max() >= max_len):
        bad = positions[(positions < 0) | (positions >= max_len)].flat[0]
        raise MinitxError(
            f"Position {bad} lies outside of 0 … {max_len - 1}, for which positions={scheme!r} has "
            "weights; make max_len larger."
        )
