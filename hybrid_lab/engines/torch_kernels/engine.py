"""TorchEngine: partition, write each region as a program of torch calls, and plan the rest in NumPy."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from hybrid_lab.engines.engine import Ready, Training
from hybrid_lab.engines.libraries import import_library, is_begun, use
from hybrid_lab.engines.planned.build import PlannedEngine
from hybrid_lab.engines.regions import RegionOperator, contracted, refuse
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.torch_kernels.program import TorchProgram
from hybrid_lab.engines.torch_kernels.registry import entry_of, refusal
from hybrid_lab.engines.torch_kernels.workspace import WorkspaceTraining, rewritten
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node
from hybrid_lab.graph.passes.decompose import lower_random
from hybrid_lab.graph.passes.partition import Region, partition
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.system.threads import thread_count


def _refusal(node: Node) -> str | None:
    """Why torch is not to run the node on a CPU, or None."""
    entry = entry_of(node.op)
    if entry is not None and entry.whole_results:
        # 23 ms and 340 ms for 256 rows of 10,000: torch has no way to order values without their positions.
        return "NumPy puts values in order much faster on a CPU"
    return refusal(node)


class TorchOperator(RegionOperator):
    """A region that a program of torch calls runs."""

    name: ClassVar[str] = "torch"
    run_keywords: ClassVar[frozenset[str]] = frozenset()
    fresh: ClassVar[bool] = True
    takes_ready: ClassVar[bool] = True

    def __init__(self, region: Region):
        super().__init__(region, len(region.outputs), program=TorchProgram(region))

    program: TorchProgram

    def numpy(
        self, *inputs: np.ndarray, out: object = None, ready: Ready | None = None
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        results = self.program(inputs, ready)
        return results[0] if len(results) == 1 else tuple(results)


class TorchEngine(PlannedEngine):
    """torch's kernels, called one after the other without autograd; available if torch is installed.

    worth : decides whether a region runs in torch (None) or stays in NumPy (the reason)
    """

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "torch"

    def __init__(self, worth: Callable[[Region], str | None] = lambda region: None):
        self.worth = worth

    @staticmethod
    def missing() -> str | None:
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed; pip install torch (a CPU build will do)"
        return None

    def prepare(self, graph: Graph, strict: bool, background: bool = False) -> tuple[Graph, Report]:
        set_threads()
        graph = simplify(lower_random(graph))
        regions, refused = partition(graph, _refusal, self.worth)
        if strict:
            wrong = {node: reason for node, reason in refused.items() if not node.op.random}
            refuse(wrong, f"{len(wrong)} of {len(graph.operators)} operators cannot run in torch")
        return contracted(self.name, graph, {region: TorchOperator(region) for region in regions}, refused)

    def compile_training(self, split: Split, **options: bool) -> Training:
        """As every engine; LSTMs run in oneDNN if no other operator reads their saved values."""
        plain = super().compile_training(split, **options)
        found = rewritten(split)
        if found is None:
            return plain
        inner = super().compile_training(found.split, **options)
        return WorkspaceTraining(plain, inner, found)


_threads_set = False
#: Whether torch was not imported before this engine asked for it.
_imported_here = False


def set_threads() -> None:
    """Give torch as many threads as all engines on the CPU use, if it is not imported yet.

    If the user has imported torch, its threads are the user's; later settings of the user stay, too.
    """
    global _imported_here, _threads_set
    if _threads_set:
        return
    if "torch" not in sys.modules and not is_begun("torch"):
        _imported_here = True  # even if an interrupt comes before the import has ended
    use("torch")
    torch = import_library("torch")
    if _imported_here:
        torch.set_num_threads(thread_count())
    _threads_set = True


ENGINE = TorchEngine()
