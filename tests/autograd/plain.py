"""The coarse operations in NumPy's own words: short, slow, and without care for overflow."""

import numpy as np


def np_sigmoid(x):
    return 1 / (1 + np.exp(-x))


def np_gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def np_logsumexp(x, axis=None, keepdims=False):
    return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))


def np_softmax(x, axis=-1, mask=True, one=0):
    e = np.exp(x) * mask
    total = e.sum(axis=axis, keepdims=True) + one
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0)


def np_layer_norm(x, weight=1, bias=0, eps=1e-5):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight + bias


def np_rms_norm(x, weight=1, eps=1e-5):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def np_rotary(x, cos, sin):
    z = x[..., : x.shape[-1] // 2] + 1j * x[..., x.shape[-1] // 2 :]
    z = z * (cos + 1j * sin)[..., np.newaxis, :]  # pairs as complex numbers, turned
    return np.concatenate([z.real, z.imag], axis=-1)
