"""The fused halves of a block, the matrix product inside them, and our own threads."""

import threading
from itertools import cycle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.kernels import reference_blocks as reference
from minitx.kernels import threads
from tests.kernels.test_reference import complex_step

pytest.importorskip("numba")
from numba import njit

from minitx.kernels import _gemm, _tiles, compiled_heads, compiled_mlp
from minitx.kernels._math import _common

# Not kept on disk: the cache would not see a change of the functions that are called.
fresh = njit(**_common)

DTYPES = st.sampled_from([np.float32, np.float64])
NORMS = st.sampled_from(["layernorm", "rmsnorm", "none"])


@pytest.fixture(autouse=True)
def restore(monkeypatch):
    monkeypatch.setattr(threads, "WORTHWHILE", 1)  # share even tiny work
    before = threads.get_threads()
    yield
    threads.set_threads(before)


def agree(got, expected, dtype):
    """All arrays equal, but for rounding that is small beside the largest number of each."""
    tolerance = 5e-4 if dtype == np.float32 else 1e-11
    assert len(got) == len(expected)
    for i, (actual, exact) in enumerate(zip(got, expected, strict=True)):
        if exact is None:
            assert actual is None
            continue
        assert actual.dtype == dtype and actual.shape == exact.shape
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(np.isfinite(actual), finite)
        atol = tolerance * max(np.abs(exact[finite]).max(initial=0), 1)
        np.testing.assert_allclose(actual[finite], exact[finite], rtol=0, atol=atol, err_msg=str(i))


def numbers(rng, dtype):
    return lambda *shape: (0.5 * rng.normal(size=shape)).astype(dtype)


# ------------------------------------------------------------------- the product


@fresh
def _product(a, b, packed, edge, c, how, add):
    """c (+)= a @ b, or a @ b.T if ``how`` is 2; how 1 packs b, and 0 packs it only if it must."""
    number = a.dtype.type(0)
    depth, columns = (b.shape[1], b.shape[0]) if how == 2 else b.shape
    b_step, width = b.shape[1], _gemm.panel_width(number)
    place, down, panel = _gemm.address(packed, 0), width, depth * width
    if how == 2:
        _gemm.pack_transposed(number, depth, columns, _gemm.address(b, 0), b_step, place)
    elif how == 1:
        _gemm.pack(number, depth, columns, _gemm.address(b, 0), b_step, place)
    else:
        b_at = _gemm.address(b, 0)
        place, down, panel = _tiles.panels(number, depth, columns, b_at, b_step, packed)
    _gemm.multiply(
        number, a.shape[0], columns, depth, _gemm.address(a, 0), depth, 1, place, down, panel,
        _gemm.address(edge, 0), _gemm.address(c, 0), columns, add,
    )  # fmt: skip


@fresh
def _packed_size(number, depth, columns):
    return _gemm.packed_size(number, depth, columns)


@given(st.integers(1, 30), st.integers(1, 96), st.integers(1, 40), DTYPES, st.integers(0, 2))
@example(7, 17, 600, np.float32, 2)  # deeper than one walk
@example(13, 96, 600, np.float32, 0)  # read as it lies
def test_product(rows, columns, depth, dtype, how):
    make = numbers(np.random.default_rng(rows), dtype)
    a, b, start = make(rows, depth), make(depth, columns), make(rows, columns)
    stored = np.ascontiguousarray(b.T) if how == 2 else b
    size = int(_packed_size(dtype(0), depth, columns))
    packed, edge = np.full(size + 8, np.nan, dtype), np.empty(rows * 64, dtype)
    for add in (False, True):
        c = start.copy()
        _product(a, stored, packed, edge, c, how, add)
        agree([c], [a @ b + start * add], dtype)
    assert np.isnan(packed[size:]).all()  # nothing is written behind the last panel


# -------------------------------------------------------------------- the halves


