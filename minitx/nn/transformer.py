"""The transformer: embed, a stack of blocks on one residual stream, unembed.

Read `Transformer.forward`, `Block.forward` and then ``attention.py``.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np

from minitx.autograd import Tensor, ops
from minitx.autograd.coarse import outside
from minitx.errors import MinitxError, ShapeError, choose
from minitx.nn import fast
from minitx.nn import generate as generation
from minitx.nn.attention import Attention, Scene
from minitx.nn.config import TransformerConfig
from minitx.nn.generate import KVCache
from minitx.nn.hooks import HookedModule, HookPoint
from minitx.nn.layers import MLP, Dropout, Embedding, Identity, Linear, make_norm
from minitx.nn.masks import build_mask
from minitx.nn.module import Module, streams
from minitx.nn.positions import POSITIONS, Positions
from minitx.nn.saving import read_npz, write_npz

__all__ = ["Block", "Transformer", "TransformerConfig"]


class Block(Module):
    """Attention, then an MLP, each adding to the residual stream what it computed from it."""

    def __init__(
        self, config: TransformerConfig, rng: np.random.Generator, layer: int, drop: Dropout
    ):
        self.config, self.drop = config, drop
        for_attention, for_mlp = streams(rng, 2)
        writers = 2 * config.n_layers if config.scale_residual_init else 1
        out_std = config.init_std / np.sqrt(writers)
        self.hook_resid_pre = HookPoint()
        self.ln1 = make_norm(config)
        self.attn = Attention(config, for_attention, layer, out_std)
        self.hook_attn_out = HookPoint()
        self.mlp = None
        if config.mlp != "none":
            self.hook_resid_mid = HookPoint()
            self.ln2 = make_norm(config)
            self.mlp = MLP(config, for_mlp, out_std)
            self.hook_mlp_out = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, x: Tensor, scene: Scene) -> Tensor:  # [B, T, D] -> [B, T, D]
        x = self.hook_resid_pre(x)
        x = self._attention_half(x, scene)
        if self.mlp is not None:
            x = self._mlp_half(self.hook_resid_mid(x))
        return self.hook_resid_post(x)

    def _attention_half(self, x: Tensor, scene: Scene) -> Tensor:
        fused = fast.attention_half(self, x, scene)  # all of it in one kernel, if nothing is hooked
        if fused is not None:
            return fused
        before, after = self._norms(self.ln1)
        return after(self._add(x, self.hook_attn_out(self.attn(before(x), scene))))

    def _mlp_half(self, x: Tensor) -> Tensor:
        fused = fast.mlp_half(self, x)
        if fused is not None:
            return fused
        before, after = self._norms(self.ln2)
        return after(self._add(x, self.hook_mlp_out(self.mlp(before(x)))))

    def _norms(self, norm: Module) -> tuple[Any, Any]:
        return (norm, _same) if self.config.norm_position == "pre" else (_same, norm)

    def _add(self, x: Tensor, new: Tensor) -> Tensor:
        new = self.drop(new)
        return x + new if self.config.residual else new


def _same(x: Tensor) -> Tensor:
    return x


class Transformer(HookedModule):
    """A decoder-only transformer, every choice of which is in its config.

    Parameters
    ----------
    config : TransformerConfig
    rng : numpy.random.Generator
        Draws the initial weights, each part's from a stream of its own (`streams`), and dropout.

    Attributes
    ----------
    embed, pos_embed, blocks, ln_final, unembed : Module
    flat : array
        Every parameter in one buffer; ``parameter.data`` are views into it.
    """

    def __init__(self, config: TransformerConfig, rng: np.random.Generator):
        if not isinstance(config, TransformerConfig) or not isinstance(rng, np.random.Generator):
            raise MinitxError(
                "Transformer(config, rng) takes a TransformerConfig and a NumPy generator: "
                "rng=np.random.default_rng(seed)."
            )
        for_embed, for_positions, for_dropout, for_blocks, for_unembed = streams(rng, 5)
        dtype = config.dtype
        self.config = config
        self.embed = Embedding(
            config.vocab_size, config.d_model, std=config.embedding_std, rng=for_embed, dtype=dtype
        )
        self.hook_embed = HookPoint()
        scheme = choose(POSITIONS, config.positions, "position scheme")
        self.pos_embed = scheme(config, for_positions)
        if scheme.embed is not Positions.embed:
            self.hook_pos_embed = HookPoint()
        self.drop = Dropout(config.dropout, for_dropout)
        self.blocks = [
            Block(config, stream, i, self.drop)
            for i, stream in enumerate(streams(for_blocks, config.n_layers))
        ]
        self.ln_final = make_norm(config) if config.final_norm else Identity()
        if not config.tied:
            self.unembed = Linear(
                config.d_model, config.n_outputs, bias=False, std=config.init_std,
                rng=for_unembed, dtype=dtype,
            )  # fmt: skip
        self.name_hooks()
        self._share_one_buffer()

    def forward(
        self,
        tokens: np.ndarray,
        mask: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        segments: np.ndarray | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Logits for every position.

        Parameters
        ----------
        tokens : int array [B, T], or [B, T, F]: F features at one position, embeddings summed
        mask : bool array [T, S] or [B, T, S], optional
            True = may attend; taken together (AND) with the config's mask.
        positions : int array [T] or [B, T], optional
            Where the tokens stand for the position scheme, in place of 0 … T − 1. Masks go by
            index.
        segments : int array [B, T], optional
            Document numbers: no token sees another document, under any mask.
        cache : KVCache, optional
            Keys and values of earlier tokens; ``tokens`` are the new ones. No gradients are
            recorded.

        Returns
        -------
        Tensor [B, T, V]

        Raises
        ------
        MinitxError
            For ids outside of the vocabulary, a sequence longer than max_len, or arrays that do
            not fit.
        """
        tokens = self.check_tokens(tokens)
        if cache is not None:
            if segments is not None:
                raise MinitxError("A KV cache takes no segments: give each document its own cache.")
            return generation.forward_cached(self, tokens, cache, mask, positions)
        T = tokens.shape[1]
        if self.config.max_len < T:
            raise MinitxError(
                f"The sequence of {T} tokens exceeds max_len = {self.config.max_len}: shorten it "
                "or make max_len larger."
            )
        positions = self.check_positions(np.arange(T) if positions is None else positions, T)
        scene = self.make_scene(T, T, 0, positions, positions, mask, segments)
        return self.run_blocks(tokens, positions, scene)

    def run_blocks(self, tokens: np.ndarray, positions: np.ndarray, scene: Scene) -> Tensor:
        """The pass itself, once tokens and scene are checked."""
        x = self.hook_embed(self.embed(tokens))  # [B, T, D]
        places = self.pos_embed.embed(positions)
        if places is not None:
            if self.hook_pos_embed.hooks:
                places = self.hook_pos_embed(ops.broadcast_to(places, x.shape))
            x = x + places
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, scene)
        x = self.ln_final(x)
        return ops.linear(x, self.embed.weight) if self.config.tied else self.unembed(x)

    def make_scene(
        self,
        T: int,
        S: int,
        offset: int,
        query_positions: np.ndarray,
        key_positions: np.ndarray,
        mask: np.ndarray | None = None,
        segments: np.ndarray | None = None,
    ) -> Scene:
        """Who stands where and sees whom, worked out once for all layers."""
        causal = self.config.mask == "causal" and T == S and mask is None and segments is None
        scheme = self.pos_embed
        angles = scheme.angles(key_positions)
        same = query_positions is key_positions
        return Scene(
            mask=None if causal else build_mask(self.config, T, S, offset, mask, segments),
            causal=causal,
            bias=scheme.bias(query_positions, key_positions),
            query_angles=angles if same else scheme.angles(query_positions),
            key_angles=angles,
        )

    def check_tokens(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens as an int array [B, T] or [B, T, F], or an error that says what they are."""
        tokens = np.asarray(tokens)
        if tokens.dtype.kind not in "iu":
            raise MinitxError(f"Tokens must be whole numbers, got an array of {tokens.dtype}.")
        if tokens.ndim not in (2, 3) or 0 in tokens.shape:
            raise ShapeError(
                "Tokens must have shape [B, T] (or [B, T, F] for fused features), got "
                f"{tokens.shape}; write tokens[None] for one sequence."
            )
        if outside(tokens, self.config.vocab_size):
            bad = tokens[(tokens < 0) | (tokens >= self.config.vocab_size)].flat[0]
            raise MinitxError(
                f"Token id {bad} lies outside of the vocabulary 0 … {self.config.vocab_size - 1}."
            )
        return tokens.astype(np.int64, copy=False)  # a narrow type would cut off what is generated

    def check_positions(self, positions: np.ndarray, T: int) -> np.ndarray:
        """Positions as an int array [T] or [B, T]."""
        positions = np.asarray(positions)
        if (
            positions.dtype.kind not in "iu"
            or positions.ndim not in (1, 2)
            or positions.shape[-1] != T
        ):
            raise ShapeError(
                f"positions must be an int array [T] or [B, T] with T = {T}, got {positions.dtype} "
                f"{positions.shape}."
            )
        return positions.astype(np.int64, copy=False)  # unsigned distances would wrap

    def generate(
        self,
        tokens: np.ndarray,
        n: int,
        rng: np.random.Generator | None = None,
        temperature: float = 0.0,
        use_cache: bool = True,
    ) -> np.ndarray:
        """Continue [B, T] to [B, T + n]: see `minitx.nn.generate.generate`."""
        return generation.generate(self, tokens, n, rng, temperature, use_cache)

    # --- parameters in one buffer ---------------------------------------------------------------

    def _share_one_buffer(self) -> None:
        """Move all parameters into one array, so that an optimiser can pass over it once."""
        parameters = self.parameters()
        self.flat = np.concatenate([p.data.ravel() for p in parameters])
        start = 0
        for p in parameters:
            p.data = self.flat[start : start + p.size].reshape(p.shape)
            start += p.size

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # copies and pickles come with an array per parameter
        self._share_one_buffer()

    # --- weights in per-head shape, TransformerLens's names -------------------------------------

    @property
    def W_E(self) -> np.ndarray:
        """[V, D], a view: writing to it changes the model. So do the others."""
        return self.embed.weight.data

    @property
    def W_U(self) -> np.ndarray:
        """[D, V]"""
        return (self.embed if self.config.tied else self.unembed).weight.data.T

    @property
    def W_pos(self) -> np.ndarray:
        """[max_len, D]; learned positions only."""
        if self.config.positions != "learned":
            raise MinitxError(f"positions={self.config.positions!r} has no W_pos; 'learned' has.")
        return self.pos_embed.weight.data

    @property
    def W_Q(self) -> np.ndarray:
        """[L, H, D, K]"""
        return self._across_layers("W_Q")

    @property
    def W_K(self) -> np.ndarray:
        """[L, H, D, K]"""
        return self._across_layers("W_K")

    @property
    def W_V(self) -> np.ndarray:
        """[L, H, D, K]"""
        return self._across_layers("W_V")

    @property
    def W_O(self) -> np.ndarray:
        """[L, H, K, D]"""
        return self._across_layers("W_O")

    def _across_layers(self, name: str) -> np.ndarray:
        """The blocks' views as one: blocks are alike, so a weight recurs at equal steps in memory.

        If someone has put other arrays in their place, the answer is a copy, and read-only.
        """
        views = [getattr(block.attn, name) for block in self.blocks]
        if not views:
            raise MinitxError(f"A model without blocks has no {name}.")
        first = views[0]
        steps = {b.ctypes.data - a.ctypes.data for a, b in pairwise(views)}
        if len(steps) <= 1 and all(v.base is self.flat for v in views):
            step = next(iter(steps), 0)
            shape, strides = (len(views), *first.shape), (step, *first.strides)
            return np.lib.stride_tricks.as_strided(first, shape, strides)
        copy = np.stack(views)
        copy.flags.writeable = False
        return copy

    # --- files ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike) -> None:
        """Write config and parameters to an npz file, whole or not at all."""
        write_npz(path, self.state_dict(), {"kind": "model", "config": self.config.to_dict()})

    @classmethod
    def load(cls, path: str | os.PathLike, config: TransformerConfig | None = None) -> Transformer:
        """The model that `save` wrote.

        Parameters
        ----------
        config : TransformerConfig, optional
            The config that the model is expected to have.

        Raises
        ------
        MinitxError
            If the file is missing, damaged, or not a model; if a parameter is missing; if it is of
            another config than expected.
        """
        state, record = read_npz(path, "model file")
        if not isinstance(record, dict) or record.get("kind") != "model" or "config" not in record:
            raise MinitxError(f"{str(path)!r} holds no model.")
        found = TransformerConfig.from_dict(record["config"])
        if config is not None and found != config:
            wanted = config.to_dict()
            other = [
                f"{k} = {v!r}, not {wanted[k]!r}"
                for k, v in found.to_dict().items()
                if v != wanted[k]
            ]
            raise MinitxError(f"{str(path)!r} is of another config: {'; '.join(other)}.")
        model = cls(found, np.random.default_rng(0))
        try:
            model.load_state_dict(state)
        except MinitxError as error:
            raise MinitxError(f"{str(path)!r} does not fit its own config: {error}") from error
        return model
