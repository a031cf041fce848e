"""Streams and events of the simulated GPU: what is certain to be done before a launch.

Launches run at once, so no result depends on an order that a GPU would not keep. Instead each stream counts its
launches, and knows up to which launch of every other stream it has waited. A launch that touches memory which another
stream may still read or write is refused. Work of torch itself on the device is not counted.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tests.simulated_gpu.memory import Refused

#: The address of the stream that torch launches on at first.
STREAM = 0x5EED0


class SimulatedStream:
    """A stream. device_index, cuda_stream : as torch's; done : address of a stream -> how many of its launches are
    certain to be done when this stream goes on
    """

    device_index = 0

    def __init__(self, streams: Streams, address: int):
        self._streams, self.cuda_stream = streams, address
        self.done: Counter[int] = Counter()

    def record_event(self, event: SimulatedEvent | None = None) -> SimulatedEvent:
        event = SimulatedEvent() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: SimulatedEvent) -> None:
        self.done |= event.done

    def wait_stream(self, other: SimulatedStream) -> None:
        self.done |= other.done

    def synchronize(self) -> None:
        self._streams.host |= self.done

    def query(self) -> bool:
        return True


class SimulatedEvent:
    """A GPU's event, with the time of the host's clock."""

    streams: Streams

    def __init__(self, enable_timing: bool = False, **options: bool):
        self.at, self.done = 0.0, Counter[int]()

    def record(self, stream: SimulatedStream | None = None) -> None:
        self.at = time.perf_counter()
        self.done = Counter((stream or self.streams.current).done)

    def wait(self, stream: SimulatedStream | None = None) -> None:
        (stream or self.streams.current).wait_event(self)

    def synchronize(self) -> None:
        self.streams.host |= self.done

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: SimulatedEvent) -> float:
        return (other.at - self.at) * 1e3


class Streams:
    """All streams of the device; torch's current one; host : launches that the host has waited for."""

    def __init__(self) -> None:
        self._known: dict[int, SimulatedStream] = {}
        self.host: Counter[int] = Counter()
        self.current = self.at(STREAM)
        #: Start of an allocation -> stream -> the number of its last launch that read, and that wrote there.
        self._reads: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._writes: defaultdict[int, Counter[int]] = defaultdict(Counter)
        SimulatedEvent.streams = self

    def at(self, address: int, device: object = None) -> SimulatedStream:
        """The stream at an address, as torch.cuda.ExternalStream."""
        return self._known.setdefault(address, SimulatedStream(self, address))

    def new(self, *options: object, **more: object) -> SimulatedStream:
        """As torch.cuda.Stream."""
        return self.at(STREAM + 0x100 * len(self._known))

    def set(self, stream: SimulatedStream) -> None:
        """As torch.cuda.set_stream."""
        self.current = stream

    @contextlib.contextmanager
    def within(self, stream: SimulatedStream) -> Iterator[None]:
        """As torch.cuda.stream."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, device: object = None) -> None:
        """The host waits for everything."""
        for stream in self._known.values():
            stream.synchronize()

    def check(self, address: int) -> None:
        """Raises Refused for the address of no stream."""
        if address not in self._known:
            raise Refused(f"there is no stream {address:#x}")

    def launched(self, address: int, touched: Mapping[int, bool]) -> None:
        """Count a launch on a stream. touched : start of an allocation -> whether it was written to

        Raises Refused if another stream may still be at that memory.
        """
        stream = self.at(address)
        stream.done |= self.host
        stream.done[address] += 1
        for start, writes in touched.items():
            before = self._writes[start] | self._reads[start] if writes else self._writes[start]
            for other, number in before.items():
                if other != address and stream.done[other] < number:
                    raise Refused(f"stream {address:#x} does not wait for {other:#x}, which uses the same memory")
            (self._writes if writes else self._reads)[start][address] = stream.done[address]

    def forget(self, start: int) -> None:
        """New memory begins at an address where other memory was."""
        self._reads.pop(start, None)
        self._writes.pop(start, None)
