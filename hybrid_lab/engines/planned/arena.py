"""Arenas: the memory of one running program, kept between calls or borrowed from a pool."""

from __future__ import annotations

import functools
import math
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.graph.memory.plan import ALIGNMENT
from hybrid_lab.system import forks

#: Programs with arenas up to this size keep their own; larger ones borrow, so that many graphs share the same memory.
KEEP_BYTES = 1 << 18
#: Maximum bytes of its own arenas that a program keeps while it does not run.
IDLE_BYTES = 1 << 26
#: How many free arenas the pool holds on to.
POOL_LIMIT = 4
#: How many arrays an arena remembers that were the first temporary memory of a kernel.
FIRST_PIECES = 256
#: The arrays of a program that lie at fixed places of one arena.
Frame = tuple[Any, ...]


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Arena:
    """The memory of one running program: planned values lie at its beginning, temporary memory of kernels behind them.

    memory : its bytes, an array, or a tensor on a device; nbytes : how many
    peak : bytes that the programs so far would have needed
    frame : the arrays of the program that runs in it, each at its place
    backward_frame : the arrays of the backward of that program; None before its first run
    frames : the arrays of all programs that have run in it
    stream : of a device, on which the last of them was launched

    `arena.scratch(start)` is the arena with all temporary memory from byte `start` on free again; `arena(shape, dtype)`
    takes a piece of it. What does not fit is allocated, and `peak` says how large an arena would have been enough.
    """

    memory: Any
    nbytes: int = field(init=False)
    peak: int = 0
    stream: int | None = None
    frame: Frame = ()
    backward_frame: Frame | None = None
    frames: weakref.WeakKeyDictionary[Frames, Frame] = field(default_factory=weakref.WeakKeyDictionary)
    _start: int = 0
    _top: int = 0
    #: The first pieces behind a start, with their ends.
    _first: dict[Hashable, tuple[np.ndarray, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nbytes = int(self.memory.nbytes)

    def scratch(self, start: int) -> Arena:
        self._start = self._top = start
        return self

    def __call__(self, shape: int | tuple[int, ...] | list[int], dtype: DTypeLike = np.float32) -> np.ndarray:
        begin = self._top
        is_first = begin == self._start and type(shape) is tuple
        if is_first:
            key = (begin, shape, dtype)
            known = self._first.get(key)
            if known is not None:
                self._top = known[1]
                return known[0]
        dtype = np.dtype(dtype)
        size = math.prod(shape) if isinstance(shape, (tuple, list)) else shape
        self._top = begin + -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        if self._top > self.peak:
            self.peak = self._top
        if self._top > self.nbytes:
            return np.empty(shape, dtype)
        array = np.ndarray(shape, dtype, self.memory, begin)
        if is_first:
            if len(self._first) >= FIRST_PIECES:  # programs come and go while the pool keeps an arena
                self._first.clear()
            self._first[key] = array, self._top
        return array


def host_memory(nbytes: int) -> np.ndarray:
    """This number of bytes, aligned for every kernel."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


class ArenaPool:
    """Free arenas that programs borrow for the time of one call.

    allocate : the memory of a new arena, of the given number of bytes
    """

    def __init__(self, allocate: Callable[[int], Any] = host_memory) -> None:
        self.allocate = allocate
        self._free: list[Arena] = []
        self._returned: deque[Arena] = deque()
        self._lock = forks.lock()

    def take(self, nbytes: int) -> Arena:
        """The smallest free arena that is large enough, or a new one; the largest free one, outgrown, goes then."""
        with self._lock:
            self._sort_in()
            fitting = [arena for arena in self._free if arena.nbytes >= nbytes]
            if fitting:
                best = min(fitting, key=lambda arena: arena.nbytes)
                self._free.remove(best)
                return best
            if self._free:
                self._free.remove(max(self._free, key=lambda arena: arena.nbytes))
        return Arena(self.allocate(nbytes))

    def give(self, arena: Arena) -> None:
        """Take it back. Never waits: the garbage collector may call this in the middle of `take`."""
        self._returned.append(arena)
        if self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())
            if len(self._free) > POOL_LIMIT:
                self._free.remove(min(self._free, key=lambda arena: arena.nbytes))

    @property
    def nbytes(self) -> int:
        """Bytes held while no program runs."""
        return sum(arena.nbytes for arena in (*self._free, *self._returned))

    def clear(self) -> None:
        with self._lock:
            self._returned.clear()
            self._free.clear()


POOL = ArenaPool()


def trim() -> None:
    """Give free arenas and the C library's freed memory back to the system."""
    POOL.clear()
    give_back = getattr(_c_library(), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


@functools.cache
def _c_library() -> object:
    try:
        import ctypes

        return ctypes.CDLL(None)
    except (ImportError, OSError, TypeError):  # there is none in a browser, and no such handle on Windows
        return None


class Frames:
    """The arenas in which one program runs, and its arrays there.

    layout : (memory) -> the arrays
    nbytes : size of a new arena: planned values, and as much temporary memory as kernels were seen to take
    keep : whether arenas stay with the program; else one is borrowed from the pool per call
    idle : with `keep`, the arenas in which no call runs
    """

    __slots__ = ("__weakref__", "idle", "keep", "layout", "nbytes", "pool")

    def __init__(self, layout: Callable[[Any], Frame], nbytes: int, keep: bool, pool: ArenaPool = POOL):
        self.layout, self.nbytes, self.keep, self.pool = layout, nbytes, keep, pool
        self.idle: deque[Arena] = deque(maxlen=max(4, IDLE_BYTES // max(nbytes, 1)))

    def take(self) -> Arena:
        """An arena for one call, with the program's frame; hand it back with `give`, or drop it after an error."""
        try:
            return self.idle.pop()
        except IndexError:
            pass
        arena = Arena(self.pool.allocate(self.nbytes)) if self.keep else self.pool.take(self.nbytes)
        arena.frame, arena.backward_frame, arena.peak = self.over(arena), None, 0
        return arena

    def over(self, arena: Arena) -> Frame:
        """The program's frame in an arena that is taken already."""
        frame = arena.frames.get(self)
        if frame is None:
            frame = arena.frames[self] = self.layout(arena.memory)
        return frame

    def give(self, arena: Arena) -> None:
        """Take an arena back. An arena too small for the temporary memory is replaced at the next call."""
        self.nbytes = max(self.nbytes, arena.peak)
        if not self.keep:
            self.pool.give(arena)
        elif arena.nbytes >= self.nbytes:
            self.idle.append(arena)
