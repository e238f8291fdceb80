"""Check of `softmax_backward`: the gradient through a softmax over the last axis."""

from __future__ import annotations

import numpy as np

from minitx.grading import references
from minitx.grading.exercise import Exercise, Function, Mistake, Part


def _inputs(leading: tuple[int, int] = (0, 0), masked: bool = False, dtype=float):
    def strategy():
        from minitx.grading import draw

        @draw.composite
        def arguments(pick):
            shape = [pick(draw.sizes(1, 3)) for _ in range(pick(draw.sizes(*leading)))]
            shape.append(pick(draw.sizes(2, 4)))
            if masked:  # some entries are exactly 0, some rows are all zero
                y = draw.probabilities(pick, *shape)
                y[draw.array(pick, *shape[:-1], low=0, high=1, step=1.0).astype(bool)] = 0.0
            else:
                weights = np.exp2(draw.array(pick, *shape, low=0, high=3, step=1.0))
                y = weights / weights.sum(-1, keepdims=True)
            return draw.array(pick, *shape, dtype=dtype), y.astype(dtype)

        return arguments()

    return strategy


EXERCISE = Exercise(
    name="softmax_backward",
    title="The gradient of softmax",
    level=2,
    functions=(
        Function(
            references.softmax_backward,
            mistakes=(
                Mistake(
                    "you take the mean of g * y where the formula has the sum.",
                    lambda g, y: y * (g - (g * y).mean(-1, keepdims=True)),
                ),
                Mistake(
                    "you subtract the plain sum (or mean) of g; it has to be weighted by y: "
                    "sum(g * y).",
                    lambda g, y: y * (g - g.sum(-1, keepdims=True)),
                ),
                Mistake(
                    "you subtract the plain sum (or mean) of g; it has to be weighted by y: "
                    "sum(g * y).",
                    lambda g, y: y * (g - g.mean(-1, keepdims=True)),
                ),
                Mistake(
                    "the term that couples the entries is missing: raising one score lowers all "
                    "the other weights of its row, so g * y alone is not enough.",
                    lambda g, y: g * y,
                ),
                Mistake(
                    "y * (1 - y) is only the diagonal of the Jacobian (right for a sigmoid). The "
                    "entries of a row depend on each other: the off-diagonal -y_i y_j is missing.",
                    lambda g, y: g * y * (1 - y),
                ),
                Mistake(
                    "the sum runs over the first axis; softmax was taken over the last "
                    "one: axis=-1.",
                    lambda g, y: y * (g - (g * y).sum(0, keepdims=True)),
                ),
                Mistake(
                    "the sum runs over the whole array; each row has its own: axis=-1, "
                    "keepdims=True.",
                    lambda g, y: y * (g - (g * y).sum()),
                ),
                Mistake(
                    "the sum has lost its axis and lines up with columns, not rows: keepdims=True. "
                    "It only works by luck on square arrays.",
                    lambda g, y: y * (g - (g * y).sum(-1)),
                ),
                Mistake(
                    "the sign is wrong: it is g minus the sum.",
                    lambda g, y: y * ((g * y).sum(-1, keepdims=True) - g),
                ),
                Mistake(
                    "the sign is wrong: it is g minus the sum, not plus.",
                    lambda g, y: y * (g + (g * y).sum(-1, keepdims=True)),
                ),
                Mistake(
                    "the outer factor y is missing.",
                    lambda g, y: g - (g * y).sum(-1, keepdims=True),
                ),
                Mistake(
                    "y is already the softmax's output; you apply softmax to it once more.",
                    lambda g, y: _through_softmax_of(g, y),
                ),
                Mistake(
                    "this is the gradient of log_softmax: g minus y * sum(g).",
                    lambda g, y: g - y * g.sum(-1, keepdims=True),
                ),
            ),
        ),
    ),
    parts=(
        Part(
            "one row",
            4,
            "the gradient of a single row is right",
            _inputs(),
            hint="gx_i = y_i (g_i - sum_j g_j y_j).",
        ),
        Part(
            "many rows",
            3,
            "each row has its own sum, whatever axes come before",
            _inputs(leading=(1, 2)),
            hint="everything happens along the last axis; keep it when you sum (keepdims=True).",
        ),
        Part(
            "masked rows",
            2,
            "weights that are exactly zero get gradient zero, never NaN",
            _inputs(leading=(0, 1), masked=True),
            hint="y can be exactly 0 (a masked key): do not divide by it or take its logarithm.",
        ),
        Part(
            "good manners",
            1,
            "the inputs are left as they were, and float32 stays float32",
            _inputs(leading=(1, 1), dtype=np.float32),
            leaves_inputs=True,
            hint="first the numbers must be right: see the other parts.",
            keeps_dtype=True,
        ),
    ),
)


def _through_softmax_of(g, y):
    y = np.exp(y) / np.exp(y).sum(-1, keepdims=True)
    return y * (g - (g * y).sum(-1, keepdims=True))
