"""Hook points: named places in a forward pass where an activation can be read or replaced.

Names and shapes are TransformerLens's (Nanda & Bloom, 2022), so that what works there can be typed
here. A hook added for one call, or inside a ``with`` block, is gone afterwards, also after an
exception; nested blocks and the user's own permanent hooks do not disturb one another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitx.autograd import Tensor
from minitx.errors import MinitxError, ShapeError, unknown
from minitx.nn.module import Module

HookFunction = Callable[[Tensor, "HookPoint"], Any]
Where = str | Callable[[str], bool]

_ATTENTION_NAMES = {
    "q", "k", "v", "z", "rot_q", "rot_k", "attn_scores", "pattern", "result", "gate",
}  # fmt: skip
_MLP_NAMES = {"pre", "post", "pre_linear"}
_NORM_NAMES = {"scale", "normalized"}


def get_act_name(name: str, layer: int | None = None, layer_type: str | None = None) -> str:
    """The full name of a hook point from its short form, as in TransformerLens.

    ``("pattern", 0)`` gives ``blocks.0.attn.hook_pattern``, ``("resid_post", 1)`` gives
    ``blocks.1.hook_resid_post``, ``("scale", 0, "ln1")`` gives ``blocks.0.ln1.hook_scale``,
    ``"embed"`` gives ``hook_embed`` and ``"scale"`` gives ``ln_final.hook_scale``.
    """
    if "." in name or name.startswith("hook_"):
        return name
    hook = f"hook_{name}"
    if layer is None:
        return f"ln_final.{hook}" if name in _NORM_NAMES else hook
    if layer_type is None:
        layer_type = "attn" if name in _ATTENTION_NAMES else "mlp" if name in _MLP_NAMES else None
    return f"blocks.{layer}.{layer_type}.{hook}" if layer_type else f"blocks.{layer}.{hook}"


class HookPoint(Module):
    """The identity, with a place for functions that look at the activation or replace it.

    Attributes
    ----------
    name : str
        Full name in the model, e.g. ``blocks.0.attn.hook_pattern``; set by the model.
    layer : int or None
        The block that it sits in; None outside of the blocks.
    hooks : list
        Functions ``function(activation, hook)`` in calling order. Empty: the activation passes
        through.
    """

    def __init__(self) -> None:
        self.name = ""
        self.layer: int | None = None
        self.hooks: list[_Hook] = []

    def __call__(self, activation: Tensor) -> Tensor:
        if not self.hooks:
            return activation
        for hook in tuple(self.hooks):  # a hook may add or remove hooks
            answer = hook.function(activation, self)
            if answer is not None:
                activation = self._replacement(activation, answer)
        return activation

    def _replacement(self, activation: Tensor, answer: Any) -> Tensor:
        if isinstance(answer, np.ndarray):  # a constant: no gradient flows through it
            answer = Tensor(np.asarray(answer, dtype=activation.dtype))
        if not isinstance(answer, Tensor):
            raise MinitxError(
                f"A hook on {self.name!r} returned {type(answer).__name__}; return a Tensor or an "
                "array in the activation's place, or None to leave it unchanged."
            )
        if answer.shape != activation.shape:
            raise ShapeError(
                f"A hook on {self.name!r} returned shape {answer.shape}; the activation has shape "
                f"{activation.shape}."
            )
        return answer


class _Hook:
    """One added hook: an object of its own, so that removing it cannot take another's."""

    def __init__(self, function: HookFunction):
        self.function = function


