"""Where a derivative has a choice or a formula breaks down: ties, kinks, zeros, infinities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor, coarse, gradcheck, ops, tensor
from minitx.errors import MinitxError

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def leaf(x, dtype=np.float64):
    return tensor(x, requires_grad=True, dtype=dtype)


def grad(f, *xs):
    leaves = [leaf(x) for x in xs]
    y = f(*leaves)
    y.backward(np.ones(y.shape))
    return leaves[0].grad.tolist() if len(xs) == 1 else [t.grad.tolist() for t in leaves]


# ---------------------------------------------------------------------------------------- ties


def test_ties_of_pairs_go_half_and_half():
    assert grad(ops.maximum, [1.0, 2, 3], [1.0, 5, 0]) == [[0.5, 0, 1], [0.5, 1, 0]]
    assert grad(ops.minimum, [1.0, 2, 3], [1.0, 5, 0]) == [[0.5, 1, 0], [0.5, 0, 1]]


def test_ties_of_a_reduction_share_evenly():
    x = [[1.0, 3, 3], [2, 2, 2]]
    assert grad(lambda t: t.max(axis=1) * np.array([2.0, 3.0]), x) == [[0, 1, 1], [1, 1, 1]]
    assert grad(lambda t: t.min(), [2.0, 1, 1, 1, 1]) == [0, 0.25, 0.25, 0.25, 0.25]


def test_kinks():
    assert grad(ops.relu, [-1.0, 0, 1]) == [0, 0, 1]
    assert grad(ops.absolute, [-1.0, 0, 1]) == [-1, 0, 1]
    assert grad(lambda t: t.clip(0, 1), [-0.5, 0, 0.5, 1, 1.5]) == [0, 1, 1, 1, 0]
    assert grad(lambda t: t.clip(low=0), [-0.5, 7]) == [0, 1]


# ---------------------------------------------------------------------------- zeros, infinities


def test_powers_at_zero():
    assert grad(lambda t: t**0, [0.0, 2]) == [0, 0]
    assert grad(lambda t: t**1, [0.0, 2]) == [1, 1]
    assert grad(lambda t: t**2, [0.0, -3]) == [0, -6]
    assert grad(lambda t: t**3.0, [-2.0]) == [12]
    assert grad(ops.power, [0.0, 2], [0.0, 0]) == [[0, 0], [0, np.log(2)]]
    assert grad(ops.power, [0.0], [2.0]) == [[0], [0]]
    assert grad(lambda t: 2**t, [3.0]) == [8 * np.log(2)]


def test_where_keeps_nan_out():
    x, bad = leaf([1.0, 4.0]), leaf([np.nan, 3.0])
    y = ops.where(np.array([False, True]), bad * x, x)
    y.sum().backward()
    assert y.data.tolist() == [1, 12]
    assert bad.grad.tolist() == [0, 4]
    upstream = np.array([np.nan, 1.0])  # not even a NaN from above crosses over
    bad.grad = None
    ops.where(np.array([False, True]), bad, x).backward(upstream)
    assert bad.grad.tolist() == [0, 1]


def test_where_needs_bools():
    with pytest.raises(MinitxError, match="dtype bool, got float64"):
        ops.where(np.array([1.0, 0.0]), leaf([1, 2]), 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_inputs_stay_finite(dtype):
    x = leaf([-1e4, -100, 0, 100, 1e4], dtype)
    for f in (
        ops.sigmoid,
        ops.tanh,
        ops.softmax,
        ops.log_softmax,
        ops.logsumexp,
        ops.gelu,
        ops.silu,
    ):
        x.grad = None
        y = f(x)
        y.sum().backward()
        assert np.isfinite(y.data).all() and np.isfinite(x.grad).all(), f
    assert ops.sigmoid(x).data[0] == 0 and ops.sigmoid(x).data[-1] == 1
    assert ops.sigmoid(Tensor(-40.0)).item() == pytest.approx(np.exp(-40), rel=1e-12)


def test_logsumexp_of_nothing_allowed():
    x = leaf([[-np.inf, -np.inf], [0.0, -np.inf]])
    y = ops.logsumexp(x, axis=1)
    assert y.data.tolist() == [-np.inf, 0]
    y.backward(np.ones(2))
    assert x.grad.tolist() == [[0, 0], [1, 0]]


def test_fully_masked_rows_are_zero():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = ops.softmax(x, mask=np.array([[False, False], [True, False]]))
    y.backward(np.ones((2, 2)))
    assert y.data.tolist() == [[0, 0], [1, 0]]
    assert np.isfinite(x.grad).all()


def test_masks_must_be_bools():
    x = leaf(np.zeros((1, 2, 1, 2)))
    for mask in (np.ones((2, 2)), np.ones((2, 2), int), [[True]]):
        with pytest.raises(MinitxError, match="dtype bool"):
            ops.softmax(x, mask=mask)
        with pytest.raises(MinitxError, match="dtype bool"):
            ops.attention(x, x, x, mask=mask)


# ---------------------------------------------------------------------------------- the losses


def test_cross_entropy_settings():
    logits, targets = leaf([[1.0, 2.0], [0.0, 0.0], [5.0, 1.0]]), np.array([0, -100, 1])
    each = ops.cross_entropy(logits, targets, reduction="none")
    assert each.shape == (3,) and each.data[1] == 0
    assert ops.cross_entropy(logits, targets, reduction="sum").item() == pytest.approx(
        each.data.sum()
    )
    assert ops.cross_entropy(logits, targets).item() == pytest.approx(each.data.sum() / 2)
    ops.cross_entropy(logits, targets).backward()
    assert logits.grad[1].tolist() == [0, 0]
    assert logits.grad.sum(axis=1) == pytest.approx(0)
    with pytest.raises(MinitxError, match="Unknown reduction 'avg'"):
        ops.cross_entropy(logits, targets, reduction="avg")


def test_cross_entropy_needs_a_target():
    with pytest.raises(MinitxError, match="all 2 are -100"):
        ops.cross_entropy(leaf(np.zeros((2, 3))), np.full(2, -100))


@pytest.mark.parametrize("bad", [3, -1, 99])
def test_targets_and_tokens_out_of_range(bad):
    with pytest.raises(MinitxError, match=f"Target {bad} is out of range.* 0 to 2"):
        ops.cross_entropy(leaf(np.zeros((2, 3))), np.array([0, bad]))
    with pytest.raises(MinitxError, match=f"Token {bad} is out of range.* 0 to 2"):
        ops.embedding(np.array([0, bad]), leaf(np.zeros((3, 2))))


@given(st.integers(1, 300), st.data())
def test_the_range_is_checked_for_integers_of_any_width(vocab, data):
    """Narrow integers too."""
    dtype = data.draw(st.sampled_from(["i1", "u1", "<i2", ">i2", "u2", "i4", "<i8", ">i8", "u8"]))
    limits = np.iinfo(dtype)
    near = st.integers(max(limits.min, -vocab - 2), min(limits.max, 2 * vocab))
    ids = data.draw(st.lists(near | st.integers(limits.min, limits.max), max_size=5))
    expected = any(not 0 <= i < vocab for i in ids)
    assert coarse.outside(np.array(ids, dtype), vocab) == expected


def test_a_negative_narrow_integer_does_not_pass_for_a_large_one():
    with pytest.raises(MinitxError, match="Token -106 is out of range"):
        ops.embedding(np.array([0, -106], np.int8), leaf(np.zeros((200, 2))))  # -106 + 256 = 150


def test_tokens_must_be_integers():
    with pytest.raises(MinitxError, match="array of integers, got float64"):
        ops.embedding(np.array([0.0]), leaf(np.zeros((3, 2))))
    with pytest.raises(MinitxError, match="array of integers, got bool"):
        ops.embedding(np.array([True]), leaf(np.zeros((3, 2))))


def test_tokens_and_targets_may_be_tensors_and_numbers():
    table = leaf(np.eye(3))
    assert ops.embedding(Tensor([2, 0]), table).data.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert ops.embedding(1, table).shape == (3,)
    assert ops.cross_entropy(leaf([0.0, 0.0]), 1).item() == pytest.approx(np.log(2))


# ------------------------------------------------------------------------------------- dropout


def test_dropout_keeps_the_mean_and_drops_the_share():
    x = leaf(np.ones(20_000))
    y = ops.dropout(x, 0.25, np.random.default_rng(0))
    assert (y.data == 0).mean() == pytest.approx(0.25, abs=0.015)  # five standard errors
    assert y.data.mean() == pytest.approx(1, abs=0.02)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, y.data)


def test_dropout_outside_training_does_not_draw():
    rng = np.random.default_rng(0)
    x = leaf([1.0, 2.0])
    assert ops.dropout(x, 0.5, rng, training=False).data.tolist() == [1, 2]
    assert rng.random() == np.random.default_rng(0).random()
    with pytest.raises(MinitxError, match=r"from 0 to 1, got 1\.5"):
        ops.dropout(x, 1.5, rng)


# ----------------------------------------------------------------------------------- attention


def test_attention_bias_may_be_learned():
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2, 3, 2, 4))
    bias = rng.normal(size=(2, 1, 3))  # [H, 1, S]: one for each head and key
    mask = np.tri(3, dtype=bool)
    assert gradcheck(lambda q, k, v, b: ops.attention(q, k, v, mask, b), [q, k, v, bias])


def test_attention_shapes():
    x, y = np.zeros((1, 2, 1, 4)), np.zeros((1, 3, 1, 4))
    with pytest.raises(MinitxError, match=r"k and v \[B, S, H, K\]; got q \(1, 2, 1, 4\)"):
        ops.attention(x, x, y)
    with pytest.raises(MinitxError, match="causal attention needs T = S"):
        ops.attention(x, y, y, causal=True)
    with pytest.raises(MinitxError, match="rotary needs"):
        ops.rotary(x, np.zeros((2, 3)), np.zeros((2, 3)))


# ------------------------------------------------------------------------------------- einsum


@pytest.mark.parametrize(
    ("subscripts", "message"),
    [
        ("ij->ji", "two operands"),
        ("ij,jk,kl->il", "two operands"),
        ("ii,i->i", "twice in one operand"),
        ("ij,jk->iz", "einsum cannot take"),
    ],
)
def test_einsum_subscripts(subscripts, message):
    with pytest.raises(MinitxError, match=message):
        ops.einsum(subscripts, np.ones((2, 2)), np.ones((2, 2) if "jk" in subscripts else 2))


def test_einsum_with_axes_of_length_one_and_lonely_letters():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1, 3)), rng.normal(size=(4, 3))
    for subscripts in ("xij,jk->xk", "xij,ij->x", "...j,kj->...k", "xij,kj->k"):
        try:
            ops.einsum(subscripts, a, b)
        except MinitxError:
            continue
        assert gradcheck(lambda a, b, s=subscripts: ops.einsum(s, a, b), [a, b])


# -------------------------------------------------------------------------------------- indices


@pytest.mark.parametrize(
    "index",
    [0, -1, slice(None, None, -1), (..., 0), None, [0, 0, 1], [], True, (slice(None), [2, 2, 0])],
)
def test_indices(index):
    x = np.arange(6.0).reshape(2, 3)
    t = leaf(x)
    y = t[index]
    np.testing.assert_array_equal(y.data, x[index])
    y.sum().backward()
    counts = np.zeros((2, 3))
    np.add.at(counts, index, 1)
    np.testing.assert_array_equal(t.grad, counts)


def test_tensors_as_indices():
    t = leaf(np.arange(6.0).reshape(2, 3))
    rows, columns = Tensor([0, 1, 0]), Tensor([2, 2, 2])
    t[rows, columns].sum().backward()
    assert t.grad.tolist() == [[0, 0, 2], [0, 0, 1]]
    assert t[Tensor([True, False])].shape == (1, 3)
    with pytest.raises(IndexError):
        t[5]


def test_where_stops_values_but_not_infinite_slopes():
    """As its docstring says: a NaN value does no harm, an infinite slope does, a safe input helps."""
    x = tensor([0.0, 2.0], requires_grad=True)
    with np.errstate(all="ignore"):
        ops.where(x.data > 0, ops.log(x), 0.0).sum().backward()
    assert np.isnan(x.grad[0]) and x.grad[1] == 0.5

    safe = tensor([0.0, 2.0], requires_grad=True)
    inside = ops.where(safe.data > 0, safe, 1.0)
    ops.where(safe.data > 0, ops.log(inside), 0.0).sum().backward()
    np.testing.assert_array_equal(safe.grad, [0, 0.5])

    taken = tensor([1.0], requires_grad=True)
    y = ops.where(np.array([True]), taken, tensor([np.nan], requires_grad=True))
    y.backward()
    assert y.data == 1 and taken.grad == 1
