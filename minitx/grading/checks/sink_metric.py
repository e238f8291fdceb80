"""Check of `sink_metric`: how much attention do keys receive, and how often is the first a sink?"""

from __future__ import annotations

import numpy as np

from minitx.grading import references
from minitx.grading.exercise import Exercise, Function, Mistake, Part

# With these no drawn head receives exactly epsilon: rounding must not decide.
EPSILONS = (0.31, 0.62)


def _patterns(batch=(1, 1), heads=(1, 1), length=(1, 4), signed=False, dtype=float):
    def strategy():
        from minitx.grading import draw

        @draw.composite
        def arguments(pick):
            shape = pick(draw.sizes(*batch)), pick(draw.sizes(*heads))
            t = pick(draw.sizes(*length))
            if signed:
                pattern = draw.array(pick, *shape, t, t, low=-3, high=3) * np.tri(t)
            else:
                pattern = draw.causal_patterns(pick, *shape, length=t)
            return (pattern.astype(dtype),)

        return arguments()

    return strategy


def _with_epsilon(epsilons, **settings):
    def strategy():
        from minitx.grading import draw

        return _patterns(**settings)().flatmap(
            lambda drawn: draw.sampled_from(epsilons).map(lambda epsilon: (*drawn, epsilon))
        )

    return strategy


def _ties():
    """One head whose first key receives exactly epsilon, or a quarter more or less."""
    from minitx.grading import draw

    def pattern(alpha):
        return np.array([[[[1.0, 0.0], [2 * alpha - 1.0, 2.0 - 2 * alpha]]]])

    return draw.sampled_from([0.5, 0.75]).flatmap(
        lambda epsilon: draw.sampled_from([0.5, 0.75, 1.0]).map(lambda a: (pattern(a), epsilon))
    )


