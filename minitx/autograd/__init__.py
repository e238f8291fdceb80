"""Reverse-mode automatic differentiation over NumPy arrays.

Read in this order: `tensor.py` (what a tensor is), `engine.py` (how operations are recorded and how
gradients walk back), `ops.py` (the table of operations: the elementary ones), `products.py` (products
of matrices), `coarse.py` (operations of one kernel each: softmax, linear, attention, losses),
`blocks.py` (half a transformer block as one operation), `check.py` (is a gradient right?).
"""

from minitx.autograd import ops
from minitx.autograd.check import GradcheckError, gradcheck
from minitx.autograd.engine import (
    backward,
    detect_anomaly,
    enable_grad,
    is_grad_enabled,
    no_grad,
    primitive,
)
from minitx.autograd.tensor import Tensor, tensor

__all__ = [
    "GradcheckError",
    "Tensor",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "gradcheck",
    "is_grad_enabled",
    "no_grad",
    "ops",
    "primitive",
    "tensor",
]
