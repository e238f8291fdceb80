"""Inputs for every operation, and what plain NumPy says: the table behind `test_ops.py`.

A line of ``CASES`` says how to draw inputs for an operation and gives the same function in NumPy's
own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx.autograd import ops
from tests.autograd.plain import (
    np_gelu,
    np_layer_norm,
    np_logsumexp,
    np_rms_norm,
    np_rotary,
    np_sigmoid,
    np_softmax,
)


@dataclass
class Example:
    """Inputs to differentiate by, the operation on tensors, and the same on plain arrays."""

    inputs: list[np.ndarray]
    op: object
    reference: object

    def __repr__(self):
        return f"Example({[x.shape for x in self.inputs]}, {self.op})"


@dataclass(frozen=True)
class Case:
    """A line of the table."""

    examples: st.SearchStrategy
    analytic: bool = True  # the complex step applies
    same_dtype: bool = True  # float32 in, float32 out


# ------------------------------------------------------------------------------ drawing inputs


def smallest_side():
    """Mostly 1: one empty axis and the whole array is empty, which tells little about values."""
    return st.sampled_from([1, 1, 1, 1, 0])


@st.composite
def shapes(draw, dims=(0, 3), sides=(0, 3)):
    low = max(draw(smallest_side()), sides[0])
    return draw(
        hnp.array_shapes(min_dims=dims[0], max_dims=dims[1], min_side=low, max_side=sides[1])
    )


@st.composite
def broadcasting(draw, **settings):
    """Shapes that broadcast against each other, axes of length 1 and missing ones included."""
    low = draw(smallest_side())
    return draw(
        hnp.mutually_broadcastable_shapes(min_side=low, max_side=3, **settings)
    ).input_shapes


def generators():
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def unary(draw, name, reference=None, low=-2.0, high=2.0, shape=None):
    """One array, every element on its own."""
    x = draw(generators()).uniform(low, high, draw(shape or shapes()))
    return Example([x], getattr(ops, name), reference or getattr(np, name))


@st.composite
def binary(draw, name, a=(-2.0, 2.0), b=(-2.0, 2.0)):
    """Two arrays that broadcast, with empty and size-1 axes among the shapes."""
    pair = draw(broadcasting(num_shapes=2, max_dims=3))
    rng = draw(generators())
    inputs = [rng.uniform(*r, s) for r, s in zip((a, b), pair, strict=True)]
    return Example(inputs, getattr(ops, name), getattr(np, name))


@st.composite
def reduction(draw, name, reference, sides=(1, 3), **settings):
    """One array of distinct values, over one axis, several or all."""
    shape = draw(shapes(sides=sides))
    axes = [None, *range(-len(shape), len(shape)), *[(0, -1), (0,)][: max(len(shape) - 1, 0)]]
    keywords = {"axis": draw(st.sampled_from(axes)), "keepdims": draw(st.booleans())} | settings
    x = draw(generators()).permutation(np.linspace(-1.7, 2.1, max(int(np.prod(shape)), 1)))
    x = x[: int(np.prod(shape))].reshape(shape)
    return Example([x], partial(getattr(ops, name), **keywords), partial(reference, **keywords))


@st.composite
def layout(draw, name, settings, dims=(1, 3)):
    """One array, rearranged. ``settings(draw, shape)`` gives the further arguments."""
    shape = draw(shapes(dims))
    arguments = settings(draw, shape)
    x = draw(generators()).normal(size=shape)
    return Example(
        [x],
        lambda t: getattr(ops, name)(t, *arguments),
        lambda a: getattr(np, name)(a, *arguments),
    )


def axis_of(draw, shape):
    return draw(st.integers(-len(shape), len(shape) - 1))


@st.composite
def joined(draw, name):
    shape = draw(shapes((1, 3)))
    axis = axis_of(draw, shape)
    rng, inputs = draw(generators()), []
    for _ in range(draw(st.integers(1, 3))):
        size = list(shape)
        if name == "concatenate":  # lengths along the axis may differ
            size[axis] = draw(st.integers(0, 3))
        inputs.append(rng.normal(size=size))
    return Example(
        inputs,
        lambda *ts: getattr(ops, name)(ts, axis=axis),
        lambda *arrays: getattr(np, name)(arrays, axis=axis),
    )


@st.composite
def indexed(draw):
    shape = draw(shapes((1, 3), (1, 3)))
    repeated = hnp.integer_array_indices(shape, result_shape=shapes((0, 2), (0, 4)))
    mask = hnp.arrays(bool, shape)
    plain = hnp.basic_indices(shape, allow_newaxis=True)
    index = draw(st.one_of(plain, repeated, mask))
    x = draw(generators()).normal(size=shape)
    return Example([x], lambda t: t[index], lambda a: a[index])


@st.composite
def transposed(draw):
    shape = draw(shapes((1, 4)))
    rng = draw(generators())  # Hypothesis likes the identity too much to find a wrong inverse
    axes = draw(st.sampled_from([None, tuple(rng.permutation(len(shape)).tolist())]))
    x = rng.normal(size=shape)
    return Example([x], lambda t: ops.transpose(t, axes), lambda a: np.transpose(a, axes))


@st.composite
def multiplied(draw):
    if draw(st.booleans()):  # the common kind: a stack of rows by one matrix
        *stack, j, k = draw(shapes((3, 5)))
        pair = (*stack, j), (j, k)
    else:
        pair = draw(broadcasting(signature=np.matmul.signature, max_dims=2))
    rng = draw(generators())
    return Example([rng.normal(size=s) for s in pair], ops.matmul, np.matmul)


EINSUMS = {  # subscripts -> the letters' sizes are drawn
    "ij,jk->ik": ("ij", "jk"), "ij,jk": ("ij", "jk"), "bthk,bshk->bhts": ("bthk", "bshk"),
    "i,j->ij": ("i", "j"), "ij,ij->": ("ij", "ij"), "ij,kl->k": ("ij", "kl"),
    "ij,j->i": ("ij", "j"), "...ij,...jk->...ik": ("xij", "jk"), "...i,i": ("xyi", "i"),
    "hij,xhj->xih": ("hij", "1hj"),
}  # fmt: skip


@st.composite
def einsums(draw):
    subscripts = draw(st.sampled_from(sorted(EINSUMS)))
    low, rng = draw(smallest_side()), draw(generators())
    sizes = {c: int(n) for c, n in zip("bhijklstxy", rng.integers(low, 4, 10), strict=True)}
    sizes["1"] = 1
    inputs = [rng.normal(size=[sizes[c] for c in letters]) for letters in EINSUMS[subscripts]]
    return Example(inputs, partial(ops.einsum, subscripts), partial(np.einsum, subscripts))


# ------------------------------------------------------------------------------ coarse drawings


@st.composite
def softmaxes(draw, name="softmax"):
    shape = draw(shapes((1, 3)).filter(lambda s: 0 not in s[-1:]))
    axis = axis_of(draw, shape)
    if shape[axis] == 0:
        axis = -1
    rng = draw(generators())
    x = rng.normal(size=shape)
    if name == "log_softmax":
        return Example(
            [x],
            partial(ops.log_softmax, axis=axis),
            lambda a: a - np_logsumexp(a, axis=axis, keepdims=True),
        )
    mask = rng.random(shape[draw(st.integers(0, len(shape) - 1)) :]) < 0.6
    mask, one = draw(st.sampled_from([None, mask])), draw(st.booleans())
    return Example(
        [x],
        partial(ops.softmax, axis=axis, mask=mask, off_by_one=one),
        lambda a: np_softmax(a, axis, True if mask is None else mask, one),
    )


@st.composite
def rows(draw, name, reference, weights):
    """x [..., D] and up to ``weights`` vectors [D]."""
    shape = (*draw(shapes((1, 3)))[:-1], draw(st.integers(2, 5)))
    rng = draw(generators())
    vectors = [rng.normal(size=shape[-1]) for _ in range(draw(st.integers(0, weights)))]
    return Example([rng.normal(size=shape), *vectors], getattr(ops, name), reference)


@st.composite
def linears(draw):
    shape = (*draw(shapes((0, 2))), draw(st.integers(0, 3)))
    out = draw(st.integers(0, 3))
    rng = draw(generators())
    inputs = [rng.normal(size=s) for s in (shape, (out, shape[-1]), (out,))]
    inputs = inputs[: draw(st.integers(2, 3))]
    return Example(inputs, ops.linear, lambda x, w, b=0.0: x @ w.T + b)


@st.composite
def attentions(draw):
    B, T, S, H, K = (draw(st.integers(1, 3)) for _ in range(5))
    causal, one = draw(st.booleans()), draw(st.booleans())
    S = T if causal else S
    rng = draw(generators())
    mask = np.tri(T, S, dtype=bool) if causal else draw(st.sampled_from([None, "random"]))
    if isinstance(mask, str):
        mask = rng.random(draw(st.sampled_from([(T, S), (B, 1, T, S), (H, 1, S)]))) < 0.7
    inputs = [rng.normal(size=s) for s in [(B, T, H, K), (B, S, H, K), (B, S, H, K)]]
    if draw(st.booleans()):  # a bias that is broadcast
        inputs.append(rng.normal(size=draw(st.sampled_from([(T, S), (H, 1, S), (B, H, T, S)]))))
    scale = draw(st.sampled_from([None, 0.7]))

    def reference(q, k, v, bias=0):
        scores = np.einsum("bthk,bshk->bhts", q, k) * (K**-0.5 if scale is None else scale) + bias
        pattern = np_softmax(scores, -1, True if mask is None else mask, one)
        return np.einsum("bhts,bshk->bthk", pattern, v)

    def op(q, k, v, bias=None):
        return ops.attention(q, k, v, mask, bias, scale, one, causal)

    return Example(inputs, op, reference)


@st.composite
def rotaries(draw):
    B, T, H, half = (draw(st.integers(1, 3)) for _ in range(4))
    rng = draw(generators())
    angle = rng.uniform(-3, 3, draw(st.sampled_from([(T, half), (B, T, half)])))
    cos, sin = np.cos(angle), np.sin(angle)
    return Example(
        [rng.normal(size=(B, T, H, 2 * half))],
        lambda x: ops.rotary(x, cos.astype(x.data.real.dtype), sin.astype(x.data.real.dtype)),
        lambda x: np_rotary(x, cos, sin),
    )


@st.composite
def embeddings(draw):
    vocab, rng = draw(st.integers(1, 4)), draw(generators())
    tokens = rng.integers(vocab, size=draw(shapes((0, 2), (0, 4))))
    table = rng.normal(size=(vocab, draw(st.integers(1, 3))))
    return Example([table], partial(ops.embedding, tokens), lambda w: w[tokens])


@st.composite
def losses(draw):
    shape, vocab = draw(shapes((0, 2), (1, 3))), draw(st.integers(1, 4))
    rng, how = draw(generators()), draw(st.sampled_from(["mean", "sum", "none"]))
    targets = rng.integers(vocab, size=shape)
    ignored = np.array(rng.random(shape) < 0.3)
    if how != "none":
        ignored.flat[0] = False
    targets = np.where(ignored, -7, targets)

    def reference(logits):
        logp = logits - np_logsumexp(logits, -1, True)
        each = -np.take_along_axis(logp, np.where(ignored, 0, targets)[..., None], -1)[..., 0]
        each = np.where(ignored, 0, each)
        return {"none": each, "sum": each.sum(), "mean": each.sum() / max((~ignored).sum(), 1)}[how]

    op = partial(ops.cross_entropy, targets=targets, ignore_index=-7, reduction=how)
    return Example([2 * rng.normal(size=(*shape, vocab))], op, reference)


@st.composite
def dropouts(draw):
    x = draw(generators()).normal(size=draw(shapes()))
    p, on, seed = draw(st.sampled_from([0, 0.3, 1])), draw(st.booleans()), draw(st.integers(0, 99))

    def reference(a):
        kept = np.random.default_rng(seed).random(a.shape, dtype=np.float32) >= p
        return np.where(kept, a / (1 - p if p < 1 else 1), 0) if on else a

    return Example([x], lambda t: ops.dropout(t, p, np.random.default_rng(seed), on), reference)


@st.composite
def chosen(draw):
    first, *others = draw(broadcasting(num_shapes=3, max_dims=2))
    rng = draw(generators())
    condition = rng.random(first) < 0.5
    inputs = [rng.normal(size=s) for s in others]
    return Example(inputs, partial(ops.where, condition), partial(np.where, condition))


# ------------------------------------------------------------------------------------ the table

CASES: dict[str, Case] = {
    "absolute": Case(unary("absolute"), analytic=False),
    "add": Case(binary("add")),
    "astype": Case(
        unary("astype", np.asarray).map(
            lambda e: Example(e.inputs, lambda t: ops.astype(t, np.float64), e.reference)
        ),
        analytic=False,
        same_dtype=False,
    ),
    "attention": Case(attentions()),
    "broadcast_to": Case(
        layout("broadcast_to", lambda draw, s: ((2, *(n + (n == 1) for n in s)),), (0, 2))
    ),
    "clip": Case(
        unary("clip").map(
            lambda e: Example(
                e.inputs, lambda t: ops.clip(t, -0.6, 1.1), lambda a: np.clip(a, -0.6, 1.1)
            )
        )
    ),
    "concatenate": Case(joined("concatenate")),
    "cos": Case(unary("cos")),
    "cross_entropy": Case(losses()),
    "cumsum": Case(layout("cumsum", lambda d, s: (d(st.sampled_from([None, axis_of(d, s)])),))),
    "divide": Case(binary("divide", b=(0.5, 2.0))),
    "dropout": Case(dropouts()),
    "einsum": Case(einsums()),
    "embedding": Case(embeddings()),
    "exp": Case(unary("exp")),
    "expand_dims": Case(layout("expand_dims", lambda d, s: (axis_of(d, (*s, 1)),), (0, 3))),
    "gelu": Case(unary("gelu", np_gelu)),
    "getitem": Case(indexed()),
    "layer_norm": Case(rows("layer_norm", np_layer_norm, 2)),
    "linear": Case(linears()),
    "log": Case(unary("log", low=0.1)),
    "log1p": Case(unary("log1p", low=-0.9)),
    "log_softmax": Case(softmaxes("log_softmax")),
    "logsumexp": Case(reduction("logsumexp", np_logsumexp)),
    "matmul": Case(multiplied()),
    "max": Case(reduction("max", np.max)),
    "maximum": Case(binary("maximum")),
    "mean": Case(reduction("mean", np.mean)),
    "min": Case(reduction("min", np.min)),
    "minimum": Case(binary("minimum")),
    "multiply": Case(binary("multiply")),
    "negative": Case(unary("negative")),
    "power": Case(binary("power", a=(0.2, 2.0))),
    "relu": Case(unary("relu", lambda a: np.where(a > 0, a, 0))),
    "reshape": Case(layout("reshape", lambda d, s: (d(st.permutations(s)),))),
    "rms_norm": Case(rows("rms_norm", np_rms_norm, 1)),
    "rotary": Case(rotaries()),
    "sigmoid": Case(unary("sigmoid", np_sigmoid)),
    "silu": Case(unary("silu", lambda a: a * np_sigmoid(a))),
    "sin": Case(unary("sin")),
    "softmax": Case(softmaxes()),
    "sqrt": Case(unary("sqrt", low=0.1)),
    "squeeze": Case(layout("squeeze", lambda d, s: (), (0, 3))),
    "stack": Case(joined("stack")),
    "subtract": Case(binary("subtract")),
    "sum": Case(reduction("sum", np.sum, sides=(0, 3))),
    "swapaxes": Case(layout("swapaxes", lambda d, s: (axis_of(d, s), axis_of(d, s)))),
    "tanh": Case(unary("tanh")),
    "transpose": Case(transposed()),
    "var": Case(reduction("var", np.var)),
    "where": Case(chosen()),
}  # fmt: skip
