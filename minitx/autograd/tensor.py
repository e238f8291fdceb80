"""Tensor: an array, its gradient, and the node that made it.

A tensor is a *leaf* if you made it, and is *computed* if an operation made it. Leaves that require
a gradient get one from ``backward()``. A computed tensor whose inputs need gradients holds the
`engine.Node` that leads back to them. The operators and methods below only name the operations:
what they do is in `ops.py`.

Tensors are not edited in place: ``t[i] = v`` is refused. ``t.data`` is a plain array and may be
edited (that is how optimisers work), but only outside the stretch between forward and backward:
gradient rules hold on to the arrays that they need, not to copies, and would silently see the new
values. An output may share memory with its input (reshape, transpose, slices), as in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minitx.errors import MinitxError


class Tensor:
    """An array that remembers how it was computed.

    Parameters
    ----------
    data : array_like or Tensor
        Not copied if it is an array. The dtype is the one NumPy gives it, except that integers and
        bools become float32 when a gradient is required.
    requires_grad : bool
        Whether ``backward()`` should leave the gradient of this leaf in ``.grad``.

    Attributes
    ----------
    data : ndarray
    grad : ndarray or None
        Same shape and dtype as ``data``. Calls of ``backward()`` add to it (in place, like
        PyTorch's).
    requires_grad : bool
    grad_buffer : ndarray or None
        Where the first gradient is to be written, if an optimiser keeps all of them in one array.

    Raises
    ------
    MinitxError
        If the data is not numeric; if a gradient is required of complex numbers, or of integers too
        large for float32.
    """

    # _node: the engine's record of the operation that made this tensor; None for a leaf.
    __slots__ = ("__weakref__", "_node", "data", "grad", "grad_buffer", "requires_grad")

    # NumPy leaves `array * tensor` to Tensor.__rmul__, and np.exp(tensor) is a TypeError, not a
    # lost graph.
    __array_ufunc__ = None

    def __init__(self, data, requires_grad: bool = False):
        self.data = data.data if isinstance(data, Tensor) else as_array(data)
        self.grad: np.ndarray | None = None
        self.requires_grad = False
        self._node = None
        self.grad_buffer = None
        if requires_grad:
            self.requires_grad_()

    # ------------------------------------------------------------------------------ the array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def size(self) -> int:
        return self.data.size

    def numpy(self) -> np.ndarray:
        """The array itself, not a copy."""
        return self.data

    def item(self) -> float:
        """The value of a tensor with one element, as a Python number."""
        if self.data.size != 1:
            raise MinitxError(f"item() is for one element; this tensor has shape {self.shape}.")
        return self.data.item()

    def tolist(self) -> list:
        """The values as nested Python lists."""
        return self.data.tolist()

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        if self.requires_grad and engine.is_grad_enabled():
            raise TypeError(
                "NumPy would turn this tensor into an array and lose its gradient: use the "
                "function of minitx.ops, or say tensor.numpy() if you want the values alone"
            )
        if copy:
            return np.array(self.data, dtype=dtype)
        return np.asarray(self.data, dtype=dtype)

    def __repr__(self) -> str:
        text = np.array2string(
            self.data, separator=", ", prefix="Tensor(", precision=4, threshold=64, edgeitems=3
        )
        shape = f", shape={self.shape}" if self.size > 64 or self.size == 0 else ""
        grad = ""
        if self._node is not None:
            grad = f", made by {self._node.name}"
        elif self.requires_grad:
            grad = ", requires_grad=True"
        return f"Tensor({text}{shape}, dtype={self.dtype}{grad})"

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a tensor without axes")
        return len(self.data)

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a tensor without axes")
        return (self[i] for i in range(len(self.data)))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise MinitxError(
                f"A tensor of shape {self.shape} is neither true nor false: ask for one element."
            )
        return bool(self.data)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # ------------------------------------------------------------------------------ the graph

    @property
    def is_leaf(self) -> bool:
        """True if no recorded operation made this tensor."""
        return self._node is None

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for the gradient of this leaf (or stop asking); returns the tensor."""
        if requires_grad:
            self.data = _to_float(self.data)
        self.requires_grad = requires_grad
        return self

    def backward(self, grad=None, retain_graph: bool = False) -> None:
        """Leave d self / d leaf in the ``.grad`` of every leaf behind: see `engine.backward`."""
        engine.backward(self, grad, retain_graph)

    def detach(self) -> Tensor:
        """The same array without the graph behind it."""
        return Tensor(self.data)

    def retain_grad(self) -> Tensor:
        """Keep the gradient of this computed tensor too; returns the tensor.

        Raises
        ------
        MinitxError
            If no gradient will ever arrive here.
        """
        if not self.requires_grad:
            raise MinitxError("retain_grad() on a tensor that no gradient will reach.")
        if self._node is not None:
            self._node.kept = self
        return self

    # --------------------------------------------------------------------------- the operators

    def __add__(self, other) -> Tensor:
        return ops.add(self, other)

    def __radd__(self, other) -> Tensor:
        return ops.add(other, self)

    def __sub__(self, other) -> Tensor:
        return ops.subtract(self, other)

    def __rsub__(self, other) -> Tensor:
        return ops.subtract(other, self)

    def __mul__(self, other) -> Tensor:
        return ops.multiply(self, other)

    def __rmul__(self, other) -> Tensor:
        return ops.multiply(other, self)

    def __truediv__(self, other) -> Tensor:
        return ops.divide(self, other)

    def __rtruediv__(self, other) -> Tensor:
        return ops.divide(other, self)

    def __pow__(self, other) -> Tensor:
        return ops.power(self, other)

    def __rpow__(self, other) -> Tensor:
        return ops.power(other, self)

    def __matmul__(self, other) -> Tensor:
        return ops.matmul(self, other)

    def __rmatmul__(self, other) -> Tensor:
        return ops.matmul(other, self)

    def __neg__(self) -> Tensor:
        return ops.negative(self)

    def __abs__(self) -> Tensor:
        return ops.absolute(self)

    def __getitem__(self, index) -> Tensor:
        return ops.getitem(self, index)

    def __setitem__(self, index, value):
        raise MinitxError(
            "Tensors are not edited in place, since gradients would not notice: make a new "
            "one, for example with ops.where(mask, new, old), or edit a copy of .data."
        )

    # Comparisons have no gradient: they answer with plain arrays of bools.

    def __eq__(self, other):
        return self.data == _values(other)

    def __ne__(self, other):
        return self.data != _values(other)

    def __lt__(self, other):
        return self.data < _values(other)

    def __le__(self, other):
        return self.data <= _values(other)

    def __gt__(self, other):
        return self.data > _values(other)

    def __ge__(self, other):
        return self.data >= _values(other)

    __hash__ = object.__hash__  # tensors are told apart by identity in sets and dicts

    def argmax(self, axis: int | None = None) -> np.ndarray:
        """Where the largest value is: a plain array of integers."""
        return self.data.argmax(axis)

    # ----------------------------------------------------------------------------- the methods

    @property
    def T(self) -> Tensor:
        return ops.transpose(self)

    def astype(self, dtype) -> Tensor:
        return ops.astype(self, dtype)

    def sum(self, axis=None, keepdims: bool = False) -> Tensor:
        return ops.sum(self, axis, keepdims)

    def mean(self, axis=None, keepdims: bool = False) -> Tensor:
        return ops.mean(self, axis, keepdims)

    def var(self, axis=None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        return ops.var(self, axis, ddof, keepdims)

    def max(self, axis=None, keepdims: bool = False) -> Tensor:
        return ops.max(self, axis, keepdims)

    def min(self, axis=None, keepdims: bool = False) -> Tensor:
        return ops.min(self, axis, keepdims)

    def logsumexp(self, axis=None, keepdims: bool = False) -> Tensor:
        return ops.logsumexp(self, axis, keepdims)

    def cumsum(self, axis=None) -> Tensor:
        return ops.cumsum(self, axis)

    def softmax(self, axis: int = -1) -> Tensor:
        return ops.softmax(self, axis)

    def log_softmax(self, axis: int = -1) -> Tensor:
        return ops.log_softmax(self, axis)

    def reshape(self, *shape) -> Tensor:
        """``reshape(2, 3)`` or ``reshape((2, 3))``."""
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes) -> Tensor:
        """``transpose()`` reverses the axes; ``transpose(0, 2, 1)`` or ``transpose((0, 2, 1))``."""
        if not axes or axes == (None,):
            return ops.transpose(self)
        return ops.transpose(self, axes[0] if isinstance(axes[0], tuple | list) else axes)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        return ops.swapaxes(self, axis1, axis2)

    def squeeze(self, axis=None) -> Tensor:
        return ops.squeeze(self, axis)

    def flatten(self) -> Tensor:
        return ops.reshape(self, -1)

    def clip(self, low=None, high=None) -> Tensor:
        return ops.clip(self, low, high)

    def exp(self) -> Tensor:
        return ops.exp(self)

    def log(self) -> Tensor:
        return ops.log(self)

    def sqrt(self) -> Tensor:
        return ops.sqrt(self)

    def tanh(self) -> Tensor:
        return ops.tanh(self)

    def sigmoid(self) -> Tensor:
        return ops.sigmoid(self)

    def relu(self) -> Tensor:
        return ops.relu(self)

    def abs(self) -> Tensor:
        return ops.absolute(self)


def tensor(data, requires_grad: bool = False, dtype=None) -> Tensor:
    """A new leaf with its own copy of ``data``; see `Tensor` for dtypes and errors."""
    data = data.data if isinstance(data, Tensor) else data
    return Tensor(as_array(data).astype(dtype, copy=True), requires_grad)


def _values(x):
    return x.data if isinstance(x, Tensor) else x


def as_array(data) -> np.ndarray:
    if isinstance(data, list | tuple) and any(isinstance(x, Tensor) for x in data):
        raise MinitxError(
            "A list of tensors would lose its gradients: use ops.stack or ops.concatenate."
        )
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise MinitxError(f"These rows do not make an array: {error}.") from error
    if array.dtype.kind not in "fiubc":
        raise MinitxError(f"A tensor holds numbers, not {array.dtype} ({type(data).__name__}).")
    return array


def _to_float(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return array
    if array.dtype.kind == "c":
        raise MinitxError("Gradients are for real tensors; this one is complex.")
    floats = array.astype(np.float32)
    if not np.array_equal(floats, array):
        raise MinitxError(
            "These integers are too large for float32, which integers become when a gradient is "
            "required: convert them first, for example with data.astype(np.float64)."
        )
    return floats


# At the bottom, because these modules need the class above; the methods need them only when called.
from minitx.autograd import engine, ops  # noqa: E402
