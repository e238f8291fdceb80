# says: the sum runs over the whole array
# fails: many rows, masked rows, good manners
import numpy as np


def softmax_backward(g, y):
    return y * (g - np.sum(g * y))
