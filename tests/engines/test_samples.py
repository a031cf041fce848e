"""Every sample of every record: the engines give the kernel's outputs and the record's gradients."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from hybrid_lab.engines.engine import Executable
from hybrid_lab.graph import Graph, Value, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ndarray.gradients import apply_raw, gradient_program
from hybrid_lab.ops.framework.dtypes import is_bfloat16, is_floating
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.run import run_gradient, run_kernel
from tests import quick
from tests.engines.test_random_graphs import engine_named
from tests.failures import Failures
from tests.ops.cases import RNG, Case, close, each_sample


def graph_of(case: Case) -> tuple[Graph, list[np.ndarray]]:
    """The sample's call as a graph of one node, and its arrays. Numbers are immediates."""
    given = case.inputs()
    inputs = [
        input_node(f"x{index}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
        for index, item in enumerate(given)
    ]
    node = make_node(case.record.bind(**case.sample.attributes), inputs, draw=0 if case.op.random else None)
    values = [item for item in inputs if isinstance(item, Value)]
    draws = int(bool(case.op.random))
    graph = Graph(values, node.outputs[: node.op.signature.visible], draws=draws)
    return graph, [item for item in given if isinstance(item, np.ndarray)]


ENGINES = ("numpy", "onnxruntime", *(["torch"] if find_spec("torch") else []))


@each_sample()
def test_forward_and_gradient(case: Case):
    """The sample is drawn, differentiated and specialized once; then each engine compiles and runs it."""
    failures, wanted = Failures(), Wanted(case)
    for engine in quick.engines(*ENGINES):
        with failures.of(engine):
            wanted.compare(engine)
    failures.raise_all()


def step_by_step(case: Case, outputs: Any, heads: Any) -> Any:
    """The record's gradients as eager calls compute them, in which bfloat16 is rounded behind every operator."""
    given = case.inputs()
    immediates = tuple(None if isinstance(item, np.ndarray) else item for item in given)
    program = gradient_program(case.op, immediates, (True,) * len(given), (True,) * len(heads))
    return program.run([*given, *outputs, *heads], apply_raw)


def _wide(items: Any) -> Any:
    """float32 for bfloat16, which Python's operators on raw arrays do not keep."""
    return [
        item.astype(np.float32) if isinstance(item, np.ndarray) and is_bfloat16(item.dtype) else item for item in items
    ]


class Wanted:
    """A sample's outputs by the kernel, its gradients by the record, and the graphs of both, which engines compile."""

    def __init__(self, case: Case):
        self.case = case
        graph, self.arrays = graph_of(case)
        arrays = self.arrays
        self.outputs = run_kernel(case.op, case.inputs(), rng=RNG)
        self.visible = self.outputs[: case.op.signature.visible]
        differentiable = (
            case.record.differentiable and case.sample.gradient and any(is_floating(a.dtype) for a in arrays)
        )
        self.wrt = [index for index, array in enumerate(arrays) if is_floating(array.dtype)] if differentiable else []
        self.heads: list[np.ndarray] = []
        self.gradients: list[Any] = []
        self.parts = specialize(graph, [a.shape for a in arrays], [a.dtype for a in arrays], True, self.wrt)
        if self.parts.backward is not None:
            self.heads = [np.linspace(-1, 1, y.size).reshape(y.shape).astype(y.dtype) for y in self.visible]
            gradients = run_gradient(case.op, F, *map(_wide, (case.inputs(), self.outputs, self.heads)))
            pairs = zip(gradients, case.inputs(), strict=True)
            self.gradients = [gradient for gradient, item in pairs if isinstance(item, np.ndarray)]

    def compare(self, engine: str) -> list[Executable]:
        """Run the sample's call and its gradient, and assert that they are what is wanted; the programs.

        What is drawn as bools, and whatever else is no floating number, is equal bit by bit.
        """
        case, arrays, parts, wanted = self.case, self.arrays, self.parts, self.gradients
        runner = engine_named(engine)
        programs = [runner.compile(parts.forward)]
        kept = programs[0](arrays, RNG)
        for y, expected in zip(kept, self.visible, strict=False):
            assert y.dtype == expected.dtype
            close(y, expected, 1e-5 if is_floating(expected.dtype) else 0.0)
        if parts.backward is None:
            return programs
        given = {"input": arrays, "output": kept, "saved": kept[len(self.visible) :], "head": self.heads}
        programs.append(runner.compile(parts.backward))
        found = programs[1]([given[kind][index] for kind, index in parts.sources], RNG)
        for gradient, index in zip(found, self.wrt, strict=True):
            expected = np.zeros_like(arrays[index]) if wanted[index] is None else wanted[index]
            assert gradient.dtype == arrays[index].dtype
            if is_bfloat16(gradient.dtype) and wanted[index] is not None:
                # Few digits are left of what cancels: then the rounding of eager calls counts, too.
                number = [i for i, item in enumerate(case.inputs()) if isinstance(item, np.ndarray)][index]
                eager = step_by_step(case, self.outputs, self.heads)[number].astype(np.float64)
                largest = np.abs(expected.astype(np.float64)).max(initial=1e-3)
                close(gradient, expected, 2.0**-6 + 2 * float(np.abs(eager - expected).max(initial=0.0)) / largest)
            else:
                close(gradient, expected, 1e-4)
        return programs


def compare(case: Case, engine: str) -> list[Executable]:
    """Compare one engine's outputs and gradients of a sample with the kernel's and the record's; the programs."""
    return Wanted(case).compare(engine)
