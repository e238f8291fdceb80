# says: expected a single number
# fails: one head, exactly epsilon, many heads
import numpy as np


def shares(pattern):
    size = np.abs(pattern)
    total = size.sum(axis=-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def attention_received(pattern):
    length = pattern.shape[-1]
    return shares(pattern).sum(axis=-2) / np.arange(length, 0, -1)


def sink_metric(pattern, epsilon):
    return (attention_received(pattern)[..., 0] > epsilon).mean(axis=0)
