"""Change what a model does while it runs: ablate, knock out, re-weight, steer.

An intervention is a list of hooks. Give it to a call or to a ``with`` block, and add lists to
combine:

    hooks = ablate_heads([(0, 2)]) + steer("blocks.1.hook_resid_pre", direction, 4.0)
    logits = model.run_with_hooks(tokens, hooks)

Nothing is edited in place, gradients flow through what is left, and when the call is over the model
is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minitx.autograd import Tensor, ops
from minitx.errors import MinitxError, ShapeError, choose
from minitx.interp.probes import remove_subspace
from minitx.nn import get_act_name

Hooks = list[tuple[str, Callable[[Tensor, Any], Any]]]
Head = tuple[int, int]

KNOCKED_OUT = -1e9  # as a score: exp(KNOCKED_OUT - anything usual) is exactly 0, and no inf - inf


# --- ablation -----------------------------------------------------------------------------------


def ablate(
    name: str,
    index: Any = ...,
    how: str = "zero",
    cache: Mapping | None = None,
    rng: np.random.Generator | None = None,
    per_position: bool = True,
) -> Hooks:
    """Replace part of an activation by zero, by its mean, or by another sample's.

    Parameters
    ----------
    name : str
        A hook point.
    index : anything that indexes an array
        Which part, e.g. ``np.s_[:, 3]`` (position 3) or a bool mask; all of it by default.
    how : "zero", "mean" or "resample"
        ``mean`` and ``resample`` take their values from ``cache``: of the same tokens or of a
        reference set (Wang et al. 2023; Chan et al. 2022). Each sample is given another sample's
        value, never its own.
    cache : ActivationCache, optional
    rng : Generator, optional
        Needed to resample. The draw is made here, once: repeated calls see the same values.
    per_position : bool
        The mean over the batch at each position, or over batch and positions together.

    Returns
    -------
    hooks : list of (name, function)

    Raises
    ------
    MinitxError
        If ``cache`` or ``rng`` is missing, or resampling has a single sample to choose from.
    """
    value = _reference(name, how, cache, rng, per_position)
    return [(name, put(value, index))]


def _reference(name, how, cache, rng, per_position) -> np.ndarray | float:
    choose(dict.fromkeys(("zero", "mean", "resample")), how, "ablation")
    if how == "zero":
        return 0.0
    if cache is None:
        raise MinitxError(f"{how}-ablation takes its values from a cache; pass cache=.")
    values = cache[name]
    if how == "mean":
        axes = (0,) if per_position else (0, 1)
        return values.mean(axes, keepdims=True)
    if rng is None:
        raise MinitxError("Resample-ablation draws samples; pass rng=np.random.default_rng(seed).")
    return values[another_sample(len(values), rng)]


def another_sample(n: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation that leaves nothing in its place (one cycle: Sattolo 1986). int [n]"""
    if n < 2:
        raise MinitxError(f"To resample, a batch of two or more is needed; got {n}.")
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        j = rng.integers(i)
        order[i], order[j] = order[j], order[i]
    return order


def put(value: np.ndarray | float, index: Any = ...) -> Callable[[Tensor, Any], Tensor]:
    """A hook function that puts a value into the activation at ``index``.

    Parameters
    ----------
    value : array of the activation's shape, or one that broadcasts to it
    index : anything that indexes the activation; all of it by default
    """

    def hook(activation: Tensor, point: Any) -> Tensor:
        chosen = _mask(activation.shape, index, point.name)
        return ops.where(chosen, _fit(value, activation, point.name), activation)

    return hook


def _mask(shape: tuple[int, ...], index: Any, name: str) -> np.ndarray:
    chosen = np.zeros(shape, dtype=bool)
    if getattr(index, "ndim", 0) > 1 and index.dtype != bool and index.shape == shape[: index.ndim]:
        raise MinitxError(
            f"The index into {name} has the shape of a mask, {list(index.shape)}, but holds "
            f"{index.dtype}: NumPy would read numbers as places; pass mask.astype(bool)."
        )
    try:
        chosen[index] = True
    except IndexError as error:
        raise ShapeError(
            f"{name} has shape {list(shape)}, which {index!r} leaves: {error}."
        ) from None
    return chosen


def _fit(value: np.ndarray | float, activation: Tensor, name: str) -> np.ndarray:
    value = np.asarray(value, dtype=activation.dtype)
    try:
        return np.broadcast_to(value, activation.shape)
    except ValueError:
        raise ShapeError(
            f"The values for {name} have shape {list(value.shape)}, "
            f"the activation {list(activation.shape)}: take them from tokens "
            "of the same shape, or use per_position=False."
        ) from None


