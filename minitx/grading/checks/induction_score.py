"""Check of `induction_score`: does a head look at what followed the last time?"""

from __future__ import annotations

import numpy as np

from minitx.grading import references
from minitx.grading.exercise import Exercise, Function, Mistake, Part


def _inputs(kind="any", heads=(1, 1)):
    """Patterns with tokens: ``repeated`` is one sequence twice; ``distinct`` has no repeats."""

    def strategy():
        from minitx.grading import draw

        @draw.composite
        def arguments(pick):
            if kind == "repeated":
                half = pick(draw.sizes(1, 3))
                tokens = np.tile(np.arange(half), 2)
            elif kind == "distinct":
                tokens = np.arange(pick(draw.sizes(1, 4)))
            else:
                t = pick(draw.sizes(3, 6))
                names = draw.integers(0, 1 if kind == "several" else 2)
                tokens = np.array(pick(draw.lists(names, min_size=t, max_size=t)))
                if kind == "one earlier":
                    tokens = _at_most_twice(tokens)
                elif len(set(tokens.tolist())) == len(tokens):
                    tokens[-1] = tokens[0]
            h = pick(draw.sizes(*heads))
            return draw.causal_patterns(pick, h, length=len(tokens)), tokens

        return arguments()

    return strategy


def _perfect():
    """One head that puts all attention where induction says, on the latest occurrence."""
    from minitx.grading import draw

    def build(tokens):
        pattern = np.zeros((1, len(tokens), len(tokens)))
        for t in range(len(tokens)):
            earlier = [s + 1 for s in range(t) if tokens[s] == tokens[t]]
            pattern[0, t, earlier[-1] if earlier else 0] = 1.0
        return pattern, np.array(tokens)

    names = draw.lists(draw.integers(0, 2), min_size=4, max_size=6)
    return names.map(build)


def _at_most_twice(tokens):
    seen: dict[int, int] = {}
    fresh = 10
    for i, token in enumerate(tokens.tolist()):
        seen[token] = seen.get(token, 0) + 1
        if seen[token] > 2 or (i and token == tokens[i - 1]):
            tokens[i], fresh = fresh, fresh + 1
    if len(set(tokens.tolist())) == len(tokens):
        tokens[-1] = tokens[0]
    return tokens


def _targets(tokens, shift=1, future=False):
    """``[T, T]``: key s is wanted by query t if the token ``shift`` before it is the query's."""
    length = len(tokens)
    wanted = np.zeros((length, length), dtype=bool)
    for t in range(length):
        for s in range(length):
            if 0 <= s - shift < length and s - shift != t and tokens[s - shift] == tokens[t]:
                wanted[t, s] = future or (s <= t and s - shift < t)
    return wanted


def _score(wanted, pattern, rows=None, mass=None):
    rows = wanted.any(-1) if rows is None else rows
    mass = (pattern * wanted).sum(-1) if mass is None else mass
    if not rows.any():
        return np.full(pattern.shape[0], np.nan)
    return mass[:, rows].mean(-1)


def _only(which):
    def wrong(pattern, tokens):
        wanted = _targets(tokens)
        one = np.zeros_like(wanted)
        for t, row in enumerate(wanted):
            if row.any():
                one[t, np.flatnonzero(row)[which]] = True
        return _score(one, pattern)

    return wrong


def _mean_over_targets(pattern, tokens):
    wanted = _targets(tokens)
    mass = (pattern * wanted).sum(-1) / np.maximum(wanted.sum(-1), 1)
    return _score(wanted, pattern, mass=mass)


def _transposed(pattern, tokens):
    return _right(pattern.swapaxes(-1, -2), tokens)


def _right(pattern, tokens):
    return _score(_targets(tokens), pattern)


def _zero_if_none(pattern, tokens):
    return np.nan_to_num(_right(pattern, tokens))


def _half_offset(pattern, tokens):
    length = len(tokens)
    half = length // 2
    rows = np.arange(half, length)
    return pattern[:, rows, rows - half + 1].mean(-1)


def _argmax(pattern, tokens):
    wanted = _targets(tokens)
    hit = np.take_along_axis(
        np.broadcast_to(wanted, pattern.shape), pattern.argmax(-1)[..., None], -1
    )[..., 0]
    return _score(wanted, pattern, mass=hit.astype(float))


