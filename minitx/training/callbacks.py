"""What steps into training: measurements along the way, and methods that change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.autograd import Tensor
from minitx.errors import MinitxError, choose
from minitx.nn.module import Module
from minitx.optim import Optimizer


@dataclass
class History:
    """What a training run recorded, one number a step.

    Attributes
    ----------
    loss : float array [steps]
        Training loss in nats (before any penalty), on the batch of that step, before its update.
    lr : float array [steps]
    grad_norm : float array [steps]
        Before clipping.
    seconds : float
        Wall time of the loop; of all its parts, if it was resumed.
    """

    loss: np.ndarray
    lr: np.ndarray
    grad_norm: np.ndarray
    seconds: float = 0.0

    @property
    def final_loss(self) -> float:
        """Mean training loss over the last twentieth of the steps."""
        return (
            float(self.loss[-max(1, len(self.loss) // 20) :].mean()) if len(self.loss) else np.nan
        )


@dataclass
class State:
    """What callbacks see of a run.

    Attributes
    ----------
    model : Module
    optimizer : Optimizer
    step : int
        Updates done so far.
    steps : int
        Updates in all.
    rng : numpy.random.Generator
        For callbacks, apart from the stream that training draws its data from.
    history : History
    loss : float
        Of the latest batch.
    batch : Batch
        The latest.
    """

    model: Module
    optimizer: Optimizer
    step: int
    steps: int
    rng: np.random.Generator
    history: History
    loss: float = np.nan
    batch: Any = None


class Callback:
    """Base class of what steps into training; override what you need.

    Order in a step: ``on_batch``, forward, ``penalty``, backward, ``after_backward``, clipping,
    update, ``after_step``. Gradients stay on the parameters until the next step's backward.
    """

    def on_start(self, state: State) -> None:
        """Before the first step (when resuming: before the first step that is still to do)."""

    def on_batch(self, state: State, batch: Any) -> Any:
        """Change the batch: return another one, or None to leave it."""
        return batch

    def penalty(self, state: State) -> Tensor | None:
        """Something to add to the loss: a scalar Tensor, or None."""
        return None

    def after_backward(self, state: State) -> None:
        """Gradients are there (``parameter.grad``, which you may change), not yet clipped."""

    def after_step(self, state: State) -> None:
        """The parameters have moved; ``state.step`` counts this update."""

    def on_end(self, state: State) -> None:
        """After the last step."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Arrays that a resumed run needs to go on as if it had never stopped."""
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Take up what `state_dict` gave."""


class Every(Callback):
    """Call ``function(state)`` after each ``n``-th step."""

    def __init__(self, n: int, function: Callable[[State], Any]):
        if n < 1:
            raise MinitxError(f"Every(n, function) needs n >= 1, got {n}.")
        self.n, self.function = n, function

    def after_step(self, state: State) -> None:
        if state.step % self.n == 0:
            self.function(state)


class Curve(Callback):
    """Record measurements during training: before it, every ``every`` steps, and at its end.

    Parameters
    ----------
    functions : dict of name -> function(state) -> float or array
        Called with the model in evaluation mode.
    every : int

    Attributes
    ----------
    steps : int array [n]
        When was measured.

    Examples
    --------
    >>> curve = Curve({"loss": lambda state: state.loss}, every=50)
    >>> fit(model, task, steps=500, rng=rng, callbacks=[curve])
    >>> curve.steps, curve["loss"]
    """

    def __init__(self, functions: Mapping[str, Callable[[State], Any]], every: int):
        if every < 1:
            raise MinitxError(f"Curve needs every >= 1, got {every}.")
        self.functions, self.every = dict(functions), every
        self._steps: list[int] = []
        self._values: dict[str, list[np.ndarray]] = {name: [] for name in self.functions}

    @property
    def steps(self) -> np.ndarray:
        """When was measured."""
        return np.array(self._steps, dtype=np.int64)

    def __getitem__(self, name: str) -> np.ndarray:
        """Values over time, [n] or [n, ...]."""
        return np.array(choose(self._values, name, "curve"))

    def _measure(self, state: State) -> None:
        if self._steps and self._steps[-1] == state.step:
            return
        mode = state.model.training
        state.model.eval()
        try:
            values = {name: np.asarray(f(state)) for name, f in self.functions.items()}
        finally:
            state.model.train(mode)
        self._steps.append(state.step)
        for name, value in values.items():
            self._values[name].append(value)

    def on_start(self, state: State) -> None:
        self._measure(state)

    def after_step(self, state: State) -> None:
        if state.step % self.every == 0:
            self._measure(state)

    def on_end(self, state: State) -> None:
        self._measure(state)

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"steps": self.steps, **{f"values.{name}": self[name] for name in self.functions}}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self._steps = [int(s) for s in state["steps"]]
        self._values = {name: list(state[f"values.{name}"]) for name in self.functions}
