# says: gives 0 / 0 = NaN
# fails: padding
import numpy as np


def causal_attention(query, key, value, keep):
    length, width = query.shape
    scores = np.where(np.tri(length, dtype=bool) & keep, query @ key.T / width**0.5, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(value.dtype) @ value
