"""Policy: the rules that choose the engine of a compiled call on a CPU, and the reason of each choice in words.

`choose` has the rules. `mx.explain` prints the decision in its line "engine:". A result of `mx.tune` changes it. If
`hybridize(engine=...)` or the variable HYBRID_LAB_CPU names an engine, the rules are not asked (registry.for_flags).

The same call on the same installation gets the same engine in every process: the rules read the call's graphs, the
installed packages, and the results stored by `mx.tune`. They do not measure, and do not look at the load or at the
imported packages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hybrid_lab.engines import registry, tuned
from hybrid_lab.engines.engine import Engine
from hybrid_lab.engines.onnxruntime import cost
from hybrid_lab.engines.torch_kernels.registry import refusal
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node

#: Torch runs a recorded call with at least PRODUCTS multiply-adds (two FLOP each) of convolutions, products and
#: recurrences, or if its other operators write at least BYTES bytes. LeNet with 64 images (0.4 billion): 15 ms a step
#: in torch, 20 in ONNX Runtime; a perceptron with 256 rows (0.1 billion) is as fast in either, and never needs the
#: import of torch.
PRODUCTS, BYTES = 200e6, 64 << 20
#: ONNX Runtime is taken if it saves the time for making its sessions within CALLS calls.
CALLS = 1000
#: The families of operators that multiply and add, and their names in a reason.
_PRODUCT_FAMILIES = {"conv": "convolutions", "linalg": "products", "rnn": "recurrences"}
_COMPOSED = "ONNX Runtime has no operators for gradients"
_NO_SESSIONS = "ONNX Runtime is not available"


@dataclass(frozen=True)
class CallWork:
    """How much a call computes.

    products : number of multiply-adds; bytes : that all other operators write
    kinds : the names of the families that have at least 5 percent of the multiply-adds
    """

    products: float = 0.0
    bytes: int = 0
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> CallWork:
        products, written, kinds = 0.0, 0, dict[str, float]()
        for node in nodes:
            kind = _PRODUCT_FAMILIES.get(node.op.family)
            if kind is not None:
                count = cost.multiply_adds(node)
                products += count
                kinds[kind] = kinds.get(kind, 0.0) + count
            elif not node.op.view:
                written += sum(value.nbytes for value in node.outputs)
        main = tuple(kind for kind in _PRODUCT_FAMILIES.values() if kinds.get(kind, 0.0) >= 0.05 * products > 0)
        return cls(products, written, main)

    @property
    def is_large(self) -> bool:
        return self.products >= PRODUCTS or self.bytes >= BYTES

    def __str__(self) -> str:
        if self.products < PRODUCTS:
            size = f"{self.bytes / 2**20:.0f} MiB" if self.bytes >= 1 << 20 else "less than a MiB"
            written = f"{size} written by other operators"
            products = f"{_rounded(2e-6 * self.products)} MFLOP"
            return f"{products} and {written}" if self.products else written.replace(" other", "")
        return f"{_rounded(2e-9 * self.products)} GFLOP of {' and '.join(self.kinds)}"


def engine_for(graphs: Sequence[Graph], strict: bool = False) -> tuple[Engine, str]:
    """The engine that the rules choose for a call, and `name: reason`. graphs, strict : as `choose` takes them"""
    candidates = registry.cpu_engines()
    name, reason = choose(graphs, candidates, strict)
    return candidates[name], f"{name}: {reason}"


def _rounded(number: float) -> str:
    """Two digits, or all digits before the point: `0.18`, `118`."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}" if number >= 0.01 else "less than 0.01"


def choose(graphs: Sequence[Graph], installed: Collection[str], strict: bool = False) -> tuple[str, str]:
    """The name of the engine for a prediction (one graph) or a recorded call (forward and backward), and the reason.

    installed : names of the engines that can run here; NumPy is always among them. An engine whose threads stayed with
        the parent of a forked process is not
    strict : an operator that cannot run in the engine is an error
    """
    if strict:
        engine = "onnxruntime" if "onnxruntime" in installed else "numpy"
        return (engine, "strict=True leaves every operator to one engine: ONNX Runtime if it is available")
    measured = tuned.recall(graphs)
    if measured is not None and measured.engine in installed:
        return (measured.engine, f"mx.tune measured {measured}")
    if any(graph.has_eight_bits for graph in graphs):
        return (
            "numpy",
            "another rounding may change numbers of 8 bits by a whole step, and NumPy rounds as eager calls do",
        )
    role = "recorded" if len(graphs) > 1 else "prediction"
    if role == "prediction" and "onnxruntime" in installed:
        return ("onnxruntime", "predictions run on ONNX Runtime, which was faster than torch in every measured network")
    nodes = [node for graph in graphs for node in graph.operators]
    for_torch, work = CallWork.of(node for node in nodes if refusal(node) is None), CallWork.of(nodes)
    if for_torch.is_large and "torch" in installed:
        return ("torch", f"{role}, {for_torch}; {_COMPOSED if 'onnxruntime' in installed else _NO_SESSIONS}")
    if for_torch.is_large:
        why = f"{role}, {work}: torch is not available"
    elif work.is_large:
        why = f"{role}, {work}: too few of the operators can run in torch"
    else:
        why = f"{role}, {work}: too little for the import of torch"
    if "onnxruntime" not in installed:
        return ("numpy", f"{why}; {_NO_SESSIONS}")
    session, saved = cost.SESSION * len(nodes), 1e-6 * sum(map(cost.saving, nodes))
    if session > CALLS * saved:
        times = f"{session:.1g} s to make, and would save {1e3 * max(saved, 0.0):.1g} ms a call"
        return ("numpy", f"{why}; sessions of {len(nodes)} operators take {times}")
    return ("onnxruntime", why)
