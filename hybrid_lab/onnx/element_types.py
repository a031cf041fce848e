"""ONNX's element types: the dtype of an array for each, and what arrays carry in place of types that they lack."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.ops.framework.dtypes import dtype_of

OWN = {
    "FLOAT": "float32", "UINT8": "uint8", "INT8": "int8", "INT32": "int32", "INT64": "int64", "BOOL": "bool",
    "FLOAT16": "float16", "DOUBLE": "float64", "BFLOAT16": "bfloat16",
}  # fmt: skip
"""Types that arrays have."""

CARRIERS = {
    "UINT16": "int32", "INT16": "int32", "UINT32": "int64", "UINT64": "int64",
    "UINT4": "int32", "INT4": "int32", "UINT2": "int32", "INT2": "int32",
    "FLOAT8E4M3FN": "float32", "FLOAT8E4M3FNUZ": "float32", "FLOAT8E5M2": "float32", "FLOAT8E5M2FNUZ": "float32",
    "FLOAT4E2M1": "float32", "FLOAT8E8M0": "float32",
}  # fmt: skip
"""Types that arrays lack, and the dtype that holds their values."""

BITS = {
    "UINT16": 16, "INT16": 16, "UINT32": 32, "UINT64": 64, "UINT4": 4, "INT4": 4, "UINT2": 2, "INT2": 2,
    "UINT8": 8, "INT8": 8, "INT32": 32, "INT64": 64,
}  # fmt: skip
"""Widths of the whole numbers."""


def type_name(number: int) -> str:
    """The name of an element type: 1 -> "FLOAT". Raises ValueError for a number without a type."""
    import onnx

    name: str = onnx.TensorProto.DataType.Name(number)
    return name


def dtype_for(name: str) -> np.dtype | None:
    """The dtype of the arrays that hold values of an element type; None for texts and complex numbers."""
    found = OWN.get(name) or CARRIERS.get(name)
    return None if found is None else dtype_of(found)


def carried(name: str) -> str:
    """The name if arrays carry the type in another one, else ""."""
    return name if name in CARRIERS else ""


def name_for(tensor: Any) -> str:
    """The element type of a Tensor of the importers."""
    if tensor.carries:
        return str(tensor.carries)
    name = tensor.dtype.name
    return next(key for key, value in OWN.items() if value == name)


def limits_of(name: str) -> tuple[int, int]:
    """The least and the largest whole number of a type."""
    bits = BITS[name]
    return (0, 2**bits - 1) if name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


STORED_BITS = {
    "FLOAT": 32, "UINT8": 8, "INT8": 8, "INT32": 32, "INT64": 64, "BOOL": 8, "FLOAT16": 16, "DOUBLE": 64,
    "BFLOAT16": 16, "UINT16": 16, "INT16": 16, "UINT32": 32, "UINT64": 64, "UINT4": 4, "INT4": 4, "UINT2": 2,
    "INT2": 2, "FLOAT4E2M1": 4,
}  # fmt: skip
"""Bits of an element in a file; 8 for all others."""
