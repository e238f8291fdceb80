"""The engine: how an operation is recorded, and how gradients walk back through the record.

Forward. ``@primitive`` turns a function of arrays, which returns its output and its gradient rules,
into an operation on tensors. When one of its inputs needs a gradient, the output carries a `Node`:
the rules, and where the gradients go. Nodes point at nodes, not at tensors, so an intermediate
array lives on only when a rule needs it.

Backward. `backward` collects the nodes behind a tensor, sorts them, and visits each one once: it
hands the node's gradient to its rules and adds what they return to the gradients of the node's
parents. Everything that no rule should have to think about happens in that one place: undoing
broadcasting, the dtype, adding up, aliasing.

Read `tensor.py` before this file and `ops.py` after it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager

import numpy as np
from numpy import ndarray

from minitx.autograd.tensor import Tensor, as_array
from minitx.errors import MinitxError, ShapeError

_next_serial = itertools.count().__next__


class Node:
    """One recorded operation: what it takes to send a gradient through it."""

    __slots__ = ("dtype", "grad", "kept", "name", "parents", "rules", "serial", "shape")

    def __init__(self, name, rules, parents, shape, dtype):
        self.name = name  # of the operation, for error messages
        self.rules = rules  # one rule for each input, or a single one that returns a tuple
        self.parents = parents  # for each input a Node, a leaf Tensor, or None: no gradient wanted
        self.shape = shape  # of the output, hence of the gradient that arrives here
        self.dtype = dtype
        self.serial = _next_serial()
        self.grad = None  # the gradient that has arrived so far, during a walk only
        self.kept = None  # the tensor that asked to retain its gradient


# --------------------------------------------------------------------------------------- modes


class _ThisThread(threading.local):
    recording = True


_this_thread = _ThisThread()
_detecting = 0  # how many `detect_anomaly` blocks are open, in any thread


class _Recording(ContextDecorator):
    """Record or not, for the length of a ``with`` block or of a decorated function."""

    def __init__(self, wanted: bool):
        self.wanted = wanted

    def _recreate_cm(self):  # each call of a decorated function restores what it found
        return _Recording(self.wanted)

    def __enter__(self):
        self.before = _this_thread.recording
        _this_thread.recording = self.wanted

    def __exit__(self, *exception):
        _this_thread.recording = self.before


def no_grad() -> _Recording:
    """Record nothing: ``with no_grad():``, or ``@no_grad()`` above a function. Per thread."""
    return _Recording(False)


def enable_grad() -> _Recording:
    """Record again, inside a `no_grad` block."""
    return _Recording(True)


def is_grad_enabled() -> bool:
    """Whether operations are being recorded in this thread."""
    return _this_thread.recording


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """Stop at the operation that makes the first NaN or infinity, forward or backward, and name it.

    It looks at every array, so it is slow: switch it on when a loss has turned NaN. An operation is
    blamed only if everything that it was given is finite.
    """
    global _detecting
    _detecting += 1
    try:
        yield
    finally:
        _detecting -= 1


def is_detecting() -> bool:
    """Whether a `detect_anomaly` block is open."""
    return _detecting > 0


def _finite(a) -> bool:
    if isinstance(a, np.ndarray | float):
        return bool(np.isfinite(a).all())
    return True


# ------------------------------------------------------------------------------------- forward


def primitive(function: Callable) -> Callable[..., Tensor]:
    """Make an operation on tensors from a function of arrays that returns ``output, *rules``.

    Three forms, by how many rules follow the output (``None`` for an input without a gradient):

    - ``return y, lambda g: g * y``: one input; a rule maps the output's gradient to the input's;
    - ``return a * b, lambda g: g * b, lambda g: g * a``: one rule for each input, each called only
      when that input needs its gradient;
    - ``return y, rule`` where ``rule(g)`` returns a tuple, one gradient for each input: for coarse
      operations whose kernel computes all of them in one pass.

    A rule need not care about broadcasting (the engine adds up the axes that were broadcast), nor
    about dtypes, nor about who else holds the array that it returns. It must not write to ``g``.

    Inputs are told apart by what they are: tensors (also by keyword) are differentiated, anything
    else is a setting or a constant. If ``function`` has a parameter ``needs``, it gets a tuple of
    bools: which of its positional inputs need gradients.
    """
    name = function.__name__.strip("_")
    parameters = inspect.signature(function).parameters
    wants_needs = "needs" in parameters
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    defaults = {k: p.default for k, p in parameters.items() if k != "needs"}
    required = sum(p is inspect.Parameter.empty for p in defaults.values())

    @functools.wraps(function)
    def operation(*args, **settings):
        if settings and not variadic:
            args = _tensors_by_position(name, defaults, args, settings)
        arrays, parents, recorded = [], [], False
        for a in args:
            if isinstance(a, Tensor):
                arrays.append(a.data)
                if a.requires_grad:
                    parents.append(a._node or a)
                    recorded = True
                    continue
            elif type(a) is ndarray or len(arrays) >= required:
                arrays.append(a)
            elif required == 1:
                arrays.append(as_array(a))
            else:
                arrays.append(a if type(a) is float or type(a) is int else _constant(a))
            parents.append(None)
        recorded = recorded and _this_thread.recording
        if wants_needs:
            settings["needs"] = tuple(recorded and p is not None for p in parents)
        try:
            y, *rules = function(*arrays, **settings)
        except MinitxError:
            raise
        except ValueError as error:
            raise ShapeError(_describe(name, parameters, arrays, error)) from error
        if type(y) is not ndarray:  # NumPy answers with scalars where the output has no axes
            y = np.asarray(y)
        if _detecting and not _finite(y) and all(map(_finite, arrays)):
            raise MinitxError(f"{name} made the first NaN or infinity, in the forward pass.")
        out = Tensor.__new__(Tensor)
        out.data = y
        out.grad = out.grad_buffer = out._node = None
        out.requires_grad = recorded
        if recorded:
            dtype = y.dtype
            if dtype.kind == "f":
                out._node = Node(name, rules, parents, y.shape, dtype)
            else:  # integers do not vary smoothly
                out.requires_grad = False
        return out

    return operation


def _tensors_by_position(name, defaults, args, settings) -> tuple:
    """Move tensors that were given by keyword into their positions, so that they are seen."""
    tensors = [k for k, v in settings.items() if isinstance(v, Tensor)]
    if not tensors:
        return args
    order = list(defaults)
    for k in tensors:
        if k not in defaults:
            raise TypeError(f"{name}() has no argument {k!r}; it takes {', '.join(order)}")
    between = order[len(args) : 1 + max(order.index(k) for k in tensors)]
    for k in between:
        if k not in settings and defaults[k] is inspect.Parameter.empty:
            raise TypeError(f"{name}() misses its argument {k!r}")
    return args + tuple(settings.pop(k, defaults[k]) for k in between)


def _constant(a):
    """Make lists arrays, and NumPy scalars Python ones, which do not change dtypes.

    Without this, ``x / np.sqrt(64)`` would turn a float32 model into a float64 one.
    """
    if isinstance(a, np.generic):
        return a.item()
    return np.asarray(a) if isinstance(a, list | np.ndarray) else a


def _describe(name, parameters, arrays, error) -> str:
    names = list(parameters)[: len(arrays)]
    names += [f"input {i}" for i in range(len(names), len(arrays))]
    shown = [getattr(a, "shape", repr(a)) for a in arrays]
    inputs = ", ".join(f"{k} {a}" for k, a in zip(names, shown, strict=True))
    return f"{name} cannot take {inputs}: {error}."


# ------------------------------------------------------------------------------------ backward


def backward(tensor: Tensor, grad=None, retain_graph: bool = False) -> None:
    """Add d tensor / d leaf to the ``.grad`` of every leaf behind ``tensor``.

    Parameters
    ----------
    tensor : Tensor
        Where to start: a scalar, unless ``grad`` is given.
    grad : array_like, optional
        The gradient of the final quantity by ``tensor``, of the tensor's shape; 1 by default.
    retain_graph : bool
        Keep the graph for another backward. By default each node lets go of its arrays once
        visited.

    Raises
    ------
    MinitxError
        If nothing behind the tensor requires a gradient, if its graph was freed by an earlier
        backward, or if it is not a scalar and ``grad`` is missing.
    ShapeError
        If ``grad`` has another shape than the tensor.
    """
    if not tensor.requires_grad:
        raise MinitxError(
            "backward() needs a graph, and this tensor has none: nothing that it was computed "
            "from has requires_grad=True, or it was computed under no_grad()."
        )
    grad = _first_gradient(tensor, grad)
    root = tensor._node
    if root is None:
        _add_to_leaf(tensor, grad, ours=False)
        return
    order = _newest_first(root)
    root.grad = grad
    try:
        for node in order:
            _visit(node, retain_graph)
    except BaseException:
        for node in order:  # leave no half-added gradients for the next walk to find
            node.grad = None
        raise


def _first_gradient(tensor, grad) -> np.ndarray:
    if grad is None:
        if tensor.data.size != 1:
            raise MinitxError(
                f"backward() starts from a scalar, and this tensor has shape {tensor.shape}: "
                "reduce it (.sum(), .mean()) or pass the gradient to start from, backward(grad)."
            )
        return np.ones_like(tensor.data)
    grad = grad.data if isinstance(grad, Tensor) else np.asarray(grad)
    if grad.shape != tensor.shape:
        raise ShapeError(f"backward(grad) needs shape {tensor.shape}, got {grad.shape}.")
    return grad.astype(tensor.dtype, copy=False)


def _newest_first(root: Node) -> list[Node]:
    """All nodes behind ``root``, newest first.

    Why this order: a node may pass its gradient on only when the gradient is complete, that is,
    when all nodes that used its output have been visited. Those were made after it. So going from
    the newest to the oldest, each node is visited once, and the walk needs no recursion however
    deep the graph is.
    """
    seen, waiting = {root}, [root]
    for node in waiting:  # grows while it is read
        if node.parents is None:
            raise MinitxError(
                f"backward() reached a graph (at {node.name}) that an earlier call has freed: "
                "run the forward pass again, add the losses and call backward() once, or keep the "
                "graph with the first call, backward(retain_graph=True)."
            )
        for parent in node.parents:
            if type(parent) is Node and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    waiting.sort(key=operator.attrgetter("serial"), reverse=True)
    return waiting


def _visit(node: Node, retain_graph: bool) -> None:
    """Send the node's gradient through its rules to its parents, then let go of it."""
    g, rules, parents = node.grad, node.rules, node.parents
    node.grad = None
    if node.kept is not None:
        _add_to_leaf(node.kept, g, ours=False)
    if not retain_graph:
        node.rules = node.parents = node.kept = None
    one_each = len(rules) > 1
    if not one_each:
        grads = rules[0](g)
        grads = _no_array_twice(grads) if type(grads) is tuple else (grads,)
    for i, parent in enumerate(parents):
        if parent is None:
            continue
        if one_each:
            rule = rules[i] if i < len(rules) else None
            grad = rule(g) if rule else None
        else:
            grad = grads[i] if i < len(grads) else None
        if grad is None:
            raise MinitxError(f"{node.name} has no gradient by its input {i}: detach() that input.")
        if type(grad) is not ndarray:
            grad = np.asarray(grad)
        leaf = type(parent) is not Node
        like = parent.data if leaf else parent
        if grad.shape != like.shape:
            grad = unbroadcast(grad, like.shape, node.name)
        if grad.dtype is not like.dtype and grad.dtype != like.dtype:
            grad = _cast(grad, like.dtype, node.name)
        if _detecting and not _finite(grad) and _finite(g):
            raise MinitxError(f"{node.name} made the first NaN or infinity, in the backward pass.")
        # Is it ours to write to? Not if it is g itself, or a view of g or of who knows what.
        ours = grad is not g and grad.base is None
        if leaf:
            _add_to_leaf(parent, grad, ours)
        elif parent.grad is None:
            parent.grad = grad
        elif ours:
            parent.grad = np.add(grad, parent.grad, out=grad)
        else:
            parent.grad = np.asarray(parent.grad + grad)


