# says: the argument 'query' is changed in place
# fails: good manners
import numpy as np


def causal_attention(query, key, value, keep):
    length, width = query.shape
    query /= width**0.5
    scores = np.where(np.tri(length, dtype=bool) & keep, query @ key.T, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=1, keepdims=True)
    return (weights / np.where(total > 0, total, 1)).astype(value.dtype) @ value
