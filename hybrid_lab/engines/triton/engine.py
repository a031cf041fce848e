"""TritonEngine: lower, fuse, make kernels of the groups, and plan the whole as a program of the device."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.engine import Engine, Executable, SeparateTraining, Training
from hybrid_lab.engines.planned import arena
from hybrid_lab.engines.planned.build import Later, write
from hybrid_lab.engines.planned.training import JointTraining
from hybrid_lab.engines.regions import refuse
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.triton import tuning
from hybrid_lab.engines.triton.plan.by_vendor import rule_here
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.plan.training import with_less_saved
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.addresses import promise_only_what_holds
from hybrid_lab.engines.triton.run.arena import POOL
from hybrid_lab.engines.triton.run.capture import CapturedRun, CapturedTraining
from hybrid_lab.engines.triton.run.executable import DeviceExecutable
from hybrid_lab.engines.triton.run.kernel import Kernel
from hybrid_lab.engines.triton.run.program import DeviceBegin, DeviceFinish, DeviceWriter
from hybrid_lab.engines.triton.run.steps import KernelOperator, on_torch, step_of
from hybrid_lab.engines.triton.run.vendor import VendorKernel
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.passes.partition import contract
from hybrid_lab.system.logger import logger


class TritonEngine(Engine):
    """The GPU engine: kernels for supported operators; the rest, counted as fallbacks, by torch on the device or, with
    counted copies, on the host.
    """

    name: ClassVar[str] = "triton"
    title: ClassVar[str] = "Triton"
    own_options: ClassVar[frozenset[str]] = frozenset({"tf32", "products"})

    @property
    def device(self) -> Any:
        return availability.torch_device()

    @staticmethod
    def missing() -> str | None:
        return availability.missing()

    def where(self) -> str:
        device = availability.device()
        return f"Triton in {device.name}" if device.interpreted else f"Triton on {device.name}"

    def compile(
        self,
        graph: Graph,
        static_alloc: bool = False,
        static_shape: bool = False,
        strict: bool = False,
        tf32: bool = False,
        products: str | None = None,
    ) -> Executable:
        started = time.perf_counter()
        steps, report = self._steps(graph, strict, tf32, products)
        _prepare(steps)
        executable = DeviceExecutable(steps, write(steps, report, static_alloc, DeviceWriter), report)
        if static_shape:
            executable.run = CapturedRun(executable)
        report.seconds = time.perf_counter() - started
        return executable

    def training_graphs(self, split: Split, **options: Any) -> Split:
        """With fewer bytes saved between them: see plan/training.py."""
        precision = _precision(options.get("tf32", False))
        return with_less_saved(split, rule_here(options.get("products"), options.get("strict", False), precision))

    def compile_training(self, split: Split, **options: Any) -> Training:
        """As every engine: one arena for both, and their kernels are compiled together."""
        started = time.perf_counter()
        static_alloc, strict, tf32 = (options.get(name, False) for name in ("static_alloc", "strict", "tf32"))
        products = options.get("products")
        parts = [self._steps(graph, strict, tf32, products) for graph in (split.forward, split.backward)]
        _prepare(*(steps for steps, _ in parts))
        first, second = (
            DeviceExecutable(steps, Later(steps, report, static_alloc, DeviceWriter), report) for steps, report in parts
        )
        first.report.seconds = time.perf_counter() - started
        if split.saves:
            joint = JointTraining(first, second, split.sources, static_alloc, DeviceBegin, DeviceFinish)
            return CapturedTraining(joint, split.sources) if options.get("static_shape") else joint
        if options.get("static_shape"):
            for executable in (first, second):
                executable.run = CapturedRun(executable)
        return SeparateTraining(first, second, split.num_outputs)

    def trim(self) -> None:
        arena.trim()
        POOL.clear()

    def _steps(self, graph: Graph, strict: bool, tf32: bool, products: str | None) -> tuple[Graph, Report]:
        """The graph with an operator for each group of operators that share kernels, and a report about it."""
        precision = _precision(tf32)
        _, fusion, _ = kernels_of(graph, precision, rule_here(products, strict, precision))
        forms = {group: tuning.chosen(group, fusion.kernels[group]) for group in fusion.groups}
        forms |= {group: tuning.chosen_by_vendor(group, precision) for group in fusion.by_vendor}
        position = {node: index for index, node in enumerate(fusion.graph.nodes)}
        forms = {group: forms[group] for group in sorted(forms, key=lambda group: position[group.nodes[0]])}
        steps = contract(fusion.graph, list(forms), lambda group: step_of(group, forms[group]))
        promise_only_what_holds(steps)
        dump("fuse", steps)
        # A view moves no data, and an operator without elements computes nothing.
        refused = {
            node: reason
            for node, reason in fusion.refused.items()
            if not node.op.view and any(value.nbytes for value in node.outputs)
        }
        if strict:
            refuse(refused, f"{count(len(refused), 'operator')} without a Triton kernel")
        elsewhere = [(node, "torch" if on_torch(node) else "numpy", reason) for node, reason in refused.items()]
        counts = Counter(engine for _, engine, _ in elsewhere)
        calls = {group: form[0] for group, form in forms.items() if isinstance(form[0], VendorKernel)}
        inside = len(fusion.graph.operators) - len(refused) - len(calls)
        operators = {self.name: inside, "torch": counts["torch"], "numpy": counts["numpy"]}
        operators |= {"vendor": len(calls)} if calls else {}
        report = Report(self.name, graph.name, operators, refused=elsewhere)
        report.units = [
            (_unit(form), group, [node for node in group.nodes if not node.op.view] or group.nodes)
            for group, form in forms.items()
        ]
        if calls:
            report.notes.append(_said(list(calls.values())))
        return steps, report


def _unit(form: Sequence[KernelSource | VendorKernel]) -> str:
    """The names of the kernels that run a group, or of the vendor's call and the kernels after it, for a report."""
    names = [source.name for source in form]
    first = form[0]
    if isinstance(first, VendorKernel):
        names[0] = f"{first.name}, the vendor's library, in {first.precision}"
        return " and kernel ".join(names[:2]) + "".join(f" and {name}" for name in names[2:])
    return f"kernel {' and '.join(names)}"


def _said(calls: Sequence[VendorKernel]) -> str:
    """Which operators the vendor's library computes, and in which precision."""
    counts = Counter((call.nodes[-1].op.name, call.precision) for call in calls)
    listed = ", ".join(f"{number} x {name} in {precision}" for (name, precision), number in counts.items())
    return f"the vendor's library computes {listed}"


def _precision(tf32: bool) -> str:
    """How float32 is multiplied here."""
    device = availability.device()
    precision = tiles.precision(tf32, device.name)
    if tf32 and precision != "tf32" and not device.interpreted:
        _warn_of_no_tf32(device.name)
    return precision


@functools.cache
def _warn_of_no_tf32(name: str) -> None:
    logger.warning(f"tf32=True changes nothing on {name}: it multiplies float32 as float32 only")


def _prepare(*graphs: Graph) -> None:
    """Compile the kernels of these graphs in parallel, unless they are on disk; the interpreter compiles nothing."""
    if availability.device().interpreted:
        return
    from hybrid_lab.engines.triton.build import compiling

    operators = [node.op for graph in graphs for node in graph.nodes if isinstance(node.op, KernelOperator)]
    kernels = [kernel for op in operators for kernel in op.kernels]
    compiling.prepare([kernel.source for kernel in kernels if isinstance(kernel, Kernel)])


ENGINE = TritonEngine()
