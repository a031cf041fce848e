"""mx.engine: MXNet's settings of how many operators are issued together. They have no effect here.

The compilers and runtimes of this package are in `mx.engines`.
"""

from __future__ import annotations

import threading

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = ["bulk", "set_bulk_size"]


class _EngineState(threading.local):
    size = 15
    """MXNet's own value to begin with."""


_state = _EngineState()


def set_bulk_size(size: int) -> int:
    """Keep the number and return the last one. Without effect: an eager operator runs when it is called, and a graph of
    `hybridize()` is compiled as a whole.
    """
    before, _state.size = _state.size, int(size)
    return before


class bulk:  # noqa: N801 - MXNet's name
    """`with mx.engine.bulk(10):` sets the number for the code inside, as `set_bulk_size` does. Without effect."""

    def __init__(self, size: int) -> None:
        self._size, self._before = int(size), 0

    def __enter__(self) -> bulk:
        self._before = set_bulk_size(self._size)
        return self

    def __exit__(self, *error: object) -> None:
        set_bulk_size(self._before)


_suggest_names(__name__)
