import numpy as np


def softmax_backward(g, y):
    jacobian = np.eye(y.shape[-1], dtype=y.dtype) * y[..., None] - y[..., :, None] * y[..., None, :]
    return np.einsum("...i,...ij->...j", g, jacobian)
