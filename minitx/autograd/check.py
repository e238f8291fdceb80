"""Is a gradient right? Compare it with numbers that no gradient rule had a part in.

Complex step (Squire and Trapp, 1998): for an analytic f, f(x + ih) = f(x) + ih f'(x) + O(h²), so
f'(x) = Im f(x + ih) / h. Nothing is subtracted, so h can be 1e-20 and the result is exact to
rounding. Central differences, (f(x + h) - f(x - h)) / 2h, are for the functions that look at sizes,
|x| for example; they are good to about 1e-9 in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minitx.autograd.engine import enable_grad, no_grad
from minitx.autograd.tensor import Tensor
from minitx.errors import MinitxError, choose

COMPLEX_STEP = 1e-20
CENTRAL_STEP = np.finfo(np.float64).eps ** (1 / 3)  # balances truncation h² against rounding eps/h


class GradcheckError(MinitxError):
    """A gradient that is wrong. Attributes: input, index, expected, got."""

    def __init__(self, input: int, index: tuple, expected: float, got: float, method: str):
        self.input, self.index, self.expected, self.got = input, index, expected, got
        super().__init__(
            f"The gradient by input {input} at index {index} is wrong: backward gives {got:.10g}, "
            f"the {method} gives {expected:.10g}."
        )


def gradcheck(
    f: Callable[..., Tensor],
    inputs: Sequence | Tensor | np.ndarray,
    method: str = "auto",
    rtol: float = 1e-6,
    atol: float = 1e-8,
    sample: int | None = None,
) -> bool:
    """Check the gradients of ``f(*inputs)`` in float64.

    The output may have any shape: it is reduced to a number with fixed random weights, so that
    every entry of the Jacobian matters. Inputs that are tensors are passed to ``f`` as the same
    objects, their data changed for a moment and restored; so ``gradcheck(lambda *_: loss(model),
    model.parameters())`` checks a whole model.

    Parameters
    ----------
    f : callable
        Takes as many tensors as there are inputs, returns a tensor. Must be deterministic.
    inputs : tensor, array, or a sequence of them
        Floats, where to check. Arrays and leaf tensors; integers are passed on unchecked.
    method : "auto", "complex" or "central"
        "auto" tries the complex step and, where f turns out not to be analytic, central
        differences.
    rtol, atol : float
        Allowed error: ``atol + rtol * |expected|``.
    sample : int, optional
        Check only this many entries of each input, spread evenly: for large inputs.

    Returns
    -------
    True

    Raises
    ------
    GradcheckError
        Naming the input, the index, the expected and the found gradient.
    MinitxError
        If f is not deterministic, not finite, or does not return a tensor.
    """
    choose(dict.fromkeys(("auto", "complex", "central")), method, "method")
    single = isinstance(inputs, Tensor | np.ndarray | float | int)
    given = [inputs] if single else list(inputs)
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in given]
    checked = [i for i, t in enumerate(tensors) if t.dtype.kind == "f"]
    if not checked:
        raise MinitxError(
            "gradcheck needs at least one input of floats: integers have no gradient."
        )
    before = [(t, t.data, t.grad, t.requires_grad, t.grad_buffer) for t in tensors]
    try:
        for i in checked:
            t = tensors[i]
            if not t.is_leaf:
                raise MinitxError(
                    f"gradcheck needs leaf tensors; input {i} is computed: detach() it."
                )
            t.data, t.grad, t.requires_grad, t.grad_buffer = (
                t.data.astype(np.float64),
                None,
                True,
                None,
            )
        return _Check(f, tensors, rtol, atol).run(checked, method, sample)
    finally:
        for t, *values in before:
            t.data, t.grad, t.requires_grad, t.grad_buffer = values


class _Check:
    """One function at one point."""

    def __init__(self, f, tensors, rtol, atol):
        self.f, self.tensors, self.rtol, self.atol = f, tensors, rtol, atol

    def run(self, checked, method, sample) -> bool:
        y = self.value()
        self.weights = np.random.default_rng(0).uniform(0.5, 1.5, y.shape)
        if not np.array_equal(y, self.value()):
            raise MinitxError(
                "f gives another value when called again; gradcheck needs a deterministic function "
                "(make the random generator inside f)."
            )
        if not np.isfinite(y).all():
            raise MinitxError("f is not finite at these inputs, so its gradient cannot be checked.")
        with enable_grad():
            self.f(*self.tensors).backward(self.weights)
        for i in checked:
            t = self.tensors[i]
            grad = np.zeros(t.shape) if t.grad is None else t.grad
            for flat in _spread(t.size, sample):
                index = tuple(int(n) for n in np.unravel_index(flat, t.shape))
                self.compare(i, index, float(grad[index]), method)
        return True

    def compare(self, i, index, got, method) -> None:
        t = self.tensors[i]
        if method != "central":
            expected = self.complex_step(t, index, optional=method == "auto")
            if expected is not None and self.agree(got, expected):
                return
            if method == "complex":
                raise GradcheckError(i, index, expected, got, "complex step")
        # In "auto" a gradient is wrong only if both methods say so: the complex step alone
        # may be off because some part of f is not analytic.
        expected = self.central(t, index)
        if not self.agree(got, expected):
            raise GradcheckError(i, index, expected, got, "central difference")

    def agree(self, got, expected) -> bool:
        return abs(got - expected) <= self.atol + self.rtol * abs(expected)

    def complex_step(self, t, index, optional):
        real = t.data
        t.data = real.astype(np.complex128)
        t.data[index] += 1j * COMPLEX_STEP
        try:
            y = self.value()
        except (TypeError, MinitxError):
            if optional:
                return None
            raise
        finally:
            t.data = real
        if y.dtype.kind != "c":
            if optional:
                return None
            raise MinitxError(
                "f loses imaginary parts, so it is not analytic: use method='central'."
            )
        return float((y * self.weights).sum().imag / COMPLEX_STEP)

    def central(self, t, index) -> float:
        x = t.data[index]
        step = CENTRAL_STEP * max(1.0, abs(x))
        sums = []
        try:
            for t.data[index] in (x + step, x - step):
                sums.append(self.value() * self.weights)
        finally:
            t.data[index] = x
        return float((sums[0] - sums[1]).sum() / (2 * step))

    def value(self) -> np.ndarray:
        with no_grad():
            y = self.f(*self.tensors)
        if not isinstance(y, Tensor):
            raise MinitxError(f"gradcheck needs f to return a Tensor, got {type(y).__name__}.")
        return y.data


def _spread(size: int, sample: int | None):
    if sample is None or sample >= size:
        return range(size)
    return np.linspace(0, size - 1, sample).round().astype(int)
