# says: the mask comes after the softmax
# fails: query 0, equal scores, scores, large scores, padding, good manners
import numpy as np


def causal_attention(query, key, value, keep):
    length, width = query.shape
    scores = query @ key.T / width**0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    pattern = weights / weights.sum(axis=-1, keepdims=True)
    pattern = pattern * (np.tri(length) * keep)
    return pattern.astype(value.dtype) @ value
