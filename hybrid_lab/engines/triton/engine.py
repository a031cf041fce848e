"""TritonEngine: lower, fuse, make a kernel of each pointwise group, and run the rest through the counted fallback."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import Engine, Executable
from hybrid_lab.engines.numpy import build
from hybrid_lab.engines.report import RegionReport, Report
from hybrid_lab.engines.triton import availability
from hybrid_lab.engines.triton.fusion import Fusion, fuse
from hybrid_lab.engines.triton.source import KernelSource
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.write import write_kernel
from hybrid_lab.graph.decompose import decompose
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.lower import lower_random
from hybrid_lab.graph.partition import Region, contract
from hybrid_lab.graph.printer import format_origin
from hybrid_lab.graph.simplify import simplify
from hybrid_lab.ops.operator import Operator


class KernelOperator(Operator):
    """A fused group in the contracted graph: one operator that launches a kernel."""

    name: ClassVar[str] = "triton"
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out", "rng"})

    def __init__(self, group: Region, source: KernelSource):
        from hybrid_lab.engines.triton.kernel import Kernel

        constants = {value: value.node.op.array for value in source.inputs if value not in group.inputs}  # type: ignore[attr-defined]
        order = [group.inputs.index(value) if value in group.inputs else constants[value] for value in source.inputs]
        for key, value in (
            ("region", group),
            ("label", source.name),
            ("kernel", Kernel(source)),
            ("order", order),
            ("num_outputs", len(group.outputs)),
            ("attributes", {}),
            ("inferred", {}),
        ):
            object.__setattr__(self, key, value)

    region: Region
    label: str
    kernel: Any
    order: list[Any]

    def numpy(self, *inputs: Any, out: Any = None, rng: tuple[int, int] = (0, 0)) -> Any:
        operands = [inputs[place] if isinstance(place, int) else place for place in self.order]
        self.kernel(operands, list(out) if type(out) is tuple else [out], rng)
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
        graph, fusion, sources = kernels_of(graph)
        report = Report(self.name, graph.name)
        for group, source in zip(fusion.groups, sources, strict=True):
            names = [node.op.name for node in group.nodes]
            region = RegionReport(
                f"kernel {source.name}", names, len(group.inputs), len(group.outputs), group.bytes_in, group.bytes_out
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
        by_group = dict(zip(fusion.groups, sources, strict=True))
        contracted = contract(graph, fusion.groups, lambda group: KernelOperator(group, by_group[group]))
        dump("fuse", contracted)
        executable = build(contracted, report, static_alloc)
        report.seconds = time.perf_counter() - started
        return executable


def kernels_of(graph: Graph) -> tuple[Graph, Fusion, list[KernelSource]]:
    """The lowered graph, its groups, and the source of each group's kernel."""
    graph = dump("decompose", simplify(decompose(lower_random(graph), lambda node: refusal(node) is None)))
    fusion = fuse(graph, refusal, write_kernel)
    return fusion.graph, fusion, [write_kernel(group) for group in fusion.groups]


ENGINE = TritonEngine()
