"""Generation token by token: the KV cache, eviction from it, sampling.

A cache keeps each layer's keys *before* they are turned by rotary positions. When old tokens
are evicted, the rest are counted anew from 0, so that a stream of any length stays within the
positions seen in training (Xiao et al., 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minitx.autograd import Tensor, no_grad
from minitx.errors import MinitxError, ShapeError
from minitx.nn.attention import LOOKS_AT_OTHER_QUERIES
from minitx.nn.masks import CACHEABLE_MASKS

if TYPE_CHECKING:
    from minitx.nn.config import TransformerConfig
    from minitx.nn.transformer import Transformer


def may_cache(config: TransformerConfig) -> bool:
    """Whether keys and values of earlier tokens are all that later ones need."""
    fits = config.mask in CACHEABLE_MASKS and config.mask != "prefix"
    return fits and config.attention not in LOOKS_AT_OTHER_QUERIES


class KVCache:
    """Keys and values of the tokens seen so far: ``logits = model(new_tokens, cache=cache)``.

    Parameters
    ----------
    model : Transformer
        With a causal mask: a later token must not change what earlier ones computed.
    window : int, optional
        Keep only the last ``window`` tokens, the newest included, and count positions within what
        is kept. None keeps everything.
    n_sinks : int
        With a window: also keep the first ``n_sinks`` tokens for ever.

    Attributes
    ----------
    length : int
        Tokens held.
    seen : int
        Tokens fed since the start.

    Raises
    ------
    MinitxError
        If the model's mask or attention does not allow a cache, or the cache would exceed max_len.
    """

    def __init__(self, model: Transformer, window: int | None = None, n_sinks: int = 0):
        config = model.config
        if config.mask not in CACHEABLE_MASKS:
            raise MinitxError(
                "A KV cache needs a mask under which no token sees a later one, "
                f"not {config.mask!r}."
            )
        if config.attention in LOOKS_AT_OTHER_QUERIES:
            raise MinitxError(
                f"attention={config.attention!r} compares queries with one another, which a KV "
                "cache does not keep; run the whole sequence."
            )
        if window is None and n_sinks:
            raise MinitxError("n_sinks keeps the first tokens beside a window: set window too.")
        if window is not None:
            if window < 1 or n_sinks < 0:
                raise MinitxError(
                    f"The cache needs window >= 1 and n_sinks >= 0, got {window} and {n_sinks}."
                )
            if config.mask != "causal":
                raise MinitxError(f"A cache that evicts needs mask='causal', not {config.mask!r}.")
            if window + n_sinks > config.max_len:
                raise MinitxError(
                    f"window + n_sinks = {window + n_sinks} is more than max_len = {config.max_len}"
                    "; make one smaller."
                )
        self.config, self.window, self.n_sinks = config, window, n_sinks
        self.length, self.seen = 0, 0
        self.positions = np.zeros(0, dtype=np.int64)  # [S] or [B, S]
        self._held: list[tuple[np.ndarray, np.ndarray] | None] = [None] * config.n_layers
        self._new: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def capacity(self) -> int:
        """How many tokens it can hold."""
        return self.config.max_len if self.window is None else self.window + self.n_sinks

    def fits(self, T: int) -> bool:
        """Whether ``T`` more tokens fit without evicting any."""
        return self.length + T <= self.capacity

    def make_room(self) -> None:
        """Before one more token: evict the oldest that is not a sink, if the cache is full."""
        while not self.fits(1):
            keep = np.r_[: self.n_sinks, self.n_sinks + 1 : self.length]
            self._held = [pair and (pair[0][:, keep], pair[1][:, keep]) for pair in self._held]
            self.length -= 1
            self.positions = np.arange(self.length)  # counted within the cache

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, held and new: [B, T, H, K] -> [B, S, H, K]."""
        pair = (k.data, v.data)
        held = self._held[layer]
        if held is not None:
            if held[0].shape[0] != pair[0].shape[0]:
                raise ShapeError(
                    f"The cache holds {held[0].shape[0]} sequences, the new tokens are of "
                    f"{pair[0].shape[0]}."
                )
            pair = tuple(
                np.concatenate([old, new], axis=1) for old, new in zip(held, pair, strict=True)
            )
        self._new[layer] = pair
        return Tensor(pair[0]), Tensor(pair[1])

    def commit(self, T: int, positions: np.ndarray) -> None:
        """Keep the new tokens. Called when the whole pass is through: an error leaves no half."""
        self._held = [self._new[layer] for layer in range(len(self._held))]
        self._new = {}
        self.length += T
        self.seen += T
        self.positions = positions


