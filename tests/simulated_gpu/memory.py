"""Memory of the simulated GPU: which addresses belong to it, and what a kernel reads and writes there.

The device's memory is what torch allocated for a tensor whose address was asked for. A NumPy array is memory of the
host, also as a tensor. While a kernel runs, each address that it loads from or stores to is held against the
allocations of its arguments, as compute-sanitizer's memcheck does on a GPU.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

#: Bytes from an argument's address that AMD's buffer instructions reach, with offsets of 32 bits.
BUFFER = 1 << 31


class Refused(AssertionError):
    """A launch that a GPU would refuse, or run wrongly."""


class Allocation(NamedTuple):
    """Bytes from `start` up to `end`; storage : a weak reference, which expires when torch frees the bytes"""

    start: int
    end: int
    storage: Any


class DeviceMemory:
    """The allocations whose addresses were asked for (`Tensor.data_ptr`).

    forget : is called with the start of an allocation that takes the place of a freed one
    """

    def __init__(self, forget: Callable[[int], None]) -> None:
        self._forget = forget
        self._starts: list[int] = []
        self._allocations: dict[int, Allocation] = {}

    def listen(self) -> None:
        """Note the allocation of each tensor of this process whose address is asked for."""
        import torch

        plain: Callable[[Any], int] = torch.Tensor.data_ptr

        def data_ptr(tensor: Any) -> int:
            address = plain(tensor)
            if address:
                self._note(tensor)
            return address

        torch.Tensor.data_ptr = data_ptr  # type: ignore[assignment]

    def _note(self, tensor: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = tensor.untyped_storage()
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        known = self._allocations.get(start)
        if known is not None and known.end == end and not known.storage.expired():
            return
        if storage.resizable():  # memory of NumPy, which torch did not allocate, is not
            if known is None:
                bisect.insort(self._starts, start)
            self._forget(start)
            self._allocations[start] = Allocation(start, end, StorageWeakRef(storage))

    def at(self, address: int, what: str) -> Allocation:
        """The allocation that holds an address. what : the address, in words. Raises Refused"""
        freed = False
        for place in range(bisect.bisect_right(self._starts, address) - 1, -1, -1):
            found = self._allocations[self._starts[place]]
            if not found.storage.expired():
                if address < found.end:
                    return found
                break
            freed = freed or address < found.end
            del self._allocations[self._starts.pop(place)]
        raise Refused(f"{what} is {address:#x}, " + ("memory that was freed" if freed else "no memory of the device"))

    def alive(self) -> list[Allocation]:
        """All allocations that torch has not freed."""
        return [each for each in self._allocations.values() if not each.storage.expired()]


class Accesses:
    """What one launch reads and writes.

    allowed : the allocations that it may touch; addresses : of pointer arguments that AMD's buffer instructions load
    from, if all of the launch's do
    writes : start of each allocation that was touched -> whether it was written to
    """

    def __init__(self, allowed: Collection[Allocation], addresses: Collection[int] = ()):
        self._allowed = sorted(set(allowed))
        self._starts = [each.start for each in self._allowed]
        self._addresses = addresses
        self.writes: dict[int, bool] = {}

    def check(self, places: np.ndarray, itemsize: int, writes: bool) -> None:
        """Raises Refused if one of the places, addresses of elements, is outside."""
        first, last = int(places.min()), int(places.max())
        found = self._holding(first, itemsize, writes)
        if last + itemsize > found.end:  # in another allocation, or outside
            for place in np.unique(places):
                self._holding(int(place), itemsize, writes)
        if self._addresses and last - min(self._addresses) >= BUFFER:
            self._reached(last)

    def _holding(self, place: int, itemsize: int, writes: bool) -> Allocation:
        index = max(bisect.bisect_right(self._starts, place) - 1, 0)
        found = self._allowed[index]
        if not found.start <= place <= found.end - itemsize:
            behind = [(place - each.end, "behind the end") for each in self._allowed if each.end <= place + itemsize]
            before = [(each.start - place, "before the beginning") for each in self._allowed if each.start > place]
            away, where = min(behind + before)
            raise Refused(
                f"it {'stores' if writes else 'loads'} {max(away, 0):,} bytes {where} of an argument's memory"
            )
        self.writes[found.start] = writes or self.writes.get(found.start, False)
        return found

    def _reached(self, place: int) -> None:
        for address in self._addresses:
            index = bisect.bisect_right(self._starts, address) - 1
            if address <= place < min(self._allowed[index].end, address + BUFFER):
                return
        raise Refused("an address is 2 GiB or more behind its argument, which offsets of 32 bits do not reach")


def watch_interpreter(watching: Callable[[], Accesses | None]) -> None:
    """Check every load and store of Triton's interpreter.

    watching : what the running launch may touch; None if it is no launch of the simulated GPU
    """
    from triton.runtime.interpreter import InterpreterBuilder

    def checked(method: Callable[..., Any], mask_at: int, writes: bool) -> Callable[..., Any]:
        def run(builder: Any, pointers: Any, *more: Any) -> Any:
            accesses = watching()
            if accesses is not None:
                places = pointers.data[np.broadcast_to(more[mask_at].data, pointers.data.shape)]
                if places.size:
                    accesses.check(places, max(pointers.get_element_ty().primitive_bitwidth // 8, 1), writes)
            return method(builder, pointers, *more)

        return run

    InterpreterBuilder.create_masked_load = checked(InterpreterBuilder.create_masked_load, 0, False)
    InterpreterBuilder.create_masked_store = checked(InterpreterBuilder.create_masked_store, 1, True)
    # (operation, pointers, value, mask, ...): the operation comes first.
    rmw = InterpreterBuilder.create_atomic_rmw

    def atomic(builder: Any, operation: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        return checked(lambda b, p, v, m, *rest: rmw(b, operation, p, v, m, *rest), 1, True)(
            builder, pointers, value, mask, *more
        )

    InterpreterBuilder.create_atomic_rmw = atomic
