# says: float32 inputs give a float64 answer
# fails: good manners
import numpy as np


def unbroadcast(grad, shape):
    size = int(np.prod(shape))
    index = np.broadcast_to(np.arange(size).reshape(shape), grad.shape)
    return np.bincount(index.ravel(), weights=grad.ravel(), minlength=size).reshape(shape)
