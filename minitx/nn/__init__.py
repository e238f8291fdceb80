"""Modules, the transformer, its cache and its hooks. Start with ``transformer.py``."""

from minitx.nn.attention import ATTENTION, GATES, Attention, masked, register_attention
from minitx.nn.config import TransformerConfig
from minitx.nn.generate import KVCache
from minitx.nn.hooks import ActivationCache, HookedModule, HookPoint, get_act_name
from minitx.nn.layers import MLP, Dropout, Embedding, Identity, LayerNorm, Linear, RMSNorm
from minitx.nn.masks import MASKS, build_mask, positions_in_segments
from minitx.nn.module import Module, Parameter, functional_call
from minitx.nn.positions import POSITIONS, Positions, alibi_slopes
from minitx.nn.transformer import Block, Transformer

__all__ = [
    "ATTENTION",
    "GATES",
    "MASKS",
    "MLP",
    "POSITIONS",
    "ActivationCache",
    "Attention",
    "Block",
    "Dropout",
    "Embedding",
    "HookPoint",
    "HookedModule",
    "Identity",
    "KVCache",
    "LayerNorm",
    "Linear",
    "Module",
    "Parameter",
    "Positions",
    "RMSNorm",
    "Transformer",
    "TransformerConfig",
    "alibi_slopes",
    "build_mask",
    "functional_call",
    "get_act_name",
    "masked",
    "positions_in_segments",
    "register_attention",
]
