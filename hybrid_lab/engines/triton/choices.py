"""What tuning has found, on disk: one small JSON file for each kernel, sizes up to powers of two, chip and versions.

A file is made by one rename, complete, and says whether the rule's tiles, others or the vendor's library won, with the
seconds of each candidate and why some were left out. Files that cannot be read, or do not say what they should, are
ignored; a folder that cannot be written to is none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hybrid_lab.engines.cache import cache_folder, read_file, write_file
from hybrid_lab.engines.triton.building.compiling import divisible
from hybrid_lab.engines.triton.writing.source import KernelSource

#: Changes when files of before must not be believed any more.
FORMAT = 1
RULE, TILES, VENDOR = "rule", "tiles", "vendor"


@dataclass(frozen=True)
class Choice:
    """way : RULE, the tiles that are taken unmeasured; TILES, those in blocks, warps, stages; VENDOR, torch's library
    seconds : of each candidate, as it is called in reports; left_out : candidate -> why it was not even timed
    """

    way: str
    blocks: Mapping[str, int] = field(default_factory=dict)
    warps: int = 4
    stages: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def read(data: Any) -> Choice | None:
        """Of JSON's dicts and numbers; None where they do not say what they should."""
        if not isinstance(data, dict) or set(data) != set(Choice.__dataclass_fields__):
            return None
        blocks, seconds, reasons = data["blocks"], data["seconds"], data["left_out"]
        numbers = all(_is_power(size) for size in blocks.values()) if isinstance(blocks, dict) else False
        times = isinstance(seconds, dict) and all(type(item) is float and item >= 0 for item in seconds.values())
        texts = isinstance(reasons, dict) and all(isinstance(item, str) for item in reasons.values())
        options = _is_power(data["warps"]) and data["warps"] <= 32
        options = options and (data["stages"] is None or (type(data["stages"]) is int and 0 < data["stages"] <= 8))
        right = numbers and times and texts and options and data["way"] in (RULE, TILES, VENDOR)
        return Choice(**data) if right else None


def _is_power(number: Any) -> bool:
    return type(number) is int and 0 < number <= 4096 and number & (number - 1) == 0


def key_of(sources: Sequence[KernelSource], target: str) -> str:
    """A name for kernels that the same choice should suit: text, dtypes, options, rounded sizes, chip and versions."""
    digest = hashlib.sha256(f"{FORMAT} {target} {_versions()}\n".encode())
    for source in sources:
        sizes = {name: _rounded(size) for name, size in source.sizes.items()}, divisible(source)
        parts = [source.kind, source.signature, sizes, dict(source.blocks), source.warps, source.stages]
        digest.update(f"{parts}\n{source.code}".encode())
    return digest.hexdigest()[:40]


def _rounded(size: int) -> int:
    return size if size < 16 else 1 << math.ceil(math.log2(size))


@functools.cache
def _versions() -> str:
    found = []
    for package in ("triton", "pytorch-triton-rocm", "triton-rocm", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return "; ".join(found)


_known: dict[str, Choice] = {}


def folder() -> Path | None:
    """Where the files are; None where nothing is kept on disk."""
    return cache_folder("tuned")


def recall(key: str) -> Choice | None:
    """What was found, in this process or an earlier one; None where nothing was."""
    place = folder()
    if key not in _known and place is not None and key in _names(place):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found = json.loads(read_file(place / f"{key}.json"))
            right = isinstance(found, dict) and found.get("key") == key
            choice = Choice.read(found.get("choice")) if right else None
            if choice is not None:
                _known[key] = choice
    return _known.get(key)


def is_empty() -> bool:
    """Whether nothing was ever tuned here: then nobody need make a key."""
    place = folder()
    return not _known and (place is None or not _names(place))


def _names(place: Path) -> frozenset[str]:
    """The keys of the files that are there: most kernels have none, and a look at the folder tells so for all."""
    try:
        return _listed(place, os.stat(place).st_mtime_ns)
    except OSError:
        return frozenset()


@functools.lru_cache(maxsize=4)
def _listed(place: Path, changed: int) -> frozenset[str]:
    return frozenset(name.removesuffix(".json") for name in os.listdir(place) if name.endswith(".json"))


def remember(key: str, kernel: str, choice: Choice) -> None:
    """Write a choice down; other processes see all of it or nothing. kernel : its name, for people"""
    _known[key] = choice
    place = folder()
    if place is None:
        return
    text = json.dumps({"key": key, "kernel": kernel, "choice": asdict(choice)}, indent=1)
    with contextlib.suppress(OSError):
        write_file(place / f"{key}.json", text.encode())
        _listed.cache_clear()


def forget() -> None:
    """Let go of what this process knows; what is on disk stays."""
    _known.clear()
    _listed.cache_clear()
