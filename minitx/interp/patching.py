"""Which activation carries the difference? Put it from one run into another and see what changes.

Two inputs of the same shape: the *clean* one, on which the model answers right, and a *corrupted*
one. The model runs on the corrupted input with one activation taken from the clean run; how much of
the answer returns says how much of it that activation carries. (Meng et al. 2022; Wang et al. 2023;
Zhang & Nanda 2024.) For the reverse (noising) swap the two inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from minitx.errors import MinitxError, ShapeError, choose
from minitx.interp.interventions import Head, Hooks, put
from minitx.interp.running import quiet
from minitx.nn import get_act_name

Metric = Callable[[np.ndarray], float]
Site = tuple[str, Any]  # a hook point and an index into its activation


@dataclass(frozen=True)
class Patched:
    """What patching gave: the metric at each place, and on the two unpatched runs.

    Attributes
    ----------
    values : array
        The metric of the corrupted run with the clean activation at each place.
    clean, corrupted : float
        The metric of the runs as they are.
    """

    values: np.ndarray
    clean: float
    corrupted: float

    @property
    def recovered(self) -> np.ndarray:
        """Share of the difference that returns: ``(value − corrupted) / (clean − corrupted)``.

        ``nan`` if the two runs have the same metric: there is nothing to recover.
        """
        gap = self.clean - self.corrupted
        return (self.values - self.corrupted) / gap if gap else np.full_like(self.values, np.nan)


def activation_patch(
    model: Any,
    clean: np.ndarray,
    corrupted: np.ndarray,
    metric: Metric,
    where: Sequence[Site | Sequence[Site]],
    **model_kwargs: Any,
) -> Patched:
    """The metric of the corrupted run with a clean activation, for each place in ``where``.

    Parameters
    ----------
    model : Transformer
    clean, corrupted : int arrays [B, T] (or [B, T, F])
        Tokens of the same shape.
    metric : function of logits [B, T, V] -> float
    where : sequence
        Each entry is a place ``(hook name, index)``, e.g. ``("blocks.0.hook_mlp_out", np.s_[:,
        3])``, or a list of places that are patched together.
    **model_kwargs
        For both runs.

    Returns
    -------
    Patched
        ``values [len(where)]``.
    """
    clean, corrupted = _same_shape(clean, corrupted)
    groups: list[list[Site]] = [
        [cast(Site, entry)] if isinstance(entry[0], str) else list(cast(Sequence[Site], entry))
        for entry in where
    ]
    names = {name for group in groups for name, _ in group}
    with quiet(model):
        logits, cache = model.run_with_cache(clean, names_filter=sorted(names), **model_kwargs)
        values = []
        for group in groups:
            hooks: Hooks = [(name, put(cache[name], index)) for name, index in group]
            patched = model.run_with_hooks(corrupted, hooks, **model_kwargs)
            values.append(float(metric(patched.data)))
        base = float(metric(model(corrupted, **model_kwargs).data))
    return Patched(np.array(values), float(metric(logits.data)), base)


def _same_shape(clean: np.ndarray, corrupted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    clean, corrupted = np.asarray(clean), np.asarray(corrupted)
    if clean.shape != corrupted.shape:
        raise ShapeError(
            f"clean has shape {clean.shape} and corrupted {corrupted.shape}; they must be alike."
        )
    return clean, corrupted


# --- thin forms: grids of places ----------------------------------------------------------------


def _grid(model, clean, corrupted, metric, sites: Iterable[Site], shape, kwargs) -> Patched:
    result = activation_patch(model, clean, corrupted, metric, list(sites), **kwargs)
    return Patched(result.values.reshape(shape), result.clean, result.corrupted)


def _by_position(name: str):
    def patch(model: Any, clean: np.ndarray, corrupted: np.ndarray, metric: Metric, **model_kwargs):
        L, T = model.config.n_layers, np.asarray(clean).shape[1]
        sites = [(get_act_name(name, i), np.s_[:, t]) for i in range(L) for t in range(T)]
        return _grid(model, clean, corrupted, metric, sites, (L, T), model_kwargs)

    patch.__name__ = patch.__qualname__ = f"patch_{name}"
    patch.__doc__ = f"Patch ``hook_{name}`` at one layer and position at a time: values [L, T]."
    return patch


patch_resid_pre = _by_position("resid_pre")
patch_resid_post = _by_position("resid_post")
patch_attn_out = _by_position("attn_out")
patch_mlp_out = _by_position("mlp_out")


def patch_heads(
    model: Any,
    clean: np.ndarray,
    corrupted: np.ndarray,
    metric: Metric,
    activation: str = "z",
    **model_kwargs: Any,
) -> Patched:
    """Patch one head at a time, at all positions: values [L, H].

    Parameters
    ----------
    activation : "z", "q", "k", "v", "pattern" or "attn_scores"
        What to patch: the head's output (z) by default. The rest as in `activation_patch`.
    """
    head_axis = {"z": 2, "q": 2, "k": 2, "v": 2, "pattern": 1, "attn_scores": 1}
    axis = choose(head_axis, activation, "activation of a head")
    L, H = model.config.n_layers, model.config.n_heads
    sites = [
        (get_act_name(activation, layer), (slice(None),) * axis + (head,))
        for layer, head in np.ndindex(L, H)
    ]
    return _grid(model, clean, corrupted, metric, sites, (L, H), model_kwargs)


def patch_pattern(
    model: Any, clean: np.ndarray, corrupted: np.ndarray, metric: Metric, **model_kwargs: Any
) -> Patched:
    """Patch one head's attention pattern at a time: values [L, H]."""
    return patch_heads(model, clean, corrupted, metric, "pattern", **model_kwargs)


