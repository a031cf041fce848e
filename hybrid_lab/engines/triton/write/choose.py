"""Chooses the kind of kernel for a group, and has it written."""

from __future__ import annotations

from math import prod

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core.parts import down_columns, write_split, write_with_columns
from hybrid_lab.engines.triton.write.core.pointwise import write_pointwise
from hybrid_lab.engines.triton.write.core.product import write_product
from hybrid_lab.engines.triton.write.core.reduction import Rows, is_split, reductions, write_rows
from hybrid_lab.engines.triton.write.kinds import collects, entries_of, is_product, is_recurrence
from hybrid_lab.engines.triton.write.reuse import Writing, writing
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.engines.triton.write.special.attention import attention_in, write_attention
from hybrid_lab.engines.triton.write.special.attention_grad import chained_in, write_chained
from hybrid_lab.engines.triton.write.special.collect import write_collect
from hybrid_lab.engines.triton.write.special.recurrence import write_recurrence
from hybrid_lab.graph.passes.partition import Region


def write_kernels(group: Region, run: Writing | None = None, precision: str = "ieee") -> tuple[KernelSource, ...]:
    """The sources of one group, to run one after the other: two if rows or a product's sums are split, else one.

    run : results to repeat from earlier batches; records the choices made now (see reuse.py)
    precision : how float32 factors are multiplied, "ieee" or "tf32"
    Raises Refused if its operators do not fit into one kernel.
    """
    run = Writing() if run is None else run
    run.outputs = group.outputs
    with writing(run):
        return _write(group, precision)


def _write(group: Region, precision: str) -> tuple[KernelSource, ...]:
    for node in group.nodes:
        if is_recurrence(node):
            return write_recurrence(group, node, precision)
    products = [node for node in group.nodes if is_product(node)]
    if len(products) > 1:
        attention = attention_in(group.nodes)
        if attention is None or len(products) > 2:
            if (chained := chained_in(group.nodes)) is not None:
                return (write_chained(group, chained, precision),)
            raise Refused("several products")
        return (write_attention(group, attention, precision),)
    if products:
        return write_product(group, products[0], precision)
    reduced = reductions(group.nodes)
    if collecting := [node for node in group.nodes if collects(node)]:
        if reduced or len(collecting) > 1:
            raise Refused("an operator that collects rows has a kernel of its own")
        try:
            spec = entries_of(collecting[0])
        except Unmappable as reason:
            raise Refused(str(reason)) from None
        return (write_collect(group, collecting[0], spec),)
    if reduced:
        if down := down_columns(reduced):
            return write_with_columns(group, down)
        return write_split(group) if is_split(Rows.of(reduced[0])) else (write_rows(group),)
    if any(prod(value.shape) != prod(group.outputs[0].shape) for value in group.outputs):
        return (write_rows(group),)
    return (write_pointwise(group),)
