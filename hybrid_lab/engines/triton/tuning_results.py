"""Results of kernel tuning (`mx.tune` on a GPU), kept on disk: an entry for each kernel, chip and set of versions.

Sizes from 16 on are rounded up to powers of two, so near sizes share an entry. It says which candidate was fastest (the
tiles of the rule, other tiles, or the vendor's library), the seconds of each, and why some candidates were left out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from hybrid_lab.engines.store import Store, versions_of
from hybrid_lab.engines.triton.build.compiling import divisible
from hybrid_lab.engines.triton.write.source import KernelSource

#: The version of the entries. An entry of another version counts as missing.
FORMAT = 2
RULE, TILES, VENDOR = "rule", "tiles", "vendor"


@dataclass(frozen=True)
class TuningResult:
    """The fastest candidate of a kernel.

    way : RULE, the tiles that are taken unmeasured; TILES, the tiles in `blocks`, warps, stages; VENDOR, torch's
    library
    seconds : of each candidate, by its name in reports; left_out : candidate -> why it was not even timed
    """

    way: str
    blocks: Mapping[str, int] = field(default_factory=dict)
    warps: int = 4
    stages: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def key_of(sources: Sequence[KernelSource], target: str) -> str:
    """The key of kernels that share a result: a digest of text, dtypes, options, rounded sizes and chip."""
    digest = hashlib.sha256(f"{target}\n".encode())
    for source in sources:
        sizes = {name: _rounded(size) for name, size in source.sizes.items()}, divisible(source)
        parts = [source.kind, source.signature, sizes, dict(source.blocks), source.warps, source.stages]
        digest.update(f"{parts}\n{source.code}".encode())
    return digest.hexdigest()


def _rounded(size: int) -> int:
    return size if size < 16 else 1 << math.ceil(math.log2(size))


def _versions() -> str:
    return f"{FORMAT}; {versions_of('triton', 'pytorch-triton-rocm', 'triton-rocm', 'torch')}"


TUNED = Store("tuned", _versions, 16 << 20)
_known: dict[str, TuningResult] = {}


def recall(key: str) -> TuningResult | None:
    """The result that this process or an earlier one stored under the key, or None."""
    if key not in _known:
        entry = TUNED.get_json(key)
        if entry is not None:
            _known[key] = TuningResult(**entry["choice"])
    return _known.get(key)


def is_empty() -> bool:
    """Whether nothing was ever tuned here; callers then save the time for making a key."""
    return not _known and TUNED.is_empty()


def remember(key: str, kernel: str, result: TuningResult) -> None:
    """Store a result under the key. kernel : the name of the kernel, for people who read the file"""
    _known[key] = result
    TUNED.put_json(key, {"kernel": kernel, "choice": asdict(result)})


def forget() -> None:
    """Forget the results in this process; the results on disk stay."""
    _known.clear()
