"""compile_for: the kernels of a model for GPUs that this machine need not have: registers, bytes, an estimate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, count
from hybrid_lab.engines.report import Fallback, format_bytes
from hybrid_lab.gluon import access
from hybrid_lab.graph.printer import format_origin
from hybrid_lab.insight.kernel_table import Kernels, folded_text, least, table
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.table import code, folded, wrapped
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.kernels import FusedKernel
    from hybrid_lab.gluon.hybrid import HybridBlock
    from hybrid_lab.graph.graph import Graph


@dataclass
class TargetSummary:
    """One target, all parts together.

    chip : the chip whose data sheet gives the estimate, or "" for an unknown chip; estimate : in seconds
    distinct : number of different binaries, each possibly launched many times; problems : kernels that do not compile
    spilling : pointwise and reduction kernels that spill registers
    """

    target: str
    chip: str
    kernels: int
    distinct: int
    operators: int
    spilling: int
    problems: int
    bytes_moved: int
    estimate: float | None


@dataclass(repr=False)
class CompiledModel(InsightReport):
    """The result of compiling a model ahead of time.

    targets : in the order asked for; none if the kernels are written, but not compiled
    kernels : of all targets, in the order in which they run
    fallbacks : operators without a kernel, with the part they are in; seconds : of the whole compilation
    """

    name: str
    targets: tuple[str, ...]
    kernels: Kernels
    fallbacks: list[tuple[str, Fallback]] = field(default_factory=list)
    seconds: float = 0.0

    def on(self, target: str | None) -> Kernels:
        """The kernels of one target; None: the kernels as written, if no target was given."""
        return Kernels([kernel for kernel in self.kernels if kernel.target == target], self.kernels.none)

    def summary(self, target: str) -> TargetSummary:
        """One target in numbers."""
        from hybrid_lab.engines.triton.build.targets import CHIPS

        kernels = self.on(target)
        chip = CHIPS.get(target)
        binaries = {kernel.binary.key for kernel in kernels if kernel.binary is not None}
        return TargetSummary(
            target,
            chip.name if chip is not None else "",
            len(kernels),
            len(binaries),
            sum(kernel.operators for kernel in kernels),
            sum(_spills(kernel) > 0 and "product" not in kernel.kind for kernel in kernels),
            sum(bool(kernel.problem) for kernel in kernels),
            sum(kernel.bytes_moved for kernel in kernels),
            sum(kernel.estimate or 0.0 for kernel in kernels) if chip is not None else None,
        )

    @property
    def _first(self) -> str | None:
        return self.targets[0] if self.targets else None

    @property
    def headline(self) -> str:
        """`net0 for gfx942 and sm90: 12 kernels each, 3.2 s`."""
        kernels = len(self.on(self._first))
        if not self.targets:
            return f"{self.name}: {count(kernels, 'kernel')}, not compiled"
        each = " each" if len(self.targets) > 1 else ""
        return f"{self.name} for {' and '.join(self.targets)}: {count(kernels, 'kernel')}{each}, {self.seconds:.1f} s"

    def lines(self, target: str) -> list[str]:
        """The summary of a target in sentences."""
        summary = self.summary(target)
        text = f"{target}: {count(summary.kernels, 'kernel')}, {summary.distinct} distinct, "
        text += count(summary.operators, "operator")
        text += f"; {format_bytes(summary.bytes_moved)} moved"
        if summary.estimate is not None:
            least_time = least(summary.estimate)
            words = least_time if least_time[0] == "<" else f"at least {least_time}"
            text += f"; {words} ({summary.chip}, an estimate by its data sheet)"
        lines = wrapped(text, "  ")
        if summary.spilling:
            lines += wrapped(f"{summary.spilling} pointwise or reduction kernels spill registers", "    ")
        for kernel in self.on(target):
            if kernel.problem:
                lines += [f"    {line}" for line in kernel.problem.splitlines()[:6]]
        return lines

    def notes(self) -> list[str]:
        """The operators without a kernel, equal ones together."""
        counts = Counter((part, item.operator, item.reason) for part, item in self.fallbacks)
        return [
            f"{f'{times} x ' if times > 1 else ''}{operator} in {part} has no kernel: {reason}"
            for (part, operator, reason), times in counts.items()
        ]

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers; times in seconds."""
        return {
            "name": self.name,
            "seconds": self.seconds,
            "targets": [asdict(self.summary(target)) for target in self.targets],
            "kernels": [kernel.data() for kernel in self.kernels],
            "fallbacks": [{"part": part, **asdict(item)} for part, item in self.fallbacks],
        }

    def _lines(self) -> list[str]:
        lines: list[str] = []
        if not (self.targets and self.kernels):
            lines += ["", *self.kernels.lines("    ")]
        for target in self.targets if self.kernels else ():
            lines += ["", *self.lines(target), "", *self.on(target).lines("    ")]
        notes = self.notes()
        if notes:
            lines += ["", *(part for note in notes for part in wrapped(note, "  "))]
        return lines

    def _parts(self) -> list[str]:
        parts = []
        for target in self.targets if self.kernels else ():
            lines = [line.strip() for line in self.lines(target)]
            opened = target == self._first
            parts.append(folded(lines[0], code(lines) + table(self.on(target)).html(), opened))
        if not parts:
            parts.append(table(self.kernels).html() if self.kernels else code([self.kernels.none]))
        shown = list(map(folded_text, self.on(self._first).distinct()))
        if shown:
            parts.append(folded(f"the text of {count(len(shown), 'kernel')}", "".join(shown)))
        notes = self.notes()
        return [*parts, *([code(notes)] if notes else [])]


