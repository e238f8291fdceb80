# says: every key is divided by T
# fails: later keys, signed weights, good manners
import numpy as np


def shares(pattern):
    size = np.abs(pattern)
    total = size.sum(axis=-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def attention_received(pattern):
    return shares(pattern).mean(axis=-2)


def sink_metric(pattern, epsilon):
    return float((attention_received(pattern)[..., 0] > epsilon).mean())
