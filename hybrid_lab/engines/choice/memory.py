"""What was measured before, on disk: one small entry of the store per kind of call.

An entry says which engine won for calls of one structure, shapes up to powers of two, machine and versions.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hybrid_lab._version import __version__
from hybrid_lab.engines.store import Store, versions_of
from hybrid_lab.engines.threads import thread_count
from hybrid_lab.graph.control_flow import Backward
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Value

#: Changes when entries of before must not be believed any more.
FORMAT = 2


def key_of(graphs: Iterable[Graph]) -> str:
    """A name for calls that the same engine should win: structure, rounded shapes, machine, threads and versions."""
    digest = hashlib.sha256(f"{thread_count()}\n".encode())
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
    versions = versions_of("numpy", "onnxruntime", "torch")
    return f"{FORMAT}; {model}; hybrid_lab {__version__}; python {sys.version_info[:2]}; {versions}"


CHOICES = Store("choices", _surroundings, 16 << 20)


def recall(key: str) -> dict[str, Any] | None:
    """What was remembered: {"choice": engine, "seconds": {engine: seconds a call}}; None where there is nothing."""
    return CHOICES.get_json(key)


def remember(key: str, choice: str, seconds: dict[str, float]) -> None:
    """Write a result down."""
    CHOICES.put_json(key, {"choice": choice, "seconds": seconds})
