# says: the sum runs over keys
# fails: the first key, later keys, signed weights, good manners
# fails: one head, exactly epsilon, many heads
import numpy as np


def shares(pattern):
    size = np.abs(pattern)
    total = size.sum(axis=-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def attention_received(pattern):
    return shares(pattern).mean(axis=-1)


def sink_metric(pattern, epsilon):
    return float((attention_received(pattern)[..., 0] > epsilon).mean())
