"""Check of `unbroadcast`: sum a gradient down to the shape that broadcasting stretched."""

from __future__ import annotations

import numpy as np

from minitx.grading import references
from minitx.grading.exercise import Exercise, Function, Mistake, Part


def _inputs(leading: bool, stretched: bool, dtype=float):
    def strategy():
        from minitx.grading import draw

        @draw.composite
        def arguments(pick):
            ndim = pick(draw.sizes(1 if stretched else 0, 3))
            shape = [pick(draw.sizes(2, 3)) for _ in range(ndim)]
            full = list(shape)
            if stretched:
                ones = pick(draw.lists(draw.booleans(), min_size=ndim, max_size=ndim))
                if not any(ones):
                    ones[-1] = True
                shape = [1 if one else n for one, n in zip(ones, shape, strict=True)]
            if leading:
                full = [pick(draw.sizes(2, 3)) for _ in range(pick(draw.sizes(1, 2)))] + full
            return draw.array(pick, *full, dtype=dtype), tuple(shape)

        return arguments()

    return strategy


def _mean(grad, shape):
    added = grad.ndim - len(shape)
    axes = [i for i, n in enumerate(grad.shape) if i < added or shape[i - added] == 1 < n]
    return grad.mean(tuple(axes)).reshape(shape)


def _lost_axes(grad, shape):
    added = grad.ndim - len(shape)
    axes = [i for i, n in enumerate(grad.shape) if i < added or shape[i - added] == 1 < n]
    return grad.sum(tuple(axes))


def _leading_only(grad, shape):
    return grad.sum(tuple(range(grad.ndim - len(shape))))


def _stretched_only(grad, shape):
    axes = [i for i, n in enumerate(shape) if n == 1 < grad.shape[i]]
    return grad.sum(tuple(axes), keepdims=True)


def _one_stretched(grad, shape):
    grad = _leading_only(grad, shape)
    axes = [i for i, n in enumerate(shape) if n == 1]
    return grad.sum(axes[0], keepdims=True) if axes else grad


def _one_leading(grad, shape):
    if grad.ndim > len(shape):
        grad = grad.sum(0)
    return _stretched_only(grad, shape)


def _no_sum(grad, shape):
    added = grad.ndim - len(shape)
    grad = grad[(0,) * added]
    return grad[tuple(slice(0, 1) if n == 1 else slice(None) for n in shape)]


def _aligned_left(grad, shape):
    axes = [i for i in range(grad.ndim) if i >= len(shape) or shape[i] != grad.shape[i]]
    return grad.sum(tuple(axes)).reshape(shape)


def _shifting_axes(grad, shape):
    grad = _leading_only(grad, shape)
    for i, n in enumerate(shape):
        if n == 1:
            grad = grad.sum(i)  # the axes behind move up
    return grad.reshape(shape)


EXERCISE = Exercise(
    name="unbroadcast",
    title="Undo broadcasting in a gradient",
    level=1,
    functions=(
        Function(
            references.unbroadcast,
            mistakes=(
                Mistake(
                    "you take the mean over the stretched axes. Each copy of an entry has its own "
                    "gradient, and they add up: sum.",
                    _mean,
                ),
                Mistake(
                    "you keep one copy's gradient and drop the others'. Every copy that "
                    "broadcasting "
                    "made contributes: sum over them.",
                    _no_sum,
                ),
                Mistake(
                    "you sum the axes that broadcasting added in front, but not the axes of size 1 "
                    "that it stretched.",
                    _leading_only,
                ),
                Mistake(
                    "the axes of size 1 that were stretched are gone from the result: "
                    "sum them with "
                    "keepdims=True.",
                    _lost_axes,
                ),
                Mistake(
                    "you sum only one of the stretched axes; there can be several.", _one_stretched
                ),
                Mistake(
                    "you sum only one of the added axes; broadcasting can add several in front.",
                    _one_leading,
                ),
                Mistake(
                    "you do not sum the axes that broadcasting added in front.", _stretched_only
                ),
                Mistake(
                    "shapes are compared from the left, but broadcasting aligns them on the right: "
                    "the extra axes are the first ones.",
                    _aligned_left,
                ),
                Mistake(
                    "axes are summed one after another without keepdims, so the later "
                    "ones have moved "
                    "when their turn comes.",
                    _shifting_axes,
                ),
            ),
        ),
    ),
    parts=(
        Part(
            "same shape",
            1,
            "a gradient that was not broadcast comes back as it is",
            _inputs(leading=False, stretched=False),
            hint="nothing was stretched here, so nothing is to be summed.",
        ),
        Part(
            "added axes",
            3,
            "axes that broadcasting added in front are summed away",
            _inputs(leading=True, stretched=False),
            hint="the axes of grad that shape does not have are the first ones: sum over them.",
        ),
        Part(
            "stretched axes",
            3,
            "axes of size 1 that broadcasting stretched are summed and kept",
            _inputs(leading=False, stretched=True),
            hint="where shape has a 1 and grad has more, sum that axis and keep it.",
        ),
        Part(
            "both at once",
            2,
            "added and stretched axes together",
            _inputs(leading=True, stretched=True),
            hint="sum the added axes first; then what is left lines up with shape.",
        ),
        Part(
            "good manners",
            1,
            "the input is left as it was, and float32 stays float32",
            _inputs(leading=True, stretched=True, dtype=np.float32),
            leaves_inputs=True,
            hint="first the numbers must be right: see the other parts.",
            keeps_dtype=True,
        ),
    ),
)
