"""ONNX files as bytes: the few protobuf messages a region needs, without importing the onnx package.

Field numbers as in onnx.proto (ONNX 1.16). Equal arguments give equal bytes, so that a message can be a key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES, OPSET, OnnxNode

#: The newest file format that all supported releases of onnxruntime read together with the opset.
IR_VERSION = 8

#: AttributeProto.AttributeType
_FLOAT, _INT, _STRING, _TENSOR, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 6, 7, 8


_SHORT = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first; negative ones as 64 bits in two's complement."""
    if 0 <= number < 128:
        return _SHORT[number]
    if number < 0:
        number += 1 << 64
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _whole(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def _bytes(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _single(field: int, number: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", number)


def attribute(name: str, value: object) -> bytes:
    """An AttributeProto. Raises Unmappable for a value that has no ONNX type."""
    head = _text(1, name)
    if isinstance(value, (bool, int, np.integer)):
        return head + _whole(3, int(value)) + _whole(20, _INT)
    if isinstance(value, (float, np.floating)):
        return head + _single(2, float(value)) + _whole(20, _FLOAT)
    if isinstance(value, str):
        return head + _text(4, value) + _whole(20, _STRING)
    if isinstance(value, np.ndarray):
        return head + _bytes(5, tensor("", value)) + _whole(20, _TENSOR)
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, (bool, int, np.integer)) for item in value):
            return head + b"".join(_whole(8, int(item)) for item in value) + _whole(20, _INTS)
        if all(isinstance(item, str) for item in value):
            return head + b"".join(_text(9, item) for item in value) + _whole(20, _STRINGS)
        if all(isinstance(item, (int, float, np.number)) for item in value):
            return head + b"".join(_single(7, float(item)) for item in value) + _whole(20, _FLOATS)
    raise Unmappable(f"the attribute {name} is a {type(value).__name__}, which ONNX has no form for")


def node(item: OnnxNode) -> bytes:
    """A NodeProto, without a name."""
    parts = [_text(1, name) for name in item.inputs] + [_text(2, name) for name in item.outputs]
    parts.append(_text(4, item.op_type))
    parts += [_bytes(5, attribute(name, value)) for name, value in item.attributes.items() if value is not None]
    return b"".join(parts)


def tensor(name: str, array: np.ndarray) -> bytes:
    """A TensorProto with its numbers inside."""
    dims = b"".join(_whole(1, size) for size in array.shape)
    kind = _whole(2, DATA_TYPES[array.dtype.name])
    return dims + kind + (_text(8, name) if name else b"") + _bytes(9, np.ascontiguousarray(array).tobytes())


def external_tensor(name: str, shape: Sequence[int], dtype: Any) -> bytes:
    """A TensorProto whose numbers are handed over when the session is made."""
    dims = b"".join(_whole(1, size) for size in shape)
    location = _bytes(13, _text(1, "location") + _text(2, name))
    return dims + _whole(2, DATA_TYPES[np.dtype(dtype).name]) + _text(8, name) + location + _whole(14, 1)


def value_info(name: str, rank: int, dtype: Any) -> bytes:
    """A ValueInfoProto with `rank` dimensions, all open."""
    shape = _bytes(2, _bytes(1, b"") * rank)
    return _text(1, name) + _bytes(2, _bytes(1, _whole(1, DATA_TYPES[np.dtype(dtype).name]) + shape))


def model(
    nodes: Iterable[bytes], initializers: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes], name: str
) -> bytes:
    """A ModelProto of the messages of its graph."""
    parts = [_bytes(1, item) for item in nodes]
    parts.append(_text(2, name))
    parts += [_bytes(5, item) for item in initializers]
    parts += [_bytes(11, item) for item in inputs]
    parts += [_bytes(12, item) for item in outputs]
    graph = b"".join(parts)
    opset = _bytes(8, _text(1, "") + _whole(2, OPSET))
    return _whole(1, IR_VERSION) + opset + _text(2, "hybrid_lab") + _bytes(7, graph)
