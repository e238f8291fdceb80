# says: NaN comes from 0 / 0
# fails: masked rows
import numpy as np


def softmax_backward(g, y):
    with np.errstate(all="ignore"):
        g_log = g * y  # gradient for log y
        return (g_log / y - g_log.sum(axis=-1, keepdims=True)) * y
