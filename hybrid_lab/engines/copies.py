"""How often numbers went from the host to a device and back: whoever copies counts here."""

from __future__ import annotations


class Copies:
    """How many arrays were copied between host and device since the process began, and how many bytes.

    to_host, to_device : counts; to_host_bytes, to_device_bytes
    reads : how often user code took the numbers out (asnumpy, printing, float(x) ...)
    """

    __slots__ = ("reads", "to_device", "to_device_bytes", "to_host", "to_host_bytes")

    def __init__(self) -> None:
        self.to_host = self.to_device = self.to_host_bytes = self.to_device_bytes = self.reads = 0

    def snapshot(self) -> dict[str, int]:
        """The counters as a plain dict, to be compared later."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return "Copies(" + ", ".join(f"{name}={value}" for name, value in self.snapshot().items()) + ")"


copies = Copies()
"""The counters of this process."""
