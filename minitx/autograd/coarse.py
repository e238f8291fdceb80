"""The coarse operations: one node and one kernel for what would be many small ones.

Each has a compiled and a plain NumPy kernel behind it (`minitx.kernels`). Here are their gradient
wiring, their defaults, and the checks that turn a wrong shape or token into a sentence before a
compiled loop reads past the end of an array. Users find these functions in `ops.py`.

Shapes: B batch, T and S positions, H heads, K head width, D model width, V vocabulary; ``...`` any
leading axes.
"""

from __future__ import annotations

import functools

import numpy as np

from minitx import kernels
from minitx.autograd.engine import primitive
from minitx.errors import MinitxError, ShapeError, unknown


def _need(fits: bool, name: str, wanted: str, **arrays) -> None:
    if not fits:
        got = ", ".join(f"{k} {np.shape(a)}" for k, a in arrays.items() if a is not None)
        raise ShapeError(f"{name} needs {wanted}; got {got}.")


def _check_mask(mask, shape, name: str) -> None:
    """A mask is bool (True = may be attended) and broadcasts to the scores."""
    if mask is None:
        return
    if getattr(mask, "dtype", None) != np.bool_:
        raise MinitxError(
            f"{name} needs a mask of dtype bool (True = allowed), got "
            f"{getattr(mask, 'dtype', type(mask).__name__)}; numbers to add to scores are a bias."
        )
    lead = len(shape) - mask.ndim
    fits = lead >= 0 and all(m in (1, n) for m, n in zip(mask.shape, shape[lead:], strict=True))
    _need(fits, name, f"a mask that broadcasts to {tuple(shape)}", mask=mask)


def check_ids(ids, limit: int, what: str, table: str) -> np.ndarray:
    """The ids as int64, which no later sum or difference wraps; all from 0 to limit - 1.

    Raises
    ------
    MinitxError
        If they are no integers, or one is out of range: NumPy would count a negative one from the
        end, and answer with another id's row. The first such id is named.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        raise MinitxError(f"{what}s must be an array of integers, got {ids.dtype}.")
    if outside(ids, limit):
        wrong = ids[(ids < 0) | (ids >= limit)].flat[0]
        raise MinitxError(f"{what} {wrong} is out of range: {table} has 0 to {limit - 1}.")
    return ids.astype(np.int64, copy=False)


@functools.cache
def _unsigned(dtype: np.dtype) -> np.dtype:
    """The same integers without a sign; remembered, since parsing the name costs a microsecond."""
    return np.dtype(dtype.str.replace("i", "u"))


def outside(ids: np.ndarray, limit: int) -> bool:
    """Whether any is not an integer in 0 … limit - 1: one pass, in which negative ones look huge."""
    if ids.dtype.kind not in "iu":
        return True
    if ids.size == 0:
        return False
    if ids.itemsize < 8 and limit > np.iinfo(ids.dtype).max:
        # None is too large, but a negative one would not look so.
        return bool(ids.min() < 0)
    return bool(ids.view(_unsigned(ids.dtype)).max() >= limit)


# ------------------------------------------------------------------------------- activations


@primitive
def gelu(x):
    """``x Φ(x)`` in the tanh approximation that GPT-2 uses (Hendrycks and Gimpel, 2016)."""
    return kernels.gelu(x), lambda g: kernels.gelu_backward(g, x)


@primitive
def silu(x):
    """``x sigmoid(x)``, also called swish (Elfwing et al., 2017)."""
    return kernels.silu(x), lambda g: kernels.silu_backward(g, x)


# ----------------------------------------------------------------------------------- softmax


@primitive
def softmax(x, axis=-1, mask=None, off_by_one=False):
    """``exp(x) / sum(exp(x))`` along an axis.

    Parameters
    ----------
    x : [...]
    axis : int
    mask : bool, broadcastable to x, optional
        True = allowed. What is not allowed gets 0; a row where nothing is allowed is all 0.
    off_by_one : bool
        Add 1 to the denominator, so that a row may sum to less than 1 (Miller, 2023).
    """
    _check_mask(mask, x.shape, "softmax")
    if axis in (-1, x.ndim - 1):
        y = kernels.softmax(x, mask, off_by_one)
        return y, lambda g: kernels.softmax_backward(g, y)
    if mask is not None:
        mask = np.broadcast_to(mask, x.shape).swapaxes(axis, -1)
    z = kernels.softmax(x.swapaxes(axis, -1), mask, off_by_one)  # the kernel works on the last axis
    y = z.swapaxes(axis, -1)
    return y, lambda g: kernels.softmax_backward(g.swapaxes(axis, -1), z).swapaxes(axis, -1)


@primitive
def log_softmax(x, axis=-1):
    """``x - log(sum(exp(x)))`` along an axis."""
    if axis in (-1, x.ndim - 1):
        y = kernels.log_softmax(x)
        return y, lambda g: kernels.log_softmax_backward(g, y)
    z = kernels.log_softmax(x.swapaxes(axis, -1))
    y = z.swapaxes(axis, -1)
    return y, lambda g: kernels.log_softmax_backward(g.swapaxes(axis, -1), z).swapaxes(axis, -1)


# ------------------------------------------------------------------------------------ layers


@primitive
def linear(x, weight, bias=None):
    """``x @ weight.T + bias``, the weight as PyTorch keeps it.

    Parameters
    ----------
    x : [..., I]
    weight : [O, I]
    bias : [O], optional

    Returns
    -------
    Tensor [..., O]
    """
    fits = x.ndim and weight.ndim == 2 and x.shape[-1] == weight.shape[1]
    fits = fits and (bias is None or bias.shape == weight.shape[:1])
    _need(fits, "linear", "x [..., I], weight [O, I], bias [O]", x=x, weight=weight, bias=bias)
    y = kernels.linear(x, weight, bias)
    return y, lambda g: kernels.linear_backward(g, x, weight, bias is not None)


@primitive
def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Mean 0 and variance 1 over the last axis, then scale and shift (Ba et al., 2016).

    Parameters
    ----------
    x : [..., D]
    weight, bias : [D], optional
    eps : float
        Added to the variance.
    """
    _need_width("layer_norm", x, weight=weight, bias=bias)
    y, mean, rstd = kernels.layer_norm(x, weight, bias, eps)

    def rule(g):
        gx, gw, gb = kernels.layer_norm_backward(g, x, weight, mean, rstd)
        return gx, gw, gb

    return y, rule


