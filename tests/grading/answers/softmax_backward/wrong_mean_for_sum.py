# says: you take the mean of g * y where the formula has the sum
# fails: one row, many rows, masked rows, good manners
import numpy as np


def softmax_backward(g, y):
    return y * (g - np.mean(g * y, axis=-1, keepdims=True))
