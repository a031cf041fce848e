"""The state of each Block of a model: hybridized or why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock


@dataclass(frozen=True)
class BlockState:
    """state : "plain", "eager", "waiting", "active", "inlined", "failed" or "file"; why : one sentence, or "" """

    state: str
    why: str


def walk(net: Block) -> Iterator[tuple[str, str, Block, str | None]]:
    """(path, attribute name, Block, path where it stood before or None), parents first. A shared Block is not entered twice."""
    seen: dict[int, str] = {}

    def visit(block: Block, path: str, name: str) -> Iterator[tuple[str, str, Block, str | None]]:
        before = seen.get(id(block))
        yield path, name, block, before
        if before is not None:
            return
        seen[id(block)] = path
        for child_name, child in block._children.items():
            yield from visit(child, f"{path}.{child_name}" if path else child_name, child_name)

    yield from visit(net, "", net.name)


def block_state(block: Block) -> BlockState:
    """What runs when this Block is called, and why."""
    if not isinstance(block, HybridBlock):
        return BlockState("plain", f"{type(block).__name__} is not a HybridBlock: its forward runs as Python, its HybridBlock children can be graphs")
    graphs: Any = block._graphs
    if graphs.pinned:
        return BlockState("file", "its graph came from a file and wins over the code")
    if not block._active:
        return BlockState("eager", "hybridize() was not called")
    if graphs.failure is not None:
        error = graphs.failure
        where = f" ({error.location})" if error.location is not None else ""
        return BlockState("failed", f"{error.code}: {error.message}{where}")
    if graphs.programs:
        return BlockState("active", "")
    if graphs.variants:
        return BlockState("inlined", "runs inside the graph of the Block that calls it")
    return BlockState("waiting", "hybridized, not called yet")
