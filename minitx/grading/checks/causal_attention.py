"""Check of `causal_attention`: one head, a causal mask, padding."""

from __future__ import annotations

import numpy as np

from minitx.grading import references
from minitx.grading.exercise import Exercise, Function, Mistake, Part


def _inputs(length=(1, 4), equal=False, scale=1.0, padding=False, dtype=float):
    def strategy():
        from minitx.grading import draw

        @draw.composite
        def arguments(pick):
            t, k, v = pick(draw.sizes(*length)), pick(draw.sizes(1, 3)), pick(draw.sizes(1, 3))
            query, key = (draw.array(pick, t, k, low=-4, high=4) * scale for _ in range(2))
            if equal:
                query = np.zeros_like(query)
            value = draw.array(pick, t, v)
            keep = np.ones(t, dtype=bool)
            if padding:
                keep = np.array(pick(draw.lists(draw.booleans(), min_size=t, max_size=t)))
            return query.astype(dtype), key.astype(dtype), value.astype(dtype), keep

        return arguments()

    return strategy


def _variant(
    scale=lambda width: 1 / np.sqrt(width),
    mask="before",
    see=np.tri,
    stable=True,
    axis=-1,
    pad="right",
):
    """Attention with one thing done differently."""

    def attention(query, key, value, keep):
        length, width = query.shape
        allowed = see(length) > 0
        if pad != "ignored":
            allowed = allowed & keep[None, :]
        if pad == "queries":
            allowed = (see(length) > 0) & keep[:, None]
        scores = query @ key.T * scale(width)
        fill = {"before": -np.inf, "small": 1e-10, "zero": 0.0, "finite": -1e9}.get(mask)
        if fill is not None:
            scores = np.where(allowed, scores, fill)
        top = scores.max(axis, keepdims=True)
        if stable:
            scores = scores - np.where(np.isfinite(top), top, 0.0)
        e = np.exp(scores)
        total = e.sum(axis, keepdims=True)
        pattern = e / (total if pad == "nan" else np.where(total == 0, 1, total))
        if mask in ("after", "small after"):
            pattern = pattern * allowed
        return pattern @ value

    return attention


EXERCISE = Exercise(
    name="causal_attention",
    title="One attention head, causal, with padding",
    level=4,
    functions=(
        Function(
            references.causal_attention,
            mistakes=(
                Mistake(
                    "the mask comes after the softmax, so what the future took is lost and rows no "
                    "longer sum to one. Mask the scores, before the softmax.",
                    _variant(mask="after"),
                ),
                Mistake(
                    "the scores are not divided by sqrt(K).", _variant(scale=lambda width: 1.0)
                ),
                Mistake(
                    "the scores are divided by K; it is the square root of K.",
                    _variant(scale=lambda width: 1 / width),
                ),
                Mistake(
                    "the scores are multiplied by sqrt(K); divide.",
                    _variant(scale=lambda width: np.sqrt(width)),
                ),
                Mistake(
                    "the softmax runs over the queries (axis 0); each query spreads its attention "
                    "over the keys: axis=-1.",
                    _variant(axis=0),
                ),
                Mistake(
                    "a query does not see its own position: the diagonal belongs to the past. "
                    "np.tri(T, k=0), not k=-1.",
                    _variant(see=lambda n: np.tri(n, k=-1)),
                ),
                Mistake(
                    "the mask is transposed: queries see the future and not the past.",
                    _variant(see=lambda n: np.tri(n).T),
                ),
                Mistake(
                    "each query sees one position of the future: off by one in the mask.",
                    _variant(see=lambda n: np.tri(n, k=1)),
                ),
                Mistake(
                    "nothing is masked: queries see the future.",
                    _variant(see=lambda n: np.ones((n, n))),
                ),
                Mistake(
                    "masked scores become (almost) 0, not minus infinity; exp(0) is 1, "
                    "so the masked "
                    "keys still get attention. Was 1e-10 meant to be -1e10?",
                    _variant(mask="zero"),
                ),
                Mistake(
                    "a query that may see no key at all should get zeros; yours spreads its "
                    "attention over keys that it may not see (all scores equally at the "
                    "fill value).",
                    _variant(mask="finite"),
                ),
                Mistake(
                    "a query that may see no key at all gives 0 / 0 = NaN: where a row's "
                    "sum is zero "
                    "the result is zeros.",
                    _variant(pad="nan"),
                ),
                Mistake(
                    "keep is ignored: nobody may attend to a padding position.",
                    _variant(pad="ignored"),
                ),
                Mistake(
                    "keep masks queries (rows); it says which keys (columns) may be attended to.",
                    _variant(pad="queries"),
                ),
                Mistake(
                    "exp overflows for large scores: subtract each row's maximum first; "
                    "the softmax "
                    "stays the same.",
                    _variant(stable=False),
                ),
            ),
        ),
    ),
    parts=(
        Part(
            "length one",
            1,
            "with one token the output is its value",
            _inputs(length=(1, 1)),
            hint="a single key gets all the attention: the output is value itself.",
        ),
        Part(
            "query 0",
            2,
            "the first query sees the first key only (the mask)",
            _inputs(length=(2, 4)),
            view=lambda z: z[:1],
            view_name="row 0",
            hint="query 0 may look at key 0 alone, so its output is value[0].",
        ),
        Part(
            "equal scores",
            2,
            "with equal scores each query takes the mean of the values so far (the softmax)",
            _inputs(length=(2, 4), equal=True),
            hint="all scores are 0 here: row t is the mean of value[0..t].",
        ),
        Part(
            "scores",
            2,
            "scores are scaled and keys weighted rightly",
            _inputs(length=(2, 4)),
            examples=80,
            hint="softmax over the keys of query @ key.T / sqrt(K).",
        ),
        Part(
            "large scores",
            1,
            "large scores do not overflow",
            _inputs(length=(1, 3), scale=40.0),
            hint="exp overflows above about 709: subtract each row's maximum before exp.",
        ),
        Part(
            "padding",
            1,
            "nobody attends to padding, and a query with nothing to see gets zeros",
            _inputs(length=(1, 4), padding=True),
            hint="a key counts if it is not in the future and keep is True for it; where none "
            "counts the output is zeros.",
        ),
        Part(
            "good manners",
            1,
            "the inputs are left as they were, and float32 stays float32",
            _inputs(length=(1, 3), dtype=np.float32),
            leaves_inputs=True,
            hint="first the numbers must be right: see the other parts.",
            keeps_dtype=True,
        ),
    ),
)
