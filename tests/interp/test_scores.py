"""Head scores: literal definitions, heads built to score exactly 1, laws over random patterns."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError, ShapeError
from minitx.interp import scores


@st.composite
def patterns(draw, square=False):
    """A causal, row-stochastic pattern [B, H, T, S] with its tokens [B, S]; read-only."""
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    keys = draw(st.integers(2, 7))
    queries = keys if square else draw(st.integers(1, keys))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    allowed = np.tril(np.ones((keys, keys)))[keys - queries :]
    p = rng.exponential(size=(batch, heads, queries, keys)) * allowed
    p /= p.sum(-1, keepdims=True)
    p = p.astype(draw(st.sampled_from(["float32", "float64"])))
    tokens = rng.integers(0, draw(st.integers(1, 4)), size=(batch, keys))
    p.setflags(write=False)
    tokens.setflags(write=False)
    return p, tokens


def literal(p, wanted):
    """Mean over batch and rows of the weight on the keys that ``wanted(b, t, s)`` says, or nan."""
    batch, heads, queries, keys = p.shape
    result = []
    for h in range(heads):
        rows = []
        for b in range(batch):
            for i in range(queries):
                t = i + keys - queries  # the query's position among the keys
                targets = [s for s in range(keys) if wanted(b, t, s)]
                if targets:
                    rows.append(sum(float(p[b, h, i, s]) for s in targets))
        result.append(sum(rows) / len(rows) if rows else math.nan)
    return np.array(result)


@given(patterns())
def test_pattern_scores_are_their_literal_definitions(drawn):
    p, tok = drawn
    cases = {
        "previous": (scores.previous_token_score(p), lambda b, t, s: s == t - 1),
        "itself": (scores.offset_score(p, 0), lambda b, t, s: s == t),
        "first": (scores.first_token_share(p), lambda b, t, s: s == 0 and t > 0),
        "induction": (
            scores.induction_score(p, tok),
            lambda b, t, s: 1 <= s <= t and tok[b, s - 1] == tok[b, t],
        ),
        "duplicate": (
            scores.duplicate_token_score(p, tok),
            lambda b, t, s: s < t and tok[b, s] == tok[b, t],
        ),
    }
    for name, (got, wanted) in cases.items():
        np.testing.assert_allclose(got, literal(p, wanted), rtol=1e-6, err_msg=name)


@given(patterns(), st.floats(0, 1))
def test_sink_rate_is_the_published_formula(drawn, threshold):
    p, _ = drawn
    batch, heads, queries, keys = p.shape
    for k in range(keys):
        rows = [i for i in range(queries) if i + keys - queries >= k]
        for h in range(heads):
            hits = [np.mean(p[b, h, rows, k], dtype=float) > threshold for b in range(batch)]
            assert scores.sink_rate(p, threshold, position=k)[h] == np.mean(hits)


def test_sink_rate_takes_the_indicator_before_the_mean():
    # Two samples: one sinks (α = 1), one does not. Averaging first would give 1[0.5 + … > .3] = 1.
    sinks, idle = np.zeros((4, 4)), np.eye(4)
    sinks[:, 0] = 1
    pattern = np.stack([sinks, idle])[:, None]
    assert scores.sink_rate(pattern)[0] == 0.5


@given(patterns())
def test_entropy_is_its_literal_definition_and_bounded(drawn):
    p, _ = drawn
    batch, heads, queries, keys = p.shape
    for h in range(heads):
        rows = [
            -sum(x * math.log(x) for x in p[b, h, i].tolist() if x > 0)
            for b in range(batch)
            for i in range(queries)
            if i + keys - queries > 0
        ]
        assert scores.entropy(p)[h] == pytest.approx(np.mean(rows), rel=1e-6, abs=1e-7)
    assert (scores.entropy(p) <= math.log(keys) + 1e-6).all()


@given(patterns(), st.integers(0, 99))
def test_rows_select_queries(drawn, seed):
    p, _tok = drawn
    rows = np.random.default_rng(seed).random((len(p), p.shape[2])) < 0.5
    first = p.shape[-1] - p.shape[-2]
    expected = literal(p, lambda b, t, s: rows[b, t - first] and s == t - 1)
    np.testing.assert_allclose(scores.previous_token_score(p, rows), expected, rtol=1e-6)


@given(patterns(square=True))
def test_a_sample_or_a_head_alone_scores_as_it_does_in_the_batch(drawn):
    p, _tok = drawn
    for f in (
        scores.previous_token_score,
        scores.first_token_share,
        scores.entropy,
        scores.sink_rate,
        scores.pattern_effective_rank,
    ):
        together = f(p)
        alone = np.mean([f(sample) for sample in p], axis=0)
        np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-12, err_msg=f.__name__)
        assert isinstance(f(p[0, 0]), float)
        assert f(p[0, 0]) == pytest.approx(f(p[:1])[0])


@given(st.integers(2, 9), st.integers(0, 2**31))
def test_perfect_heads_score_exactly_one(length, seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3, size=(2, length))
    previous = np.eye(length, k=-1)[None, None].repeat(2, 0)
    assert scores.previous_token_score(previous)[0] == 1.0
    sink = np.zeros((2, 1, length, length))
    sink[..., 0] = 1
    assert scores.first_token_share(sink)[0] == scores.sink_rate(sink)[0] == 1.0
    assert scores.entropy(sink)[0] == 0.0
    assert scores.pattern_effective_rank(sink)[0] == pytest.approx(1.0, abs=1e-7)
    identity = np.eye(length)[None, None]
    assert scores.pattern_effective_rank(identity)[0] == pytest.approx(length)
    # Induction: all weight on one of the right keys, chosen at random; the rest park on key 0.
    targets = scores.induction_targets(tokens)
    pattern = np.zeros((2, 1, length, length))
    for b, t in np.ndindex(2, length):
        keys = np.flatnonzero(targets[b, t])
        pattern[b, 0, t, rng.choice(keys) if len(keys) else 0] = 1
    score = scores.induction_score(pattern, tokens)[0]
    assert score == 1.0 if targets.any() else math.isnan(score)


def test_no_possible_row_is_nan_not_zero():
    pattern = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    assert math.isnan(scores.induction_score(pattern, np.arange(4)))
    assert math.isnan(
        scores.previous_token_score(pattern, rows=np.array([True, False] * 2) & False)
    )


def test_retrieval_score_is_a_set():
    # Needle: tokens 7 7 8 at keys 1, 2, 3. The head copies the 7 twice: half of {7, 8}, not 2/3.
    tokens = np.array([5, 7, 7, 8, 6])
    needle = np.array([0, 1, 1, 1, 0], dtype=bool)
    outputs = np.array([0, 0, 0, 7, 7])
    pattern = np.zeros((5, 5))
    pattern[[3, 4], [1, 2]] = 1
    pattern[:3, 0] = 1
    assert scores.retrieval_score(pattern, tokens, outputs, needle) == 0.5
    # Looking at the needle while writing something else is no retrieval, nor is copying elsewhere.
    assert scores.retrieval_score(pattern, tokens, outputs * 0, needle) == 0.0
    assert scores.retrieval_score(pattern, tokens, outputs, ~needle) == 0.0
    rows = np.array([1, 1, 1, 0, 0], dtype=bool)
    assert scores.retrieval_score(pattern, tokens, outputs, needle, rows) == 0.0
    both = np.zeros((5, 5))
    both[[3, 4], [1, 3]] = 1
    assert scores.retrieval_score(both, tokens, np.array([0, 0, 0, 7, 8]), needle) == 1.0
    assert math.isnan(scores.retrieval_score(both, tokens, outputs, needle & False))


@given(patterns(), st.integers(0, 99))
def test_retrieval_score_is_its_literal_definition(drawn, seed):
    p, tok = drawn
    batch, heads, queries, keys = p.shape
    rng = np.random.default_rng(seed)
    out = rng.integers(0, 3, size=(batch, queries))
    needle = rng.random((batch, keys)) < 0.5
    expected = []
    for h in range(heads):
        values = []
        for b in range(batch):
            k = {int(tok[b, s]) for s in range(keys) if needle[b, s]}
            g = set()
            for t in range(queries):
                j = int(np.argmax(p[b, h, t]))
                if needle[b, j] and tok[b, j] == out[b, t]:
                    g.add(int(out[b, t]))
            if k:
                values.append(len(g & k) / len(k))
        expected.append(np.mean(values) if values else math.nan)
    np.testing.assert_allclose(scores.retrieval_score(p, tok, out, needle), expected)


def test_sink_rate_must_exceed_its_threshold():
    pattern = np.array([[1.0, 0.0], [0.0, 1.0]])  # the first key's mean weight is exactly 0.5
    assert scores.sink_rate(pattern, threshold=0.5) == 0.0
    assert scores.sink_rate(pattern, threshold=0.499) == 1.0


def test_value_drain(rng):
    values = rng.normal(size=(3, 5, 2, 4))
    values.setflags(write=False)
    norms = np.linalg.norm(values, axis=-1)
    expected = norms[:, 2].mean(0) / np.delete(norms, 2, axis=1).mean((0, 1))
    np.testing.assert_allclose(scores.value_drain(values, position=2), expected)
    scaled = values.copy()
    scaled[:, 2] *= 0.01
    np.testing.assert_allclose(scores.value_drain(scaled, position=2), expected / 100)
    assert np.isnan(scores.value_drain(np.zeros((1, 3, 1, 2)))).all()


@given(patterns(), st.integers(0, 99))
def test_absolute_shares_sum_to_one_and_keep_shares(drawn, seed):
    p, _ = drawn
    sign = np.random.default_rng(seed).choice([-1.0, 1.0], size=p.shape)
    np.testing.assert_allclose(scores.absolute_shares(p), p, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(scores.absolute_shares(7 * sign * p), p, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(scores.absolute_shares(sign * p).sum(-1), 1, rtol=1e-12)


def test_signed_weights_need_a_declared_proxy():
    signed = np.array([[1.0, 0.0], [-3.0, 1.0]])
    for f in (scores.first_token_share, scores.sink_rate, scores.entropy):
        with pytest.raises(MinitxError, match="absolute_shares"):
            f(signed)
    assert scores.first_token_share(scores.absolute_shares(signed)) == 0.75
    np.testing.assert_array_equal(scores.absolute_shares(np.zeros((2, 2))), 0)
    assert signed[1, 0] == -3.0


@given(st.integers(1, 3), st.integers(3, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_copying_score_agrees_with_the_whole_circuit(heads, width, head_width, seed):
    rng = np.random.default_rng(seed)
    W_V = rng.normal(size=(heads, width, head_width))
    W_O = rng.normal(size=(heads, head_width, width))
    W_E, W_U = rng.normal(size=(9, width)), rng.normal(size=(width, 9))
    got = scores.copying_score(W_V, W_O, W_E, W_U)
    for h in range(heads):
        eigenvalues = np.linalg.eigvals(W_E @ W_V[h] @ W_O[h] @ W_U)
        expected = eigenvalues.sum().real / np.abs(eigenvalues).sum()
        assert got[h] == pytest.approx(expected, abs=1e-6)
    assert (np.abs(got) <= 1 + 1e-12).all()


def test_copying_score_of_built_heads():
    copy = np.eye(4)[:, :2]
    assert scores.copying_score(copy, copy.T) == 1.0
    assert scores.copying_score(copy, -copy.T, np.eye(4), np.eye(4)) == -1.0
    # A quarter turn has eigenvalues ±i: it moves the token elsewhere, neither copy nor its
    # opposite.
    assert scores.copying_score(copy, np.array([[0.0, 1, 0, 0], [-1, 0, 0, 0]])) == pytest.approx(0)
    assert scores.copying_score(copy * 0, copy.T) == 0.0


def test_mistakes_are_told():
    pattern = np.ones((2, 3, 4, 4)) / 4
    with pytest.raises(ShapeError, match=r"\(2, 5\)"):
        scores.induction_score(pattern, np.zeros((2, 5), dtype=int))
    with pytest.raises(ShapeError, match="queries"):
        scores.entropy(np.ones((5, 4)))
    with pytest.raises(MinitxError, match="bool"):
        scores.entropy(pattern, rows=np.array([0, 1, 1, 1]))
    with pytest.raises(ShapeError, match=r"\[B, T\]"):
        scores.entropy(pattern, rows=np.ones(3, dtype=bool))
    with pytest.raises(ShapeError, match="targets"):
        scores.attention_to(pattern, np.ones((4, 4)))
    with pytest.raises(ShapeError, match="W_O"):
        scores.copying_score(np.ones((4, 2)), np.ones((4, 2)))
    with pytest.raises(MinitxError, match="both"):
        scores.copying_score(np.ones((4, 2)), np.ones((2, 4)), W_E=np.ones((5, 4)))
