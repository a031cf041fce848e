"""Changes after which compiled calls must look at their parameters again: a call compares `count` instead.

A change: a Parameter got other arrays or another grad_req, or the memory of an array was handed to another library.
Writes into arrays do not count.
"""

from __future__ import annotations

import itertools

_numbers = itertools.count(1)
#: Another number after every change in this process.
count = 0


def happened() -> None:
    """Record a change, after it."""
    global count
    count = next(_numbers)
