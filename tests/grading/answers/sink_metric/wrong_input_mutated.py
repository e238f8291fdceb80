# says: the argument 'pattern' is changed in place
# fails: good manners
import numpy as np


def attention_received(pattern):
    np.abs(pattern, out=pattern)
    total = pattern.sum(axis=-1, keepdims=True)
    pattern /= np.where(total > 0, total, 1)
    return pattern.sum(axis=-2) / np.arange(pattern.shape[-1], 0, -1)


def sink_metric(pattern, epsilon):
    return float((attention_received(pattern)[..., 0] > epsilon).mean())