class ActivationCache(Mapping):
    """The activations of one forward pass: read-only arrays by hook name.

    ``cache["blocks.0.attn.hook_pattern"]`` or, shorter, ``cache["pattern", 0]``; a negative layer
    counts from the last. Shapes: q, k, v, z ``[B, T, H, K]``; pattern and attn_scores
    ``[B, H, query, key]``; result ``[B, T, H, D]``; residual stream and outputs ``[B, T, D]``.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], n_layers: int):
        self._arrays = dict(arrays)
        self.n_layers = n_layers

    def _full_name(self, key: str | tuple) -> str:
        if not isinstance(key, tuple):
            return get_act_name(key)
        name, *rest = key
        if rest and isinstance(rest[0], int | np.integer) and rest[0] < 0:
            rest[0] += self.n_layers
        return get_act_name(name, *rest)

    def __getitem__(self, key: str | tuple) -> np.ndarray:
        name = self._full_name(key)
        if name not in self._arrays:
            raise unknown("cached activation", name, self._arrays)
        return self._arrays[name]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | tuple) and self._full_name(key) in self._arrays

    def get(self, key: str | tuple, default: Any = None) -> Any:
        """The activation, or ``default`` if it was not cached."""
        return self._arrays.get(self._full_name(key), default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"ActivationCache({len(self)} activations of {self.n_layers} layers)"


class HookedModule(Module):
    """A module whose hook points have names, with the calls that use them."""

    def name_hooks(self) -> None:
        """Tell each hook point its name and its layer. Called once the module is built."""
        for name, point in self.hook_dict.items():
            point.name = name
            block = re.match(r"blocks\.(\d+)\.", name)
            point.layer = int(block.group(1)) if block else None

    @property
    def hook_dict(self) -> dict[str, HookPoint]:
        """Every hook point by name, in the order of construction."""
        return {name: m for name, m in self.named_modules() if isinstance(m, HookPoint)}

    def _resolve(self, where: Where) -> list[HookPoint]:
        points = self.hook_dict
        if callable(where):
            found = [point for name, point in points.items() if where(name)]
            if not found:
                raise MinitxError(
                    f"The predicate {getattr(where, '__name__', where)!r} matches none of the "
                    f"{len(points)} hook points: {', '.join(points)}."
                )
            return found
        if where not in points:
            raise unknown("hook point", where, points)
        return [points[where]]

    def add_hook(self, where: Where, function: HookFunction) -> Callable[[], None]:
        """Add a hook that stays until it is removed; returns the function that removes it.

        Raises
        ------
        MinitxError
            If the name is unknown or the predicate matches nothing.
        """
        placed = [(point, _Hook(function)) for point in self._resolve(where)]
        for point, hook in placed:
            point.hooks.append(hook)

        def remove() -> None:
            for point, hook in placed:
                if hook in point.hooks:
                    point.hooks.remove(hook)

        return remove

    @contextmanager
    def hooks(self, fwd_hooks: Iterable[tuple[Where, HookFunction]] = ()) -> Iterator[HookedModule]:
        """Hooks that live as long as the ``with`` block.

        Parameters
        ----------
        fwd_hooks : iterable of (name or predicate, function)
            ``function(activation, hook)`` gets the Tensor and the hook point (``.name``,
            ``.layer``) and returns its replacement (same shape) or None for unchanged. Several
            hooks on one point run in the order given, after those that were there.
        """
        removers: list[Callable[[], None]] = []
        try:
            for where, function in fwd_hooks:
                removers.append(self.add_hook(where, function))
            yield self
        finally:
            for remove in reversed(removers):
                remove()

    def run_with_hooks(
        self,
        tokens: np.ndarray,
        fwd_hooks: Iterable[tuple[Where, HookFunction]] = (),
        **model_kwargs: Any,
    ) -> Tensor:
        """``self(tokens, **model_kwargs)`` with hooks that are gone afterwards (see `hooks`)."""
        with self.hooks(fwd_hooks):
            return self(tokens, **model_kwargs)

    def run_with_cache(
        self,
        tokens: np.ndarray,
        names_filter: Where | Iterable[str] | None = None,
        **model_kwargs: Any,
    ) -> tuple[Tensor, ActivationCache]:
        """The logits, and the activations at the hook points.

        Parameters
        ----------
        tokens : int array [B, T] or [B, T, F]
        names_filter : None, str, list of str, or predicate
            Which hook points to keep; None keeps all.

        Returns
        -------
        logits : Tensor
        cache : ActivationCache
            Copies, read-only: neither later training nor an analysis can change them.
        """
        wanted: list[Where]
        if names_filter is None:
            wanted = [lambda name: True]
        elif isinstance(names_filter, str) or callable(names_filter):
            wanted = [names_filter]
        else:
            wanted = list(names_filter)
        arrays: dict[str, np.ndarray] = {}

        def keep(activation: Tensor, hook: HookPoint) -> None:
            array = np.array(activation.data)
            array.flags.writeable = False
            arrays[hook.name] = array

        logits = self.run_with_hooks(tokens, [(where, keep) for where in wanted], **model_kwargs)
        return logits, ActivationCache(arrays, len(getattr(self, "blocks", ())))
