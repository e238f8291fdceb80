"""Scores that say what an attention head does: pure functions of its pattern, values or weights.

All scores of a pattern take ``[B, H, T, S]`` (batch, head, query, key) and return one number a
head, ``[H]``, pooled over the batch and over the query rows that count. ``[H, T, S]`` gives
``[H]`` and ``[T, S]`` gives a float. With fewer queries than keys (a KV cache) the last query sits
at the last key.

A row in which the behaviour is impossible is not counted: the first query has no previous token,
and its only key under a causal mask is itself. So a perfect head scores exactly 1. ``rows`` (bool
``[T]`` or ``[B, T]``) narrows the rows further; when no row is left the score is ``nan``.

Nothing here edits its inputs, and read-only arrays are accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minitx.errors import MinitxError, ShapeError
from minitx.interp.circuits import copying_score as copying_score  # read from weights alone
from minitx.interp.similarity import effective_rank

Score = Any  # float array [H], or a float for a single head: what it is follows from the pattern


def _open(pattern: ArrayLike) -> tuple[np.ndarray, int]:
    """The pattern as ``[B, H, T, S]``, and the position of its first query among the keys."""
    pattern = np.asarray(pattern)
    if not 2 <= pattern.ndim <= 4:
        raise ShapeError(f"pattern has shape {pattern.shape}; expected [B, H, T, S].")
    queries, keys = pattern.shape[-2:]
    if queries > keys:
        raise ShapeError(f"pattern has {queries} queries but only {keys} keys.")
    return pattern.reshape((1,) * (4 - pattern.ndim) + pattern.shape), keys - queries


def _rows(rows: ArrayLike | None, shape: tuple[int, int]) -> np.ndarray:
    """``rows`` as bool ``[B, T]``."""
    if rows is None:
        return np.ones(shape, dtype=bool)
    rows = np.asarray(rows)
    if rows.dtype != bool:
        raise MinitxError(f"rows must be a bool mask over queries; got dtype {rows.dtype}.")
    try:
        return np.broadcast_to(rows, shape)
    except ValueError:
        raise ShapeError(
            f"rows has shape {rows.shape}; expected [T] or [B, T] with B, T = {shape}."
        ) from None


def _after_first(pattern: np.ndarray, offset: int, rows: ArrayLike | None) -> np.ndarray:
    """The rows asked for, but never the query at position 0."""
    batch, _, queries, _ = pattern.shape
    return _rows(rows, (batch, queries)) & (np.arange(queries) + offset > 0)


def _pool(values: np.ndarray, rows: np.ndarray, ndim: int) -> Score:
    """Mean of ``values`` ``[B, H, T]`` over the counted rows ``[B, T]``: ``[H]``, or a float."""
    count = rows.sum()
    total = np.where(rows[:, None], values, 0.0).sum((0, 2), dtype=np.float64)
    score = total / count if count else np.full(total.shape, np.nan)
    return float(score[0]) if ndim == 2 else score


def _place(position: int, keys: int) -> int:
    """A key's place counted from 0; NumPy would count a negative one from the end."""
    if not isinstance(position, int | np.integer) or not 0 <= position < keys:
        raise MinitxError(f"position must be a key's place, 0 to {keys - 1}; got {position!r}.")
    return int(position)


def _tokens(tokens: ArrayLike, shape: tuple[int, int], name: str = "tokens") -> np.ndarray:
    tokens = np.asarray(tokens)
    try:
        return np.broadcast_to(tokens, shape)
    except ValueError:
        raise ShapeError(
            f"{name} has shape {tokens.shape}; the pattern needs {shape} (batch, positions)."
        ) from None


def attention_to(pattern: ArrayLike, targets: ArrayLike, rows: ArrayLike | None = None) -> Score:
    """Attention on chosen keys: mean over rows of the weight summed over that row's targets.

    Most scores below are this, with their own targets. Rows without any target do not count.

    Parameters
    ----------
    pattern : array [B, H, T, S]
    targets : bool array [T, S] or [B, T, S]
        The keys each query should look at.
    rows : bool array [T] or [B, T], optional

    Returns
    -------
    array [H]
    """
    p, _ = _open(pattern)
    batch, _, queries, keys = p.shape
    targets = np.asarray(targets)
    if targets.dtype != bool or targets.shape not in ((queries, keys), (batch, queries, keys)):
        raise ShapeError(
            f"targets is {targets.dtype} {targets.shape}; expected bool [T, S] or [B, T, S] "
            f"with B, T, S = {batch, queries, keys}."
        )
    targets = np.broadcast_to(targets, (batch, queries, keys))
    counted = _rows(rows, (batch, queries)) & targets.any(-1)
    mass = np.where(targets[:, None], p, 0).sum(-1, dtype=np.float64)
    return _pool(mass, counted, np.ndim(pattern))


def offset_score(pattern: ArrayLike, offset: int, rows: ArrayLike | None = None) -> Score:
    """Attention of each query on the key ``offset`` positions before it (0: itself)."""
    p, first = _open(pattern)
    queries, keys = p.shape[-2:]
    distance = np.arange(queries)[:, None] + first - np.arange(keys)
    return attention_to(pattern, distance == offset, rows)


