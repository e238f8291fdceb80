"""The diagonal of the Fisher information: how much each weight matters for what is known.

``F = E_x E_{y ~ p(y|x)} [(d log p(y|x) / d theta)²]``. Much code computes something else under this
name (the square of a batch's mean gradient, or the true label in place of the model's own
distribution); the traces differ by factors of a hundred and more, and so does the best strength of a
penalty (van de Ven, 2025). The square comes before the mean here, always.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minitx.autograd import enable_grad, no_grad, ops
from minitx.autograd.coarse import check_ids
from minitx.errors import MinitxError, choose
from minitx.nn.module import Module, evaluating
from minitx.tasks.base import IGNORE, Batch

KINDS = ("exact", "sampled", "empirical")


def fisher_diagonal(
    model: Module, batch: Batch, kind: str = "exact", rng: np.random.Generator | None = None
) -> dict[str, np.ndarray]:
    """The Fisher information's diagonal over the supervised positions of a batch.

    Parameters
    ----------
    model : Module
        Not changed; gradients that it holds are dropped. It runs without dropout.
    batch : Batch
        Every position with a target counts as one example x.
    kind : {"exact", "sampled", "empirical"}
        Sum over all labels, weighted by the model's p(y|x) (Kirkpatrick et al., 2017, as written);
        one label drawn from it; or the true label only, which is not the Fisher information.
    rng : numpy.random.Generator, optional
        Needed for "sampled".

    Returns
    -------
    dict of parameter name -> float64 array of its shape, all >= 0

    Raises
    ------
    MinitxError
        For an unknown kind, a missing generator, a batch without targets, or a target that is none
        of the model's outputs.
    """
    choose(dict.fromkeys(KINDS), kind, "Fisher kind")
    if kind == "sampled" and rng is None:
        raise MinitxError("A sampled Fisher needs a generator: rng=np.random.default_rng(seed).")
    total = {name: np.zeros(p.shape) for name, p in model.named_parameters()}
    examples = 0
    with evaluating(model):
        for row, at in np.argwhere(batch.targets != IGNORE):
            one = _row(batch, row)
            p = _probabilities(model, one, at)
            check_ids(batch.targets[row, at], len(p), "Target", "the model's output")
            for label, weight in _labels(kind, p, int(batch.targets[row, at]), rng):
                for name, g in _score(model, one, at, label):
                    total[name] += weight * np.square(g, dtype=np.float64)
            examples += 1
    if not examples:
        raise MinitxError("The batch has no targets, so there is no Fisher information to compute.")
    return {name: value / examples for name, value in total.items()}


def _labels(kind, p, true, rng) -> list[tuple[int, float]]:
    """Which labels to differentiate, and how much each counts."""
    if kind == "exact":
        return [(label, float(share)) for label, share in enumerate(p)]
    return [(true if kind == "empirical" else int(rng.choice(len(p), p=p)), 1.0)]


def _score(model: Module, one: Batch, at: int, label: int) -> Iterator[tuple[str, np.ndarray]]:
    """The gradient of ``log p(label | x)`` by every parameter that it depends on."""
    model.zero_grad()
    with enable_grad():  # also where the caller has switched gradients off
        logits = model(one.tokens, **one.model_kwargs())
        ops.log_softmax(logits[:, at])[0, label].backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            yield name, p.grad
    model.zero_grad()


def _probabilities(model: Module, one: Batch, at: int) -> np.ndarray:
    with no_grad():
        logits = model(one.tokens, **one.model_kwargs())[:, at].numpy()[0].astype(np.float64)
    p = np.exp(logits - logits.max())
    return p / p.sum()


def _row(batch: Batch, row: int) -> Batch:
    """One sequence of a batch, as a batch."""

    def pick(array, per_row):
        return array if array is None or array.ndim < per_row else array[row : row + 1]

    return Batch(
        batch.tokens[row : row + 1],
        batch.targets[row : row + 1],
        pick(batch.mask, 3),
        pick(batch.positions, 2),
        pick(batch.segments, 2),
    )
