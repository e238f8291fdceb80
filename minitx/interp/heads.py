"""Every head's scores at once, for a trained model or all along its training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minitx.errors import choose
from minitx.interp import scores
from minitx.interp.running import quiet
from minitx.training import Curve

PatternScore = Callable[[np.ndarray, np.ndarray, "np.ndarray | None"], scores.Score]


def _shares(pattern: np.ndarray) -> np.ndarray:
    """Signed weights as absolute shares; the others as they are."""
    return scores.absolute_shares(pattern) if pattern.min() < 0 else pattern


PATTERN_SCORES: dict[str, PatternScore] = {
    "previous": lambda p, tokens, rows: scores.previous_token_score(p, rows),
    "induction": scores.induction_score,
    "duplicate": scores.duplicate_token_score,
    "first": lambda p, tokens, rows: scores.first_token_share(_shares(p), rows),
    "sink_rate": lambda p, tokens, rows: scores.sink_rate(_shares(p)),
    "entropy": lambda p, tokens, rows: scores.entropy(_shares(p), rows),
    "rank": lambda p, tokens, rows: scores.pattern_effective_rank(p),
}
"""Name -> score of ``(pattern [B, H, T, T], tokens [B, T], rows)``: see `minitx.interp.scores`."""


def head_scores(
    model: Any,
    tokens: np.ndarray,
    names: Iterable[str] = ("previous", "induction", "duplicate", "first", "entropy"),
    rows: np.ndarray | None = None,
    **model_kwargs: Any,
) -> dict[str, np.ndarray]:
    """Scores of all heads.

    Parameters
    ----------
    model : Transformer
    tokens : int array [B, T]
    names : iterable of str
        Out of `PATTERN_SCORES`, and ``"copying"`` (from the weights: embeddings and norms included
        as far as they are linear, see `copying_of`) and ``"drain"``.
    rows : bool array [T] or [B, T], optional
        The queries that count.

    Returns
    -------
    dict name -> array [L, H]
    """
    names = list(names)
    known = {**PATTERN_SCORES, "copying": None, "drain": None}
    for name in names:
        choose(known, name, "head score")
    layers = range(model.config.n_layers)
    with quiet(model):
        wanted = ("attn.hook_pattern", "attn.hook_v")
        _, cache = model.run_with_cache(tokens, lambda n: n.endswith(wanted), **model_kwargs)
    table = {}
    for name in names:
        if name == "copying":
            table[name] = copying_of(model)
        elif name == "drain":
            table[name] = np.stack([scores.value_drain(cache["v", i]) for i in layers])
        else:
            score = PATTERN_SCORES[name]
            table[name] = np.stack([score(cache["pattern", i], tokens, rows) for i in layers])
    return table


def copying_of(model: Any) -> np.ndarray:
    """Copying score of every head's full OV circuit ``W_E W_V W_O W_U``, norms left out. [L, H]

    For a model whose outputs are its first token ids (``out_size < vocab_size``) only these are
    used.
    """
    W_U = model.W_U
    W_E = model.W_E[: W_U.shape[1]]
    return np.asarray(scores.copying_score(model.W_V, model.W_O, W_E, W_U))


def score_curve(
    tokens: np.ndarray,
    every: int,
    names: Iterable[str] = ("previous", "induction"),
    rows: np.ndarray | None = None,
    **functions: Callable[[Any], Any],
) -> Curve:
    """A callback of `fit` that records head scores during training.

    Parameters
    ----------
    tokens : int array [B, T]
        The same sequences every time.
    every : int
        Steps between measurements.
    names, rows
        As in `head_scores`.
    **functions
        More curves: functions of the training state.

    Returns
    -------
    Curve
        ``curve.steps [n]``, ``curve["previous"] [n, L, H]``, ...

    Examples
    --------
    >>> curve = score_curve(batch.tokens, every=50)
    >>> fit(model, task, steps=500, rng=rng, callbacks=[curve])
    >>> curve["induction"].max((1, 2))
    """

    def one(name: str) -> Callable[[Any], np.ndarray]:
        return lambda state: head_scores(state.model, tokens, [name], rows)[name]

    return Curve({**{name: one(name) for name in names}, **functions}, every)
