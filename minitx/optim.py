"""Optimisers and learning-rate schedules; the names are PyTorch's.

A `Transformer` keeps all its parameters in one buffer. An optimiser finds that out and makes one
pass over it, instead of one for each parameter.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from minitx import kernels
from minitx.autograd import Tensor
from minitx.errors import MinitxError, ShapeError

Schedule = Callable[[int, int], float]


class Optimizer:
    """Base class: the parameters, laid out in flat runs.

    Parameters
    ----------
    params : iterable of Parameter
    lr : float
        Learning rate; assign to ``optimizer.lr`` to change it.

    Notes
    -----
    A parameter without a gradient (frozen, or not used) is left as it is, state included.
    """

    slots: tuple[str, ...] = ()
    """Names of the running quantities, one number for each parameter number."""

    def __init__(self, params: Iterable[Tensor], lr: float):
        self.params = list(params)
        if not self.params or not all(isinstance(p, Tensor) for p in self.params):
            raise MinitxError("An optimiser needs at least one parameter; pass model.parameters().")
        if len({id(p) for p in self.params}) != len(self.params):
            raise MinitxError("The same parameter was passed to the optimiser twice.")
        if lr < 0:
            raise MinitxError(f"The learning rate must not be negative, got {lr}.")
        self.lr = lr
        self.steps = [0] * len(self.params)  # updates that each parameter has had
        ends = np.cumsum([p.size for p in self.params])
        self._places = [slice(end - p.size, end) for p, end in zip(self.params, ends, strict=True)]
        dtype = np.result_type(*(p.dtype for p in self.params))
        self.state = {name: np.zeros(ends[-1], dtype) for name in self.slots}
        self._gradient = np.zeros(ends[-1], dtype)
        self._arrays: list[np.ndarray | None] = [None] * len(self.params)  # see _follows
        self._views: dict[tuple[int, int], np.ndarray] = {}
        self._behind: list[bool] = []

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for first, last in self._runs():
            place = slice(self._places[first].start, self._places[last].stop)
            run = self.params[first : last + 1]
            gradient = self._gradient[place]
            np.concatenate([p.grad.ravel() for p in run], out=gradient)
            values = self._flat_view(first, last)
            state = [self.state[name][place] for name in self.slots]
            self._update(values, gradient, state, self.steps[first] + 1)
            if not run[0].data.flags.c_contiguous:  # then `values` is a copy
                run[0].data[...] = values.reshape(run[0].shape)
            for i in range(first, last + 1):
                self.steps[i] += 1

    def _update(
        self, values: np.ndarray, gradient: np.ndarray, state: list[np.ndarray], step: int
    ) -> None:
        """Change ``values`` and ``state``, flat arrays, in place; ``step`` counts from 1."""
        raise NotImplementedError

    def _runs(self) -> list[tuple[int, int]]:
        """Stretches of parameters, first to last, that one pass can update.

        All have a gradient and the same number of steps behind them, and they lie one after another
        in memory.
        """
        follows, runs = self._follows(), []
        steps = None  # of the parameter before, if it takes part
        for i, p in enumerate(self.params):
            if p.grad is None:
                steps = None
                continue
            if p.grad.shape != p.data.shape:
                raise ShapeError(f"A parameter {p.shape} has a gradient of shape {p.grad.shape}.")
            if follows[i] and steps == self.steps[i]:
                runs[-1] = (runs[-1][0], i)
            else:
                runs.append((i, i))
            steps = self.steps[i]
        return runs

    def _follows(self) -> list[bool]:
        """Whether each parameter lies right behind the one before it: worked out again only if one
        of them has got another array since."""
        arrays = [p.data for p in self.params]
        if not all(map(operator.is_, arrays, self._arrays)):
            behind, end, base = [], None, None
            for a in arrays:
                start, inside = a.__array_interface__["data"][0], _in_buffer(a)
                behind.append(inside and start == end and a.base is base)
                end, base = start + a.nbytes if inside else None, a.base
            self._views, self._behind, self._arrays = {}, behind, arrays
        return self._behind

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, whose parameters lie elsewhere."""
        return self.__dict__ | {"_arrays": [None] * len(self.params), "_views": {}, "_behind": []}

    def _flat_view(self, first: int, last: int) -> np.ndarray:
        """The values of a run as one flat array: a view, unless one array has gaps."""
        if not self._arrays[first].flags.c_contiguous:
            return self._arrays[first].reshape(-1)
        if (first, last) not in self._views:
            self._views[first, last] = _joined(self._arrays[first : last + 1])
        return self._views[first, last]

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all that is needed to go on: arrays only."""
        return {
            "lr": np.array(self.lr),
            "steps": np.array(self.steps, dtype=np.int64),
            **{name: array.copy() for name, array in self.state.items()},
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state_dict` gave.

        Raises
        ------
        MinitxError
            If it is the state of another kind of optimiser, or of other parameters.
        """
        expected = {"lr", "steps", *self.slots}
        if set(state) != expected:
            raise MinitxError(
                f"The state of a {type(self).__name__} holds {sorted(expected)}, "
                f"got {sorted(state)}."
            )
        if len(state["steps"]) != len(self.params) or any(
            state[name].shape != array.shape for name, array in self.state.items()
        ):
            raise ShapeError("The optimiser's state belongs to other parameters.")
        self.lr = float(state["lr"])
        self.steps = [int(s) for s in state["steps"]]
        for name, array in self.state.items():
            array[...] = state[name]