def ablate_heads(heads: Iterable[Head], positions: Any = None, **how: Any) -> Hooks:
    """Ablate attention heads: replace their ``hook_z``, what each adds to the residual stream.

    Parameters
    ----------
    heads : iterable of (layer, head)
    positions : int, slice or list, optional
        Only at these positions.
    **how
        ``how=, cache=, rng=, per_position=`` of `ablate`. Zero by default.
    """
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(int(layer), []).append(int(head))
    hooks: Hooks = []
    for layer, indices in by_layer.items():
        for head in indices:
            index = (slice(None), _positions(positions), head)
            hooks += ablate(get_act_name("z", layer), index, **_checked(how))
    return hooks


def keep_heads(model: Any, heads: Iterable[Head], **how: Any) -> Hooks:
    """Ablate every head of the model but these.

    Parameters
    ----------
    model : Transformer
    heads : iterable of (layer, head)
    **how
        As in `ablate_heads`.
    """
    kept = {(int(layer), int(head)) for layer, head in heads}
    everything = set(np.ndindex(model.config.n_layers, model.config.n_heads))
    if kept - everything:
        raise MinitxError(f"The model has no head {sorted(kept - everything)[0]}.")
    return ablate_heads(sorted(everything - kept), **how)


def ablate_mlps(layers: Iterable[int], positions: Any = None, **how: Any) -> Hooks:
    """Ablate what the MLPs of these layers add. ``positions`` and ``how`` as in `ablate_heads`."""
    index = (slice(None), _positions(positions))
    hooks: Hooks = []
    for layer in layers:
        hooks += ablate(get_act_name("mlp_out", int(layer)), index, **_checked(how))
    return hooks


def ablate_positions(name: str, positions: Any, **how: Any) -> Hooks:
    """Ablate a whole activation at chosen positions, e.g. ``"blocks.1.hook_resid_pre"`` at 3.

    ``how`` as in `ablate_heads`.
    """
    return ablate(name, (slice(None), _positions(positions)), **_checked(how))


def ablate_directions(name: str, directions: ArrayLike, positions: Any = None, **how: Any) -> Hooks:
    """Ablate the component of an activation that lies in the span of some directions.

    ``x − xP + rP`` with P the projector on the span and r zero, the mean, or another sample.
    (Elazar et al. 2021; Arditi et al. 2024.)

    Parameters
    ----------
    name : str
        A hook point whose last axis is ``D``.
    directions : array [D] or [D, n]
        Columns, not necessarily orthogonal.
    positions : int, slice or list, optional
    **how
        As in `ablate_heads`.
    """
    directions = np.array(directions, dtype=np.float64)
    options = {"how": "zero", "cache": None, "rng": None, "per_position": True, **_checked(how)}
    value = _reference(name, **options)
    projector = None

    def hook(activation: Tensor, point: Any) -> Tensor:
        nonlocal projector
        if projector is None:
            identity = np.eye(activation.shape[-1])
            projector = (identity - remove_subspace(identity, directions)).astype(activation.dtype)
        there = _fit(value, activation, point.name)
        ablated = activation + ops.matmul(there - activation, projector)
        chosen = _mask(activation.shape, (slice(None), _positions(positions)), point.name)
        return ops.where(chosen, ablated, activation)

    return [(name, hook)]


def _positions(positions: Any) -> Any:
    if positions is None:
        return slice(None)
    if isinstance(positions, slice | int | np.integer):
        return positions
    return list(positions)


def _checked(how: dict[str, Any]) -> dict[str, Any]:
    known = dict.fromkeys(("how", "cache", "rng", "per_position"))
    for key in how:
        choose(known, key, "ablation option")
    return how


# --- attention ----------------------------------------------------------------------------------


def knock_out(
    layers: int | Iterable[int],
    pairs: ArrayLike | Iterable[tuple[int, int]],
    heads: Sequence[int] | None = None,
) -> Hooks:
    """Forbid chosen queries to look at chosen keys, as if a mask had hidden them.

    The weights are computed without those keys, whatever the kind of attention: a softmax row is
    renormalised over what is left, and is zero when nothing is. (Geva et al. 2023.) One difference
    is left: "selective" attention never hides the first token of a document, one that the *mask*
    lets see nothing before it; a token whose earlier keys are all knocked out may still be hidden.

    Parameters
    ----------
    layers : int or iterable of int
    pairs : iterable of (query, key), or bool array [T, S] or [B, T, S] (True = forbidden)
    heads : sequence of int, optional
        Only in these heads.
    """
    layers = [layers] if isinstance(layers, int | np.integer) else list(layers)
    chosen_pairs = _as_pairs(pairs)

    def forbid(value: float) -> Callable[[Tensor, Any], Tensor]:
        def hook(activation: Tensor, point: Any) -> Tensor:
            chosen = _pairs(chosen_pairs, heads, activation.shape, point.name)
            return ops.where(chosen, _fit(value, activation, point.name), activation)

        return hook

    hooks: Hooks = []
    for layer in layers:
        # The score decides how the other weights share; the weight itself is then exactly zero even
        # if the row has no other key, or the attention is not monotone in the score.
        hooks.append((get_act_name("attn_scores", layer), forbid(KNOCKED_OUT)))
        hooks.append((get_act_name("pattern", layer), forbid(0.0)))
    return hooks


