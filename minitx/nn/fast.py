"""The fast path: half a block as one operation, when nobody looks at what is in between.

`Block.forward` says what a block computes. These functions compute the same in one compiled kernel if
the block is of the common kind and has no hook inside; else they return None, and the block takes its
steps one by one. A test holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minitx import kernels
from minitx.autograd import Tensor, ops
from minitx.autograd.blocks import attention_block, mlp_block
from minitx.autograd.engine import is_detecting
from minitx.nn import attention as attention_module
from minitx.nn.hooks import HookPoint
from minitx.nn.layers import MLP, Identity, LayerNorm, Linear, RMSNorm
from minitx.nn.module import Module

if TYPE_CHECKING:
    from minitx.nn.attention import Scene
    from minitx.nn.transformer import Block

NORMS = {LayerNorm: "layernorm", RMSNorm: "rmsnorm", Identity: "none"}
ACTIVATIONS = {ops.gelu: "gelu", ops.relu: "relu"}


def attention_half(block: Block, x: Tensor, scene: Scene) -> Tensor | None:
    """``x + attn(ln1(x))`` in one operation, or None if this block or this call is not so plain."""
    attn = block.attn
    if not _plain(block, block.ln1, attn) or type(attn) is not attention_module.Attention:
        return None
    layers = (attn.query, attn.key, attn.value, attn.output)
    off_by_one = attention_module.FUSED.get(attn.weigh)
    if (
        off_by_one is None
        or attn.gates
        or attn.has_extra
        or scene.cache is not None
        or isinstance(scene.bias, Tensor)
        or block.hook_attn_out.hooks
        or not all(type(layer) is Linear for layer in layers)
    ):
        return None
    return attention_block(
        x, *_norm_weights(block.ln1), *(w for y in layers for w in (y.weight, y.bias)),
        n_heads=block.config.n_heads, mask=scene.mask, bias=scene.bias, angles=scene.query_angles,
        scale=attn.scale, off_by_one=off_by_one, causal=scene.causal,
        norm=NORMS[type(block.ln1)], residual=block.config.residual,
        eps=getattr(block.ln1, "eps", 0.0),
    )  # fmt: skip


def mlp_half(block: Block, x: Tensor) -> Tensor | None:
    """``x + mlp(ln2(x))`` in one operation, or None as above."""
    mlp = block.mlp
    if not _plain(block, block.ln2, mlp) or type(mlp) is not MLP or mlp.gated:
        return None
    activation = ACTIVATIONS.get(mlp.activation)
    if (
        activation is None
        or block.hook_mlp_out.hooks
        or not (type(mlp.up) is Linear and type(mlp.down) is Linear)
    ):
        return None
    return mlp_block(
        x, *_norm_weights(block.ln2), mlp.up.weight, mlp.up.bias, mlp.down.weight, mlp.down.bias,
        norm=NORMS[type(block.ln2)], activation=activation, residual=block.config.residual,
        eps=getattr(block.ln2, "eps", 0.0),
    )  # fmt: skip


def _plain(block: Block, norm: Module, inner: Module) -> bool:
    """Norm first, no dropout, no hook inside, and nobody is looking for the first bad number."""
    return (
        block.config.norm_position == "pre"
        and type(norm) in NORMS
        and not (block.drop.p and block.drop.training)
        and not _hooked(norm)
        and not _hooked(inner)
        and kernels.active() == "numba"
        and not is_detecting()
    )


def _hooked(module: Module) -> bool:
    for part in vars(module).values():  # noqa: SIM110 - any(...) takes twice as long, at each block
        if type(part) is HookPoint and part.hooks:
            return True
    return False


def _norm_weights(norm: Module) -> tuple:
    return getattr(norm, "weight", None), getattr(norm, "bias", None)
