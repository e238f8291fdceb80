import numpy as np


def causal_attention(query, key, value, keep):
    """Masking after the exponential is right if the rows are divided by what is left."""
    length, width = query.shape
    allowed = np.tri(length, dtype=bool) & keep
    scores = query @ key.T / width**0.5
    top = np.where(allowed, scores, -np.inf).max(axis=1, keepdims=True)
    weights = np.exp(np.minimum(scores - np.maximum(top, -1e30), 0)) * allowed
    total = weights.sum(axis=1, keepdims=True)
    total[total == 0] = 1
    return (weights / total).astype(value.dtype) @ value