def _as_pairs(pairs: Any) -> np.ndarray:
    """Places as int [n, 2], or a mask as it is."""
    array = np.asarray(pairs if isinstance(pairs, np.ndarray) else list(pairs))
    if array.dtype == bool:
        return array
    if array.size and (array.dtype.kind not in "iu" or array.shape[1:] != (2,)):
        raise MinitxError(
            "pairs must be a list of (query, key), or a mask of dtype bool [T, S] or [B, T, S]; got "
            f"{array.dtype} {list(array.shape)}."
        )
    return array.reshape(-1, 2).astype(np.int64)


def _pairs(pairs: np.ndarray, heads: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Chosen (query, key) pairs as bool, broadcastable to ``[B, H, T, S]``."""
    if pairs.dtype == bool:
        chosen = pairs if pairs.ndim == 2 else pairs[:, None] if pairs.ndim == 3 else pairs
    else:
        chosen = _mask(shape[-2:], tuple(pairs.T), name)
    try:
        chosen = np.broadcast_to(chosen, shape)
    except ValueError:
        raise ShapeError(
            f"pairs has shape {list(pairs.shape)}; {name} is {list(shape)}: "
            "give [T, S] or [B, T, S]."
        ) from None
    if heads is None:
        return chosen
    return chosen & _mask(shape, (slice(None), list(heads)), name)


def reweight_attention(
    layer: int,
    factor: ArrayLike,
    heads: Sequence[int] | None = None,
    renormalise: bool = True,
) -> Hooks:
    """Multiply attention weights, and by default rescale each row to the sum it had.

    ``A'_ts = A_ts f_ts · Σ_s A_ts / Σ_s A_ts f_ts``; a row left with nothing is zero. With a factor
    of 0.4 on the key of a sink this is attention calibration (Yu et al. 2024).

    Parameters
    ----------
    layer : int
    factor : array broadcastable to [B, H, T, S]
        ``[S]`` acts on keys; ``[T, S]`` on pairs.
    heads : sequence of int, optional
    renormalise : bool
    """
    factor = np.array(factor)

    def hook(pattern: Tensor, point: Any) -> Tensor:
        weighted = pattern * _fit(factor, pattern, point.name)
        if renormalise:
            total = ops.sum(weighted, axis=-1, keepdims=True)
            empty = total.data == 0
            before = ops.sum(pattern, axis=-1, keepdims=True)
            weighted = weighted * (before / ops.where(empty, np.ones_like(total.data), total))
        if heads is None:
            return weighted
        return ops.where(
            _mask(pattern.shape, (slice(None), list(heads)), point.name), weighted, pattern
        )

    return [(get_act_name("pattern", layer), hook)]


# --- steering -----------------------------------------------------------------------------------


def steer(name: str, vector: ArrayLike, strength: float = 1.0, positions: Any = None) -> Hooks:
    """Add ``strength · vector`` to an activation. (Turner et al. 2023; Rimsky et al. 2023.)

    Parameters
    ----------
    name : str
        A hook point, usually of the residual stream.
    vector : array broadcastable to the activation, e.g. [D]
        For example the difference of two means: `steering_vector`.
    strength : float
    positions : int, slice or list, optional
    """
    vector = np.array(vector, dtype=np.float64)

    def hook(activation: Tensor, point: Any) -> Tensor:
        step = _fit(strength * vector, activation, point.name)
        chosen = _mask(activation.shape, (slice(None), _positions(positions)), point.name)
        return activation + np.where(chosen, step, 0).astype(activation.dtype)

    return [(name, hook)]


def steering_vector(positive: ArrayLike, negative: ArrayLike) -> np.ndarray:
    """Difference of means: from ``negative [..., D]`` to ``positive [..., D]``. -> [D]"""
    means = [np.asarray(x, dtype=np.float64) for x in (positive, negative)]
    if means[0].shape[-1] != means[1].shape[-1]:
        raise ShapeError(f"The activations differ in width: {means[0].shape} and {means[1].shape}.")
    a, b = (x.reshape(-1, x.shape[-1]).mean(0) for x in means)
    return a - b
