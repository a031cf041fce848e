"""The GPUs that kernels are compiled for, and the data sheets of well-known chips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybrid_lab.diagnostics.errors import EngineError

#: The targets of every table here; further targets that `target_of` knows compile as well.
TARGETS = ("gfx90a", "gfx942", "gfx1100", "sm80", "sm90")
#: AMD architectures that Triton's compiler knows, by threads per warp; compute capabilities of NVIDIA's.
_AMD = {
    64: ("gfx908", "gfx90a", "gfx942", "gfx950"),
    32: (
        "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
    ),
}  # fmt: skip
_NVIDIA = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)
#: What is printed on the box, without spaces and the makers' words -> the target; "" where Triton has none for it.
_CARDS = {
    r"mi100": "gfx908",
    r"mi2[015]0x?": "gfx90a",
    r"mi3(00|08|25)[ax]?": "gfx942",
    r"mi35[05]x?": "gfx950",
    r"rx79\d0.*": "gfx1100",
    r"rx7[78]00.*": "gfx1101",
    r"rx7600.*": "gfx1102",
    r"rx9060.*": "gfx1200",
    r"rx9070.*": "gfx1201",
    r"(rx6\d{3}|rx5\d00|rxvega|mi[56]0|vega).*": "",
    r"t4|rtx20\d0.*": "sm75",
    r"a[18]00.*": "sm80",
    r"a10g?|a40|rtx30\d0.*": "sm86",
    r"orin": "sm87",
    r"l4|l40s?|rtx40\d0.*": "sm89",
    r"g?h[12]00.*|h800|h20": "sm90",
    r"g?b[12]00": "sm100",
    r"g?b300": "sm103",
    r"rtx50\d0.*": "sm120",
    r"p100|v100.*|gtx\d+.*": "",
}
_MAKERS = re.compile(r"amd|nvidia|radeon|instinct|geforce|tesla|jetson|[^a-z0-9]")


def target_of(name: str) -> tuple[str, Any, int]:
    """Triton's (backend, architecture, threads per warp) of "gfx942" or "sm90"; "sm_90" and "sm90a" count too, and
    "gfx942" with the features that ROCm's tools put behind it. Raises EngineError for other names.
    """
    if not isinstance(name, str):
        raise EngineError(f"a target is a name such as 'gfx942' or 'sm90', not {name!r}")
    plain = name.lower().rpartition("--")[2].partition(":")[0]
    for threads, architectures in _AMD.items():
        if plain in architectures:
            return "hip", plain, threads
    match = re.fullmatch(r"sm_?(\d{2,3})[af]?", plain)
    if match is not None and int(match[1]) in _NVIDIA:
        return "cuda", int(match[1]), 32
    card = _MAKERS.sub("", name.lower())
    called = next((target for pattern, target in _CARDS.items() if re.fullmatch(pattern, card)), None)
    if called:
        raise EngineError(f"there is no target {name!r}; a card of this name is {called!r}")
    known = ", ".join((*TARGETS, *(each for each in names() if each not in TARGETS)))
    old = "" if called is None else ", and Triton does not compile for a card of this name"
    raise EngineError(f"there is no target {name!r}{old}; the targets are {known}")


def names() -> tuple[str, ...]:
    """Every name that `target_of` takes, AMD's first."""
    return (*(each for architectures in _AMD.values() for each in architectures), *(f"sm{each}" for each in _NVIDIA))


def name_of(target: tuple[str, object, int]) -> str:
    """ "gfx942" or "sm90" of Triton's target."""
    return f"sm{target[1]}" if target[0] == "cuda" else str(target[1]).split(":")[0]


def supported(name: str) -> bool:
    """Whether Triton compiles for a GPU of this name."""
    try:
        target_of(name)
    except EngineError:
        return False
    return True


#: Bytes of shared memory that one program can have, by compute capability (CUDA's programming guide); AMD's compiler
#: refuses excessive sizes by itself.
SHARED = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 120: 101376, 121: 101376}
MOST_SHARED = 232448


def shared_limit(target: tuple[str, Any, int]) -> int:
    """The most shared memory that a program can have there, in bytes."""
    return 65536 if target[0] == "hip" else SHARED.get(target[1], MOST_SHARED)


@dataclass(frozen=True)
class Chip:
    """bandwidth : of its memory, GB/s; peak : dtype -> TFLOP/s of matrix products with dense operands, as float32
    products are done here (not rounded to tf32)
    """

    name: str
    bandwidth: float
    peak: Mapping[str, float]

    def seconds(self, moved: float, flops: float, dtype: str) -> float:
        """The least time for moving `moved` bytes and doing `flops` operations at once."""
        return max(moved / (self.bandwidth * 1e9), flops / (self.peak.get(dtype, self.peak["float32"]) * 1e12))


#: target -> a chip of that architecture, by the vendors' public data sheets. Of an MI250 a process sees one die.
CHIPS = {
    "gfx90a": Chip("MI210 or one die of an MI250", 1638, {"float16": 181, "float32": 45.3, "float64": 45.3}),
    "gfx942": Chip("MI300X", 5300, {"float16": 1307.4, "float32": 163.4, "float64": 163.4}),
    "gfx1100": Chip("RX 7900 XTX", 960, {"float16": 122.8, "float32": 61.4, "float64": 1.9}),
    "sm80": Chip("A100 80 GB SXM", 2039, {"float16": 312, "float32": 19.5, "float64": 19.5}),
    "sm90": Chip("H100 SXM", 3350, {"float16": 989.4, "float32": 67, "float64": 67}),
}
