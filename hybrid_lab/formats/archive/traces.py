"""Graphs traced for one save or load only: blocks that run eagerly, and may change any time, keep no such graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab import autograd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.files.graphs_of_calls import trace, trace_calls
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.known_calls import KnownCall
from hybrid_lab.hybridize.neutral import NeutralGraph, Observation
from hybrid_lab.hybridize.structure import Spec, describe, flatten, plain
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.symbol import tracing

from . import layout

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.gluon import Block


@contextlib.contextmanager
def passing(net: Block) -> Iterator[list[HybridBlock]]:
    """The HybridBlocks of `net`; a Block that is not hybridized and had no graph loses its new graphs at the end."""
    blocks = [block for _, block in hybrid_blocks(net)]
    without = [block for block in blocks if not access.is_active(block) and not access.graphs(block).graphs()]
    try:
        with random_state.preserved():
            yield blocks
    finally:
        for block in without:
            access.calls(block).clear()


def live_graph(
    block: HybridBlock,
    in_spec: Spec,
    observation: Observation,
    types: tuple[Any, ...] | None,
    named: bool = False,
) -> NeutralGraph | None:
    """The graph of the block's code for these inputs: an existing graph, or a new trace, which is kept.

    types : (shape, dtype) of each input tensor, if known
    named : whether the arguments contain named tuples, whose classes a file lacks
    None if the shapes or classes that the code asks for are unknown. Raises the errors of the code; HybridLabError for
    a SymbolBlock that has no such graph.
    """
    graphs = access.graphs(block)
    access.calls(block).follow_values()
    candidates = [item for spec, found in graphs.variants.items() if plain(spec) == in_spec for item in found]
    if access.is_its_graph(block):
        candidates += [neutral for neutral in graphs.graphs() if neutral.in_spec == in_spec]
    for neutral in candidates:
        if neutral.observation == observation:
            return neutral
    if access.is_its_graph(block):
        raise HybridLabError(f"its graphs take {layout.shorten([describe(g.in_spec) for g in graphs.graphs()])}")
    if named:
        return None
    known = observation.types or types
    if known is None and access.style(block) == "2.x":
        return None
    return trace(block, KnownCall(in_spec, known, bool(observation.training), bool(observation.recording)))


def trace_missing(blocks: list[HybridBlock]) -> list[str]:
    """Trace the graph of every earlier call without a graph, outer Blocks first; returns the reasons for Blocks without
    a graph, or without a graph of their latest call.
    """
    return [problem for block in blocks if (problem := trace_calls(block)) is not None]


def called_on(net: Block, inputs: object, blocks: Sequence[HybridBlock]) -> dict[int, Sequence[np.ndarray]]:
    """Call `net` once in predict mode, so that all it reaches has graphs; the arrays that each graph was given."""
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    given: dict[int, Sequence[np.ndarray]] = {}
    _complete(net, arguments)

    def note(block: Block, args: tuple[Any, ...]) -> None:
        if isinstance(block, HybridBlock) and tracing.current() is None:
            leaves, spec = flatten(args, f"the input of {block.name}")
            if leaves and all(isinstance(leaf, NDArray) for leaf in leaves):
                given[id(access.calls(block).neutral(spec, leaves))] = [leaf.asnumpy() for leaf in leaves]

    with contextlib.ExitStack() as hooks, autograd.pause():
        for block in blocks:
            hooks.callback(block.register_forward_pre_hook(note).detach)
        net(*arguments)
    return given


def _complete(net: Block, arguments: tuple[object, ...]) -> None:
    """A first call where shapes are still open: a hook sees the arguments before the parameters are complete."""
    if any(access.arrays(parameter) is None for parameter in net.collect_params().values()):
        with autograd.pause():
            net(*arguments)
