"""Small models and their inputs, drawn at random: what the laws are tried on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from minitx.nn import ATTENTION, GATES, MASKS, POSITIONS, Transformer, TransformerConfig
from minitx.nn.attention import LOOKS_AT_OTHER_QUERIES
from minitx.nn.config import NORM_POSITIONS
from minitx.nn.layers import ACTIVATIONS, NORMS

# All that is registered: what someone adds is drawn from then on, and owes every law.
KINDS = list(ATTENTION)
CACHED_KINDS = [kind for kind in KINDS if kind not in LOOKS_AT_OTHER_QUERIES]
SCHEMES = list(POSITIONS)
MLPS = list(ACTIVATIONS)
# "documents" needs segments; whatever else is registered must not look ahead.
CAUSAL = [mask for mask in MASKS if mask not in ("bidirectional", "prefix", "documents")]

seeds = st.integers(0, 2**32 - 1)


@st.composite
def configs(draw, **fixed) -> TransformerConfig:
    """A small float64 config with every choice left open that is not fixed."""
    kinds, masks = fixed.pop("kinds", KINDS), fixed.pop("masks", CAUSAL)
    choices = {
        "positions": st.sampled_from(SCHEMES),
        "attention": st.sampled_from(kinds),
        "mask": st.sampled_from(masks),
        "gate": st.sampled_from(list(GATES)),
        "norm": st.sampled_from(list(NORMS)),
        "norm_position": st.sampled_from(NORM_POSITIONS),
        "mlp": st.sampled_from(MLPS),
        "n_heads": st.integers(1, 3),
        "n_layers": st.integers(1, 3),
        "bias": st.booleans(),
        "tied": st.booleans(),
        "residual": st.booleans(),
        "final_norm": st.booleans(),
        "key_bias": st.sampled_from([False] * 4 + [True]),  # seldom: they keep off the fused path
        "sink_logit": st.sampled_from([False] * 4 + [True]),
    }
    values = {name: draw(choice) for name, choice in choices.items() if name not in fixed}
    sizes = {"vocab_size": 7, "max_len": 12, "d_model": 6, "d_head": 4, "d_mlp": 8}
    window = {"window": 3, "n_sinks": 1, "prefix_len": 2}
    # A large init: scores and weights must be far from uniform for a law to mean anything.
    spread = {"init_std": 0.7, "embed_std": 1.0, "dtype": "float64"}
    return TransformerConfig(**{**sizes, **window, **spread, **values, **fixed})


def build(config: TransformerConfig, seed: int) -> Transformer:
    """The model, with biases, norms and zero-initialised parameters moved off their start."""
    rng = np.random.default_rng(seed)
    model = Transformer(config, rng)
    for p in model.parameters():
        p.data += 0.2 * rng.standard_normal(p.shape)
    return model


def tokens_for(config: TransformerConfig, seed: int, T: int, B: int = 2) -> np.ndarray:
    """int [B, T]"""
    return np.random.default_rng([seed, 1]).integers(0, config.vocab_size, (B, T))