@given(
    st.sampled_from([(1, 1, 1), (5, 3, 7), (200, 32, 20), (97, 16, 33)]),
    NORMS,
    st.sampled_from(["gelu", "relu", "silu"]),
    *(DTYPES, st.booleans(), st.booleans(), st.integers(1, 3), st.integers(0, 99)),
)
def test_mlp_block(sizes, norm, activation, dtype, biases, residual, n_threads, seed):
    N, D, M = sizes
    make = numbers(np.random.default_rng(seed), dtype)
    vector = make if biases else lambda n: None
    x, g = make(N, D), make(N, D)
    norm_weights = (None, None) if norm == "none" else (make(D), vector(D))
    weights = (*norm_weights, make(M, D), vector(M), make(D, M), vector(D))
    threads.set_threads(n_threads)
    y, saved = compiled_mlp.mlp_block(x, *weights, norm, activation, residual)
    exact, exact_saved = reference.mlp_block(x, *weights, norm, activation, residual)
    agree((y, *saved), (exact, *exact_saved), dtype)
    arguments = (g, x, *weights, exact_saved, norm, activation, residual)
    agree(
        compiled_mlp.mlp_block_backward(*arguments),
        reference.mlp_block_backward(*arguments),
        dtype,
    )


@given(
    st.sampled_from(
        [
            (1, 1, 4, 1, 2),
            (3, 7, 10, 2, 4),
            (5, 33, 16, 2, 16),
            (2, 70, 12, 3, 18),
            (1, 40, 7, 1, 32),
        ]
    ),
    NORMS,
    st.sampled_from(
        ["causal", "mask", "mask by sequence", "mask by head", "bias", "rotary", "all"]
    ),
    *(
        DTYPES,
        st.sampled_from(["all", "some", "none"]),
        st.booleans(),
        st.booleans(),
        st.integers(1, 3),
        st.integers(0, 99),
    ),
)
def test_attention_block(sizes, norm, case, dtype, biases, residual, off_by_one, n_threads, seed):
    B, T, D, H, K = sizes
    rng = np.random.default_rng(seed)
    make = numbers(rng, dtype)
    there = {"all": cycle([True]), "some": cycle([True, False, False]), "none": cycle([False])}
    vector = lambda n: make(n) if next(there[biases]) else None  # noqa: E731
    x, g = make(B, T, D), make(B, T, D)
    W = H * K
    norm_weights = (None, None) if norm == "none" else (make(D), vector(D))
    weights = (
        *norm_weights,
        *(make(W, D), vector(W), make(W, D), vector(W), make(W, D), vector(W)),
        *(make(D, W), vector(D)),
    )
    angle = rng.normal(size=(T, K // 2))
    options = {
        "causal": {"causal": True},
        "mask": {"mask": rng.random((T, T)) < 0.6},
        "mask by sequence": {"mask": rng.random((B, 1, T, T)) < 0.3},
        "mask by head": {"mask": rng.random((1, H, T, T)) < 0.6},
        "bias": {"bias": make(H, T, T)},
        "rotary": {"angles": (np.cos(angle).astype(dtype), np.sin(angle).astype(dtype))},
        "all": {},
    }[case]
    options |= {"norm": norm, "residual": residual, "off_by_one": off_by_one, "scale": 0.3}
    threads.set_threads(n_threads)
    y, saved = compiled_heads.attention_block(x, weights, H, **options)
    exact, exact_saved = reference.attention_block(x, weights, H, **options)
    mean, rstd, qkv, *rest = saved
    agree((y, mean, rstd, qkv[:, : 3 * W], *rest), (exact, *exact_saved), dtype)
    expected = reference.attention_block_backward(g, x, weights, exact_saved, H, **options)
    for kept in (saved, exact_saved):
        got = compiled_heads.attention_block_backward(g, x, weights, kept, H, **options)
        agree(got, expected, dtype)


def test_gradients_of_the_halves_by_complex_step(rng):
    make = numbers(rng, np.float64)
    x, g = make(1, 3, 4), make(1, 3, 4)
    mlp = (make(4), make(4), make(5, 4), make(5), make(4, 5), make(4))
    _, saved = reference.mlp_block(x, *mlp)
    got = reference.mlp_block_backward(g, x, *mlp, saved)
    for i, a in enumerate((x, *mlp)):
        inputs = [x, *mlp]

        def loss(z, i=i, inputs=inputs):
            return (g * reference.mlp_block(*inputs[:i], z, *inputs[i + 1 :])[0]).sum()

        np.testing.assert_allclose(got[i], complex_step(loss, a), rtol=1e-9, atol=1e-12)
    weights = [make(4), make(4)]
    for _ in range(4):
        weights += [make(4, 4), make(4)]
    options = {"causal": True, "off_by_one": True, "scale": 0.7}
    _, saved = reference.attention_block(x, weights, 2, **options)
    got = reference.attention_block_backward(g, x, weights, saved, 2, **options)
    for i, a in enumerate((x, *weights)):

        def loss(z, i=i):
            inputs = [x, *weights]
            inputs[i] = z
            y, _ = reference.attention_block(inputs[0], inputs[1:], 2, **options)
            return (g * y).sum()

        np.testing.assert_allclose(got[i], complex_step(loss, a), rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------ threads


def test_results_are_the_same_from_run_to_run_for_a_number_of_threads(rng):
    make = numbers(rng, np.float32)
    x = make(400, 16)
    weights = (make(16), make(16), make(20, 16), make(20), make(16, 20), make(16))
    _, saved = reference.mlp_block(x, *weights)
    for n in (1, 2, 3):
        threads.set_threads(n)
        runs = [compiled_mlp.mlp_block_backward(x, x, *weights, saved) for _ in range(3)]
        for run in runs[1:]:
            for a, b in zip(runs[0], run, strict=True):
                np.testing.assert_array_equal(a, b)


def test_every_item_is_shared_out_once_and_errors_come_back():
    for count in (0, 1, 5):
        for n in (1, 2, 3):
            seen = []
            threads.share(lambda a, b, part, s=seen: s.extend(range(a, b)), count, n)
            assert sorted(seen) == list(range(count))

    def fail(first, last, part):
        if part == 0:
            raise ValueError("share 0")

    with pytest.raises(ValueError, match="share 0"):
        threads.share(fail, 2, 2)
    threads.share(lambda *job: None, 2, 2)  # and the threads still work


def test_ctrl_c_leaves_no_half_done_share_behind(monkeypatch):
    """A share is waited for past Ctrl-C; and the next call waits for its own shares, not for it."""
    threads.set_threads(2)
    may_end, ended = threading.Event(), []

    def work(first, last, part, value):
        if part == 0 and value == 1:
            assert may_end.wait(10)
        ended.append((value, part))

    real, pressed = threads._Call.finish, []

    class Lock:
        """Raises KeyboardInterrupt at the first attempt to wait."""

        def __init__(self, lock):
            self.lock, self.release = lock, lock.release

        def acquire(self):
            if not pressed:
                pressed.append(True)
                may_end.set()
                raise KeyboardInterrupt
            return self.lock.acquire()

    def finish(call):
        call.done = Lock(call.done)
        return real(call)

    monkeypatch.setattr(threads._Call, "finish", finish)
    with pytest.raises(KeyboardInterrupt):
        threads.share(work, 2, 2, 1)
    assert sorted(ended) == [(1, 0), (1, 1)]
    for value in range(2, 50):
        threads.share(work, 2, 2, value)
        assert sorted(ended[-2:]) == [(value, 0), (value, 1)]


def test_two_threads_of_the_users_do_not_disturb_each_other(rng):
    make = numbers(rng, np.float32)
    weights = (make(16), make(16), make(20, 16), make(20), make(16, 20), make(16))
    inputs = [make(300, 16) for _ in range(2)]
    threads.set_threads(2)
    expected = [compiled_mlp.mlp_block(x, *weights)[0] for x in inputs]
    wrong = []

    def work(i):
        for _ in range(30):
            if not np.array_equal(compiled_mlp.mlp_block(inputs[i], *weights)[0], expected[i]):
                wrong.append(i)

    users = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not wrong


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "two"])
def test_number_of_threads_must_be_a_number_of_threads(wrong, monkeypatch):
    with pytest.raises(MinitxError, match="whole number"):
        threads.set_threads(wrong)
    monkeypatch.setattr(threads, "_count", None)
    monkeypatch.setenv("MINITX_THREADS", str(wrong).lower())
    with pytest.raises(MinitxError, match="whole number"):
        threads.get_threads()
    threads.set_threads(1)
