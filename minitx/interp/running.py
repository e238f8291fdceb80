"""Run a model for an analysis and leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minitx.autograd import no_grad
from minitx.nn.module import evaluating


@contextmanager
def quiet(model: Any) -> Iterator[Any]:
    """The model without dropout and without recording gradients."""
    with evaluating(model), no_grad():
        yield model


@contextmanager
def frozen(model: Any) -> Iterator[Any]:
    """The model without dropout, and no gradient reaching its parameters."""
    parameters = [(p, p.requires_grad) for p in model.parameters()]
    try:
        for p, _ in parameters:
            p.requires_grad = False
        with evaluating(model):
            yield model
    finally:
        for p, requires_grad in parameters:
            p.requires_grad = requires_grad
