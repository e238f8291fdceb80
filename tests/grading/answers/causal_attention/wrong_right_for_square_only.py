# says: expected an array of shape
# fails: length one, query 0, equal scores, scores, large scores, padding, good manners
import numpy as np


def causal_attention(query, key, value, keep):
    length, width = query.shape
    out = np.zeros_like(query)  # as if values were as wide as keys
    for t in range(length):
        seen = np.flatnonzero(keep[: t + 1])
        if len(seen):
            scores = key[seen] @ query[t] / width**0.5
            weights = np.exp(scores - scores.max())
            row = (weights / weights.sum()) @ value[seen]
            out[t, : len(row)] = row[:width]
    return out
