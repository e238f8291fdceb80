# says: the softmax runs over the queries
# fails: query 0, equal scores, scores, large scores, padding, good manners
import numpy as np


def causal_attention(query, key, value, keep):
    length, width = query.shape
    allowed = np.tri(length, dtype=bool) & keep
    scores = query @ key.T / width**0.5
    scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=0, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=0, keepdims=True)
    pattern = weights / np.where(total > 0, total, 1)
    return pattern.astype(value.dtype) @ value
