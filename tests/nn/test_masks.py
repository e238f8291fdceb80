"""Masks against their definitions, written as loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError, ShapeError
from minitx.nn import MASKS, TransformerConfig, build_mask, positions_in_segments

DEFINITIONS = {
    "causal": lambda i, j, c: j <= i,
    "bidirectional": lambda i, j, c: True,
    "sliding_window": lambda i, j, c: i - c.window < j <= i,
    "window_sinks": lambda i, j, c: j <= i and (j < c.n_sinks or j > i - c.window),
    "prefix": lambda i, j, c: j <= i or (i < c.prefix_len and j < c.prefix_len),
}


def config(mask="causal", **kw):
    return TransformerConfig(vocab_size=3, max_len=99, mask=mask, **kw)


@given(
    st.sampled_from(sorted(DEFINITIONS)),
    st.integers(1, 9),
    st.integers(0, 6),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(0, 6),
)
def test_each_mask_is_its_definition(name, T, offset, window, n_sinks, prefix_len):
    c = config(name, window=window, n_sinks=n_sinks, prefix_len=prefix_len)
    allowed = build_mask(c, T, offset + T, offset)
    for i in range(T):
        for j in range(offset + T):
            assert allowed[i, j] == DEFINITIONS[name](offset + i, j, c), (i, j)


def test_every_mask_has_a_definition_here():
    assert set(MASKS) == {*DEFINITIONS, "documents"}


def test_window_and_sinks_as_a_picture():
    allowed = build_mask(config("window_sinks", window=2, n_sinks=1), 5, 5)
    assert allowed.astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 0, 1, 1],
    ]


@pytest.mark.parametrize("name", ["documents", "causal"])
def test_no_token_sees_another_document(name):
    segments = np.array([[0, 0, 1, 1], [5, 2, 2, 2]])
    allowed = build_mask(config(name), 4, 4, segments=segments)
    assert allowed.shape == (2, 1, 4, 4)
    for b in range(2):
        for i in range(4):
            for j in range(4):
                same = segments[b, i] == segments[b, j]
                assert allowed[b, 0, i, j] == (same and j <= i)


def test_the_calls_own_mask_is_anded():
    own = np.ones((3, 3), bool)
    own[2, 0] = False
    assert np.array_equal(build_mask(config(), 3, 3, mask=own), np.tri(3, dtype=bool) & own)
    batch = np.stack([own, np.zeros((3, 3), bool)])
    assert np.array_equal(build_mask(config(), 3, 3, mask=batch)[:, 0], np.tri(3) * batch > 0)


@pytest.mark.parametrize(
    ("kw", "error", "message"),
    [
        ({"mask": np.ones((3, 3))}, ShapeError, r"bool array.*float64 \(3, 3\)"),
        ({"mask": np.ones((2, 3), bool)}, ShapeError, r"\(3, 3\).*\(2, 3\)"),
        ({"segments": np.zeros((1, 4), int)}, ShapeError, r"T = 3, got \(1, 4\)"),
    ],
)
def test_masks_that_do_not_fit(kw, error, message):
    with pytest.raises(error, match=message):
        build_mask(config(), 3, 3, **kw)


def test_the_document_mask_needs_documents():
    with pytest.raises(MinitxError, match="needs segments"):
        build_mask(config("documents"), 3, 3)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_positions_start_again_in_each_document(lengths):
    segments = np.repeat(np.arange(len(lengths)) % 2, lengths)[None]
    expected = np.concatenate([np.arange(n) for n in lengths])
    assert np.array_equal(positions_in_segments(segments)[0], expected)
