"""mx.tune: measure which engine of a CPU, or which tiles of a GPU's kernels, run a model fastest; keep the result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Any, TypeAlias

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, count
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access
from hybrid_lab.insight.compiled import known_inputs
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.states import walk
from hybrid_lab.insight.table import Column, Row, Table
from hybrid_lab.insight.tune_engines import EngineTuning, tune_engines
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.tuning import TunedKernel
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.gluon.hybrid import HybridBlock


@dataclass(repr=False)
class KernelTuning(InsightReport):
    """The result of `mx.tune` on a GPU: the fastest form of each kernel.

    kernels : one entry for each distinct product, attention and row reduction; seconds : that the whole tuning took
    """

    name: str
    kernels: list[TunedKernel] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def gain(self) -> float:
        """The geometric mean of the kernels' gains over the tiles of the rule."""
        return exp(sum(log(each.gain) for each in self.kernels) / len(self.kernels)) if self.kernels else 1.0

    @property
    def left_out(self) -> int:
        """The number of candidates that did not compile, gave other numbers or failed."""
        return sum(len(each.result.left_out) for each in self.kernels)

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        kernels = [
            {"name": each.name, "kind": each.kind, "best": each.best, "gain": each.gain, "measured": each.measured}
            | asdict(each.result)
            for each in self.kernels
        ]
        return {"name": self.name, "seconds": self.seconds, "gain": self.gain, "kernels": kernels}

    @property
    def headline(self) -> str:
        """`net0: 12 kernels, 12 measured now; 1.08 x the rule's tiles, 40.0 s`."""
        fresh = sum(each.measured for each in self.kernels)
        left = f", {count(self.left_out, 'candidate')} left out" if self.left_out else ""
        return (
            f"{self.name}: {count(len(self.kernels), 'kernel')}, {fresh} measured now{left}; {self.gain:.2f} x the "
            f"rule's tiles, {self.seconds:.1f} s"
        )

    def _table(self) -> Table:
        titles = [Column("kernel", flexible=True), Column("kind"), Column("best", flexible=True)]
        titles += [Column(title, right=True) for title in ("µs", "rule's µs", "gain")]
        table = Table([*titles, Column("left out", flexible=True)])
        for each in self.kernels:
            seconds = each.result.seconds
            times = [f"{1e6 * seconds[name]:.1f}" if name in seconds else "" for name in (each.best, "rule")]
            left = "; ".join(f"{name}: {reason}" for name, reason in each.result.left_out.items())
            table.rows.append(Row([each.name, each.kind, each.best, *times, f"{each.gain:.2f} x", left]))
        return table


Tuning: TypeAlias = KernelTuning | EngineTuning


@shows_work("tuning")
def tune(net: Block, *inputs: object, train: bool | None = None, again: bool = False) -> Tuning:
    """Measure which engine or tiles run calls on `inputs` fastest on this machine, and store the result.

    Later compiles of equal calls use the result, in other processes too; shapes of about the same size share it. Only
    `mx.tune` measures. The results are in the folder HYBRID_LAB_CACHE; deleting the folder deletes them.

    inputs : arrays or shapes, as the call takes them; by default the inputs of the first call
    train : True measures only training, False only prediction, None both
    again : True measures calls that have a result again

    On a CPU each engine runs the calls: forward, and in training backward. An engine whose numbers differ from NumPy's
    is left out. On a GPU each candidate for the tiles of a product, an attention or a row reduction runs on random
    numbers, and torch's own product is a candidate, too; a candidate whose numbers differ from the results with the
    rule's tiles is left out.

    Takes seconds to minutes and shows a progress bar. An interrupt changes nothing on a CPU; on a GPU the results so
    far are stored. Raises EngineUnavailable for Triton's interpreter; HybridLabError for a Block that is not hybrid,
    was not called yet, or runs on an engine that engine= or HYBRID_LAB_CPU names; HybridizeError for code that cannot
    become a graph.
    """
    check_switches("tune", again=again)
    from hybrid_lab.gluon.hybrid import HybridBlock

    if not isinstance(net, HybridBlock):
        raise HybridLabError(
            f"{called(net)} is not a HybridBlock: tune its HybridBlocks one after the other, mx.tune(net.features, x)"
        )
    modes = (False, True) if train is None else (train,)
    engine = engines.for_flags(access.flags(net))
    if engine is None:
        return tune_engines(net, list(inputs) or known_inputs(net), modes, engines.cpu_engines(), again)
    if engine.name != "triton":
        raise HybridLabError(
            f"{called(net)} runs on {engine.title}, which was asked for by name: leave engine= out of hybridize() and "
            "unset HYBRID_LAB_CPU before mx.tune"
        )
    return _tune_kernels(net, inputs, modes, again)


def _tune_kernels(net: HybridBlock, inputs: Sequence[object], modes: Sequence[bool], again: bool) -> KernelTuning:
    """Kernel tuning on this machine's GPU."""
    from hybrid_lab.engines.triton import tuning
    from hybrid_lab.engines.triton.write import tiles
    from hybrid_lab.gluon.ahead import graphs_of
    from hybrid_lab.gluon.hybrid import HybridBlock

    started = time.perf_counter()
    bench = tuning.GpuBench()
    graphs = [
        graph
        for mode in modes
        for part, graph in graphs_of(net, list(inputs) or known_inputs(net), mode).items()
        if not part.startswith("update")
    ]
    flags = access.flags(net)
    tf32, products = bool(flags.get("tf32")), "own" if flags.get("strict") else flags.get("products")
    try:
        kernels = tuning.tune(graphs, lambda target: tiles.precision(tf32, target), bench, again, products)
    finally:
        for _, _, block, before in walk(net):
            if before is None and isinstance(block, HybridBlock):
                access.calls(block).forget_programs()
    return KernelTuning(called(net), kernels, time.perf_counter() - started)