def _shares(pattern):
    size = np.abs(pattern)
    total = size.sum(-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def _counts(pattern):
    return np.arange(pattern.shape[-1], 0, -1)


def _alpha(pattern):
    return _shares(pattern).sum(-2) / _counts(pattern)


EXERCISE = Exercise(
    name="sink_metric",
    title="How much of a sink is the first token?",
    level=5,
    functions=(
        Function(
            references.attention_received,
            mistakes=(
                Mistake(
                    "every key is divided by T, but key k can only be seen by the T - k "
                    "queries from "
                    "k on (k counts from 0): rows before k cannot look at it.",
                    lambda p: _shares(p).mean(-2),
                ),
                Mistake(
                    "off by one in the number of queries: key k (from 0) is seen by T - k of them, "
                    "itself included.",
                    lambda p: _shares(p).sum(-2) / (_counts(p) + 1),
                ),
                Mistake(
                    "off by one in the number of queries: key k (from 0) is seen by T - k of them, "
                    "itself included.",
                    lambda p: _shares(p).sum(-2) / np.maximum(_counts(p) - 1, 1),
                ),
                Mistake(
                    "the sum runs over keys (the last axis); what a key receives is summed over "
                    "queries: axis=-2.",
                    lambda p: _shares(p).sum(-1) / _counts(p),
                ),
                Mistake(
                    "the sum runs over keys (the last axis); what a key receives is summed over "
                    "queries: axis=-2.",
                    lambda p: _shares(p).mean(-1),
                ),
                Mistake(
                    "what each key receives is summed but not divided by the number of "
                    "queries that "
                    "can see it.",
                    lambda p: _shares(p).sum(-2),
                ),
                Mistake(
                    "weights are taken as they come; with signs or without normalisation first "
                    "take |a| / sum |a| in each row.",
                    lambda p: p.sum(-2) / _counts(p),
                ),
                Mistake(
                    "the absolute value is taken, but rows are not divided by their sum of |a|.",
                    lambda p: np.abs(p).sum(-2) / _counts(p),
                ),
                Mistake(
                    "rows are divided by their signed sum; use the sum of |a|.",
                    lambda p: (np.abs(p) / p.sum(-1, keepdims=True)).sum(-2) / _counts(p),
                ),
                Mistake(
                    "a row whose weights are all 0 gives 0 / 0 = NaN; it gives nothing to any key.",
                    lambda p: (np.abs(p) / np.abs(p).sum(-1, keepdims=True)).sum(-2) / _counts(p),
                ),
            ),
        ),
        Function(
            references.sink_metric,
            mistakes=(
                Mistake(
                    "a head that receives exactly epsilon is counted; the definition is strict: >.",
                    lambda p, epsilon: (_alpha(p)[..., 0] >= epsilon).mean(),
                ),
                Mistake(
                    "attention is averaged over samples and heads first, and compared with epsilon "
                    "afterwards. Compare each sample's each head with epsilon, then average: the "
                    "indicator comes before the mean.",
                    lambda p, epsilon: float(_alpha(p)[..., 0].mean() > epsilon),
                ),
                Mistake(
                    "attention is averaged over samples before it is compared with epsilon; the "
                    "indicator comes before the mean.",
                    lambda p, epsilon: (_alpha(p)[..., 0].mean(0) > epsilon).mean(),
                ),
                Mistake(
                    "this is the mean attention on the first token, not the share of "
                    "heads in which "
                    "it exceeds epsilon.",
                    lambda p, epsilon: _alpha(p)[..., 0].mean(),
                ),
                Mistake(
                    "all keys are counted; the sink metric looks at the first token only (k = 0).",
                    lambda p, epsilon: (_alpha(p) > epsilon).mean(),
                ),
                Mistake(
                    "one head over epsilon is enough for your answer to be 1; it is the share of "
                    "heads and samples.",
                    lambda p, epsilon: float((_alpha(p)[..., 0] > epsilon).any()),
                ),
                Mistake(
                    "each single weight is compared with epsilon; compare each head's "
                    "mean over the "
                    "queries.",
                    lambda p, epsilon: (_shares(p)[..., 0] > epsilon).mean(),
                ),
                Mistake(
                    "heads are counted, not averaged: divide by their number.",
                    lambda p, epsilon: float((_alpha(p)[..., 0] > epsilon).sum()),
                ),
            ),
        ),
    ),
    parts=(
        Part(
            "the first key",
            2,
            "the first key's mean over the queries",
            _patterns(length=(1, 4)),
            view=lambda received: received[..., 0],
            view_name="key 0",
            hint="key 0 is seen by all T queries: the mean of column 0.",
        ),
        Part(
            "later keys",
            2,
            "a key is divided by the number of queries that can see it",
            _patterns(length=(2, 4)),
            hint="alpha_k = sum over queries i >= k of A[i, k], divided by T - k.",
        ),
        Part(
            "signed weights",
            1,
            "signed or unnormalised weights become shares first, and empty rows count as zero",
            _patterns(length=(1, 3), signed=True),
            hint="first |a| / sum |a| in each row (0 where a row is all 0), then as before.",
        ),
        Part(
            "one head",
            1,
            "one head is a sink, or not",
            _with_epsilon(EPSILONS, length=(1, 4)),
            function="sink_metric",
            hint="1.0 if attention_received(pattern)[..., 0] is over epsilon, else 0.0.",
        ),
        Part(
            "exactly epsilon",
            1,
            "a head that receives exactly epsilon is no sink",
            _ties,
            function="sink_metric",
            hint="the comparison is strict: alpha > epsilon.",
        ),
        Part(
            "many heads",
            2,
            "each head of each sample is compared with epsilon, then averaged",
            _with_epsilon(EPSILONS, batch=(1, 3), heads=(1, 3), length=(2, 3)),
            function="sink_metric",
            examples=80,
            hint="the indicator 1[alpha > epsilon] comes before the mean over samples and heads.",
        ),
        Part(
            "good manners",
            1,
            "the pattern is left as it was",
            _patterns(length=(1, 3), signed=True),
            leaves_inputs=True,
            hint="first the numbers must be right: see the other parts.",
        ),
    ),
)
