# says: one head over epsilon is enough
# fails: many heads
import numpy as np


def shares(pattern):
    size = np.abs(pattern)
    total = size.sum(axis=-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def attention_received(pattern):
    length = pattern.shape[-1]
    return shares(pattern).sum(axis=-2) / np.arange(length, 0, -1)


def sink_metric(pattern, epsilon):
    return float((attention_received(pattern)[..., 0] > epsilon).any())
