"""Modules: objects that own parameters and other modules, found by walking their attributes.

There is no registry behind the attributes: what is assigned is what is found, in the order of
assignment, and a mistyped name raises ``AttributeError`` as on any Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitx.autograd import Tensor
from minitx.errors import MinitxError, ShapeError, unknown


def streams(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Return n independent generators, seeded one after the other from ``rng``.

    Each part of a model draws its first weights from a stream of its own. So two configs that
    differ in one part (a gate, an extra key, the MLP) start from the same weights everywhere else.
    """
    return [np.random.default_rng(rng.integers(2**63)) for _ in range(n)]


class Parameter(Tensor):
    """A tensor that a module owns and an optimiser trains.

    Parameters
    ----------
    data : array_like
        Initial value, float32 or float64.
    requires_grad : bool
        False freezes it: no gradient is computed, so optimisers leave it bit-identical.
    """

    def __init__(self, data: Any, requires_grad: bool = True):
        super().__init__(data, requires_grad=requires_grad)


class Module:
    """Base of everything that has parameters; the names are PyTorch's.

    A subclass assigns parameters, modules and lists of modules as attributes and defines
    ``forward``; calling the module calls ``forward``.
    """

    training: bool = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define forward().")

    # --- walking the tree -------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Direct submodules; those in a list are named ``list.0``, ``list.1``, ..."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple):
                for i, item in enumerate(value):
                    if isinstance(item, Module):
                        yield f"{name}.{i}", item

    def named_modules(
        self, prefix: str = "", seen: set[int] | None = None
    ) -> Iterator[tuple[str, Module]]:
        """This module (under ``prefix``) and all below it, depth first, each once."""
        seen = set() if seen is None else seen
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name, seen)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter once, under the first name that reaches it."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def parameters(self) -> list[Parameter]:
        """Every parameter once, frozen ones included."""
        return [parameter for _, parameter in self.named_parameters()]

    def num_parameters(self) -> int:
        """How many numbers the parameters hold; tied weights count once."""
        return sum(parameter.size for parameter in self.parameters())

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call ``function`` on this module and all below it; returns self."""
        for module in list(self.modules()):
            function(module)
        return self

    # --- mode and gradients -----------------------------------------------------------------

    def train(self, mode: bool = True) -> Module:
        """Switch dropout on (or off) in this module and all below it; returns self."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """``train(False)``."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget all gradients (they become None, as in PyTorch)."""
        for parameter in self.parameters():
            parameter.grad = None

    def requires_grad_(self, flag: bool = True) -> Module:
        """Freeze (False) or release (True) every parameter below this module; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad = flag
        return self

    # --- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of every parameter by name; unlike PyTorch's, it does not follow training."""
        return {name: parameter.data.copy() for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, np.ndarray], strict: bool = True) -> None:
        """Copy values into the parameters, in place. Nothing is changed if anything does not fit.

        Raises
        ------
        MinitxError
            With ``strict``, if a parameter is missing or a name is unknown; always, if a shape
            differs.
        """
        own = dict(self.named_parameters())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        if strict and unexpected:
            raise unknown("parameter", unexpected[0], own)
        if strict and missing:
            raise MinitxError(
                f"The state lacks {len(missing)} of {len(own)} parameters, the first is "
                f"{missing[0]!r}; pass strict=False to keep their present values."
            )
        shared = {name: np.asarray(state[name]) for name in own if name in state}
        for name, value in shared.items():
            if value.shape != own[name].shape:
                raise ShapeError(
                    f"Parameter {name!r} has shape {own[name].shape}, the state holds "
                    f"{value.shape}."
                )
        for name, value in shared.items():
            own[name].data[...] = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_parameters():,} parameters)"


@contextmanager
def evaluating(module: Module) -> Iterator[Module]:
    """The module without dropout; each part's own mode comes back, also after an exception."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield module
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def _replaced(module: Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Put tensors in the place of parameters, by name, for the length of a ``with`` block."""
    own = dict(module.named_parameters())
    for name in values:
        if name not in own:
            raise unknown("parameter", name, own)
    stands_in = {id(own[name]): value for name, value in values.items()}
    changed: list[tuple[Module, str, Parameter]] = []
    try:
        for owner in list(module.modules()):  # tied weights: every place that holds the parameter
            for attribute, value in list(vars(owner).items()):
                if isinstance(value, Parameter) and id(value) in stands_in:
                    changed.append((owner, attribute, value))
                    vars(owner)[attribute] = stands_in[id(value)]
        yield
    finally:
        for owner, attribute, value in changed:
            vars(owner)[attribute] = value


def functional_call(module: Module, values: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    """``module(*args, **kwargs)`` with the named parameters replaced by other tensors.

    What ``torch.func.functional_call`` does: the module as a function of its parameters, so that
    gradients flow into ``values``. Parameters that are not named keep their own value.

    Raises
    ------
    MinitxError
        If a name is not a parameter of the module.
    """
    with _replaced(module, values):
        return module(*args, **kwargs)
