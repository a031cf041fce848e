"""The state of each Block of a model: hybridized or why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hybrid_lab.diagnostics.formatting import variable_of
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.hooks import has_hooks

State = Literal["active", "inlined", "waiting", "eager", "plain", "refused", "failed", "file", "imported"]


class Wording(NamedTuple):
    """The wording of a state wherever people read it, and its meaning: "the Block ..."."""

    word: str
    meaning: str


STATES: dict[State, Wording] = {
    "active": Wording("hybrid", "runs as a graph of its own"),
    "inlined": Wording("inlined", "runs inside its parent's graph"),
    "waiting": Wording("waiting", "is hybridized; its next call compiles its graph"),
    "eager": Wording("eager", "is a HybridBlock that was not hybridized"),
    "plain": Wording("plain", "is not hybrid: a Block that is no HybridBlock has no graph"),
    "refused": Wording("no graph", "is hybridized, but its calls cannot be part of a graph"),
    "failed": Wording("failed", "does not hybridize: its last call could not be traced or compiled"),
    "file": Wording("from file", "runs a graph that was loaded from a file"),
    "imported": Wording("imported", "runs the graph of a module of PyTorch"),
}
"""The vocabulary of panel, view, `mx.explain`, static HTML and docs."""


@dataclass(frozen=True)
class BlockState:
    """why : one sentence, or ""

    failed_in : the path from this Block to the one below whose code has no graph; "" for its own code
    """

    state: State
    why: str
    failed_in: str = ""


def walk(net: Block) -> Iterator[tuple[str, str, Block, str | None]]:
    """(path, attribute name, Block, path where it stood before or None), parents first.

    A shared Block is given at each place and entered once. The tree may change during the walk, as when the lab looks
    at a model that a running cell builds.
    """
    seen: dict[int, str] = {}
    stack: list[tuple[str, str, Block]] = [("", net.name, net)]
    while stack:
        path, name, block = stack.pop()
        before = seen.get(id(block))
        yield path, name, block, before
        if before is None:
            seen[id(block)] = path
            children = tuple(access.children(block).items())
            stack += [(f"{path}.{key}" if path else key, key, child) for key, child in reversed(children)]


def blocks_below(net: Block) -> list[tuple[str, Block]]:
    """(path, Block) of every Block of a model once, at its first place."""
    found: list[tuple[str, Block]] = []
    seen: set[int] = set()
    stack = [("", net)]
    while stack:
        path, block = pair = stack.pop()
        if id(block) not in seen:
            seen.add(id(block))
            found.append(pair)
            if children := access.children(block):
                start = f"{path}." if path else ""
                stack += [(start + key, child) for key, child in reversed(tuple(children.items()))]
    return found


def hybrid_blocks(net: Block) -> list[tuple[str, HybridBlock]]:
    """(path, Block) of every HybridBlock of a model once."""
    return [(path, block) for path, block in blocks_below(net) if isinstance(block, HybridBlock)]


def block_at(net: Block, path: str) -> Block:
    """The Block at a path of attribute names, "" for the top. Raises KeyError with the first name that is not there."""
    block = net
    for key in keys_of(net, path):
        block = access.children(block)[key]
    return block


def keys_of(net: Block, path: str) -> list[str]:
    """The names of the children that lead to a path. A name may have dots. Raises KeyError as `block_at` does."""
    keys: list[str] = []
    block, rest = net, path
    while rest:
        below, first = access.children(block), rest.partition(".")[0]
        key = first if first in below else next((each for each in below if f"{rest}.".startswith(f"{each}.")), None)
        if key is None:
            raise KeyError(first)
        keys.append(key)
        block, rest = below[key], rest[len(key) + 1 :]
    return keys


def class_name(block: Block) -> str:
    """The name of a Block's class; of a Block from a file the class it was saved from, without its module."""
    return (getattr(block, "archived_class", None) or type(block).__name__).rpartition(".")[2]


def block_state(block: Block, inner: bool = True) -> BlockState:
    """The state of a Block: what runs when it is called, and why. inner : whether it stands in the tree of another"""
    if access.is_group(block):
        return BlockState("plain", "holds Blocks and is no Block itself")
    if not isinstance(block, HybridBlock):
        return BlockState(
            "plain",
            f"{class_name(block)} is not a HybridBlock: its forward runs as Python, "
            "its HybridBlock children can be graphs",
        )
    graphs, calls = access.graphs(block), access.calls(block)
    if graphs.pinned and all(neutral.module for neutral in tuple(graphs.pinned.values())):
        return BlockState("imported", "runs the graph of the PyTorch module that it was made from")
    if graphs.pinned:
        return BlockState("file", "runs a graph from a file instead of its code")
    if not access.is_active(block):
        return BlockState("eager", "hybridize() was not called")
    failure = calls.failures.last
    if failure is not None:
        where = f" ({failure.location.describe()})" if failure.location is not None else ""
        inner_path, refusal = failure.path_below(block), calls.failures.refusal
        runs = refusal is not None and (refusal.code, refusal.message) == (failure.code, failure.message)
        start = ""
        if inner_path:
            culprit = variable_of(block, inner_path) or inner_path
            start = f"{'it has no graph because of' if runs else 'its graph failed in'} {culprit}: "
        why = start + ": ".join(filter(None, (failure.code, failure.message))) + where
        return BlockState("refused" if runs else "failed", why, inner_path)
    if calls.programs:
        return BlockState("active", "")
    if graphs.variants and not inner:
        return BlockState("waiting", "has a graph, which its next call compiles")
    if graphs.variants:
        hooked = "; its forward hooks do not run in calls" if has_hooks(block) else ""
        return BlockState("inlined", f"runs inside the graph of the Block that calls it{hooked}")
    return BlockState("waiting", "hybridized, not called yet")