@primitive
def rms_norm(x, weight=None, eps=1e-5):
    """Root mean square 1 over the last axis, then scale (Zhang and Sennrich, 2019).

    Parameters
    ----------
    x : [..., D]
    weight : [D], optional
    eps : float
        Added to the mean square.
    """
    _need_width("rms_norm", x, weight=weight)
    y, rrms = kernels.rms_norm(x, weight, eps)
    return y, lambda g: kernels.rms_norm_backward(g, x, weight, rrms)


def _need_width(name, x, **weights):
    fits = x.ndim and all(w is None or w.shape == x.shape[-1:] for w in weights.values())
    wanted = "x [..., D], " + ", ".join(f"{k} [D]" for k in weights)
    _need(fits, name, wanted, x=x, **weights)


@primitive
def attention(
    q, k, v, mask=None, bias=None, scale=None, off_by_one=False, causal=False, *, needs=()
):
    """Scaled dot-product attention (Vaswani et al., 2017), all heads at once.

    Parameters
    ----------
    q : [B, T, H, K]
    k, v : [B, S, H, K]
    mask : bool, broadcastable to [B, H, T, S], optional
        True = may attend.
    bias : broadcastable to [B, H, T, S], optional
        Added to the scaled scores; may require a gradient.
    scale : float, optional
        Of the scores; 1 / sqrt(K) if not given.
    off_by_one : bool
        Softmax1: see `softmax`.
    causal : bool
        A promise that the mask is exactly lower-triangular (T = S), so that half the work may be
        skipped.

    Returns
    -------
    Tensor [B, T, H, K]
    """
    fits = q.ndim == k.ndim == v.ndim == 4 and k.shape[:3] == v.shape[:3]
    fits = fits and q.shape[0] == k.shape[0] and q.shape[2:] == k.shape[2:]
    _need(fits, "attention", "q [B, T, H, K], k and v [B, S, H, K]", q=q, k=k, v=v)
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    _need(not causal or scores[2] == scores[3], "causal attention", "T = S", q=q, k=k)
    _check_mask(mask, scores, "attention")
    scale = q.shape[3] ** -0.5 if scale is None else scale
    z, pattern = kernels.attention(q, k, v, mask, bias, scale, off_by_one, causal)
    want_bias = len(needs) > 4 and needs[4]
    # z [B, T, H, K], pattern [B, H, T, S]

    def rule(g):
        gq, gk, gv, gbias = kernels.attention_backward(
            g, q, k, v, pattern, scale, causal, want_bias=want_bias
        )
        return gq, gk, gv, None, gbias

    return z, rule