def _in_buffer(array: np.ndarray) -> bool:
    """Whether the array is a piece of a flat buffer of its own dtype."""
    base = array.base
    return (
        isinstance(base, np.ndarray)
        and base.ndim == 1
        and base.dtype == array.dtype
        and base.flags.c_contiguous
        and array.flags.c_contiguous
    )


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays that lie one after another in memory, as one flat view."""
    if len(arrays) == 1:
        return arrays[0].reshape(-1)
    base = arrays[0].base
    start = (arrays[0].ctypes.data - base.ctypes.data) // base.itemsize
    return base.reshape(-1)[start : start + sum(a.size for a in arrays)]


class SGD(Optimizer):
    """Gradient descent, with momentum (Sutskever et al., 2013) if asked; PyTorch's formulas.

    ``b ← momentum · b + g`` (b starts as the first gradient), then ``p ← p − lr · b``; with
    nesterov ``p ← p − lr · (g + momentum · b)``. Weight decay adds ``weight_decay · p`` to the
    gradient.
    """

    slots = ("momentum",)

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        if nesterov and momentum <= 0:
            raise MinitxError("nesterov=True needs a momentum above 0.")
        super().__init__(params, lr)
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov

    def _update(self, values, gradient, state, step):
        if self.weight_decay:
            gradient += self.weight_decay * values
        if self.momentum:
            (b,) = state
            b *= self.momentum
            b += gradient
            gradient = gradient + self.momentum * b if self.nesterov else b
        values -= self.lr * gradient


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019).

    ``m``, ``v``: running means of the gradient and of its square, corrected for their start at 0:
    ``p ← p − lr · (m̂ / (√v̂ + eps) + weight_decay · p)``.
    """

    slots = ("m", "v")

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        if not all(0.0 <= b < 1.0 for b in betas):
            raise MinitxError(f"betas must lie in [0, 1), got {betas}.")
        super().__init__(params, lr)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay

    def _update(self, values, gradient, state, step):
        kernels.adamw(
            values, gradient, *state, self.lr, *self.betas, self.eps, self.weight_decay, step
        )


class Adam(AdamW):
    """Adam (Kingma & Ba, 2015). Weight decay, if any, is added to the gradient (not decoupled)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)

    def _update(self, values, gradient, state, step):
        if self.weight_decay:
            gradient += self.weight_decay * values
        kernels.adamw(values, gradient, *state, self.lr, *self.betas, self.eps, 0.0, step)


def clip_grad_norm_(params: Iterable[Tensor], max_norm: float | None) -> float:
    """Scale all gradients down, together, so that their joint norm is at most ``max_norm``.

    Parameters
    ----------
    params : iterable of Parameter
    max_norm : float or None
        None only measures.

    Returns
    -------
    float
        The norm before clipping (Pascanu et al., 2013).
    """
    gradients = [p.grad for p in params if p.grad is not None]
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients))
    if max_norm is not None and norm > max_norm:
        for g in gradients:
            g *= max_norm / norm
    return norm


# --- schedules: step (from 0), total -> factor of the learning rate ------------------------------


def constant() -> Schedule:
    """1 throughout."""
    return lambda step, total: 1.0


def warmup(steps: int) -> Schedule:
    """Up linearly to 1 over the first ``steps``: min(1, (step + 1) / steps)."""
    return lambda step, total: min(1.0, (step + 1) / max(steps, 1))


def linear_decay(start: float = 0.7, end: float = 0.05) -> Schedule:
    """1 for the first ``start`` of training (a share), then down linearly to ``end``."""

    def factor(step: int, total: int) -> float:
        past = (step / total - start) / (1.0 - start) if start < 1 else 0.0
        return 1.0 if past <= 0 else 1.0 - past * (1.0 - end)

    return factor


def cosine(warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Half a cosine from 1 to ``floor``, times a linear rise over the first ``warmup`` steps."""

    def factor(step: int, total: int) -> float:
        wave = floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * step / total))
        return wave * min(1.0, (step + 1) / max(warmup, 1))

    return factor


OPTIMIZERS: dict[str, Any] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
