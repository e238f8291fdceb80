"""The protocol: what is sent comes back, and nonsense is refused, never unpickled."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx.grading import wire

DTYPES = ["<f4", "<f8", "<f2", "<i8", "<i4", "u1", "?", "<c16"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    )
)
plain = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5)
values = st.recursive(
    plain | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def there_and_back(message):
    stream = io.BytesIO()
    wire.send(stream, message)
    stream.seek(0)
    return wire.receive(stream)


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and (a == b or a != a)


@given(values)
def test_values_come_back(value):
    assert same(value, there_and_back({"value": value})["value"])


@given(st.binary(max_size=200))
def test_nonsense_is_refused(data):
    with contextlib.suppress(wire.WireError):
        assert wire.receive(io.BytesIO(data)) in (None, {})


@given(st.binary(max_size=60), st.integers(0, 80))
def test_a_damaged_frame_is_refused_or_read(damage, at):
    stream = io.BytesIO()
    wire.send(stream, {"id": "x", "value": [np.ones((2, 2)), 1.5, "text"]})
    data = bytearray(stream.getvalue())
    data[at : at + len(damage)] = damage
    with contextlib.suppress(wire.WireError):  # anything else is a fault
        wire.receive(io.BytesIO(bytes(data)))


@pytest.mark.parametrize(
    "value", [object(), len, {1, 2}, np.array([object()]), np.ma.masked_array([1.0]), 10**400]
)
def test_other_things_travel_as_their_type_only(value):
    assert isinstance(there_and_back({"value": value})["value"], wire.Opaque)


def test_big_endian_and_strided_arrays_keep_their_values():
    array = np.arange(12.0).reshape(3, 4).astype(">f8")[::-1, ::2]
    back = there_and_back({"value": array})["value"]
    np.testing.assert_array_equal(back, array)


def test_end_of_stream_and_half_a_frame():
    assert wire.receive(io.BytesIO(b"")) is None
    stream = io.BytesIO()
    wire.send(stream, {"id": "x"})
    for cut in range(1, len(stream.getvalue())):
        with pytest.raises(wire.WireError):
            wire.receive(io.BytesIO(stream.getvalue()[:cut]))
