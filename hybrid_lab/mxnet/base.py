"""MXNet's module of this name, as far as ported code uses it: `mx.base.MXNetError`, tuples of Python types, texts."""

from __future__ import annotations

import os

import numpy as np

from hybrid_lab.diagnostics.errors import MXNetError, NotSupportedForSparseNDArray
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = [
    "MXNetError",
    "NotImplementedForSymbol",
    "NotSupportedForSparseNDArray",
    "data_dir",
    "integer_types",
    "mx_real_t",
    "numeric_types",
    "py_str",
    "string_types",
]

integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)
NotImplementedForSymbol = HybridizeError
"""The name under which ported code catches what a Symbol refuses: `bool(x)`, `x.asnumpy()`, `x += 1`."""
mx_real_t = np.float32


def py_str(text: bytes | str) -> str:
    """The text of bytes in UTF-8; a text unchanged, since a Monitor's callback gets a text here, and bytes in MXNet."""
    return text if isinstance(text, str) else text.decode("utf-8")


def as_list(item: object) -> list[object]:
    """A list or tuple as a list, anything else as a list of one."""
    return list(item) if isinstance(item, (list, tuple)) else [item]


_as_list = as_list
"""MXNet's name; libraries take it from here, and from mxnet.module.base_module."""


def data_dir() -> str:
    """The folder of data sets and models: the environment variable MXNET_HOME, or `~/.mxnet`."""
    local = os.path.join(os.environ.get("APPDATA", "~"), "mxnet") if os.name == "nt" else os.path.join("~", ".mxnet")
    return os.path.expanduser(os.environ.get("MXNET_HOME", local))


_suggest_names(__name__)
