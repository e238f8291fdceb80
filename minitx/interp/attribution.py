"""Who wrote this logit? Take the output apart into what each component added.

The residual stream is a sum, and a norm is linear once its scale is known. So the logits are
exactly a sum over components (embedding, heads, MLPs, biases), and the parts of a decomposition
here always add up to the whole, for norms before or after the sublayers and with or without a
residual connection. (Elhage et al. 2021.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.autograd import Tensor, enable_grad
from minitx.autograd.coarse import check_ids
from minitx.errors import MinitxError, ShapeError, choose
from minitx.interp.running import frozen
from minitx.nn import LayerNorm


@dataclass(frozen=True)
class Decomposition:
    """Named parts that add up to a whole.

    Attributes
    ----------
    labels : list of str
        ``"embed"``, ``"pos_embed"``, ``"L0H1"`` (a head), ``"L0 attn"``, ``"L0 attn bias"``, ``"L0
        mlp"``, ``"L0 ln1 bias"``, ``"final norm bias"``.
    parts : array [C, ...]
        One for each label.
    """

    labels: list[str]
    parts: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """The sum of the parts."""
        return self.parts.sum(0)

    def __getitem__(self, label: str) -> np.ndarray:
        """The part of that name."""
        return self.parts[choose({name: i for i, name in enumerate(self.labels)}, label, "part")]

    def __len__(self) -> int:
        return len(self.labels)


def head_results(model: Any, cache: Mapping, layer: int) -> np.ndarray:
    """What each head of a layer adds to the stream, without the bias: ``z W_O``. -> [B, T, H, D]"""
    z = cache["z", layer]  # [B, T, H, K]
    return np.einsum("bthk,hkd->bthd", z, model.blocks[layer].attn.W_O)


def decompose_resid(
    model: Any, cache: Mapping, layer: int | None = None, per_head: bool = False
) -> Decomposition:
    """The residual stream after some layers, as a sum over the components that wrote it.

    Parameters
    ----------
    model : Transformer
    cache : ActivationCache
        Of one run without dropout (``model.eval()``).
    layer : int, optional
        The stream that enters this block; by default the one that leaves the last.
    per_head : bool
        Split attention into its heads and its bias.

    Returns
    -------
    Decomposition
        ``parts [C, B, T, D]``. With norms after the sublayers each part is carried through them,
        with the scale that the norm had in this run.
    """
    config = model.config
    layer = config.n_layers if layer is None else layer
    if not 0 <= layer <= config.n_layers:
        raise MinitxError(f"layer must lie between 0 and {config.n_layers}; got {layer}.")
    parts = {"embed": cache["embed"]}
    if "hook_pos_embed" in cache:
        parts["pos_embed"] = cache["pos_embed"]
    for i in range(layer):
        block = model.blocks[i]
        new = (
            _attention_parts(model, cache, i) if per_head else {f"L{i} attn": cache["attn_out", i]}
        )
        parts = {**parts, **new} if config.residual else new
        parts = _after_norm(model, block.ln1, cache, i, "ln1", parts)
        if block.mlp is not None:
            new = {f"L{i} mlp": cache["mlp_out", i]}
            parts = {**parts, **new} if config.residual else new
            parts = _after_norm(model, block.ln2, cache, i, "ln2", parts)
    return Decomposition(list(parts), np.stack(list(parts.values())))


def _attention_parts(model: Any, cache: Mapping, layer: int) -> dict[str, np.ndarray]:
    results = head_results(model, cache, layer)
    parts = {f"L{layer}H{h}": results[:, :, h] for h in range(results.shape[2])}
    bias = model.blocks[layer].attn.output.bias
    if bias is not None:
        parts[f"L{layer} attn bias"] = np.broadcast_to(bias.data, results[:, :, 0].shape)
    return parts


def _after_norm(model, norm, cache, layer, name, parts) -> dict[str, np.ndarray]:
    """The parts behind a norm that stands after the sublayer; as they are if it stands before."""
    if model.config.norm_position == "pre" or model.config.norm == "none":
        return parts
    scale = cache["scale", layer, name]
    carried = {label: _normalised(norm, part, scale) for label, part in parts.items()}
    bias = _bias(norm)
    if bias is not None:
        like = next(iter(parts.values()))
        carried[f"L{layer} {name} bias"] = np.broadcast_to(bias, like.shape)
    return carried


def _is_identity(norm: Any) -> bool:
    return not hasattr(norm, "hook_scale")


def _normalised(norm: Any, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The linear part of a norm of given scale ``[B, T, 1]``: centre, divide, weigh."""
    if _is_identity(norm):
        return x
    if _centres(norm):
        x = x - x.mean(-1, keepdims=True)
    return x / scale * norm.weight.data


