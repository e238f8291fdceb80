"""How grader and student process talk: frames of JSON and raw array bytes, never pickle.

A frame is two little-endian lengths, a JSON header and a body; arrays in the header point into the
body. This file is loaded in the student's process too, where minitx cannot be imported, so it
imports the standard library and NumPy alone.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

import numpy as np

MAX_HEADER = 4_000_000  # bytes
MAX_BODY = 32_000_000  # bytes
MAX_DEPTH = 6  # nesting of lists in an answer
_LENGTHS = struct.Struct("<II")
_KINDS = "biufc"  # bool, integers, floats, complex: dtypes that are plain bytes


class WireError(Exception):
    """What came is not a frame, or a value that cannot be sent."""


class Opaque:
    """An answer that is no number, text, list, dictionary or array: only its type travels."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name


def _pack(value: Any, body: list[bytes], depth: int) -> dict:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        if (kind is str and len(value) > 10_000) or (kind is int and value.bit_length() > 512):
            return {"other": f"{kind.__name__} too large to send"}
        return {"plain": value}
    if isinstance(value, (np.ndarray, np.generic)):
        if kind is not np.ndarray and isinstance(value, np.ndarray):
            return {"other": kind.__name__}  # masked arrays, matrices: not what was asked for
        if value.dtype.kind not in _KINDS:
            return {"other": f"array of dtype {value.dtype}"}
        if value.nbytes + sum(map(len, body)) > MAX_BODY:
            return {"other": f"array of shape {value.shape}, too large to send"}
        value = value.astype(value.dtype.newbyteorder("="), copy=False)
        body.append(value.tobytes())
        return {
            "array": [value.dtype.str, list(value.shape)],
            "scalar": kind is not np.ndarray,
        }
    if depth < MAX_DEPTH and kind in (list, tuple):
        return {kind.__name__: [_pack(item, body, depth + 1) for item in value]}
    if depth < MAX_DEPTH and kind is dict:
        return {
            "dict": [
                [_pack(k, body, MAX_DEPTH), _pack(v, body, depth + 1)] for k, v in value.items()
            ]
        }
    return {"other": kind.__name__}


def _unpack(node: Any, body: bytes, at: list[int], depth: int = 0) -> Any:
    if not isinstance(node, dict) or depth > MAX_DEPTH + 1:
        raise WireError("not a value")
    if "plain" in node:
        value = node["plain"]
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise WireError("not a plain value")
        return value
    if "other" in node:
        return Opaque(str(node["other"])[:200])
    if "array" in node:
        dtype = np.dtype(str(node["array"][0]))
        shape = tuple(int(n) for n in node["array"][1])
        if dtype.kind not in _KINDS or len(shape) > 32 or min(shape, default=0) < 0:
            raise WireError("not an array of numbers")
        size = dtype.itemsize
        for n in shape:
            size *= n
        if at[0] + size > len(body):
            raise WireError("array longer than its frame")
        flat = np.frombuffer(body, dtype, count=size // dtype.itemsize, offset=at[0])
        at[0] += size
        array = flat.reshape(shape).copy()
        return array[()] if node.get("scalar") else array
    for name, make in (("list", list), ("tuple", tuple)):
        if name in node:
            return make(_unpack(item, body, at, depth + 1) for item in node[name])
    if "dict" in node:
        return {
            _unpack(k, body, at, depth + 1): _unpack(v, body, at, depth + 1)
            for k, v in node["dict"]
        }
    raise WireError("not a value")


def send(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write one frame and flush.

    Raises
    ------
    WireError
        If the message is larger than a frame may be.
    """
    body: list[bytes] = []
    header = json.dumps({key: _pack(value, body, 0) for key, value in message.items()}).encode()
    joined = b"".join(body)
    if len(header) > MAX_HEADER or len(joined) > MAX_BODY:
        raise WireError("the message is too large")
    stream.write(_LENGTHS.pack(len(header), len(joined)) + header + joined)
    stream.flush()


def receive(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one frame; ``None`` at the end of the stream.

    Raises
    ------
    WireError
        If what comes is not a frame.
    """
    start = stream.read(_LENGTHS.size)
    if not start:
        return None
    if len(start) < _LENGTHS.size:
        raise WireError("half a frame")
    header_size, body_size = _LENGTHS.unpack(start)
    if header_size > MAX_HEADER or body_size > MAX_BODY:
        raise WireError("not a frame")
    header, body = stream.read(header_size), stream.read(body_size)
    if len(header) < header_size or len(body) < body_size:
        raise WireError("half a frame")
    try:
        tree = json.loads(header)
        at = [0]
        return {str(key): _unpack(node, body, at) for key, node in tree.items()}
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError) as error:
        raise WireError("not a frame") from error
