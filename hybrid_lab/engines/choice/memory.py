"""What was measured before, on disk: one small JSON file per kind of call, in the cache folder.

A file says which engine won for calls of one structure, shapes up to powers of two, machine and versions. Files that
cannot be read or do not say what they should are ignored; a folder that cannot be written to is none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hybrid_lab._version import __version__
from hybrid_lab.engines.cache import cache_folder, read_file, write_file
from hybrid_lab.engines.threads import thread_count
from hybrid_lab.graph.control_flow import Backward
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Value

#: Changes when files of before must not be believed any more.
FORMAT = 1


def folder() -> Path | None:
    """Where the files are; None where nothing is kept on disk."""
    return cache_folder("choices")


def key_of(graphs: Iterable[Graph]) -> str:
    """A name for calls that the same engine should win: structure, rounded shapes, machine, threads and versions."""
    digest = hashlib.sha256(f"{FORMAT} {_surroundings()} {thread_count()}\n".encode())
    for graph in graphs:
        digest.update(_structure(graph).encode())
    return digest.hexdigest()[:32]


def _structure(graph: Graph, typed: bool = True) -> str:
    """The graph as text, without names and places in the source. typed : with shapes and dtypes."""
    number: dict[Value, int] = {}
    lines = []
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            what = "constant"
        elif isinstance(node.op, Input):
            what = f"input {node.op.role}"
        else:
            what = f"{node.op.name} {sorted(node.op.changed.items())}"
        given = [number[item] if isinstance(item, Value) else repr(item) for item in node.inputs]
        types = [(tuple(map(_rounded, value.shape)), value.dtype.name) for value in node.outputs] if typed else ""
        lines.append(f"{what} {given} {types}")
        whole = node.op.forward if isinstance(node.op, Backward) else node.op
        # What the bodies run on follows from the types of the node.
        lines += [_structure(body, typed=False) for _, body in whole.subgraphs]
        for value in node.outputs:
            number[value] = len(number)
    return "\n".join(lines) + f"\n{[number[value] for value in graph.roots]}\n"


def _rounded(size: int) -> int:
    return size if size < 16 else 1 << math.ceil(math.log2(size))


@functools.cache
def _surroundings() -> str:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line
                break
    versions = [f"hybrid_lab {__version__}", f"python {sys.version_info[:2]}"]
    for package in ("numpy", "onnxruntime", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return f"{model}; {'; '.join(versions)}"


def recall(key: str) -> dict[str, Any] | None:
    """What was remembered: {"choice": engine, "seconds": {engine: seconds a call}}; None where there is nothing."""
    place = folder()
    if place is None:
        return None
    try:
        found = json.loads(read_file(place / f"{key}.json"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("key") != key or not isinstance(found.get("choice"), str):
        return None
    seconds = found.get("seconds")
    if not isinstance(seconds, dict) or not all(type(item) is float and item >= 0 for item in seconds.values()):
        return None
    return {"choice": found["choice"], "seconds": seconds}


def remember(key: str, choice: str, seconds: dict[str, float]) -> None:
    """Write a result down; other processes see all of it or nothing."""
    place = folder()
    if place is None:
        return
    text = json.dumps({"key": key, "choice": choice, "seconds": seconds}, indent=1)
    with contextlib.suppress(OSError):
        write_file(place / f"{key}.json", text.encode())
