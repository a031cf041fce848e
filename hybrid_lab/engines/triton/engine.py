"""TritonEngine: lower, fuse, make a kernel of each pointwise group, and run the rest through the counted fallback."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import Engine, Executable
from hybrid_lab.engines.numpy import build
from hybrid_lab.engines.report import RegionReport, Report
from hybrid_lab.engines.triton import availability
from hybrid_lab.engines.triton.fusion import Fusion, fuse
from hybrid_lab.engines.triton.source import KernelSource
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.write import write_kernels
from hybrid_lab.graph.decompose import decompose
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.lower import lower_random
from hybrid_lab.graph.node import Constant, Value
from hybrid_lab.graph.partition import Region, contract
from hybrid_lab.graph.printer import format_origin
from hybrid_lab.graph.simplify import simplify
from hybrid_lab.ops.operator import Operator


class KernelOperator(Operator):
    """A fused group in the contracted graph: one operator that launches its kernels.

    kernels : with, for each, where its inputs come from: an input of the region by number, a constant, or a part that
        the kernel before has left, by its Value
    """

    name: ClassVar[str] = "triton"
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out", "rng"})

    def __init__(self, group: Region, sources: tuple[KernelSource, ...]):
        from hybrid_lab.engines.triton.kernel import Kernel

        def origin(value: Value) -> Any:
            if value in group.inputs:
                return group.inputs.index(value)
            return value.node.op.array if isinstance(value.node.op, Constant) else value

        for key, value in (
            ("region", group),
            ("label", sources[-1].name),
            ("kernels", [(Kernel(source), [origin(item) for item in source.inputs]) for source in sources]),
            ("num_outputs", len(group.outputs)),
            ("attributes", {}),
            ("inferred", {}),
        ):
            object.__setattr__(self, key, value)

    region: Region
    label: str
    kernels: list[tuple[Any, list[Any]]]

    def numpy(self, *inputs: Any, out: Any = None, rng: tuple[int, int] = (0, 0)) -> Any:
        targets = list(out) if type(out) is tuple else [out]
        parts: dict[Value, np.ndarray] = {}
        for kernel, origins in self.kernels:
            operands = [inputs[item] if type(item) is int else parts.get(item, item) if type(item) is Value else item
                        for item in origins]  # fmt: skip
            if kernel is self.kernels[-1][0]:
                kernel(operands, targets, rng)
                continue
            left = {value: np.empty(value.shape, value.dtype) for value in kernel.source.outputs}
            kernel(operands, list(left.values()), rng)
            parts |= left
        return out

    def __repr__(self) -> str:
        return f"triton({', '.join(node.op.name for node in self.region.nodes)})"


class TritonEngine(Engine):
    """The GPU engine, with its first kernel kind: pointwise.

    Operators without a kernel run on the host and are counted as fallbacks.
    """

    name: ClassVar[str] = "triton"
    title: ClassVar[str] = "Triton"

    def missing(self) -> str | None:
        return availability.missing()

    def where(self) -> str:
        device = availability.device()
        return f"Triton in {device.name}" if device.interpreted else f"Triton on {device.name}"

    def compile(
        self, graph: Graph, static_alloc: bool = False, static_shape: bool = False, strict: bool = False
    ) -> Executable:
        started = time.perf_counter()
        graph, fusion, _ = kernels_of(graph)
        report = Report(self.name, graph.name)
        for group in fusion.groups:
            names = [node.op.name for node in group.nodes]
            title = " and ".join(source.name for source in fusion.kernels[group])
            region = RegionReport(
                f"kernel {title}", names, len(group.inputs), len(group.outputs), group.bytes_in, group.bytes_out
            )
            report.regions.append(region)
        inside = sum(len(group.nodes) for group in fusion.groups)
        report.operators = {self.name: inside, "numpy": len(graph.operators) - inside}
        # A view moves no data: nothing falls back.
        refused = {node: reason for node, reason in fusion.refused.items() if not node.op.view}
        for node, reason in refused.items():
            report.fall_back(node.op.name, "numpy", reason, format_origin(node))
        if strict and refused:
            lines = [f"  {node.op.name}: {reason}   # {format_origin(node)}" for node, reason in refused.items()]
            raise EngineError(
                f"{len(refused)} operators have no Triton kernel, and strict=True allows no other engine:\n"
                + "\n".join(lines)
            )
        contracted = contract(graph, fusion.groups, lambda group: KernelOperator(group, fusion.kernels[group]))
        dump("fuse", contracted)
        executable = build(contracted, report, static_alloc)
        report.seconds = time.perf_counter() - started
        return executable


def kernels_of(graph: Graph) -> tuple[Graph, Fusion, list[KernelSource]]:
    """The lowered graph, its groups, and the sources of all kernels in the order in which they run."""
    graph = dump("decompose", simplify(decompose(lower_random(graph), lambda node: refusal(node) is None)))
    fusion = fuse(graph, refusal, write_kernels)
    return fusion.graph, fusion, [source for group in fusion.groups for source in fusion.kernels[group]]


ENGINE = TritonEngine()
