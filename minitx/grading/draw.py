"""What inputs are drawn from: small arrays on a grid of halves, so that counterexamples read well.

Only checks call these, inside functions: the module needs Hypothesis, listing exercises does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minitx.errors import MinitxError

try:
    from hypothesis import strategies as st
except ImportError:  # the extra ``course``
    raise MinitxError(
        "Grading needs Hypothesis, which is not installed: pip install 'minitx[course]'."
    ) from None

SearchStrategy = st.SearchStrategy
sizes = st.integers


def array(
    draw: Any, *shape: int, low: int = -6, high: int = 6, step: float = 0.5, dtype: Any = float
) -> np.ndarray:
    """An array of ``step * integer``; shrinks towards zeros. ``draw`` is Hypothesis's.

    One byte an entry, drawn together: many times faster than a list of drawn integers.
    """
    count = int(np.prod(shape, dtype=int))
    # Simplest first: Hypothesis shrinks bytes to 0, which stands for the value nearest to zero.
    table = np.array(sorted(range(low, high + 1), key=lambda n: (abs(n), n < 0)), dtype=np.float64)
    drawn = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), dtype=np.uint8)
    return (table[drawn % len(table)] * step).astype(dtype).reshape(shape)


def probabilities(draw: Any, *shape: int, mask: np.ndarray | None = None, dtype: Any = float):
    """Rows that sum to one along the last axis, from small whole weights; zero where not allowed.

    Every row must have an allowed place; one of them always gets some weight.
    """
    weights = array(draw, *shape, low=0, high=4, step=1.0)
    allowed = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
    weights = weights * allowed
    empty = weights.sum(-1) == 0
    last = shape[-1] - 1 - allowed[..., ::-1].argmax(-1)  # the last allowed place
    weights[..., :][empty] = np.eye(shape[-1])[last[empty]]
    return (weights / weights.sum(-1, keepdims=True)).astype(dtype)


def causal_patterns(draw: Any, *leading: int, length: int, dtype: Any = float) -> np.ndarray:
    """Attention patterns ``[*leading, T, T]`` under a causal mask."""
    mask = np.tri(length, dtype=bool)
    return probabilities(draw, *leading, length, length, mask=mask, dtype=dtype)


composite = st.composite
booleans = st.booleans
sampled_from = st.sampled_from
integers = st.integers
lists = st.lists
