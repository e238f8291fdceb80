"""The halves of a block as single operations, put through the same test as every other one.

In float32 their gradients are as far off as rounding can make them, and no further: the bound of each
entry is computed, since one tolerance for all would be too wide for most and too narrow for the rest
(a pattern that is nearly one-hot leaves its gradient as a difference of numbers 1e4 times larger).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx import kernels
from minitx.autograd import blocks
from minitx.kernels import reference_blocks as reference
from tests.autograd import rounding
from tests.autograd.cases import Case, Example
from tests.autograd.test_ops import check_operation, leaves

seeds = st.integers(0, 2**32 - 1)
ACTIVATIONS = st.sampled_from(["gelu", "relu", "silu"])
KEY_BIAS = 6  # moves all scores of a query alike: its gradient is 0, whatever the factor
NORMS = st.sampled_from(["layernorm", "rmsnorm"])


@pytest.fixture(params=["numpy", "numba"])
def active(request):
    """Run under the kernels of this name."""
    if request.param == "numba":
        pytest.importorskip("numba")
    before = kernels.active()
    kernels.use(request.param)
    yield
    kernels.use(before)


@dataclass
class Half:
    """Half a block at some point: the operation on tensors and on plain arrays, and the bounds of what
    rounding to float32 does to its output and to the gradients of its inputs."""

    op: object
    plain: object
    inputs: list[np.ndarray]
    upstream: np.ndarray
    bounds: list[np.ndarray]

    def check(self, seed):
        self.check_float32()
        example = Example(self.inputs, self.op, self.plain)
        check_operation(Case(st.none(), same_dtype=False), example, np.random.default_rng(seed))

    def check_float32(self):
        found, expected = self.results(np.float32), self.results(np.float64)
        for i, (got, true, bound) in enumerate(zip(found, expected, self.bounds, strict=True)):
            assert got.dtype == np.float32
            excess = (abs(got - true) - bound).max()
            assert excess <= 0, f"result {i} is {excess:.3g} further off than rounding explains"

    def results(self, dtype):
        """Output and gradients."""
        tensors = leaves([x.astype(dtype) for x in self.inputs])
        y = self.op(*tensors)
        y.backward(self.upstream.astype(dtype))
        return [y.data, *(t.grad for t in tensors)]


def mlp_half(seed, N, D, M, **options):
    """A random MLP block."""
    rng = np.random.default_rng(seed)
    shapes = (N, D), (D,), (D,), (M, D), (M,), (D, M), (D,)
    inputs, upstream = [rng.normal(size=shape) for shape in shapes], rng.normal(size=(N, D))

    def plain(*arrays):
        return reference.mlp_block(*arrays, **options)[0]

    carried = [rounding.array(x) for x in inputs]
    y, saved = reference.mlp_block(*carried, **options)
    grads = reference.mlp_block_backward(rounding.array(upstream), *carried, saved, **options)
    bounds = [rounding.errors(a) for a in (y, *grads)]
    return Half(partial(blocks.mlp_block, **options), plain, inputs, upstream, bounds)


def attention_half(seed, B, T, biased=False, **options):
    """A random attention block of two heads."""
    D, W, H = 3, 4, 2
    rng = np.random.default_rng(seed)
    weights = [(D,), (D,), *((W, D), (W,)) * 3, (D, W), (D,)]
    inputs = [rng.normal(size=shape) for shape in [(B, T, D), *weights]]
    upstream = rng.normal(size=(B, T, D))
    bias = rng.normal(size=(H, T, T)) if biased else None
    options = {"scale": 0.7, **options}

    def op(*tensors):
        small = bias is not None and tensors[0].dtype == np.float32
        own = bias.astype(np.float32) if small else bias
        return blocks.attention_block(*tensors, n_heads=H, bias=own, **options)

    def plain(x, *arrays):
        return reference.attention_block(x, arrays, H, bias=bias, **options)[0]

    x, *carried = [rounding.array(a) for a in inputs]
    options_carried = options | {"bias": None if bias is None else rounding.array(bias)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "softmax", rounding.softmax)
        y, saved = reference.attention_block(x, carried, H, **options_carried)
        g = rounding.array(upstream)
        grads = reference.attention_block_backward(g, x, carried, saved, H, **options_carried)
    return Half(op, plain, inputs, upstream, [rounding.errors(a) for a in (y, *grads)])


@pytest.mark.usefixtures("active")
@given(st.tuples(*[st.integers(1, 3)] * 3), NORMS, ACTIVATIONS, seeds)
def test_mlp_block(sizes, norm, activation, seed):
    (N, D, M), residual = sizes, seed % 2 == 0
    mlp_half(seed, N, D + 1, M, norm=norm, activation=activation, residual=residual).check(seed)


@pytest.mark.usefixtures("active")
@given(st.tuples(*[st.integers(1, 3)] * 2), NORMS, st.booleans(), st.booleans(), seeds)
def test_attention_block(sizes, norm, off_by_one, causal, seed):
    attention_half(
        seed, *sizes, biased=not causal, norm=norm, off_by_one=off_by_one, causal=causal,
        residual=seed % 2 == 0,
    ).check(seed)  # fmt: skip


@pytest.mark.parametrize("make, sizes", [(mlp_half, (3, 4, 3)), (attention_half, (2, 2))])
def test_the_bounds_tell_a_wrong_gradient_from_a_rounded_one(make, sizes, monkeypatch):
    """One weight's gradient too large by a thousandth, in float32 only: it is found."""
    half = make(2, *sizes)
    half.check_float32()
    name = "mlp_block_backward" if make is mlp_half else "attention_block_backward"
    right = getattr(reference, name)
    for i in range(len(half.inputs)):
        if make is attention_half and i == KEY_BIAS:
            continue

        def wrong(g, *arguments, i=i, **options):
            grads = list(right(g, *arguments, **options))
            if g.dtype == np.float32:
                grads[i] = grads[i] * np.float32(1.001)
            return tuple(grads)

        with monkeypatch.context() as patch:
            patch.setattr(kernels, name, wrong)
            with pytest.raises(AssertionError, match=f"result {i + 1} is"):
                half.check_float32()
