"""Strategies for the arrays that kernels must take: odd shapes, layouts and values."""

import numpy as np
from hypothesis import strategies as st

DTYPES = st.sampled_from([np.float32, np.float64])
ROW = st.integers(0, 20)  # long enough for a vectorised loop and its remainder
SIDE = st.integers(0, 5)  # empty and size-1 axes included


@st.composite
def shapes(draw, last=ROW, min_dims=1, max_dims=4):
    """A shape with a last axis of its own kind."""
    lead = draw(st.lists(SIDE, min_size=min_dims - 1, max_size=max_dims - 1))
    return (*lead, draw(last))


@st.composite
def arrays(draw, shape, dtype, scale=None):
    """Normal numbers of a drawn scale, in a drawn memory layout."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([1.0, 1.0, 1e-3, 30.0])) if scale is None else scale
    x = (rng.normal(size=shape) * scale).astype(dtype)
    return laid_out(x, draw(st.sampled_from(["C", "C", "F", "strided", "reversed", "read-only"])))


def laid_out(x, layout):
    """The same numbers, stored otherwise."""
    if layout == "F":
        return np.asfortranarray(x)
    if layout == "strided" and x.ndim:
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    if layout == "reversed" and x.ndim:
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if layout == "read-only":
        x.flags.writeable = False
    return x


@st.composite
def masks(draw, shape):
    """Where to look: some rows may look nowhere. The shape may be one that broadcasts."""
    dims = draw(st.integers(1, len(shape)))
    cut = [n if draw(st.booleans()) else 1 for n in shape[-dims:]]
    cut[-1] = shape[-1]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = rng.random(cut) < draw(st.sampled_from([0.2, 0.8]))
    if mask.size:
        mask.reshape(-1, mask.shape[-1])[0] = False
    return mask