def _centres(norm: Any) -> bool:
    return isinstance(norm, LayerNorm)


def _bias(norm: Any) -> np.ndarray | None:
    bias = getattr(norm, "bias", None)
    return None if bias is None else bias.data


def _scale(norm: Any, x: np.ndarray) -> np.ndarray:  # [..., D] -> [..., 1]
    """The scale that a norm would have on ``x``."""
    if _is_identity(norm):
        return np.ones_like(x[..., :1])
    if _centres(norm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt(np.square(x).mean(-1, keepdims=True) + np.asarray(norm.eps, x.dtype))


def logit_attribution(
    model: Any,
    cache: Mapping,
    tokens: np.ndarray | None = None,
    against: np.ndarray | None = None,
    per_head: bool = False,
) -> Decomposition:
    """The logits as a sum over components, with the final norm at the scale it had in this run.

    Parameters
    ----------
    model : Transformer
    cache : ActivationCache
    tokens : int array [B, T], optional
        Only the logit of these tokens: parts ``[C, B, T]`` instead of ``[C, B, T, V]``.
    against : int array [B, T], optional
        The logit difference ``tokens − against``.
    per_head : bool

    Returns
    -------
    Decomposition
        The parts of `decompose_resid`, and ``"final norm bias"`` if there is one. They sum to the
        logits.

    Raises
    ------
    MinitxError
        If an id is not among the outputs; so is -100, which marks "no target" elsewhere: put any
        token there and leave its position out of what you sum.
    """
    resid = decompose_resid(model, cache, per_head=per_head)
    labels, parts = list(resid.labels), resid.parts
    W_U = model.W_U
    norm = model.ln_final if model.config.final_norm else None
    bias = None
    if norm is not None and not _is_identity(norm):
        parts = _normalised(norm, parts, cache["ln_final.hook_scale"])
        bias = _bias(norm)
    if bias is not None:
        labels.append("final norm bias")
        parts = np.concatenate([parts, np.broadcast_to(bias, parts[:1].shape)])
    if tokens is None:
        if against is not None:
            raise MinitxError("against= is subtracted from tokens=; give both.")
        return Decomposition(labels, parts @ W_U)
    direction = _rows_of(W_U.T, tokens, parts.shape[1:3], "tokens")  # [B, T, D]
    if against is not None:
        direction = direction - _rows_of(W_U.T, against, parts.shape[1:3], "against")
    return Decomposition(labels, np.einsum("cbtd,btd->cbt", parts, direction))


def _rows_of(table: np.ndarray, tokens: np.ndarray, shape: tuple, name: str) -> np.ndarray:
    tokens = np.asarray(tokens)
    if tokens.shape != tuple(shape):
        raise ShapeError(
            f"{name} has shape {tokens.shape}; expected {tuple(shape)} (batch, positions)."
        )
    return table[check_ids(tokens, len(table), "Id", f"the output, from which {name}= picks,")]


def logit_lens(model: Any, cache: Mapping, norm: str = "own") -> np.ndarray:
    """What the model would say after each layer: the stream through final norm and unembedding.

    Two conventions for the norm, which differ except in the last row (nostalgebraist 2020):

    ``"own"``: the final norm is applied to each layer's stream, with that stream's own mean and
    scale. What the model would print if it stopped there.

    ``"final"``: the scale is the one of the last layer at that position, as in direct attribution,
    so that differences between rows are what a layer adds to the final logits.

    Parameters
    ----------
    model : Transformer
    cache : ActivationCache
    norm : "own" or "final"

    Returns
    -------
    array [L + 1, B, T, V]
        Row 0 is before the first block; the last row is the logits.
    """
    choose(dict.fromkeys(("own", "final")), norm, "norm convention")
    L = model.config.n_layers
    streams = [cache["resid_pre", 0]] if L else [decompose_resid(model, cache).total]
    rows = []
    for x in [*streams, *(cache["resid_post", i] for i in range(L))]:
        if model.config.final_norm and not _is_identity(model.ln_final):
            scale = cache["ln_final.hook_scale"] if norm == "final" else _scale(model.ln_final, x)
            x = _normalised(model.ln_final, x, scale)
            bias = _bias(model.ln_final)
            x = x if bias is None else x + bias
        rows.append(x @ model.W_U)
    return np.stack(rows)


# --- gradients ----------------------------------------------------------------------------------

TensorMetric = Callable[[Tensor], Tensor]


def gradients(
    model: Any,
    tokens: np.ndarray,
    metric: TensorMetric,
    names: str | Iterable[str],
    fwd_hooks: Iterable = (),
    **model_kwargs: Any,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Activations and the gradient of a metric with respect to them.

    Parameters
    ----------
    model : Transformer
        Its parameters, their gradients and its mode are left as they were.
    tokens : int array [B, T]
    metric : function of the logits Tensor -> scalar Tensor
    names : str or iterable of str
        Hook points.
    fwd_hooks : hooks, optional
        Run before the activations are read.

    Returns
    -------
    (activations, gradients, value)
        Two dicts by hook name, and the metric. A name that the metric does not depend on gets
        zeros.
    """
    names = [names] if isinstance(names, str) else list(names)
    activations: dict[str, np.ndarray] = {}
    probes: dict[str, Tensor] = {}

    def watch(activation, hook):
        # A leaf of zeros that is added: its gradient is the activation's, parameters trained or
        # not.
        activations[hook.name] = activation.data.copy()
        probes[hook.name] = Tensor(np.zeros_like(activation.data), requires_grad=True)
        return activation + probes[hook.name]

    with frozen(model), enable_grad():  # also where the caller has switched gradients off
        hooks = [*fwd_hooks, *((name, watch) for name in names)]
        value = metric(model.run_with_hooks(tokens, hooks, **model_kwargs))
        if not isinstance(value, Tensor) or value.size != 1:
            raise MinitxError("The metric must return a scalar Tensor, so that it can be derived.")
        if value.requires_grad:
            value.backward()
    found = {n: np.zeros_like(p.data) if p.grad is None else p.grad for n, p in probes.items()}
    return activations, found, float(value.item())


def gradient_x_activation(
    model: Any,
    tokens: np.ndarray,
    metric: TensorMetric,
    names: str | Iterable[str],
    **model_kwargs: Any,
) -> dict[str, np.ndarray]:
    """``x ⊙ ∂metric/∂x``: the first-order effect of taking each entry of an activation away.

    Parameters and names as in `gradients`. (Shrikumar et al. 2017; as attribution patching, Nanda
    2023.)

    Returns
    -------
    dict name -> array of the activation's shape
    """
    activations, grads, _ = gradients(model, tokens, metric, names, **model_kwargs)
    return {name: activations[name] * grads[name] for name in activations}


def integrated_gradients(
    model: Any,
    tokens: np.ndarray,
    metric: TensorMetric,
    name: str = "hook_embed",
    baseline: np.ndarray | float = 0.0,
    steps: int = 16,
    **model_kwargs: Any,
) -> np.ndarray:
    """Attribution along a straight line: ``(x − x₀) ⊙ ∫₀¹ ∂F(x₀ + α(x − x₀)) dα``.

    The parts sum to ``F(x) − F(x₀)`` (completeness), up to the error of the quadrature, which is
    Gauss–Legendre here: few steps do on a smooth path. (Sundararajan et al. 2017.)

    Parameters
    ----------
    model, tokens, metric
        As in `gradients`.
    name : str
        The hook point whose activation is varied.
    baseline : array broadcastable to the activation
    steps : int

    Returns
    -------
    array of the activation's shape
    """
    if steps < 1:
        raise MinitxError(f"steps must be 1 or more; got {steps}.")
    activations, _, _ = gradients(model, tokens, metric, name, **model_kwargs)
    x = activations[name]
    x0 = np.broadcast_to(np.asarray(baseline, dtype=x.dtype), x.shape)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = np.zeros_like(x)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        point = (x0 + node * (x - x0)).astype(x.dtype)
        moved = [(name, lambda activation, hook, point=point: point)]
        _, grads, _ = gradients(model, tokens, metric, name, fwd_hooks=moved, **model_kwargs)
        total += (weight * grads[name]).astype(x.dtype)
    return (x - x0) * total