@primitive
def rotary(x, cos, sin):
    """Turn each pair (first half, second half) of the head width by its angle (Su et al., 2021).

    Parameters
    ----------
    x : [B, T, H, K]
    cos, sin : [T, K/2] or [B, T, K/2]
        Constants. The gradient turns back by the same angles.
    """
    fits = x.ndim == 4 and cos.shape == sin.shape and cos.ndim in (2, 3)
    fits = fits and cos.shape[-2:] == (x.shape[1], x.shape[3] // 2) and x.shape[3] % 2 == 0
    fits = fits and (cos.ndim == 2 or cos.shape[0] in (1, x.shape[0]))
    _need(fits, "rotary", "x [B, T, H, K], cos and sin [T or B, T; K/2]", x=x, cos=cos, sin=sin)
    return kernels.rotary(x, cos, sin), lambda g: kernels.rotary(g, cos, sin, inverse=True)


@primitive
def embedding(tokens, weight):
    """Rows of a table: ``weight[tokens]``.

    Parameters
    ----------
    tokens : int [...]
    weight : [V, D]

    Returns
    -------
    Tensor [..., D]

    Raises
    ------
    MinitxError
        If a token is not in 0 … V - 1.
    """
    _need(weight.ndim == 2, "embedding", "weight [V, D]", weight=weight)
    vocab, width = weight.shape
    tokens = check_ids(tokens, vocab, "Token", "the embedding")

    def rule(g):  # a token that occurs n times collects n gradients
        return kernels.embedding_backward(g.reshape(-1, width), tokens.reshape(-1), vocab)

    return weight.take(tokens, axis=0), None, rule


@primitive
def dropout(x, p, rng, training=True):
    """Zero each value with probability p, divide the others by 1 - p (Srivastava et al., 2014).

    Parameters
    ----------
    x : [...]
    p : float
        From 0 to 1.
    rng : numpy.random.Generator
    training : bool
        If false, nothing is dropped and ``rng`` is not moved.
    """
    if not 0 <= p <= 1:
        raise MinitxError(f"dropout needs a probability from 0 to 1, got {p}.")
    if not training or p == 0:
        return x, lambda g: g
    kept = np.asarray(rng.random(x.shape, dtype=np.float32) >= p).astype(x.real.dtype)
    kept /= 1 - p if p < 1 else 1
    return x * kept, lambda g: g * kept


# -------------------------------------------------------------------------------------- loss


@primitive
def cross_entropy(logits, targets, ignore_index=-100, reduction="mean"):
    """``-log softmax(logits)[target]``, in nats.

    Parameters
    ----------
    logits : [..., V]
    targets : int [...]
        ``ignore_index`` marks positions without a loss.
    reduction : "mean", "sum" or "none"
        Over the positions that count; "none" keeps [...], with 0 where ignored.

    Raises
    ------
    MinitxError
        If a target is neither in 0 … V - 1 nor ``ignore_index``, or if all of them are ignored.
    """
    if reduction not in ("mean", "sum", "none"):
        raise unknown("reduction", reduction, ("mean", "sum", "none"))
    targets = np.asarray(targets)
    fits = logits.ndim and logits.shape[:-1] == targets.shape
    _need(fits, "cross_entropy", "logits [..., V], targets [...]", logits=logits, targets=targets)
    vocab = logits.shape[-1]
    flat, ids = logits.reshape(-1, vocab), targets.reshape(-1)  # [N, V], [N]
    if outside(ids, vocab):  # only then is a copy worth its while
        check_ids(ids[ids != ignore_index], vocab, "Target", "the logits' last axis")
    loss, lse, count = kernels.cross_entropy(flat, ids, ignore_index)
    if reduction == "none":
        rows = np.arange(len(ids))
        counted = ids != ignore_index
        loss = np.where(counted, lse - flat[rows, np.where(counted, ids, 0)], 0)
        loss = loss.reshape(targets.shape)
    elif count == 0:
        raise MinitxError(
            f"cross_entropy needs a target: all {ids.size} are {ignore_index}, which is ignored."
        )
    elif reduction == "sum":
        loss = loss * count

    def rule(g):
        g = g if reduction == "mean" else g.reshape(-1) * count  # the kernel divides by count
        g = np.broadcast_to(g, ids.shape) if reduction == "none" else g
        grad = kernels.cross_entropy_backward(g, flat, lse, ids, ignore_index, count)
        return grad.reshape(logits.shape)

    return loss, rule
