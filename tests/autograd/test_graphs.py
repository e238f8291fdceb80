"""Random graphs against a naive autograd that adds up all paths.

The naive one shares nothing with the engine: it knows the dense Jacobian of each step (by complex
step on plain NumPy functions) and gets a gradient by walking every path from the end to a leaf,
multiplying Jacobians along the way: exponential, and obviously right.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from minitx.autograd import Tensor, no_grad, ops
from minitx.errors import MinitxError

UNARY = {  # tensor function, the same in NumPy
    "tanh": (ops.tanh, np.tanh),
    "sin": (ops.sin, np.sin),
    "negative": (lambda x: -x, lambda x: -x),
    "times two": (lambda x: x * 2, lambda x: x * 2),
    "one over": (lambda x: 1 / (x * x + 1), lambda x: 1 / (x * x + 1)),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "mean of rows": (lambda x: x.mean(axis=0), lambda x: x.mean(axis=0)),
    "transpose": (lambda x: x.T, lambda x: x.T),
    "softmax": (ops.softmax, lambda x: np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)),
    "first twice": (lambda x: x[np.array([0, 1, 0])], lambda x: x[np.array([0, 1, 0])]),
    "reversed": (lambda x: x[::-1], lambda x: x[::-1]),
}
BINARY = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "subtract": (lambda a, b: a - b, lambda a, b: a - b),
    "multiply": (lambda a, b: a * b, lambda a, b: a * b),
    "where": (
        lambda a, b: ops.where(np.array([True, False]), a, b),
        lambda a, b: np.where(np.array([True, False]), a, b),
    ),
    "matmul": (lambda a, b: a @ b, lambda a, b: a @ b),
    "stack": (lambda a, b: ops.stack([a, b]), lambda a, b: np.stack([a, b])),
}
SHAPES = [(), (2,), (1,), (2, 2), (2, 1)]
MOST_PATHS = 300


class Naive:
    """A value, and for each input the dense Jacobian of the step that made it."""

    def __init__(self, value, inputs=(), jacobians=(), wants=False):
        self.value, self.inputs, self.jacobians, self.wants = value, inputs, jacobians, wants
        self.grad = None  # expected .grad of the tensor
        self.freed = False
        self.retains = False
        self.paths = 1 + sum(x.paths for x in inputs)

    @property
    def leaf(self):
        return not self.inputs

    def behind(self):
        """All computed values that a backward from here passes through, this one included."""
        found = {id(self): self} if self.wants and not self.leaf else {}
        for x in self.inputs:
            if x.wants:
                found |= x.behind()
        return found


def step(f, inputs, recording):
    """The naive node of f(*inputs)."""
    values = [x.value for x in inputs]
    value = np.asarray(f(*values))
    if not (recording and any(x.wants for x in inputs)):
        return Naive(value)
    jacobians = []
    for i, x in enumerate(values):
        columns = []
        for index in np.ndindex(x.shape):
            nudged = [v.astype(complex) for v in values]
            nudged[i][index] += 1e-20j
            columns.append(np.ravel(f(*nudged)).imag / 1e-20)
        jacobians.append(np.array(columns).T)  # [size of value, size of x]
    return Naive(value, tuple(inputs), jacobians, wants=True)


def add_paths(node, upstream, target):
    """Sum over all paths from ``node`` to ``target``: upstream times the Jacobians on the way."""
    if node is target:
        return upstream
    total = np.zeros(target.value.size)
    for x, jacobian in zip(node.inputs, node.jacobians, strict=True):
        if x.wants:
            total = total + add_paths(x, upstream @ jacobian, target)
    return total


class Graphs(RuleBasedStateMachine):
    """Both autograds build the same graph step by step and must agree after each."""

    pairs = Bundle("pairs")

    def __init__(self):
        super().__init__()
        self.all = []
        self.rng = np.random.default_rng(0)

    def keep(self, tensor, naive):
        assert tensor.requires_grad == naive.wants
        np.testing.assert_allclose(tensor.data, naive.value, rtol=1e-12, atol=1e-13)
        self.all.append((tensor, naive))
        return tensor, naive

    @initialize(target=pairs)
    def start(self):
        value = self.rng.normal(size=2)
        return self.keep(Tensor(value, True), Naive(value, wants=True))

    @rule(target=pairs, shape=st.sampled_from(SHAPES), wants=st.booleans())
    def leaf(self, shape, wants):
        value = np.asarray(self.rng.normal(size=shape))
        return self.keep(Tensor(value, wants), Naive(value, wants=wants))

    @rule(target=pairs, name=st.sampled_from(sorted(UNARY)), pair=pairs, quiet=st.booleans())
    def unary(self, name, pair, quiet):
        return self.apply(UNARY[name], [pair], quiet and self.rng.random() < 0.2)

    @rule(target=pairs, name=st.sampled_from(sorted(BINARY)), a=pairs, b=pairs)
    def binary(self, name, a, b):
        return self.apply(BINARY[name], [a, b], False)

    @rule(target=pairs, pair=pairs)
    def detach(self, pair):
        tensor, naive = pair
        return self.keep(tensor.detach(), Naive(naive.value))

    def apply(self, functions, pairs, quiet):
        on_tensor, on_array = functions
        tensors, naives = [p[0] for p in pairs], [p[1] for p in pairs]
        if sum(x.paths for x in naives) > MOST_PATHS:
            return pairs[0]
        try:
            naive = step(on_array, naives, recording=not quiet)
        except (ValueError, IndexError):  # shapes that do not fit: both must say so
            with pytest.raises((ValueError, IndexError)):
                on_tensor(*tensors)
            return pairs[0]
        if naive.value.size > 8:
            return pairs[0]
        if quiet:
            with no_grad():
                return self.keep(on_tensor(*tensors), naive)
        return self.keep(on_tensor(*tensors), naive)

    @rule(pair=pairs)
    def retain(self, pair):
        tensor, naive = pair
        if naive.wants:
            tensor.retain_grad()
            naive.retains = True

    @rule(pair=pairs, keep=st.booleans())
    def backward(self, pair, keep):
        tensor, naive = pair
        upstream = self.rng.normal(size=naive.value.shape)
        walked = naive.behind()
        if not naive.wants or any(x.freed for x in walked.values()):
            with pytest.raises(MinitxError):  # and the invariant says that nothing changed
                tensor.backward(upstream)
            return
        tensor.backward(upstream, retain_graph=keep)
        for _, x in self.all:
            reached = x.wants and (x.leaf or (x.retains and id(x) in walked))
            if reached and self.reaches(naive, x):
                grad = add_paths(naive, np.ravel(upstream), x).reshape(x.value.shape)
                x.grad = grad if x.grad is None else x.grad + grad
        for x in walked.values():
            x.freed = x.freed or not keep

    def reaches(self, node, target):
        return node is target or any(x.wants and self.reaches(x, target) for x in node.inputs)

    @invariant()
    def same_gradients(self):
        for tensor, naive in self.all:
            if naive.grad is None:
                assert tensor.grad is None
            else:
                np.testing.assert_allclose(tensor.grad, naive.grad, rtol=1e-7, atol=1e-9)

    @invariant()
    def no_shared_gradients(self):
        grads = [t.grad for t, _ in self.all if t.grad is not None and t.grad.size]
        owners = {g.__array_interface__["data"][0] for g in grads}
        assert len(owners) == len(grads)


TestGraphs = Graphs.TestCase
TestGraphs.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
