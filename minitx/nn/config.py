"""What a transformer is made of: one frozen record, checked when it is made."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitx.errors import MinitxError, choose, unknown
from minitx.nn.attention import ATTENTION, GATES
from minitx.nn.layers import ACTIVATIONS, NORMS
from minitx.nn.masks import MASKS
from minitx.nn.positions import POSITIONS

NORM_POSITIONS = ("pre", "post")
DTYPES = ("float32", "float64")
MASK_NEEDS = {
    "sliding_window": ("window",),
    "window_sinks": ("window", "n_sinks"),
    "prefix": ("prefix_len",),
}


def _refuse_unknown_keys(cls: type) -> type:
    """A misspelt key is told its nearest name, where a dataclass would raise a bare TypeError."""
    init, known = cls.__init__, [field.name for field in dataclasses.fields(cls)]

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for key in kwargs:
            if key not in known:
                raise unknown("config key", key, known)
        init(self, *args, **kwargs)

    cls.__init__ = checked
    return cls


@_refuse_unknown_keys
@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Every choice that defines a `Transformer`.

    Parameters
    ----------
    vocab_size : int
        Token ids are 0 … vocab_size − 1.
    max_len : int
        The longest sequence that the model takes, whatever the position scheme.
    d_model, n_heads, n_layers : int
        Width of the residual stream, heads per layer, number of blocks.
    d_head : int, optional
        Width of a head, default d_model / n_heads; it need not divide d_model.
    d_mlp : int, optional
        Hidden width of the MLP, default 4 · d_model (for swiglu too).
    out_size : int, optional
        Number of outputs, default vocab_size.
    positions : {"learned", "sinusoidal", "rotary", "alibi", "none", "logit_bias"}
        Names of `minitx.nn.positions.POSITIONS`.
    attention : {"softmax", "softmax1", "sigmoid", "relu", "linear", "clipped_softmax", ...}
        How scores become weights: names of `minitx.nn.attention.ATTENTION`.
    mask : {"causal", "bidirectional", "sliding_window", "window_sinks", "prefix", "documents"}
        Who may attend to whom: names of `minitx.nn.masks.MASKS`.
    gate : {"none", "head", "elementwise"}
        Sigmoid gate on each head's output, computed from the attention's input.
    norm : {"layernorm", "rmsnorm", "none"}
    norm_position : {"pre", "post"}
        Before each sublayer (GPT-2), or after its residual sum (Vaswani et al., 2017).
    mlp : {"gelu", "relu", "swiglu", "none"}
    bias : bool
        Biases in linear layers and norms. The unembedding never has one.
    norm_bias : bool, optional
        Biases in the norms only; None: as ``bias`` says.
    tied : bool
        Unembed with the embedding's weights.
    residual : bool
        False: each sublayer's output replaces the stream instead of being added to it.
    dropout : float
        On the embeddings and on what each sublayer adds, in training mode.
    window, n_sinks, prefix_len : int, optional
        For the masks of those names. A window of w sees the token itself and the w − 1 before it.
    clip_gamma, clip_zeta : float
        Clipped softmax stretches weights to [γ, ζ], then clips to [0, 1].
    rope_base : float
    init_std, embed_std : float
        Standard deviation of 2-D weights and of embeddings (None: the same). Biases start at 0,
        norms at 1.
    scale_residual_init : bool
        Divide the init of what writes to the stream by √(2 · n_layers), as GPT-2 does.
    final_norm : bool
        A norm before the unembedding.
    key_bias : bool
        A learned extra key per head whose value is zero (Gu et al., 2024).
    sink_logit : bool
        A learned extra logit per head whose value is zero.
    dtype : {"float32", "float64"}

    Raises
    ------
    MinitxError
        For an unknown key or name, or values that do not fit together.
    """

    vocab_size: int
    max_len: int
    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2
    d_head: int | None = None
    d_mlp: int | None = None
    out_size: int | None = None
    positions: str = "learned"
    attention: str = "softmax"
    mask: str = "causal"
    gate: str = "none"
    norm: str = "layernorm"
    norm_position: str = "pre"
    mlp: str = "gelu"
    bias: bool = True
    norm_bias: bool | None = None
    tied: bool = False
    residual: bool = True
    dropout: float = 0.0
    window: int | None = None
    n_sinks: int | None = None
    prefix_len: int | None = None
    clip_gamma: float = -0.03
    clip_zeta: float = 1.0
    rope_base: float = 10000.0
    init_std: float = 0.02
    embed_std: float | None = None
    scale_residual_init: bool = False
    final_norm: bool = True
    key_bias: bool = False
    sink_logit: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        self._check_names()
        self._check_sizes()
        if self.tied and self.n_outputs != self.vocab_size:
            raise MinitxError(
                f"tied=True needs out_size equal to vocab_size ({self.vocab_size}), "
                f"got {self.out_size}."
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise MinitxError(
                f"Rotary positions turn pairs of features: d_head must be even, "
                f"got {self.head_width}."
            )
        if not 0.0 <= self.dropout < 1.0:
            raise MinitxError(f"dropout must lie in [0, 1), got {self.dropout}.")
        if self.clip_gamma > 0 or self.clip_zeta < 1:
            raise MinitxError(
                "Clipped softmax needs clip_gamma <= 0 and clip_zeta >= 1, got "
                f"{self.clip_gamma} and {self.clip_zeta}."
            )

    def _check_names(self) -> None:
        choose(POSITIONS, self.positions, "position scheme")
        choose(ATTENTION, self.attention, "attention")
        choose(MASKS, self.mask, "mask")
        choose(GATES, self.gate, "gate")
        choose(NORMS, self.norm, "norm")
        choose(dict.fromkeys(NORM_POSITIONS), self.norm_position, "norm position")
        choose(ACTIVATIONS, self.mlp, "mlp")
        choose(dict.fromkeys(DTYPES), self.dtype, "dtype")

    def _check_sizes(self) -> None:
        positive = ["vocab_size", "max_len", "d_model", "n_heads"]
        for name in ("d_head", "d_mlp", "out_size", "window"):
            positive += [name] if getattr(self, name) is not None else []
        for name in positive:
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise MinitxError(f"{name} must be a positive whole number, got {value!r}.")
        for name in ("n_layers", "n_sinks", "prefix_len"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 0):
                raise MinitxError(f"{name} must be a whole number of at least 0, got {value!r}.")
        if self.d_head is None and self.d_model % self.n_heads:
            raise MinitxError(
                f"d_model ({self.d_model}) is not a multiple of n_heads ({self.n_heads}); "
                "set d_head to choose the head width freely."
            )
        for name in MASK_NEEDS.get(self.mask, ()):
            if getattr(self, name) is None:
                raise MinitxError(f"mask={self.mask!r} needs {name} to be set.")

    @property
    def head_width(self) -> int:
        """K: d_head, or d_model / n_heads."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_heads

    @property
    def mlp_width(self) -> int:
        """Hidden width of the MLP: d_mlp, or 4 · d_model."""
        return self.d_mlp if self.d_mlp is not None else 4 * self.d_model

    @property
    def n_outputs(self) -> int:
        """Width of the logits: out_size, or vocab_size."""
        return self.out_size if self.out_size is not None else self.vocab_size

    @property
    def embedding_std(self) -> float:
        """embed_std, or init_std."""
        return self.embed_std if self.embed_std is not None else self.init_std

    def replace(self, **changes: Any) -> TransformerConfig:
        """A copy with some settings changed; unknown keys are refused."""
        return TransformerConfig.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """The config of a dict such as `to_dict` gives; a missing or unknown key is refused."""
        for field in dataclasses.fields(cls):
            if field.default is dataclasses.MISSING and field.name not in values:
                raise MinitxError(f"The config lacks the key {field.name!r}.")
        return cls(**values)
