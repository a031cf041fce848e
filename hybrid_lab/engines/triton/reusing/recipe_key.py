"""The key of a recipe: what graphs have in common that one recipe may be for.

That is the structure of a lowered graph - operators with their attributes, wiring, dtypes, draws, labels, and which
axes have size 1 - and the constants that fusing and writing go by; for files also all code that the text of a kernel
depends on.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hybrid_lab._version import __version__
from hybrid_lab.engines.triton.fusing import fusion
from hybrid_lab.engines.triton.writing import write
from hybrid_lab.engines.triton.writing.words import label
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.symbolic import SymbolicGraph
from hybrid_lab.ops.sizes import Binding


def in_order(graph: Graph) -> list[Node]:
    """The operators of a graph, each after those that it reads, in an order that follows from its structure alone and
    not from when its nodes were made.
    """
    found: list[Node] = []
    seen: set[Node] = set()
    for root in graph.roots:
        waiting = [(root.node, False)]
        while waiting:
            node, entered = waiting.pop()
            if entered:
                found.append(node)
            elif node not in seen:
                seen.add(node)
                if node.inputs or not isinstance(node.op, (Input, Constant)):
                    waiting.append((node, True))
                    waiting += [(value.node, False) for value in reversed(node.values_in) if value.node not in seen]
    return found


def kept_key(graph: Graph, precision: str) -> str | None:
    """`key_of`, made once for all batches of one form: of sizes it knows which ones are 1, and nothing else."""
    form, at = graph.symbolic, graph.binding
    if form is None or at is None:
        return key_of(graph, precision)
    place = place_of(form, at, precision)
    if place not in form.cache:
        form.cache[place] = key_of(graph, precision)
    found: str | None = form.cache[place]
    return found


def place_of(form: SymbolicGraph, at: Binding, precision: str) -> tuple[Any, ...]:
    """Where a form keeps the key for these sizes."""
    return "recipe", precision, repr(_settings()), form.ones(at)


def key_of(graph: Graph, precision: str) -> str | None:
    """What graphs have in common that one recipe may be for; None where an operator is not this package's own."""
    numbers: dict[Value, str] = {}
    lines = [precision, repr(_settings())]
    for place, value in enumerate(graph.inputs):
        numbers[value] = f"input{place}"
        lines.append(f"{label(value)} {_type(value)}")
    for place, node in enumerate(in_order(graph)):
        if not type(node.op).__module__.startswith("hybrid_lab."):
            return None
        given = [_given(item, numbers) for item in node.inputs]
        lines.append(f"{_called(node.op)} {node.draw} {' '.join(given)} {' '.join(map(_type, node.outputs))}")
        numbers.update({value: f"{place}.{value.index}" for value in node.outputs})
    lines.append(" ".join([_given(value, numbers) for value in graph.roots]))
    lines.append(" ".join([_given(target, numbers) for target, _ in graph.effects]) + f" {graph.draws}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _type(value: Value) -> str:
    return f"{_name(value.dtype)}{''.join(['1' if size == 1 else 'n' for size in value.shape])}"


@functools.lru_cache(maxsize=64)
def _name(dtype: Any) -> str:
    return str(dtype.name)


def _given(item: Any, numbers: dict[Value, str]) -> str:
    if isinstance(item, Value):
        known = numbers.get(item)
        if known is not None:
            return known
        op = item.node.op  # a constant, or a variable that is no input
        number = isinstance(op, Constant) and op.array.size == 1
        what = f"constant {kind_of(item)}" if number else label(item)
        known = numbers[item] = f"({len(numbers)} {what} {_type(item)})"
        return known
    return type(item).__name__ if type(item) in (int, float) else f"{type(item).__name__} {item!r}"


@functools.lru_cache(maxsize=4096)
def _called(op: Any) -> str:
    """An operator with all its attributes, hidden ones too."""
    if op.subgraphs:
        return str(op.name)  # never part of a kernel
    return f"{op.name} {sorted(op.attributes.items())!r}"


def _settings() -> list[Any]:
    """The constants that fusing and writing go by."""
    return [
        (module.__name__, name, item)
        for module in _modules()
        for name, item in vars(module).items()
        if name.isupper() and isinstance(item, (int, float, str, tuple))
    ]


@functools.cache
def _modules() -> list[Any]:
    """Those of the engine that fusing and writing take part of."""
    engine = __name__.rpartition(".reusing.")[0]
    waiting, found = [fusion, write], dict[str, Any]()
    while waiting:
        module = waiting.pop()
        found[module.__name__] = module
        for item in vars(module).values():
            name = item.__name__ if isinstance(item, ModuleType) else getattr(item, "__module__", None)
            if isinstance(name, str) and name.startswith(f"{engine}.") and name not in found:
                waiting.append(sys.modules[name])
    return [found[name] for name in sorted(found)]


@functools.cache
def code_digest() -> str:
    """A digest of all code that the text of a kernel depends on."""
    package = Path(__file__).resolve().parents[3]
    found = hashlib.sha256(__version__.encode())
    for folder in ("engines/triton", "ops", "graph"):
        for file in sorted((package / folder).rglob("*")):
            if file.suffix in (".py", ".json"):
                found.update(f"\n{file.relative_to(package).as_posix()}\n".encode() + file.read_bytes())
    return found.hexdigest()


def kind_of(value: Value) -> str:
    """What a constant of one element is: a number's type, and whether sizes decide it; "" for anything else."""
    op = value.node.op
    if not isinstance(op, Constant) or op.array.size != 1:
        return ""
    return f"{type(op.array.item()).__name__}{' of sizes' * op.sized}"
