"""What `make check` leaves to `make test`: it runs one sample of each record, on NumPy alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

#: Whether this is `make check`.
QUICK = bool(os.environ.get("HYBRID_LAB_QUICK"))
#: Engines that need libraries of seconds.
OTHERS = ("onnxruntime", "torch", "triton")


def engines(*names: str) -> Sequence[str]:
    """The engines of these that run now."""
    return [name for name in names if not (QUICK and name in OTHERS)]


def is_left_out(item: Any) -> bool:
    """Whether a test has another engine than NumPy among its parameters, and this is `make check`."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return QUICK and any(isinstance(value, str) and value in OTHERS for value in values)