def previous_token_score(pattern: ArrayLike, rows: ArrayLike | None = None) -> Score:
    """Attention on the position before: ``mean_{t ≥ 1} A[t, t−1]``. (Elhage et al. 2021.)

    Parameters
    ----------
    pattern : array [B, H, T, S]
    rows : bool array [T] or [B, T], optional

    Returns
    -------
    array [H]
    """
    return offset_score(pattern, 1, rows)


def induction_targets(tokens: ArrayLike) -> np.ndarray:
    """The keys an induction head looks at: those whose *preceding* token equals the query's token.

    ``target[t, s] = (1 ≤ s ≤ t) and tokens[s − 1] == tokens[t]``: ``[A] [B] ... [A]`` looks at
    ``[B]``.

    Parameters
    ----------
    tokens : int array [..., T]

    Returns
    -------
    bool array [..., T, T]
    """
    tokens = np.asarray(tokens)
    same = tokens[..., :, None] == tokens[..., None, :]  # [..., t, s]
    targets = np.zeros(same.shape, dtype=bool)
    targets[..., 1:] = same[..., :-1]
    return np.tril(targets)


def induction_score(pattern: ArrayLike, tokens: ArrayLike, rows: ArrayLike | None = None) -> Score:
    """Prefix matching: attention on what followed earlier occurrences of the query's token.

    The mean over rows whose token occurred before. (Olsson et al. 2022, there on repeated random
    tokens; here on any tokens. ``induction_targets`` has the formula.)

    Parameters
    ----------
    pattern : array [B, H, T, S]
    tokens : int array [B, S] or [S]
        The tokens of all keys.
    rows : bool array [T] or [B, T], optional

    Returns
    -------
    array [H]
        ``nan`` if no token repeats.
    """
    p, first = _open(pattern)
    tokens = _tokens(tokens, (p.shape[0], p.shape[-1]))
    return attention_to(pattern, induction_targets(tokens)[:, first:], rows)


def duplicate_token_score(
    pattern: ArrayLike, tokens: ArrayLike, rows: ArrayLike | None = None
) -> Score:
    """Attention on earlier occurrences of the query's own token. (Wang et al. 2023.)

    Parameters and result as in ``induction_score``.
    """
    p, first = _open(pattern)
    tokens = _tokens(tokens, (p.shape[0], p.shape[-1]))
    same = np.tril(tokens[:, :, None] == tokens[:, None, :], k=-1)
    return attention_to(pattern, same[:, first:], rows)


def retrieval_score(
    pattern: ArrayLike,
    tokens: ArrayLike,
    outputs: ArrayLike,
    needle: ArrayLike,
    rows: ArrayLike | None = None,
) -> Score:
    """Share of the needle's distinct tokens that a head copies while the answer is written.

    ``|g ∩ k| / |k|``, with ``k`` the *set* of tokens in the needle and ``g`` the set of tokens
    written at a row whose largest weight lies inside the needle, on that very token. Copying a
    token twice counts once. (Wu et al. 2024, *Retrieval Head Mechanistically Explains Long-Context
    Factuality*.)

    Parameters
    ----------
    pattern : array [B, H, T, S]
    tokens : int array [B, S] or [S]
        The token at each key.
    outputs : int array [B, T] or [T]
        The token that is written after each query (the next token).
    needle : bool array [B, S] or [S]
        Which keys are the needle.
    rows : bool array [T] or [B, T], optional
        The decoding steps; all by default.

    Returns
    -------
    array [H]
        Mean over the samples that have a needle. At a tie the earliest key is the largest.
    """
    p, _ = _open(pattern)
    batch, heads, queries, keys = p.shape
    tokens = _tokens(tokens, (batch, keys))
    outputs = _tokens(outputs, (batch, queries), "outputs")
    needle = _tokens(needle, (batch, keys), "needle")
    if needle.dtype != bool:
        raise MinitxError(f"needle must be a bool mask over keys; got dtype {needle.dtype}.")
    counted = _rows(rows, (batch, queries))
    looked = p.argmax(-1)  # [B, H, T]
    scores = []
    for b in range(batch):
        wanted = set(tokens[b, needle[b]].tolist())
        if not wanted:
            continue
        copied = needle[b, looked[b]] & (tokens[b, looked[b]] == outputs[b]) & counted[b]
        scores.append([len(set(outputs[b, row].tolist())) / len(wanted) for row in copied])
    score = np.mean(scores, axis=0) if scores else np.full(heads, np.nan)
    return float(score[0]) if np.ndim(pattern) == 2 else score


def absolute_shares(pattern: ArrayLike) -> np.ndarray:
    """``|a| / Σ|a|`` along the keys: the proxy for signed or unnormalised weights (Gu et al. 2024).

    Say so when you report it: a share of absolute weight is not an attention probability.

    Parameters
    ----------
    pattern : array [..., S]

    Returns
    -------
    array [..., S]
        A new array, float64; all-zero rows stay zero.
    """
    size = np.abs(np.asarray(pattern, dtype=np.float64))
    total = size.sum(-1, keepdims=True)
    return size / np.where(total > 0, total, 1.0)


