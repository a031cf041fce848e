"""Graphs traced for one save or load only: blocks that run eagerly, and may change any time, keep none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.hybridized.neutral import NeutralGraph, trace_block
from hybrid_lab.gluon.hybridized.structure import Spec
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.ops.framework.dtypes import dtype_of

if TYPE_CHECKING:
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
