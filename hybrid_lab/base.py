"""MXNet's module of this name, as far as ported code uses it: `mx.base.MXNetError` and the tuples of Python types."""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import MXNetError

__all__ = ["MXNetError", "integer_types", "numeric_types", "string_types"]

integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)
