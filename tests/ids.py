"""Names of parametrized values that are the same in every process, as pytest-xdist needs them."""

from __future__ import annotations

import re


def without_address(value: object) -> str:
    """`repr` of a value without the address of an object in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
