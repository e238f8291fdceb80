"""Random draws that several tasks share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minitx.errors import MinitxError, choose


def distinct(rng: np.random.Generator, shape: tuple[int, ...], n: int, high: int) -> np.ndarray:
    """`n` different numbers below `high` for each entry of `shape`, each choice equally likely.

    Returns
    -------
    int64 [*shape, n]

    Raises
    ------
    MinitxError
        If fewer than `n` numbers exist.
    """
    if n > high:
        raise MinitxError(
            f"Cannot draw {n} different numbers below {high}; ask for {high} or fewer."
        )
    if n > 3:
        everything = np.broadcast_to(np.arange(high), (*shape, high))
        return rng.permuted(everything, axis=-1)[..., :n]
    # A few only: draw the k-th from the `high - k` that are left and count past the ones taken,
    # which is ten times faster than to permute all `high` numbers.
    out = np.empty((*shape, n), dtype=np.int64)
    for k in range(n):
        draw = rng.integers(high - k, size=shape)
        taken = np.sort(out[..., :k], axis=-1)  # ascending, or counting past them goes wrong
        for j in range(k):
            draw += draw >= taken[..., j]
        out[..., k] = draw
    return out


DEMANDS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "uniform": lambda at, scale: np.ones(len(at)),
    "ends": lambda at, scale: np.exp(-at / scale) + np.exp(-at[::-1] / scale),
    "first": lambda at, scale: np.exp(-at / scale),
    "last": lambda at, scale: np.exp(-at[::-1] / scale),
}
"""How often each serial position is asked for, before normalising and mixing; see `demand`."""


def demand(name: str, n: int, strength: float = 0.7, scale: float = 2.0) -> np.ndarray:
    """Probability that each of `n` serial positions is asked for.

    ``(1 - strength)/n + strength * normalised(DEMANDS[name])``, where the named curve falls off
    exponentially, with length `scale`, from one or both ends of the list.

    Returns
    -------
    float64 [n], sums to 1
    """
    curve = choose(DEMANDS, name, "demand")(np.arange(n, dtype=float), scale)
    return (1.0 - strength) / n + strength * curve / curve.sum()


def context_mask(n_context: int, n_queries: int) -> np.ndarray:
    """A mask under which every position sees the context and itself, but no query elsewhere.

    With it the answer to a query cannot depend on which queries stand before it.

    Returns
    -------
    bool [T, T] with T = n_context + n_queries, True = may attend
    """
    total = n_context + n_queries
    mask = np.eye(total, dtype=bool)
    mask[:, :n_context] = True
    return mask