def _all_rows(pattern, tokens):
    return _score(_targets(tokens), pattern, rows=np.ones(len(tokens), bool))


def _pooled(pattern, tokens):
    return np.full(pattern.shape[0], _right(pattern, tokens).mean())


EXERCISE = Exercise(
    name="induction_score",
    title="Does a head look at what followed the last time?",
    level=6,
    functions=(
        Function(
            references.induction_score,
            mistakes=(
                Mistake(
                    "where no token repeats there is nothing to score: the answer is nan, not 0.",
                    _zero_if_none,
                ),
                Mistake(
                    "off by one: you add up attention on the earlier occurrence itself. "
                    "An induction "
                    "head looks at the token after it.",
                    lambda p, tokens: _score(_targets(tokens, shift=0), p),
                ),
                Mistake(
                    "off by one: you add up attention on the earlier occurrence itself. "
                    "An induction "
                    "head looks at the token after it.",
                    lambda p, tokens: _score(
                        _targets(tokens), p, mass=(p * _targets(tokens, 0)).sum(-1)
                    ),
                ),
                Mistake(
                    "off by one in the other direction: you look at the token before the earlier "
                    "occurrence; it is the one after it.",
                    lambda p, tokens: _score(
                        _targets(tokens), p, mass=(p * _targets(tokens, -1)).sum(-1)
                    ),
                ),
                Mistake(
                    "the mean runs over all queries. Where the token has not occurred before, "
                    "induction is impossible: leave those rows out, or a perfect head "
                    "scores below 1.",
                    _all_rows,
                ),
                Mistake(
                    "you take the mean over the wanted keys of a query; their attention "
                    "adds up: sum.",
                    _mean_over_targets,
                ),
                Mistake(
                    "only the latest earlier occurrence is counted; all of them are.", _only(-1)
                ),
                Mistake("only the first occurrence is counted; all of them are.", _only(0)),
                Mistake(
                    "the two axes are swapped: pattern[h, t, s] is how much query t "
                    "looks at key s.",
                    _transposed,
                ),
                Mistake(
                    "you assume that the second half repeats the first: offset T // 2 - 1. Tokens "
                    "can repeat anywhere: compare them.",
                    _half_offset,
                ),
                Mistake(
                    "you count how often the largest weight is on a wanted key; add up the weights "
                    "themselves.",
                    _argmax,
                ),
                Mistake("all heads are averaged together; each head has its own score.", _pooled),
                Mistake(
                    "rows are counted whose token occurs only later: s - 1 < t is needed.",
                    lambda p, tokens: _score(_targets(tokens, future=True), p),
                ),
            ),
        ),
    ),
    parts=(
        Part(
            "repeated sequence",
            2,
            "a sequence that comes twice is scored rightly",
            _inputs("repeated"),
            hint="query t wants the keys s <= t with tokens[s - 1] == tokens[t].",
        ),
        Part(
            "anywhere",
            2,
            "tokens may repeat anywhere, and rows without a repeat do not count",
            _inputs("one earlier"),
            hint="compare tokens[s - 1] with tokens[t]; average over the queries that want any.",
        ),
        Part(
            "several times",
            2,
            "attention on all that followed earlier occurrences adds up",
            _inputs("several"),
            hint="a query can want several keys, and key t itself if its token comes twice.",
        ),
        Part(
            "a perfect head",
            1,
            "a perfect head scores exactly 1",
            _perfect,
            hint="all attention of the counted rows is on wanted keys here.",
        ),
        Part(
            "many heads",
            1,
            "each head has its own score",
            _inputs("any", heads=(2, 3)),
            hint="pattern is [H, T, T]; the answer is an array [H].",
        ),
        Part(
            "no repeats",
            1,
            "where nothing repeats the score is nan",
            _inputs("distinct", heads=(1, 2)),
            hint="an array [H] of np.nan: no row can be scored.",
        ),
        Part(
            "good manners",
            1,
            "the pattern is left as it was",
            _inputs("any"),
            leaves_inputs=True,
            hint="first the numbers must be right: see the other parts.",
        ),
    ),
)
