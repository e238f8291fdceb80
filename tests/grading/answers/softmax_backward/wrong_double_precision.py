# says: float32 inputs give a float64 answer
# fails: good manners
import numpy as np


def softmax_backward(g, y):
    g, y = g.astype(np.float64), y.astype(np.float64)
    return y * (g - (g * y).sum(axis=-1, keepdims=True))