def unbroadcast(grad: np.ndarray, shape: tuple[int, ...], name: str = "operation") -> np.ndarray:
    """Undo NumPy's broadcasting of ``shape`` to ``grad.shape``: add up the axes that were repeated.

    A value that was used n times collects n gradients. The only place where this is done.
    """
    lead = grad.ndim - len(shape)
    fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, grad.shape[lead:], strict=True))
    if not fits:
        raise ShapeError(
            f"The gradient rule of {name} returned {grad.shape} for an input of shape {shape}."
        )
    if lead:
        grad = grad.sum(axis=tuple(range(lead)))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and grad.shape[i] != 1)
    if repeated:
        grad = grad.sum(axis=repeated, keepdims=True)
    return np.asarray(grad)


def _cast(grad, dtype, name) -> np.ndarray:
    if np.dtype(dtype).kind != "f":
        raise MinitxError(
            f"{name} would send a gradient to a {dtype} tensor: only floats have gradients."
        )
    return grad.astype(dtype)


def _no_array_twice(grads: tuple) -> tuple:
    """Copies in place of arrays that a rule returned for two inputs, so that each owns its own."""
    ids = [id(grad) for grad in grads if grad is not None]
    if len(set(ids)) == len(ids):
        return grads
    return tuple(None if grad is None else grad.copy() for grad in grads)


def _add_to_leaf(leaf: Tensor, grad: np.ndarray, ours: bool) -> None:
    """Store the first gradient, add later ones in place. The stored array is the leaf's alone."""
    if leaf.grad is not None:
        leaf.grad += grad
    elif leaf.grad_buffer is not None:  # an optimiser gave the gradient a place to live
        np.copyto(leaf.grad_buffer, grad)
        leaf.grad = leaf.grad_buffer
    else:
        leaf.grad = grad if ours else grad.copy()