def forward_cached(
    model: Transformer,
    tokens: np.ndarray,
    cache: KVCache,
    mask: np.ndarray | None = None,
    positions: np.ndarray | None = None,
) -> Tensor:
    """Logits of new tokens [B, T, V], given those in the cache. Records no graph."""
    T = tokens.shape[1]
    if cache.config is not model.config:
        raise MinitxError("The cache was made for another model.")
    if cache.window is not None and (mask is not None or positions is not None):
        raise MinitxError(
            "A cache that evicts counts positions itself: pass no mask and no positions."
        )
    if not cache.fits(T):
        if cache.window is None:
            raise MinitxError(
                f"{cache.length} tokens in the cache and {T} new ones are more than max_len = "
                f"{model.config.max_len}; make max_len larger, or give the cache a window."
            )
        # Each token must see its own window, so they go one by one.
        with no_grad():
            steps = []
            for t in range(T):
                cache.make_room()
                steps.append(forward_cached(model, tokens[:, t : t + 1], cache).data)
        return Tensor(np.concatenate(steps, axis=1))
    prefix = model.config.prefix_len if model.config.mask == "prefix" else 0
    if cache.seen == 0 and prefix > T:
        raise MinitxError(f"The prefix of {prefix} tokens must be fed to the cache in one piece.")
    new = positions if positions is not None else np.arange(cache.length, cache.length + T)
    new = model.check_positions(new, T)
    keys = _append(cache.positions, new)
    with no_grad():
        scene = model.make_scene(T, cache.length + T, cache.length, new, keys, mask)
        scene.cache = cache
        logits = model.run_blocks(tokens, new, scene)
    cache.commit(T, keys)
    return logits


def _append(held: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Join positions along the last axis; either may have a batch axis."""
    if held.ndim != new.ndim:
        B = max(held, new, key=np.ndim).shape[0]
        held, new = (np.broadcast_to(p, (B, p.shape[-1])) for p in (held, new))
    return np.concatenate([held, new], axis=-1)


def generate(
    model: Transformer,
    tokens: np.ndarray,
    n: int,
    rng: np.random.Generator | None = None,
    temperature: float = 0.0,
    use_cache: bool = True,
) -> np.ndarray:
    """Continue sequences by ``n`` tokens.

    Parameters
    ----------
    tokens : int array [B, T]
    n : int
    rng : numpy.random.Generator
        Needed when ``temperature`` > 0.
    temperature : float
        0 takes the most likely token; else tokens are drawn from softmax(logits / temperature).
    use_cache : bool
        False computes every step from scratch: slower, the same tokens. So does a model that allows
        no cache.

    Returns
    -------
    int64 array [B, T + n]

    Raises
    ------
    MinitxError
        If T + n > max_len, tokens are fused or outputs are not tokens, or rng is missing.
    """
    config = model.config
    tokens = model.check_tokens(tokens)
    if tokens.ndim != 2 or config.n_outputs != config.vocab_size:
        raise MinitxError("generate() needs plain tokens [B, T] and out_size equal to vocab_size.")
    if n < 0 or tokens.shape[1] + n > config.max_len:
        raise MinitxError(
            f"{tokens.shape[1]} tokens and {n} new ones do not fit in max_len = {config.max_len}."
        )
    if temperature < 0 or (temperature > 0 and rng is None):
        raise MinitxError(
            "Sampling needs temperature > 0 and a generator: rng=np.random.default_rng(seed)."
        )
    mode = model.training
    model.eval()
    try:
        with no_grad():
            cache = KVCache(model) if use_cache and may_cache(config) else None
            return _generate(model, tokens, n, rng, temperature, cache)
    finally:
        model.train(mode)


def _generate(model, tokens, n, rng, temperature, cache):
    for i in range(n):
        fresh = tokens if cache is None or i == 0 else tokens[:, -1:]
        logits = model(fresh, cache=cache).data[:, -1]  # [B, V]
        if temperature == 0:
            following = logits.argmax(axis=-1)
        else:  # the largest of logits + Gumbel noise is a draw from their softmax
            following = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(axis=-1)
        tokens = np.concatenate([tokens, following[:, None]], axis=1)
    return tokens
