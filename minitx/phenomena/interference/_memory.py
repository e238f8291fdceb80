"""Three associative memories, and what each is expected to hold: the closed forms.

A memory stores pairs of a key [d] and a value [d_v] and is read with a key. Attention is one: a
head without softmax is the additive memory of outer products, with softmax a sharp look-up table.
All functions take a leading axis B of independent memories.
"""

from __future__ import annotations

import math

import numpy as np


def unit_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random directions: vectors of length 1 along the last axis, float64."""
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def orthonormal(rng: np.random.Generator, batch: int, n: int, d: int) -> np.ndarray:
    """`n` <= `d` random keys at right angles, float64 [batch, n, d]."""
    q, _ = np.linalg.qr(rng.standard_normal((batch, d, n)))
    return q.swapaxes(1, 2)


def read_linear(keys: np.ndarray, values: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Read S = Σ v kᵀ, the additive memory: ``S q = Σ v (k·q)``.

    Parameters
    ----------
    keys, values : float [B, N, d], [B, N, d_v]
    query : float [B, Q, d]

    Returns
    -------
    float [B, Q, d_v]
    """
    return query @ keys.swapaxes(1, 2) @ values


def read_softmax(
    keys: np.ndarray, values: np.ndarray, query: np.ndarray, beta: float
) -> np.ndarray:
    """Read by softmax attention at inverse temperature `beta`: ``Σ softmax(beta k·q) v``."""
    return softmax_weights(keys, query, beta) @ values


def softmax_weights(keys: np.ndarray, query: np.ndarray, beta: float) -> np.ndarray:
    """Attention of each query on each key, float [B, Q, N]."""
    scores = beta * query @ keys.swapaxes(1, 2)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def read_delta(keys: np.ndarray, values: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Read the delta-rule memory: each write first takes away what its key would have read.

    ``S <- S + (v - S k) kᵀ``, in the order of the pairs (Widrow and Hoff, 1960; as fast weights
    Schlag et al., 2021). The newest key reads exactly its value.
    """
    memory = np.zeros((len(keys), values.shape[-1], keys.shape[-1]))  # [B, d_v, d]
    for t in range(keys.shape[1]):
        key, value = keys[:, t, :, None], values[:, t, :, None]  # [B, d, 1], [B, d_v, 1]
        memory += (value - memory @ key) @ key.swapaxes(1, 2)
    return query @ memory.swapaxes(1, 2)


def relative_error(read: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``‖read - value‖² / ‖value‖²`` along the last axis."""
    return ((read - value) ** 2).sum(axis=-1) / (value**2).sum(axis=-1)


# What to expect with random unit keys and independent random unit values.


def linear_error(n: int, d: int) -> float:
    """Mean relative error of the additive memory: each other pair adds 1/d, so (n - 1)/d."""
    return (n - 1) / d


def linear_error_sd(n: int, d: int, d_v: int) -> float:
    """Standard deviation of one read's error relative to its mean.

    ``√[2(d-1)/((d+2)(n-1)) + 2(n-2)/((n-1) d_v)]``: the spread of Σ (k·q)², and that of the angles
    between the values. 0 for one pair, which reads exactly.
    """
    if n < 2:
        return 0.0
    return math.sqrt(2 * (d - 1) / ((d + 2) * (n - 1)) + 2 * (n - 2) / ((n - 1) * d_v))


def delta_error(n: int, d: int) -> np.ndarray:
    """Mean relative error of the delta-rule memory by age: entry a has `a` writes after it.

    Every later write projects its own direction out of what is stored: a share 1/d is gone. Let m
    be the mean squared length of a key after `a` such projections and c the mean squared component
    of it along the key itself. A projection with a random direction u gives

        m <- m (1 - 1/d),     c <- c (1 - 2/d + 2/(d(d+2))) + m/(d(d+2)),

    the component itself shrinks to (1 - 1/d)^a on average, and what other pairs leave in the
    reading is 1 - (1 - 1/d)^a from the later and (m - c)(1 - (1 - 1/d)^(n-1-a)) from the earlier
    ones.

    Returns
    -------
    float [n]
        0 at age 0; towards 2 for the oldest key of a long stream: forgotten, and noise in its
        place.
    """
    keep = 1.0 - 1.0 / d
    m = c = 1.0
    errors = np.zeros(n)
    for age in range(n):
        own = c - 2.0 * keep**age + 1.0
        errors[age] = own + (1.0 - keep**age) + (m - c) * (1.0 - keep ** (n - 1 - age))
        spread = 1.0 / (d * (d + 2.0))
        c, m = c * (1.0 - 2.0 / d + 2.0 * spread) + m * spread, m * keep
    return errors


def softmax_gold(n: int, d: int, beta: float) -> float:
    """Attention on the right key: ``1 / (1 + (n - 1) exp(-beta + beta²/2d))``, nearly.

    k·q of random directions is close to normal with variance 1/d, so E exp(beta k·q) is close to
    exp(beta²/2d). Exponentially many keys fit before it falls.
    """
    return 1.0 / (1.0 + (n - 1) * math.exp(-beta + beta**2 / (2 * d)))


def needle_attention(p: np.ndarray, n: int, gap_hard: float, gap_easy: float) -> np.ndarray:
    """Attention on the needle: ``1 / (1 + n (p exp(-gap_hard) + (1 - p) exp(-gap_easy)))``.

    Parameters
    ----------
    p : float [...]
        Share of hard ones among the `n` distractors.
    gap_hard, gap_easy : float
        How far a hard or an easy distractor's score lies below the needle's. While gap_hard is the
        smaller, this is convex in p and steepest at 0: the first drop does the most harm.
    """
    return 1.0 / (1.0 + n * (p * np.exp(-gap_hard) + (1.0 - p) * np.exp(-gap_easy)))
