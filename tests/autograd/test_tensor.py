"""What a tensor is: its dtype, its place among NumPy arrays, its errors."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor, no_grad, ops, tensor
from minitx.errors import MinitxError

F32 = np.float32


# ------------------------------------------------------------------------------- making one


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, np.float64),
        ([1.5, 2], np.float64),
        (np.ones(2, F32), F32),
        ([1, 2], np.int64),
        (True, np.bool_),
        (np.int8(3), np.int8),
    ],
)
def test_dtype_is_numpys(data, dtype):
    assert Tensor(data).dtype == dtype
    assert type(Tensor(data).data) is np.ndarray


def test_dtype_on_request():
    assert tensor([1, 2], dtype=F32).dtype == F32
    assert tensor([1, 2], requires_grad=True, dtype=np.float64).dtype == np.float64


def test_integers_become_floats_only_for_a_gradient():
    assert Tensor([1, 2], requires_grad=True).dtype == F32
    assert Tensor([True], requires_grad=True).dtype == F32
    assert Tensor([1, 2]).requires_grad_().dtype == F32
    assert Tensor([1, 2]).dtype == np.int64
    with pytest.raises(MinitxError, match="too large for float32"):
        Tensor([2**24 + 1], requires_grad=True)


def test_arrays_are_shared_by_Tensor_and_copied_by_tensor():
    x = np.zeros(2)
    assert Tensor(x).data is x
    assert not np.shares_memory(tensor(x).data, x)
    assert not np.shares_memory(tensor(Tensor(x)).data, x)


@pytest.mark.parametrize("data", ["text", None, [object()], ["a", 1]])
def test_only_numbers(data):
    for f in (Tensor, ops.exp):
        with pytest.raises(MinitxError, match="holds numbers"):
            f(data)


def test_ragged_rows():
    with pytest.raises(MinitxError, match="do not make an array"):
        Tensor([[1, 2], [3]])


def test_complex_numbers_have_no_gradient():
    assert Tensor([1j]).dtype == complex
    with pytest.raises(MinitxError, match="complex"):
        Tensor([1j], requires_grad=True)


def test_list_of_tensors_is_refused():
    with pytest.raises(MinitxError, match=r"ops\.stack"):
        Tensor([Tensor(1.0), Tensor(2.0)])


def test_mistyped_attribute():
    t = Tensor([1.0])
    with pytest.raises(AttributeError):
        t.gard  # noqa: B018
    with pytest.raises(AttributeError):
        t.require_grad = True


# --------------------------------------------------------------------------- Python's protocols


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (Tensor([1.0, 2.5]), "Tensor([1. , 2.5], dtype=float64)"),
        (Tensor(F32(1)), "Tensor(1., dtype=float32)"),
        (Tensor([1, 2], requires_grad=True), "Tensor([1., 2.], dtype=float32, requires_grad=True)"),
        (tensor([1.0], True).exp(), "Tensor([2.7183], dtype=float64, made by exp)"),
        (Tensor(np.zeros((2, 0))), "Tensor([], shape=(2, 0), dtype=float64)"),
    ],
)
def test_repr(t, text):
    assert repr(t) == text


def test_repr_of_a_large_tensor_is_short():
    text = repr(Tensor(np.zeros((100, 200))))
    assert len(text) < 600 and "shape=(100, 200)" in text


def test_truth():
    assert Tensor([1.0]) and not Tensor(0)
    with pytest.raises(MinitxError, match=r"\(2,\)"):
        bool(Tensor([1.0, 2.0]))


def test_len_and_iteration():
    t = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert len(t) == 2
    first, second = t
    (first * 2 + second).sum().backward()
    np.testing.assert_array_equal(t.grad, [[2, 2], [1, 1]])
    for f in (len, list):
        with pytest.raises(TypeError, match="without axes"):
            f(Tensor(1.0))


def test_numbers():
    assert float(Tensor([2.5])) == 2.5 and int(Tensor(3)) == 3 and Tensor(2.5).item() == 2.5
    assert Tensor([[1, 2]]).tolist() == [[1, 2]]
    assert type(Tensor(F32(2)).item()) is float
    with pytest.raises(MinitxError, match=r"item\(\) is for one element"):
        Tensor([1, 2]).item()


def test_identity_in_sets_and_comparisons_by_value():
    a, b = Tensor([1.0, 2.0]), Tensor([1.0, 3.0])
    assert len({a, b, a}) == 2
    assert (a == b).tolist() == [True, False] and (a != b).tolist() == [False, True]
    assert (a < 2).tolist() == [True, False] and (b >= np.array([1, 4])).tolist() == [True, False]
    assert (a <= b).all() and (b > a).tolist() == [False, True]
    assert Tensor([[1, 3], [5, 2]]).argmax(-1).tolist() == [1, 0]


def test_assignment_to_elements_is_refused():
    t = Tensor([1.0, 2.0])
    with pytest.raises(MinitxError, match="not edited in place"):
        t[0] = 3


def test_copies_of_leaves():
    t = tensor([1.0, 2.0], requires_grad=True)
    t.grad = np.array([3.0, 4.0])
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert other.requires_grad and other.data.tolist() == [1, 2]
        assert not np.shares_memory(other.data, t.data)


# ---------------------------------------------------------------------------- beside NumPy


@pytest.mark.parametrize(
    ("f", "value"),
    [
        (lambda a, t: a + t, [3.0, 5]),
        (lambda a, t: a - t, [1.0, 1]),
        (lambda a, t: a * t, [2.0, 6]),
        (lambda a, t: a / t, [2.0, 1.5]),
        (lambda a, t: a**t, [2.0, 9]),
        (lambda a, t: a @ t, 8.0),
    ],
)
def test_array_on_the_left(f, value):
    t = tensor([1.0, 2.0], requires_grad=True)
    y = f(np.array([2.0, 3.0]), t)
    assert isinstance(y, Tensor) and y.requires_grad
    np.testing.assert_array_equal(y.data, value)


@pytest.mark.parametrize("scalar", [2, 2.0, np.float64(2), np.int64(2), np.float32(2), True])
@pytest.mark.parametrize("dtype", [F32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_scalars_do_not_change_the_dtype(scalar, dtype, shape):
    t = Tensor(np.ones(shape, dtype), requires_grad=True)
    for y in (t * scalar, scalar * t, t + scalar, t / scalar, scalar - t, t**scalar, scalar**t):
        assert y.dtype == dtype, y
        t.grad = None
        y.sum().backward()
        assert t.grad.dtype == dtype
    assert ops.maximum(t, scalar).dtype == dtype
    assert ops.where(t.data > 0, t, scalar).dtype == dtype


@given(st.sampled_from("fdil?"), st.sampled_from("fdil?"))
def test_dtypes_of_arrays_follow_numpy(a, b):
    x, y = np.ones(2, a), np.ones(2, b)
    assert (Tensor(x) * Tensor(y)).dtype == (x * y).dtype


def test_numpy_functions_do_not_lose_gradients_silently():
    t = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError):
        np.exp(t)
    with pytest.raises(TypeError, match="lose its gradient"):
        np.concatenate([t, t])
    with no_grad():
        np.testing.assert_array_equal(np.asarray(t), [1, 2])
    np.testing.assert_array_equal(np.asarray(t.detach(), dtype=F32), [1, 2])
    assert t.numpy() is t.data
    copied = np.array(t.detach())
    assert not np.shares_memory(copied, t.data)


def test_integers_carry_no_gradient():
    y = tensor([1.0, 2.0], requires_grad=True).astype(int)
    assert not y.requires_grad and y._node is None


# --------------------------------------------------------------------------------- the methods


METHODS = {
    "sum": (), "mean": (), "var": (), "max": (), "min": (), "logsumexp": (), "cumsum": (0,),
    "softmax": (), "log_softmax": (), "reshape": (3, 2), "transpose": (1, 0), "swapaxes": (0, 1),
    "squeeze": (), "clip": (0.5, 1.0), "exp": (), "log": (), "sqrt": (), "tanh": (),
    "sigmoid": (), "relu": (), "astype": (np.float64,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_are_the_operations(name):
    x = np.random.default_rng(0).uniform(0.3, 2, (2, 3))
    a, b = Tensor(x, requires_grad=True), Tensor(x, requires_grad=True)
    arguments = METHODS[name]
    packed = (arguments,) if name in ("reshape", "transpose") else arguments
    y, z = getattr(a, name)(*arguments), getattr(ops, name)(b, *packed)
    np.testing.assert_array_equal(y.data, z.data)
    y.backward(np.ones(y.shape))
    z.backward(np.ones(z.shape))
    np.testing.assert_array_equal(a.grad, b.grad)


def test_reductions_pass_their_settings_on():
    t = Tensor(np.arange(6.0).reshape(2, 3))
    for name in ("sum", "mean", "max", "min", "var", "logsumexp"):
        y = getattr(t, name)(axis=-1, keepdims=True)
        assert y.shape == (2, 1)
    assert t.var(axis=0, ddof=1).tolist() == [4.5] * 3


def test_shape_methods():
    t = Tensor(np.zeros((2, 3, 4)))
    assert t.T.shape == (4, 3, 2) == t.transpose().shape
    assert t.transpose(0, 2, 1).shape == (2, 4, 3) == t.transpose([0, 2, 1]).shape
    assert t.reshape(6, -1).shape == (6, 4) == t.reshape((6, 4)).shape
    assert t.flatten().shape == (24,) and abs(-t).shape == t.shape
    assert (t.ndim, t.size, t.is_leaf) == (3, 24, True)
