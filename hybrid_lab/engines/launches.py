"""How often work was handed to a GPU: every launching function counts here. Launches are what small models wait for."""

from __future__ import annotations


class Launches:
    """Launches on a device since the process began.

    kernels : of Triton; replays : captured graphs, each one launch however many kernels it holds
    vendor : products by the vendor's library, calls of torch
    others : what torch is asked for around them: copies into and out of captured graphs, rates of an update
    """

    __slots__ = ("kernels", "others", "replays", "vendor")

    def __init__(self) -> None:
        self.kernels = self.replays = self.vendor = self.others = 0

    def snapshot(self) -> dict[str, int]:
        """The counters as a plain dict, to be compared later."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return "Launches(" + ", ".join(f"{name}={value}" for name, value in self.snapshot().items()) + ")"


launches = Launches()
"""The counters of this process."""
