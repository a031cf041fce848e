"""Results of engine tuning (`mx.tune` on a CPU), kept on disk: the fastest engine for each kind of call.

Calls are of one kind if they have the same structure of operators, shapes that are equal when sizes from 16 on are
rounded up to powers of two, the same processor, number of threads, and versions. triton/tuning_results.py has the
results of kernel tuning.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hybrid_lab._version import __version__
from hybrid_lab.engines.store import Store, versions_of
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.composed import Backward
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.system.threads import thread_count

#: The version of the entries. An entry of another version counts as missing.
FORMAT = 2


@dataclass(frozen=True)
class Tuned:
    """The measured times of one kind of call. engine : the fastest; seconds : of a call, by engine"""

    engine: str
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in self.seconds.items())


def recall(graphs: Iterable[Graph]) -> Tuned | None:
    """The result for calls of this kind, of this process or an earlier one; None if there is none."""
    if not _known and ENGINES.is_empty():
        return None  # without the time for making a key
    key = key_of(graphs)
    if key not in _known:
        entry = ENGINES.get_json(key)
        if entry is not None:
            _known[key] = Tuned(**entry)
    return _known.get(key)


def remember(graphs: Iterable[Graph], found: Tuned) -> None:
    """Keep a result for this process and, if there is a cache folder, for later processes."""
    key = key_of(graphs)
    _known[key] = found
    ENGINES.put_json(key, asdict(found))


_known: dict[str, Tuned] = {}


def key_of(graphs: Iterable[Graph]) -> str:
    """The name of a kind of call: a digest of structure, rounded shapes, dtypes and the number of threads."""
    digest = hashlib.sha256(f"{thread_count()}\n".encode())
    for graph in graphs:
        digest.update(_structure(graph).encode())
    return digest.hexdigest()


def _structure(graph: Graph, typed: bool = True) -> str:
    """The graph as text, without names and places in the source. typed : with shapes and dtypes."""
    number: dict[Value, int] = {}
    lines = []
    for node in _ordered(graph):
        if isinstance(node.op, Constant):
            what = "constant"
        elif isinstance(node.op, Input):
            what = f"input {node.op.role}"
        else:
            what = f"{node.op.name} {sorted(node.op.changed.items())}"
        inputs = [number[item] if isinstance(item, Value) else repr(item) for item in node.inputs]
        types = [(tuple(map(_rounded, value.shape)), value.dtype.name) for value in node.outputs] if typed else ""
        lines.append(f"{what} {inputs} {types}")
        whole = node.op.forward if isinstance(node.op, Backward) else node.op
        # The types of the node determine the types in the bodies.
        lines += [_structure(body, typed=False) for _, body in whole.subgraphs]
        for value in node.outputs:
            number[value] = len(number)
    return "\n".join(lines) + f"\n{[number[value] for value in graph.roots]}\n"


def _ordered(graph: Graph) -> list[Node]:
    """The inputs, then the nodes before each root, operands from left to right: graphs of one structure may hold their
    nodes in different orders.
    """
    order = dict.fromkeys(value.node for value in graph.inputs)
    waiting = [(value.node, False) for value in reversed(graph.roots)]
    while waiting:
        node, entered = waiting.pop()
        if entered:
            order[node] = None
        elif node not in order:
            waiting.append((node, True))
            waiting += [(value.node, False) for value in reversed(node.values_in) if value.node not in order]
    return list(order)


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


ENGINES = Store("engines", _surroundings, 16 << 20)
