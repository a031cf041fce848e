"""Arenas and frames: the memory of one running program, kept between calls or borrowed from a pool."""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import forks
from hybrid_lab.graph.plan import ALIGNMENT

#: Programs with arenas up to this size keep their own; larger ones borrow, so that many graphs share the same memory.
KEEP_BYTES = 1 << 18
#: Of its own arenas a program holds on to no more than so many bytes while it does not run.
IDLE_BYTES = 1 << 26
#: How many free arenas the pool holds on to.
POOL_LIMIT = 4


class Arena:
    """Aligned memory, with the frames that programs have laid over it. memory : an array, or a tensor on a device"""

    __slots__ = ("__weakref__", "frames", "memory")

    def __init__(self, memory: np.ndarray):
        self.memory = memory
        self.frames: weakref.WeakKeyDictionary[Frames, Frame] = weakref.WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        return int(self.memory.nbytes)


def host_memory(nbytes: int) -> np.ndarray:
    """So many bytes, aligned for every kernel."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


class ArenaPool:
    """Free arenas that programs borrow for the time of one call.

    allocate : the memory of a new arena, of so many bytes
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
    """Give the system back free arenas, and what the C library keeps of memory that has been freed."""
    POOL.clear()
    give_back = getattr(_c_library(), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


@functools.cache
def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # there is no such handle on Windows
        return None


class Scratch:
    """Temporary memory of kernels at the end of an arena: `scratch(shape, dtype)` until the kernel returns.

    What does not fit is allocated, and `peak` remembers how much would have been enough.
    size : bytes that there are
    """

    __slots__ = ("_first", "memory", "peak", "size", "top")

    def __init__(self, memory: np.ndarray):
        self.memory, self.size, self.peak, self.top = memory, memory.nbytes, 0, 0
        self._first: dict[Hashable, tuple[np.ndarray, int]] = {}  # what lay at the beginning before, with its end

    def fresh(self) -> Scratch:
        """Everything handed out before may be overwritten from now on."""
        self.top = 0
        return self

    def __call__(self, shape: int | tuple[int, ...] | list[int], dtype: DTypeLike = np.float32) -> np.ndarray:
        start, key = self.top, (shape, dtype)
        if not start and type(shape) is tuple:
            known = self._first.get(key)
            if known is not None:
                self.top = known[1]
                return known[0]
        dtype = np.dtype(dtype)
        size = math.prod(shape) if isinstance(shape, (tuple, list)) else shape
        self.top = start + -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        if self.top > self.peak:
            self.peak = self.top
        if self.top > self.size:
            return np.empty(shape, dtype)
        array = np.ndarray(shape, dtype, self.memory, start)
        if not start and type(shape) is tuple:
            self._first[key] = array, self.top
        return array


#: (scratch, array, array, ...): everything of a program that lies at fixed places of one arena.
Frame = tuple[Any, ...]
#: An arena nobody else uses for now, the frame of the program that took it, and the frame of the backward that runs in
#: the same arena, once there is one.
Lease = list[Any]


class Frames:
    """The frames of one program.

    layout : (memory) -> the arrays
    keep : whether arenas stay with the program; else one is borrowed from the pool per call
    """

    __slots__ = ("__weakref__", "arena_bytes", "idle", "keep", "layout", "pool", "scratch_bytes")

    def __init__(self, layout: Callable[[Any], Frame], arena_bytes: int, keep: bool, pool: ArenaPool = POOL):
        self.layout, self.arena_bytes, self.keep, self.pool = layout, arena_bytes, keep, pool
        self.scratch_bytes = 0
        self.idle: deque[Lease] = deque(maxlen=max(4, IDLE_BYTES // max(arena_bytes, 1)))

    def take(self) -> Lease:
        """A frame for one call; hand it back with `give`, or drop it after an error."""
        try:
            return self.idle.pop()
        except IndexError:
            pass
        arena = Arena(self.pool.allocate(self.nbytes)) if self.keep else self.pool.take(self.nbytes)
        return [arena, self.over(arena), None]

    def over(self, arena: Arena) -> Frame:
        """The program's frame on an arena that is taken already."""
        frame = arena.frames.get(self)
        if frame is None or frame[0].memory.nbytes < min(self.scratch_bytes, arena.nbytes - self.arena_bytes):
            scratch = Scratch(arena.memory[self.arena_bytes :])
            frame = arena.frames[self] = (scratch, *self.layout(arena.memory))
        return frame

    @property
    def nbytes(self) -> int:
        return self.arena_bytes + self.scratch_bytes

    def give(self, lease: Lease) -> None:
        """A frame whose scratch memory was too small is replaced at the next call."""
        scratch: Scratch = lease[1][0]
        self.wants(scratch.peak)
        if not self.keep:
            self.pool.give(lease[0])
        elif scratch.memory.nbytes >= self.scratch_bytes:
            self.idle.append(lease)

    def wants(self, scratch_bytes: int) -> None:
        """Arenas made from now on have room for that much scratch memory."""
        if scratch_bytes > self.scratch_bytes:
            self.scratch_bytes = scratch_bytes
