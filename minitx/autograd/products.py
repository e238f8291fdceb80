"""Products of whole arrays: matrix multiplication, and the sums of products that einsum spells.

Both rules rest on one fact: in ``y = a b``, the gradient by one factor is the gradient of ``y``
times the other factor, summed over what the first one does not have. Users find both in `ops.py`.
"""

from __future__ import annotations

import numpy as np

from minitx.autograd.engine import primitive
from minitx.errors import MinitxError


@primitive
def matmul(a, b):
    """``a @ b`` with NumPy's rules: vectors, matrices, and stacks of matrices that broadcast."""
    y = np.matmul(a, b)
    rows = a[np.newaxis] if a.ndim == 1 else a  # [..., I, J], a vector being a single row
    cols = b[:, np.newaxis] if b.ndim == 1 else b  # [..., J, K], or a single column

    def matrix(g):  # the gradient with the axes that NumPy dropped for vectors
        g = np.expand_dims(g, -1) if b.ndim == 1 else g
        return np.expand_dims(g, -2) if a.ndim == 1 else g  # [..., I, K]

    def rule_a(g):
        ga = matrix(g) @ cols.swapaxes(-1, -2)
        return ga[..., 0, :] if a.ndim == 1 else ga

    def rule_b(g):
        if b.ndim == 2 and a.ndim > 2 and a.size and g.size:
            # One product over all stacked rows, instead of one for each matrix and their sum.
            return a.reshape(-1, a.shape[-1]).T @ g.reshape(-1, g.shape[-1])
        gb = rows.swapaxes(-1, -2) @ matrix(g)
        return gb[..., 0] if b.ndim == 1 else gb

    return y, rule_a, rule_b


@primitive
def einsum(subscripts, a, b):
    """Sum of products of two operands, for example ``einsum("bthk,bshk->bhts", q, k)``.

    Supports ``...``. Not supported: one letter twice in an operand (a diagonal).
    """
    left, right, out = _parse(subscripts, a, b)
    y = np.einsum(f"{left},{right}->{out}", a, b, optimize=True)

    def rule_a(g):
        return _einsum_to(left, a.shape, g, out, b, right)

    def rule_b(g):
        return _einsum_to(right, b.shape, g, out, a, left)

    return y, None, rule_a, rule_b


def _einsum_to(letters, shape, g, out, other, others):
    """The gradient by one operand: contract g with the other one, then repeat along lonely axes."""
    known = "".join(c for c in letters if c in out or c in others)
    grad = np.einsum(f"{out},{others}->{known}", g, other, optimize=True)
    for i, c in enumerate(letters):  # summed away on its own: every entry gets the same gradient
        if c not in known:
            grad = np.expand_dims(grad, i)
    full = [n if m == 1 else m for n, m in zip(shape, grad.shape, strict=True)]
    return np.broadcast_to(grad, full)


def _parse(subscripts, a, b):
    """Check the subscripts and replace ``...`` by capital letters."""
    inputs, arrow, out = str(subscripts).replace(" ", "").partition("->")
    operands = inputs.split(",")
    if len(operands) != 2:
        raise MinitxError(f"einsum takes two operands here, got {subscripts!r}.")
    dots = []
    for letters, x in zip(operands, (a, b), strict=True):
        dots.append(x.ndim - len(letters.replace("...", "")) if "..." in letters else 0)
    spare = [chr(c) for c in range(ord("A"), ord("Z") + 1) if chr(c) not in inputs]
    batch = "".join(spare[: max(dots)])
    if not arrow:
        once = sorted(c for c in inputs if c.isalpha() and inputs.count(c) == 1)
        out = ("..." if batch else "") + "".join(once)
    left, right = (
        s.replace("...", batch[len(batch) - n :]) for s, n in zip(operands, dots, strict=True)
    )
    for letters in (left, right):
        if len(set(letters)) < len(letters):
            raise MinitxError(f"einsum: a letter appears twice in one operand of {subscripts!r}.")
    return left, right, out.replace("...", batch)
