# says: the scores are divided by K
# fails: scores, padding, good manners
# may fail: large scores
import numpy as np


def causal_attention(query, key, value, keep):
    length, width = query.shape
    allowed = np.tri(length, dtype=bool) & keep
    scores = query @ key.T / width
    scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=1, keepdims=True)
    pattern = weights / np.where(total > 0, total, 1)
    return pattern.astype(value.dtype) @ value