def _refuse_signed(p: np.ndarray) -> None:
    if p.size and p.min() < 0:
        raise MinitxError(
            "The pattern has negative weights, of which no share can be taken: "
            "pass absolute_shares(pattern), and say so where you report the score."
        )


def first_token_share(
    pattern: ArrayLike, rows: ArrayLike | None = None, position: int = 0
) -> Score:
    """Attention on the first token: ``mean_{t ≥ 1} A[t, 0]``. (Xiao et al. 2023.)

    The first query is not counted: under a causal mask it can look at nothing else.

    Parameters
    ----------
    pattern : array [B, H, T, S]
        Weights ≥ 0; for signed ones pass ``absolute_shares(pattern)``.
    rows : bool array [T] or [B, T], optional
    position : int
        The key to look at, 0 by default; then queries at or before it do not count.

    Returns
    -------
    array [H]
    """
    p, first = _open(pattern)
    _refuse_signed(p)
    queries, position = p.shape[-2], _place(position, p.shape[-1])
    later = np.arange(queries) + first > position
    counted = _rows(rows, (p.shape[0], queries)) & later
    return _pool(p[..., position], counted, np.ndim(pattern))


def sink_rate(pattern: ArrayLike, threshold: float = 0.3, position: int = 0) -> Score:
    """How often a head sinks: share of samples whose mean weight on a key exceeds a threshold.

    ``α_k = Σ_{i ≥ k} A[i, k] / (T − k)`` (positions from 0), then ``mean over samples of 1[α_k >
    ε]``: the indicator before the averaging. The mean over heads and layers of this is the
    published sink metric. As published, the row ``i = k`` counts. (Gu et al. 2024.)

    Parameters
    ----------
    pattern : array [B, H, T, S]
        Weights ≥ 0; for signed or unnormalised ones pass ``absolute_shares(pattern)``.
    threshold : float
        ε, 0.3 in the paper.
    position : int
        k, the first token by default.

    Returns
    -------
    array [H]
    """
    p, first = _open(pattern)
    _refuse_signed(p)
    position = _place(position, p.shape[-1])
    rows = np.arange(p.shape[-2]) + first >= position
    if not rows.any():
        return float("nan") if np.ndim(pattern) == 2 else np.full(p.shape[1], np.nan)
    alpha = p[..., rows, position].mean(-1, dtype=np.float64)  # [B, H]
    rate = (alpha > threshold).mean(0)
    return float(rate[0]) if np.ndim(pattern) == 2 else rate


def value_drain(values: ArrayLike, position: int = 0) -> Score:
    """Size of the value at the sink against the others: ``‖v_k‖ / mean_{t ≠ k} ‖v_t‖``.

    Far below 1 where a head parks its attention on a token that adds nothing. (Guo et al. 2024.)

    Parameters
    ----------
    values : array [B, T, H, K]
        The cache's ``hook_v``; ``[T, H, K]`` is one sample.
    position : int

    Returns
    -------
    array [H]
        Norms are averaged over the batch first. ``nan`` where all other values are zero.
    """
    values = np.asarray(values)
    if values.ndim not in (3, 4) or values.shape[-3] < 2:
        raise ShapeError(f"values has shape {values.shape}; expected [B, T, H, K] with T ≥ 2.")
    values = values.reshape((1,) * (4 - values.ndim) + values.shape).astype(np.float64)
    norms = np.linalg.norm(values, axis=-1).mean(0)  # [T, H]
    position = _place(position, len(norms))
    others = np.delete(norms, position, axis=0).mean(0)
    return np.where(others > 0, norms[position] / np.where(others > 0, others, 1.0), np.nan)


def entropy(pattern: ArrayLike, rows: ArrayLike | None = None) -> Score:
    """Mean entropy of the rows in nats: ``−Σ_s A log A`` (0 log 0 = 0), for queries after the
    first.

    0 for a head that looks at one key; ``log n`` for one spread over n keys. Weights that do not
    sum to one are taken as they are: pass ``absolute_shares(pattern)`` to normalise.

    Parameters
    ----------
    pattern : array [B, H, T, S]
    rows : bool array [T] or [B, T], optional

    Returns
    -------
    array [H]
    """
    p, first = _open(pattern)
    _refuse_signed(p)
    p = p.astype(np.float64)
    # 0 - x and not -x: a head that looks at one key has entropy 0, not -0.
    row_entropy = 0.0 - (p * np.log(np.where(p > 0, p, 1.0))).sum(-1)
    return _pool(row_entropy, _after_first(p, first, rows), np.ndim(pattern))


def pattern_effective_rank(pattern: ArrayLike) -> Score:
    """Effective rank of each sample's pattern, averaged over the batch. (Roy & Vetterli 2007.)

    1 for a head whose queries all look alike (a sink), T for the identity.

    Parameters
    ----------
    pattern : array [B, H, T, S]

    Returns
    -------
    array [H]
    """
    p, _ = _open(pattern)
    rank = np.asarray(effective_rank(p)).mean(0)
    return float(rank[0]) if np.ndim(pattern) == 2 else rank
