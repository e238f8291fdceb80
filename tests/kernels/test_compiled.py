"""Every compiled kernel does what its reference says, on arrays that nobody picked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.kernels import KERNELS, reference, reference_blocks
from tests.kernels.arrays import DTYPES, SIDE, arrays, masks, shapes

compiled = pytest.importorskip("minitx.kernels.compiled")
TOLERANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 2e-14}


def largest(*arrays):
    """The product of the arrays' largest absolute values."""
    return np.prod([np.abs(a).max(initial=0) for a in arrays if a is not None])


def as_double(x):
    return x.astype(np.float64) if getattr(x, "dtype", None) == np.float32 else x


def agree(name, *arguments, sums=1, size=0.0, **options):
    """The compiled kernel against the reference in double precision, on the same numbers.

    The error allowed is relative to the largest entry, or to ``size``, the largest number on
    the way if large numbers cancel; it grows with the number of terms that an entry adds up.
    Inputs must come back unchanged.
    """
    before = [np.array(a) for a in arguments if isinstance(a, np.ndarray)]
    got = getattr(compiled, name)(*arguments, **options)
    after = [a for a in arguments if isinstance(a, np.ndarray)]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new, err_msg=f"{name} changed its input")
    doubles = {key: as_double(value) for key, value in options.items()}
    expected = getattr(reference, name)(*map(as_double, arguments), **doubles)
    if not isinstance(expected, tuple):
        got, expected = (got,), (expected,)
    dtype = next(a.dtype for a in arguments if isinstance(a, np.ndarray) and a.dtype.kind == "f")
    for actual, exact in zip(got, expected, strict=True):
        if exact is None or isinstance(exact, int):
            assert actual == exact
            continue
        assert np.shape(actual) == np.shape(exact)
        assert np.asarray(actual).dtype == dtype
        if np.size(exact):
            limit = TOLERANCE[dtype] * max(np.abs(exact).max(), size) * (2 + np.sqrt(sums))
            np.testing.assert_allclose(actual, exact, rtol=0, atol=max(limit, 1e-37), err_msg=name)


@given(st.data(), shapes(), DTYPES, st.booleans())
def test_softmax(data, shape, dtype, off_by_one):
    x = data.draw(arrays(shape, dtype))
    mask = data.draw(st.none() | masks(shape))
    agree("softmax", x, mask, off_by_one, sums=10)
    y = reference.softmax(x, mask, off_by_one)
    g = data.draw(arrays(shape, dtype))
    agree("softmax_backward", g, y, sums=10, size=largest(g))


@given(st.data(), shapes(last=st.integers(1, 20)), DTYPES)
def test_log_softmax(data, shape, dtype):
    x = data.draw(arrays(shape, dtype))
    agree("log_softmax", x, sums=10)
    agree(
        "log_softmax_backward", data.draw(arrays(shape, dtype)), reference.log_softmax(x), sums=400
    )


@given(st.data(), SIDE, st.integers(1, 20), DTYPES, st.sampled_from([-100, -1, 0]))
def test_cross_entropy(data, rows, classes, dtype, ignore):
    logits = data.draw(arrays((rows, classes), dtype))
    choice = st.one_of(st.integers(0, classes - 1), st.just(ignore))
    targets = np.array(data.draw(st.lists(choice, min_size=rows, max_size=rows)), np.int64)
    agree("cross_entropy", logits, targets, ignore, sums=10, size=largest(logits))
    _, lse, count = reference.cross_entropy(logits, targets, ignore)
    g = data.draw(st.sampled_from([1.0, 0.5]) | arrays((rows,), dtype))
    # exp(logit - lse): an error of 1e-7 of the logit is as large a relative error of the result
    size = np.abs(g).max(initial=0) * (1 + largest(logits))
    lse = lse.astype(dtype)
    agree("cross_entropy_backward", g, logits, lse, targets, ignore, count, size=size)


