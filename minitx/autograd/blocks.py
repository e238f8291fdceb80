"""The two halves of a transformer block as one operation each: what training spends its time in.

`minitx.nn.fast` puts them in the place of the modules' smaller steps when nobody looks at what is in
between. The kernels' docstrings (``kernels/reference_blocks.py``) give shapes and formulas.
"""

from __future__ import annotations

from minitx import kernels
from minitx.autograd.engine import primitive


@primitive
def attention_block(
    x, norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo, n_heads=1, mask=None, bias=None,
    angles=None, scale=1.0, off_by_one=False, causal=False, norm="layernorm", residual=True,
    eps=1e-5,
):  # fmt: skip
    """``x + output(attention(query(norm(x)), key(norm(x)), value(norm(x))))``. [B, T, D]"""
    weights = (norm_weight, norm_bias, wq, bq, wk, bk, wv, bv, wo, bo)
    constants = (n_heads, mask, bias, angles)
    options = {
        "scale": scale, "off_by_one": off_by_one, "causal": causal, "norm": norm,
        "residual": residual, "eps": eps,
    }  # fmt: skip
    y, saved = kernels.attention_block(x, weights, *constants, **options)
    return y, lambda g: kernels.attention_block_backward(
        g, x, weights, saved, *constants, **options
    )


@primitive
def mlp_block(
    x, norm_weight, norm_bias, up, up_bias, down, down_bias, norm="layernorm", activation="gelu",
    residual=True, eps=1e-5,
):  # fmt: skip
    """``x + down(activation(up(norm(x))))``. [..., D]"""
    weights = (norm_weight, norm_bias, up, up_bias, down, down_bias)
    y, saved = kernels.mlp_block(x, *weights, norm, activation, residual, eps)
    return y, lambda g: kernels.mlp_block_backward(
        g, x, *weights, saved, norm, activation, residual
    )
