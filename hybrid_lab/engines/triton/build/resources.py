"""Resources of a compiled kernel: registers, spills, shared memory, read from the compilers' output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Resources:
    """registers : 32-bit vector registers of a thread; scalar_registers : of a wave on AMD, 0 elsewhere
    spills : registers of a thread that had to go to memory; scratch : bytes of memory that a thread has of its own
    scalar_spills : scalar registers of a wave that are kept in the lanes of a vector register: an instruction to put
        one there and one to get it back, and no memory
    shared : bytes of shared memory (LDS) of a program; warps : of a program; binary_bytes : size of the binary
    """

    registers: int
    scalar_registers: int
    spills: int
    scratch: int
    shared: int
    warps: int
    binary_bytes: int
    scalar_spills: int = 0

    def data(self) -> dict[str, int]:
        """As a dict."""
        return asdict(self)

    def __str__(self) -> str:
        spills = f"{self.spills} spilled" if self.spills else "none spilled"
        return f"{self.registers} registers ({spills}), {self.shared} bytes of shared memory, {self.warps} warps"


def resources_of(assembly: str, log: str, metadata: Mapping[str, Any], binary_bytes: int) -> Resources:
    """From AMD's assembly text, which ends with the numbers, or from what NVIDIA's ptxas has printed (`log`)."""
    shared, warps = int(metadata.get("shared") or 0), int(metadata.get("num_warps") or 0)
    if ".vgpr_count" in assembly:

        def number(name: str) -> int:
            match = re.search(rf"^\s+\.{name}:\s+(\d+)", assembly, re.M)
            return int(match[1]) if match else 0

        scratch = number("private_segment_fixed_size")
        spills = number("vgpr_spill_count") if scratch else 0  # without memory they are in the matrix units' registers
        return Resources(
            number("vgpr_count"), number("sgpr_count"), spills, scratch, shared, warps, binary_bytes,
            number("sgpr_spill_count"),
        )  # fmt: skip

    def printed(pattern: str) -> int:
        match = re.search(pattern, log)
        return int(match[1]) if match else 0

    spilled = max(printed(r"(\d+) bytes spill stores"), printed(r"(\d+) bytes spill loads"))
    scratch = printed(r"(\d+) bytes stack frame")
    return Resources(printed(r"Used (\d+) registers"), 0, -(-spilled // 4), scratch, shared, warps, binary_bytes)
