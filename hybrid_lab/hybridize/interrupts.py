"""Interrupts: holds a Ctrl-C back until all parameters and states that belong together are written."""

from __future__ import annotations

# The C module below `signal`: there every call converts numbers to enumeration members, 20 µs instead of less than 1.
import _signal
import threading
from collections.abc import Callable

_INTERRUPT: int = _signal.SIGINT


class Interrupts:
    """`with interrupts:` delays an interrupt (Ctrl-C, a notebook's stop button) until the end of the block, so that
    parameters, optimizer states and counters are all from before a step or all from after it. Blocks may be nested.

    Interrupts reach the main thread only; in other threads, and if the program has a handler that is not Python's, the
    block is an ordinary block.
    """

    def __init__(self) -> None:
        self._hold = self._note  # one object, to be recognized
        self._handler: Callable[[int, object], object] | None = None
        self._depth, self._pending = 0, False

    def _note(self, number: int, frame: object) -> None:
        if self._depth:
            self._pending = True
        elif self._handler is not None:
            self._handler(number, frame)

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if self._depth:
            self._depth += 1
            return
        handler = _signal.getsignal(_INTERRUPT)
        if not callable(handler):
            return
        if handler is not self._hold:  # else an earlier block did not come to its end
            self._handler = handler
            _signal.signal(_INTERRUPT, self._hold)
        self._depth = 1

    def __exit__(self, *error: object) -> None:
        if not self._depth or threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth:
            return
        _signal.signal(_INTERRUPT, self._handler)
        if self._pending:
            self._pending = False
            assert self._handler is not None
            self._handler(_INTERRUPT, None)


interrupts = Interrupts()
"""Those of this process."""
