"""Settings of the process and of the thread that code may ask for, as values that are compared."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.context import current_context
from hybrid_lab.mxnet.util import is_np_array, is_np_shape

#: Functions that tell of a setting.
STATES: dict[str, Callable[[], Any]] = {
    "current_context": lambda: str(current_context()), "get_printoptions": lambda: repr(np.get_printoptions()),
    "getcwd": os.getcwd, "geterr": lambda: repr(np.geterr()), "getrecursionlimit": sys.getrecursionlimit,
    "is_np_array": is_np_array, "is_np_shape": is_np_shape,
}  # fmt: skip


def decimal_context() -> str:
    """What the numbers of `decimal` are computed with, without the flags that computing sets."""
    context: Any = sys.modules["decimal"].getcontext()
    return repr((context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp))
