"""The two halves of a transformer block in plain NumPy, made of the kernels of ``reference.py``.

The compiled set does each half in one pass (``compiled_heads.py``, ``compiled_mlp.py``).
"""

from __future__ import annotations

import numpy as np

from minitx.kernels.reference import (
    _heads_first,
    _like,
    _logsumexp,
    _sum_rows,
    attention_backward,
    gelu,
    gelu_backward,
    layer_norm,
    layer_norm_backward,
    linear,
    linear_backward,
    rms_norm,
    rms_norm_backward,
    rotary,
    silu,
    silu_backward,
    softmax,
)


def mlp_block(
    x, norm_weight, norm_bias, up, up_bias, down, down_bias,
    norm="layernorm", activation="gelu", residual=True, eps=1e-5,
):  # fmt: skip
    """``x + down(activation(up(norm(x))))``: the second half of a block.

    Parameters
    ----------
    x : array [..., D]
    norm_weight, norm_bias : array [D] or None
    up, up_bias : array [M, D], array [M] or None
    down, down_bias : array [D, M], array [D] or None
    norm : "layernorm", "rmsnorm" or "none"
    activation : "gelu", "relu" or "silu"
    residual : bool
        False leaves the ``x +`` out.

    Returns
    -------
    y : array [..., D]
    saved : (mean [N], rstd [N], pre [N, M])
        For the backward rule: the norm's numbers, and what enters the activation.
    """
    h, mean, rstd = _norm(norm, x.reshape(-1, x.shape[-1]), norm_weight, norm_bias, eps)
    pre = linear(h, up, up_bias)
    y = linear(_activation(activation)[0](pre), down, down_bias).reshape(x.shape)
    return (x + y if residual else y), (mean, rstd, pre)


def mlp_block_backward(
    g, x, norm_weight, norm_bias, up, up_bias, down, down_bias, saved,
    norm="layernorm", activation="gelu", residual=True,
):  # fmt: skip
    """Gradients of `mlp_block`: those of x and of the six weights (None for None)."""
    mean, rstd, pre = saved
    rows_x, rows_g = x.reshape(-1, x.shape[-1]), g.reshape(-1, x.shape[-1])
    act, act_backward = _activation(activation)
    g_act, g_down, g_down_bias = linear_backward(rows_g, act(pre), down, down_bias is not None)
    h = _norm_again(rows_x, norm_weight, norm_bias, mean, rstd)
    g_pre = act_backward(g_act, pre)
    gh, g_up, g_up_bias = linear_backward(g_pre, h, up, up_bias is not None)
    gx, *g_norm = _norm_backward(norm, gh, rows_x, norm_weight, norm_bias, mean, rstd)
    gx = gx.reshape(x.shape)
    return (g + gx if residual else gx), *g_norm, g_up, g_up_bias, g_down, g_down_bias


BLOCK_OPTIONS = {
    "scale": 1.0, "off_by_one": False, "causal": False,
    "norm": "layernorm", "residual": True, "eps": 1e-5,
}  # fmt: skip
"""Defaults of `attention_block`'s options."""


def attention_block(x, weights, n_heads, mask=None, bias=None, angles=None, **options):
    """``x + output(attention(query(norm(x)), key(...), value(...)))``: the first half of a block.

    Parameters
    ----------
    x : array [B, T, D]
    weights : tuple
        ``norm_weight [D], norm_bias [D]``, then weight and bias of query, key and value
        ([H·K, D], [H·K]) and of output ([D, H·K], [D]). Vectors may be None.
    n_heads : int
    mask, bias : as in `attention`, T = S; no gradient for the bias
    angles : (cos, sin), optional
        Of rotary positions: see `rotary`.
    scale, off_by_one, causal : as in `attention`
    norm, residual, eps : as in `mlp_block`

    Returns
    -------
    y : array [B, T, D]
    saved : tuple of arrays
        For the backward rule: (mean [N], rstd [N], qkv [N, 3 H·K or more] after rotary, z [N, H·K], and
        lse [B, H, T], the logarithm of each softmax's denominator; infinity where it is empty).
    """
    o = BLOCK_OPTIONS | options
    norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo = weights
    B, T, D = x.shape
    h, mean, rstd = _norm(o["norm"], x.reshape(-1, D), norm_weight, norm_bias, o["eps"])
    q, k, v = (
        linear(h, w, b).reshape(B, T, n_heads, -1) for w, b in ((wq, bq), (wk, bk), (wv, bv))
    )
    if angles is not None:
        q, k = rotary(q, *angles), rotary(k, *angles)
    scores = _block_scores(q, k, mask, bias, o)
    z = _heads_first(softmax(scores, None, o["off_by_one"]) @ _heads_first(v)).reshape(B * T, -1)
    lse = _logsumexp(scores)
    if o["off_by_one"]:
        lse = np.logaddexp(lse, 0) if lse.dtype.kind == "f" else np.log1p(np.exp(lse))
    lse = np.where(lse == -np.inf, np.asarray(np.inf, lse.dtype), lse)
    y = linear(z, wo, bo).reshape(x.shape)
    qkv = np.concatenate([a.reshape(B * T, -1) for a in (q, k, v)], axis=1)
    return (x + y if o["residual"] else y), (mean, rstd, qkv, z, lse)


