import numpy as np


def unbroadcast(grad, shape):
    out = np.zeros(shape, dtype=grad.dtype)
    for index in np.ndindex(grad.shape):
        tail = index[len(index) - len(shape) :]
        out[tuple(0 if n == 1 else i for i, n in zip(tail, shape, strict=True))] += grad[index]
    return out
