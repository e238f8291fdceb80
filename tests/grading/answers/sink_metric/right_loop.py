import numpy as np


def attention_received(pattern):
    batch, heads, length, _ = pattern.shape
    out = np.zeros((batch, heads, length))
    for b, h, i in np.ndindex(batch, heads, length):
        row = [abs(a) for a in pattern[b, h, i]]
        if sum(row) > 0:
            for k in range(i + 1):
                out[b, h, k] += row[k] / sum(row) / (length - k)
    return out


def sink_metric(pattern, epsilon):
    first = attention_received(pattern)[:, :, 0].ravel()
    return sum(1 for a in first if a > epsilon) / len(first)