@given(st.data(), shapes(last=st.integers(1, 20)), DTYPES, st.booleans(), st.booleans())
def test_norms(data, shape, dtype, has_weight, has_bias):
    x = data.draw(arrays(shape, dtype))
    weight = data.draw(arrays(shape[-1:], dtype)) if has_weight else None
    bias = data.draw(arrays(shape[-1:], dtype)) if has_bias else None
    g = data.draw(arrays(shape, dtype))
    _, mean, rstd = reference.layer_norm(x, weight, bias)
    _, rrms = reference.rms_norm(x, weight)
    # dividing by a small spread magnifies the rounding of what is divided
    size = (1 + largest(x, rstd)) * (largest(weight) if has_weight else 1)
    agree("layer_norm", x, weight, bias, sums=20, size=size + (largest(bias) if has_bias else 0))
    agree("rms_norm", x, weight, sums=20)
    rows = max(x.size // shape[-1], 1)
    for name, stats in (("layer_norm", (mean, rstd)), ("rms_norm", (rrms,))):
        size = largest(g) * (1 + largest(x, stats[-1])) ** 2 * (1 + largest(stats[-1]))
        size *= max(largest(weight) if has_weight else 1, 1)
        agree(f"{name}_backward", g, x, weight, *stats, sums=20 * rows, size=size)


@given(st.data(), shapes(), DTYPES)
def test_activations(data, shape, dtype):
    x, g = data.draw(arrays(shape, dtype)), data.draw(arrays(shape, dtype))
    for name in ("gelu", "silu"):
        agree(name, x)
        agree(f"{name}_backward", g, x, size=largest(g))


@given(st.data(), shapes(min_dims=2), st.integers(0, 5), DTYPES, st.booleans())
def test_linear(data, shape, out, dtype, has_bias):
    x, weight = data.draw(arrays(shape, dtype)), data.draw(arrays((out, shape[-1]), dtype))
    bias = data.draw(arrays((out,), dtype)) if has_bias else None
    agree("linear", x, weight, bias, sums=shape[-1], size=largest(x, weight))
    if x.size and out:
        g = data.draw(arrays((*shape[:-1], out), dtype))
        agree(
            "linear_backward",
            g,
            x,
            weight,
            has_bias,
            sums=x.size,
            size=largest(g) * max(largest(x), largest(weight)),
        )


@given(st.data(), st.tuples(*[st.integers(1, 3)] * 3), st.integers(0, 9), DTYPES, st.booleans())
def test_attention(data, sizes, keys, dtype, off_by_one):
    B, H, K = sizes
    causal = data.draw(st.booleans())
    T = keys if causal else data.draw(st.integers(0, 9))
    q = data.draw(arrays((B, T, H, K), dtype))
    k, v = (data.draw(arrays((B, keys, H, K), dtype)) for _ in "kv")
    full = (B, H, T, keys)
    mask = np.tri(T, dtype=bool) if causal else data.draw(st.none() | masks(full))
    if causal and data.draw(st.booleans()):
        mask = None
    bias = data.draw(st.none() | arrays(full[data.draw(st.integers(0, 2)) :], dtype))
    options = {"mask": mask, "bias": bias, "scale": 0.5, "off_by_one": off_by_one, "causal": causal}
    # scores up to 2000 leave few digits behind the point in float32
    scores = 1 + largest(q, k) * K + (0 if bias is None else largest(bias))
    agree("attention", q, k, v, sums=10, size=scores * max(largest(v), 1), **options)
    pattern = reference.attention(q, k, v, **options)[1].astype(dtype)
    g = data.draw(arrays(q.shape, dtype))
    size = K * largest(g, v) * max(largest(q), largest(k), 1) + largest(g)
    for want_bias in (False, True):
        agree(
            "attention_backward",
            *(g, q, k, v, pattern, 0.5, causal, want_bias),
            sums=10 * max(T, keys),
            size=size,
        )


@given(st.data(), st.tuples(SIDE, SIDE, SIDE, st.integers(0, 5)), DTYPES, st.booleans())
def test_rotary(data, sizes, dtype, inverse):
    B, T, H, half = sizes
    x = data.draw(arrays((B, T, H, 2 * half), dtype))
    angle = data.draw(arrays((T, half), dtype) | arrays((B, T, half), dtype))
    agree("rotary", x, np.cos(angle), np.sin(angle), inverse)


@given(st.data(), SIDE, st.integers(1, 20), st.integers(1, 4), DTYPES)
def test_embedding_backward(data, rows, width, vocab, dtype):
    tokens = data.draw(st.lists(st.integers(0, vocab - 1), min_size=rows, max_size=rows))
    agree(
        "embedding_backward", data.draw(arrays((rows, width), dtype)), np.array(tokens, int), vocab
    )


@given(st.data(), st.integers(0, 20), DTYPES, st.integers(1, 5), st.sampled_from([0.0, 0.1]))
def test_adamw(data, size, dtype, step, decay):
    p, g, m, v = (np.array(data.draw(arrays((size,), dtype, scale=1.0))) for _ in range(4))
    v = v * v
    exact = [a.astype(np.float64) for a in (p, g, m, v)]
    reference.adamw(*exact, 1e-2, 0.9, 0.99, 1e-8, decay, step)
    compiled.adamw(p, g, m, v, 1e-2, 0.9, 0.99, 1e-8, decay, step)
    for actual, expected in zip((p, m, v), (exact[0], exact[2], exact[3]), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=3 * TOLERANCE[p.dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_is_as_exact_as_promised(dtype):
    x = np.linspace(-87, 0, 20001).astype(dtype)[:, None]
    got = compiled.softmax(np.concatenate([x, np.zeros_like(x)], axis=1))[:, 0]
    exact = reference.softmax(np.concatenate([x, np.zeros_like(x)], axis=1).astype(np.float64))[
        :, 0
    ]
    np.testing.assert_allclose(got, exact, rtol=TOLERANCE[np.dtype(dtype)] / 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "gelu", "silu", "layer_norm", "rms_norm"]
)
def test_nan_and_infinity_are_not_swallowed(name, bad):
    x = np.zeros((3, 11), np.float32)
    x[1, 4] = bad
    with np.errstate(invalid="ignore"):
        y = getattr(compiled, name)(x)
    y = y[0] if isinstance(y, tuple) else y
    assert not np.isfinite(y[1]).all()
    assert np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_reach_the_loss_and_the_attention_output(bad):
    logits = np.zeros((3, 11), np.float32)
    logits[1, 4] = bad
    assert not np.isfinite(compiled.cross_entropy(logits, np.array([0, 1, 2]))[0])
    q = np.zeros((1, 4, 1, 2), np.float32)
    k = q.copy()
    q[0, 2, 0, 1] = bad
    k[..., 1] = 1
    z = compiled.attention(q, k, k, causal=True)[0]
    assert not np.isfinite(z[0, 2]).all() and np.isfinite(z[0, [0, 1, 3]]).all()


def test_what_the_loops_do_not_take_goes_to_the_reference():
    x = np.array([[1.0, 2.0, 4.0]])
    for dtype in (np.float16, np.complex128):
        y = compiled.softmax(x.astype(dtype))
        np.testing.assert_array_equal(y, reference.softmax(x.astype(dtype)))
    mixed = compiled.layer_norm(x.astype(np.float32), np.ones(3))[0]
    assert mixed.dtype == reference.layer_norm(x.astype(np.float32), np.ones(3))[0].dtype


def test_ids_out_of_range_are_refused_and_never_read_past_the_end():
    with pytest.raises(IndexError):
        compiled.embedding_backward(np.ones((1, 2), np.float32), np.array([5]), 3)
    with pytest.raises(IndexError):
        compiled.cross_entropy(np.ones((1, 2), np.float32), np.array([2]))


def test_both_sets_have_every_kernel():
    for name in KERNELS:
        assert hasattr(reference, name) or hasattr(reference_blocks, name)
        assert callable(getattr(compiled, name))
