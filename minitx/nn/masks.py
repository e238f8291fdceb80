"""Masks: who may attend to whom. True = may attend.

A mask is one function ``(T, S, offset, config, segments) -> bool [T, S] or [B, T, S]``: ``T``
queries that stand at ``offset … offset + T − 1`` among ``S`` keys at 0 … S − 1 (offset > 0 with a
KV cache). Add your own with ``MASKS["mine"] = function``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from minitx.errors import MinitxError, ShapeError, choose

if TYPE_CHECKING:
    from minitx.nn.config import TransformerConfig

MaskFunction = Callable[[int, int, int, "TransformerConfig", "np.ndarray | None"], np.ndarray]


def _distance(T: int, S: int, offset: int) -> np.ndarray:
    """How far back key j lies from query i: 0 is the query itself, < 0 the future. [T, S]"""
    return (np.arange(T) + offset)[:, None] - np.arange(S)[None, :]


def causal(T, S, offset, config, segments):
    """The token itself and everything before it."""
    return _distance(T, S, offset) >= 0


def bidirectional(T, S, offset, config, segments):
    """Everything."""
    return np.ones((T, S), dtype=bool)


def sliding_window(T, S, offset, config, segments):
    """The token itself and the ``window − 1`` before it (Beltagy et al., 2020)."""
    distance = _distance(T, S, offset)
    return (distance >= 0) & (distance < config.window)


def window_sinks(T, S, offset, config, segments):
    """A sliding window, and always the first ``n_sinks`` tokens (Xiao et al., 2023)."""
    return sliding_window(T, S, offset, config, segments) | (
        causal(T, S, offset, config, segments) & (np.arange(S) < config.n_sinks)
    )


def prefix(T, S, offset, config, segments):
    """Causal, but the first ``prefix_len`` tokens see one another fully (Raffel et al., 2020)."""
    return causal(T, S, offset, config, segments) | (
        (np.arange(T) + offset < config.prefix_len)[:, None] & (np.arange(S) < config.prefix_len)
    )


def documents(T, S, offset, config, segments):
    """Causal within each document of a packed sequence: ``segments[b, t]`` numbers its document."""
    if segments is None:
        raise MinitxError(
            "mask='documents' needs segments: an int array [B, T] of document numbers."
        )
    return causal(T, S, offset, config, segments)  # same_segment() is applied to every mask


MASKS: dict[str, MaskFunction] = {
    "causal": causal,
    "bidirectional": bidirectional,
    "sliding_window": sliding_window,
    "window_sinks": window_sinks,
    "prefix": prefix,
    "documents": documents,
}

CACHEABLE_MASKS = {"causal", "sliding_window", "window_sinks", "prefix"}
"""Masks that allow a KV cache: no token sees a later one, but for a prefix that is fed at once."""


def same_segment(segments: np.ndarray) -> np.ndarray:
    """True where query and key belong to the same document. [B, T] -> [B, T, T]"""
    return segments[:, :, None] == segments[:, None, :]


def positions_in_segments(segments: np.ndarray) -> np.ndarray:
    """Positions that start again at 0 in each document. int [B, T] -> int [B, T]

    Pass them as ``positions`` to give a packed document the absolute positions that it would have
    alone.
    """
    segments = np.asarray(segments)
    T = segments.shape[1]
    starts = np.ones_like(segments, dtype=bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    start_of = np.maximum.accumulate(np.where(starts, np.arange(T), 0), axis=1)
    return np.arange(T) - start_of


def build_mask(
    config: TransformerConfig,
    T: int,
    S: int,
    offset: int = 0,
    mask: np.ndarray | None = None,
    segments: np.ndarray | None = None,
) -> np.ndarray:
    """The config's mask AND the call's mask AND same-document. bool [T, S] or [B, 1, T, S].

    Raises
    ------
    ShapeError
        If ``mask`` is not a bool array [T, S] or [B, T, S], or ``segments`` not [B, T].
    """
    allowed = choose(MASKS, config.mask, "mask")(T, S, offset, config, segments)
    if segments is not None:
        if segments.ndim != 2 or segments.shape[1] != T:
            raise ShapeError(f"segments must have shape [B, T] with T = {T}, got {segments.shape}.")
        allowed = allowed & same_segment(segments)
    if mask is not None:
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.ndim not in (2, 3) or mask.shape[-2:] != (T, S):
            raise ShapeError(
                f"mask must be a bool array of shape [T, S] = {(T, S)} or [B, T, S] with True "
                f"where a query may attend; got {mask.dtype} {mask.shape}."
            )
        allowed = allowed & mask
    return allowed if allowed.ndim == 2 else allowed[:, None]  # one mask for all heads