def _spills(kernel: FusedKernel) -> int:
    return 0 if kernel.problem or kernel.resources is None else kernel.resources.spills


@shows_work("compiling")
def compile_for(net: HybridBlock, *targets: str, inputs: object = None, train: bool = False) -> CompiledModel:
    """Compile the kernels of a call of `net` for GPUs that need not be in the machine.

    targets : "gfx942", "sm90" ...; none: the kernels are written, for which Triton need not be installed
    inputs : arrays or shapes, one or a list of them; by default the types of the last call that was traced
    train : forward, backward and update instead of a prediction

    The net need not be hybridized. Raises EngineError for an unknown target and EngineUnavailable without Triton,
    HybridLabError without inputs, HybridizeError if the code cannot become a graph.
    """
    from hybrid_lab.gluon.ahead import graphs_of

    started = time.perf_counter()
    targets = _checked(targets)
    graphs = graphs_of(net, known_inputs(net) if inputs is None else inputs, train)
    model = compile_graphs(net.name, graphs, targets, bool(access.flags(net).get("tf32")))
    model.seconds = time.perf_counter() - started
    return model


def compile_graphs(name: str, graphs: dict[str, Graph], targets: Sequence[str], tf32: bool = False) -> CompiledModel:
    """Compile the kernels of graphs, given by part: "forward", "backward" ... tf32 : as hybridize() takes it"""
    from hybrid_lab.engines.triton.kernels import compiled_for, kernels_of_graphs
    from hybrid_lab.engines.triton.write import tiles

    started = time.perf_counter()
    precisions = {target: tiles.precision(tf32, target) for target in targets}
    wanted = dict.fromkeys(precisions.values()) or (tiles.precision(False, "gfx942"),)
    written = {precision: kernels_of_graphs(graphs, precision) for precision in wanted}
    plain, fused = next(iter(written.values()))
    fallbacks = [
        (part, Fallback(node.op.name, "no kernel", reason, format_origin(node)))
        for part, fusion in fused
        for node, reason in fusion.refused.items()
        if not node.op.view and any(value.nbytes for value in node.outputs)
    ]
    compiled = [kernel for target in targets for kernel in compiled_for(written[precisions[target]][0], target)]
    none = "no kernel: nothing is computed, but for views and empty arrays"
    if fallbacks:
        none = "no kernel: none of its operators has one"
    kernels = Kernels(compiled if targets else plain, none)
    return CompiledModel(name, tuple(targets), kernels, fallbacks, time.perf_counter() - started)


def _checked(targets: Sequence[str]) -> tuple[str, ...]:
    """The canonical names of the targets, each once. Raises for a wrong one before any work is done."""
    from hybrid_lab.engines.triton.build.compiling import check_triton
    from hybrid_lab.engines.triton.build.targets import name_of, target_of

    names = tuple(dict.fromkeys(name_of(target_of(target)) for target in targets))
    if names:
        check_triton()
    return names


def known_inputs(net: HybridBlock) -> list[Any]:
    """Zeros of the types of the latest call. Raises HybridLabError without one."""
    import numpy as np

    from hybrid_lab import ndarray as nd

    calls = access.calls(net)
    found = [neutral.types for neutral in calls.graphs.graphs()] + [call.types for call in calls.known_calls()]
    types = next(filter(None, reversed(found)), None)
    if types is None:
        raise HybridLabError(
            f"{called(net)} has not been called yet; give inputs: net.compile_for('gfx942', inputs=(8, 3, 32, 32))"
        )
    return [nd.zeros(shape, dtype=np.dtype(dtype)) for shape, dtype in types]
