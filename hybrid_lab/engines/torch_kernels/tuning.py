"""Tuning: which way each node of a region runs fastest, measured on the region's own values and checked."""

from __future__ import annotations

import time
from typing import Any

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.torch_kernels.rules import TABLE, Kernel, Rule, rule_of
from hybrid_lab.engines.torch_kernels.variants import VARIANTS
from hybrid_lab.graph.node import Node, Value

#: How far results may lie apart, relative to the largest.
TOLERANCE = 1e-4
#: Kernels faster than this (seconds) stay as they are.
SHORT = 2e-4
#: How much longer a kernel's first run may take (seconds).
FIRST = 2e-3
#: A variant must need less than this part of the time of the table's call.
MARGIN = 0.95

#: What was found in this process: (operator, types of the inputs) -> the rule.
_found: dict[Any, Rule] = {}


def signature(node: Node) -> Any:
    """Nodes with the same signature run fastest in the same way."""
    return node.op, tuple((v.shape, v.dtype) if isinstance(v, Value) else v for v in node.inputs)


def chosen(node: Node) -> Rule:
    """The rule for a node: what tuning found, else the table's or the operator's own."""
    return _found.get(signature(node)) or rule_of(node.op)


def tune(torch: Any, node: Node, operands: list[Any]) -> None:
    """Find the fastest rule for a node, unless it is known. operands : as its kernel takes them"""
    key = signature(node)
    if key in _found or node.op.name not in VARIANTS:
        return
    rule = TABLE[node.op.name]
    kernel = rule(torch, node)
    wanted, seconds = _timed(kernel, operands, float("inf"))
    if seconds * MARGIN < SHORT:
        _found[key] = rule
        return
    best, seconds = rule, seconds * MARGIN
    scale = float(wanted.abs().max()) or 1.0
    for other in VARIANTS[node.op.name]:
        try:
            candidate = other(torch, node)
        except Unmappable:
            continue
        found, taken = _timed(candidate, operands, seconds)
        if taken < seconds and torch.allclose(found, wanted, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
            best, seconds = other, taken
    _found[key] = best


def _timed(kernel: Kernel, operands: list[Any], limit: float) -> tuple[Any, float]:
    """The result, and seconds of the fastest of a few runs; what is far slower than `limit` runs once.

    The first run may make something for the others, which is allowed for.
    """
    best = float("inf")
    for allowance in (2 * limit + FIRST, 1.5 * limit, 0.0):
        made = None  # its memory is for the next run
        start = time.perf_counter()
        made = kernel(*operands)
        best = min(best, time.perf_counter() - start)
        if best > allowance:
            break
    return made, best
