"""Graphs traced for one save or load only: blocks that run eagerly, and may change any time, keep none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab import autograd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.hybridized.neutral import NeutralGraph, Observation, trace_block
from hybrid_lab.gluon.hybridized.structure import Spec, describe, flatten, plain
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.symbol import tracing

from . import layout

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.gluon import Block


@contextlib.contextmanager
def passing(net: Block) -> Iterator[list[HybridBlock]]:
    """The HybridBlocks of `net`; those that are not hybridized and had no graph have none again at the end."""
    blocks = [block for _, block in hybrid_blocks(net)]
    without = [block for block in blocks if not access.is_active(block) and not access.graphs(block).graphs()]
    try:
        with random_state.preserved():
            yield blocks
    finally:
        for block in without:
            access.graphs(block).clear()


def trace(
    block: HybridBlock, spec: Spec, types: tuple[Any, ...], training: bool, recording: bool = False
) -> NeutralGraph:
    """Trace the block's code and keep the graph with the block. Raises what the code raises.

    types : (shape, dtype) of each input tensor, (None, None) where they are not known
    """
    pairs = [(None, None) if shape is None else (tuple(shape), dtype_of(dtype)) for shape, dtype in types]
    with Mode(recording, training):
        found = trace_block(block, spec, pairs, training)
    access.graphs(block).note(found)
    return found


def live_graph(
    block: HybridBlock,
    in_spec: Spec,
    observation: Observation,
    types: tuple[Any, ...] | None,
    num_data: int,
    named: bool = False,
) -> NeutralGraph | None:
    """The graph of the block's code for these inputs: one that it has, or a trace made now and kept.

    types : (shape, dtype) of each of `num_data` input tensors, where they are known
    named : whether there are named tuples among the arguments, whose classes a file has not
    None where the shapes or classes that the code asks for are not known. Raises what the code raises; HybridLabError
    for a SymbolBlock that has no such graph.
    """
    cache = access.graphs(block)
    candidates = [item for spec, found in cache.variants.items() if plain(spec) == in_spec for item in found]
    if access.is_its_graph(block):
        candidates += [neutral for neutral in cache.graphs() if neutral.in_spec == in_spec]
    for neutral in candidates:
        if neutral.observation == observation:
            return neutral
    if access.is_its_graph(block):
        raise HybridLabError(f"its graphs take {layout.shorten([describe(g.in_spec) for g in cache.graphs()])}")
    if named:
        return None
    known = observation.types or types
    if known is None:
        if access.style(block) == "2.x":
            return None
        known = ((None, None),) * num_data
    return trace(block, in_spec, known, bool(observation.training), bool(observation.recording))


def trace_called(blocks: list[HybridBlock]) -> list[str]:
    """Trace blocks that ran eagerly only, outer ones first; returns why some could not be traced."""
    problems = []
    for block in blocks:
        cache = access.graphs(block)
        if not access.is_active(block) and not cache.graphs() and cache.called is not None:
            try:
                spec, types = cache.called
                trace(block, spec, types, False)
            except (HybridLabError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
                problems.append(f"{block.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    return problems


def called_on(net: Block, inputs: object, blocks: Sequence[HybridBlock]) -> dict[int, Sequence[np.ndarray]]:
    """Call `net` once in predict mode, so that all it reaches has graphs; the arrays that each graph was given."""
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    given: dict[int, Sequence[np.ndarray]] = {}
    _complete(net, arguments)

    def note(block: Block, args: tuple[Any, ...]) -> None:
        if isinstance(block, HybridBlock) and tracing.current() is None:
            leaves, spec = flatten(args, f"the input of {block.name}")
            if leaves and all(isinstance(leaf, NDArray) for leaf in leaves):
                given[id(access.graphs(block).neutral(spec, leaves))] = [leaf.asnumpy() for leaf in leaves]

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