def attention_block_backward(
    g, x, weights, saved, n_heads, mask=None, bias=None, angles=None, **options
):
    """Gradients of `attention_block`: that of x, then those of the ten weights (None for None)."""
    o = BLOCK_OPTIONS | options
    norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo = weights
    mean, rstd, qkv, z, lse = saved
    B, T, D = x.shape
    q, k, v = (a.reshape(B, T, n_heads, -1) for a in np.split(qkv[:, : 3 * len(wq)], 3, axis=1))
    rows_x, rows_g = x.reshape(-1, D), g.reshape(-1, D)
    gz, g_wo, g_bo = linear_backward(rows_g, z, wo, bo is not None)
    pattern = np.exp(_block_scores(q, k, mask, bias, o) - lse[..., None])
    gq, gk, gv, _ = attention_backward(gz.reshape(q.shape), q, k, v, pattern, o["scale"])
    if angles is not None:
        gq, gk = rotary(gq, *angles, inverse=True), rotary(gk, *angles, inverse=True)
    h = _norm_again(rows_x, norm_weight, norm_bias, mean, rstd)
    gh, g_weights = 0, []
    for g_out, w, b in ((gq, wq, bq), (gk, wk, bk), (gv, wv, bv)):
        g_in, gw, gb = linear_backward(g_out.reshape(B * T, -1), h, w, b is not None)
        gh = gh + g_in
        g_weights += [gw, gb]
    gx, *g_norm = _norm_backward(o["norm"], gh, rows_x, norm_weight, norm_bias, mean, rstd)
    gx = gx.reshape(x.shape)
    return (g + gx if o["residual"] else gx), *g_norm, *g_weights, g_wo, g_bo


def _block_scores(q, k, mask, bias, o):
    """Scaled, biased and masked (-inf) scores [B, H, T, T]."""
    scores = _like(o["scale"], q) * (_heads_first(q) @ _heads_first(k).swapaxes(-1, -2))
    if bias is not None:
        scores = scores + bias
    if o["causal"] and mask is None:
        mask = np.tri(q.shape[1], dtype=bool)
    if mask is None:
        return scores
    return np.where(mask, scores, np.asarray(-np.inf, scores.dtype))


def _activation(name):
    """An activation and its backward rule."""
    if name == "relu":
        return (lambda x: np.maximum(x, 0)), (lambda g, x: np.where(x > 0, g, 0))
    return {"gelu": (gelu, gelu_backward), "silu": (silu, silu_backward)}[name]


def _norm(kind, x, weight, bias, eps):
    """(y, mean, rstd) of any norm; RMS norm has mean 0, no norm has rstd 1 as well."""
    zero = np.zeros_like(x[..., 0])
    if kind == "layernorm":
        return layer_norm(x, weight, bias, eps)
    if kind == "rmsnorm":
        y, rstd = rms_norm(x, weight, eps)
        return (y if bias is None else y + bias), zero, rstd
    return x, zero, zero + 1


def _norm_again(x, weight, bias, mean, rstd):
    y = (x - mean[..., None]) * rstd[..., None]
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _norm_backward(kind, g, x, weight, bias, mean, rstd):
    """(gx, gw or None, gb or None) of any norm."""
    gb = None if bias is None else _sum_rows(g)
    if kind == "layernorm":
        gx, gw, _ = layer_norm_backward(g, x, weight, mean, rstd)
        return gx, gw, gb
    if kind == "rmsnorm":
        return *rms_norm_backward(g, x, weight, rstd), gb
    return g, None, gb