# --- path patching ------------------------------------------------------------------------------


def path_patch(
    model: Any,
    clean: np.ndarray,
    corrupted: np.ndarray,
    metric: Metric,
    senders: Head | Sequence[Head],
    receivers: str | tuple | Sequence[tuple[int, int, str]],
    freeze_mlps: bool = True,
    **model_kwargs: Any,
) -> Patched:
    """The metric of the corrupted run in which one path, sender → receiver, is clean.

    First the corrupted run with the senders' clean outputs, all other heads held at their corrupted
    values: what the receivers read there is recorded. Then the corrupted run with only these
    readings put in, everything after them free. (Wang et al. 2023; Goldowsky-Dill et al. 2023.)

    Parameters
    ----------
    model, clean, corrupted, metric
        As in `activation_patch`.
    senders : (layer, head) or a list of them
    receivers : (layer, head, "q" | "k" | "v"), a list of them, or "logits"
        Which input of a later head, or the output itself (the direct path).
    freeze_mlps : bool
        Hold the MLPs between too. False: MLPs are part of the path.

    Returns
    -------
    Patched
        ``values`` is an array of shape ().

    Raises
    ------
    MinitxError
        If a receiver does not come after every sender.
    """
    clean, corrupted = _same_shape(clean, corrupted)
    one = isinstance(senders[0], int | np.integer)
    heads = [cast(Head, senders)] if one else list(cast(Sequence[Head], senders))
    reads = _readings(model, heads, receivers)
    outputs = [get_act_name("z", layer) for layer in range(model.config.n_layers)]
    mlps = [name for name in model.hook_dict if name.endswith("hook_mlp_out")]
    with quiet(model):
        clean_logits, clean_cache = model.run_with_cache(clean, outputs, **model_kwargs)
        base, cache = model.run_with_cache(corrupted, outputs + mlps, **model_kwargs)
        hooks: Hooks = [(name, put(cache[name])) for name in outputs]
        hooks += [(name, put(cache[name])) for name in mlps] if freeze_mlps else []
        for layer, head in heads:  # after the freezing hooks on the same point: these win
            name = get_act_name("z", layer)
            hooks.append((name, put(clean_cache[name], np.s_[:, :, head])))
        with model.hooks(hooks):
            _, seen = model.run_with_cache(corrupted, sorted({n for n, _ in reads}), **model_kwargs)
        inserted: Hooks = [(name, put(seen[name], index)) for name, index in reads]
        patched = model.run_with_hooks(corrupted, inserted, **model_kwargs)
    return Patched(
        np.array(float(metric(patched.data))),
        float(metric(clean_logits.data)),
        float(metric(base.data)),
    )


def _readings(model, senders, receivers) -> list[Site]:
    """The places where the receivers read."""
    last_sender = max(layer for layer, _ in senders)
    if isinstance(receivers, str):
        choose({"logits": None}, receivers, "receiver")
        return [(get_act_name("resid_post", model.config.n_layers - 1), ...)]
    if isinstance(receivers[0], int | np.integer):
        receivers = [receivers]
    reads = []
    for layer, head, way in receivers:
        choose(dict.fromkeys("qkv"), way, "input of a head")
        if layer <= last_sender:
            raise MinitxError(
                f"The receiver in layer {layer} does not come after "
                f"the sender in layer {last_sender}."
            )
        reads.append((get_act_name(way, layer), np.s_[:, :, head]))
    return reads
