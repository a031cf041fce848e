"""MXNet's module of this name, as far as ported code uses it: `mx.base.MXNetError` and the tuples of Python types."""

from __future__ import annotations

import os

import numpy as np

from hybrid_lab.diagnostics.errors import MXNetError

__all__ = ["MXNetError", "data_dir", "integer_types", "numeric_types", "string_types"]

integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)


def data_dir() -> str:
    """The folder of data sets and models: that of the environment variable MXNET_HOME, or `~/.mxnet`."""
    local = os.path.join(os.environ.get("APPDATA", "~"), "mxnet") if os.name == "nt" else os.path.join("~", ".mxnet")
    return os.path.expanduser(os.environ.get("MXNET_HOME", local))
