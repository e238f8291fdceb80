"""The halves of a block as single operations, put through the same test as every other one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx import kernels
from minitx.autograd import blocks
from minitx.kernels import reference_blocks as reference
from tests.autograd.cases import Case, Example
from tests.autograd.test_ops import check_operation

seeds = st.integers(0, 2**32 - 1)
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


def check(inputs, op, plain, seed, **case):
    example = Example(inputs, op, plain)
    check_operation(Case(st.none(), **case), example, np.random.default_rng(seed))


@pytest.mark.usefixtures("active")
@given(st.tuples(*[st.integers(1, 3)] * 3), NORMS, st.sampled_from(["gelu", "silu"]), seeds)
def test_mlp_block(sizes, norm, activation, seed):
    (N, D, M), options = sizes, {"norm": norm, "activation": activation, "residual": seed % 2 == 0}
    make = np.random.default_rng(seed).normal
    shapes = ((N, D + 1), (D + 1,), (D + 1,), (M, D + 1), (M,), (D + 1, M), (D + 1,))
    check(
        [make(size=shape) for shape in shapes],
        partial(blocks.mlp_block, **options),
        lambda *arrays: reference.mlp_block(*arrays, **options)[0],
        seed,
    )


@pytest.mark.usefixtures("active")
@given(st.tuples(*[st.integers(1, 3)] * 2), NORMS, st.booleans(), st.booleans(), seeds)
def test_attention_block(sizes, norm, off_by_one, causal, seed):
    (B, T), D, W, H = sizes, 3, 4, 2
    rng = np.random.default_rng(seed)
    options = {
        "norm": norm, "off_by_one": off_by_one, "causal": causal, "scale": 0.7,
        "residual": bool(rng.integers(2)), "bias": None if causal else rng.normal(size=(H, T, T)),
    }  # fmt: skip
    weights = [(D,), (D,), *((W, D), (W,)) * 3, (D, W), (D,)]
    check(
        [rng.normal(size=shape) for shape in [(B, T, D), *weights]],
        partial(blocks.attention_block, n_heads=H, **options),
        lambda x, *arrays: reference.attention_block(x, arrays, H, **options)[0],
        seed,
        same_dtype=causal,  # the bias, a constant, is float64
    )
