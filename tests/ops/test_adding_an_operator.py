"""docs/adding-an-operator.md is executed as it stands: its records do in every engine what their NumPy kernels do."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab import autograd, nd, sym
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ops.framework import operator
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer, run_kernel
from tests.triton_device import use_triton

PAGE = Path(__file__).parents[2] / "docs" / "adding-an-operator.md"


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[type[Operator]]]:
    """The records of the page, which are gone after the test."""
    operator.load_all()
    monkeypatch.setattr(operator, "_REGISTRY", dict(operator._REGISTRY))
    monkeypatch.setattr(operator, "_RECORDS", list(operator._RECORDS))
    known = len(operator._RECORDS)
    for block in PAGE.read_text().split("```python\n")[1:]:
        module = types.ModuleType("page")
        monkeypatch.setitem(sys.modules, "page", module)
        exec(block.split("```")[0], vars(module))
    yield operator._RECORDS[known:]
    for record in operator._RECORDS[known:]:
        for module in (nd, sym):
            vars(module).pop(record.name, None)


class Net(HybridBlock):
    def __init__(self, name, attributes, outputs):
        super().__init__()
        self.name_, self.attributes, self.outputs = name, attributes, outputs

    def hybrid_forward(self, F, *inputs):
        made = getattr(F, self.name_)(*inputs, **self.attributes)
        parts = made if self.outputs > 1 else [made]
        return [F.square(part) for part in parts]


def cases(records):
    for record in records:
        for sample in record.samples:
            yield record.bind(**sample.attributes), sample, sample.arrays(record.name, "float64")


def test_shapes_are_those_of_the_kernel(declared):
    assert [record.name for record in declared] == ["unit_scale", "cube", "soft_gate", "mirror", "log_mean_exp"]
    for op, _, arrays in cases(declared):
        shapes, _ = infer(op, tuple(x.shape for x in arrays), tuple(x.dtype for x in arrays))
        assert shapes == tuple(y.shape for y in run_kernel(op, arrays))
        unknown = (arrays[0].shape, *(None for _ in arrays[1:]))
        assert op.complete(*unknown) == tuple(x.shape for x in arrays)


def test_hybrid_equals_eager_and_gradients_are_derivatives(declared):
    for op, sample, arrays in cases(declared):
        net = Net(op.name, sample.attributes, op.signature.outputs)
        inputs = [nd.array(x, dtype="float64") for x in arrays]
        for x in inputs:
            x.attach_grad()

        def loss(net=net, inputs=inputs):
            return sum(float(y.sum().asnumpy()[0]) for y in net(*inputs))

        seen = []
        for active in (False, True):
            net.hybridize(active)
            with autograd.record():
                outputs = net(*inputs)
            autograd.backward(outputs)
            seen.append([y.asnumpy() for y in (*outputs, *(x.grad for x in inputs))])
        for eager, hybrid in zip(*seen, strict=True):
            np.testing.assert_allclose(hybrid, eager, rtol=1e-12)
        for x, gradient in zip(inputs, seen[0][op.signature.outputs :], strict=True):
            before, where = loss(), (0,) * (x.ndim - 1) + (1,)
            x[where] = x[where] + 1e-6
            np.testing.assert_allclose((loss() - before) / 1e-6, gradient[where], rtol=1e-4, atol=1e-5)


def test_kernels_agree_with_numpy(declared, monkeypatch):
    use_triton(monkeypatch)
    from hybrid_lab import engines
    from hybrid_lab.engines.triton.plan.other_batches import kernels_of
    from hybrid_lab.graph.builder import make_node
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.graph.node import input_node

    for op, sample, _ in cases([record for record in declared if record.triton is not None]):
        arrays = sample.arrays(op.name, "float32")
        inputs = [input_node(f"x{i}", shape=x.shape, dtype="float32") for i, x in enumerate(arrays)]
        graph = Graph(inputs, make_node(op, inputs).outputs)
        assert not kernels_of(graph)[1].refused
        (y,) = engines.get("triton").compile(graph)(arrays)
        np.testing.assert_allclose(y, run_kernel(op, arrays)[0], rtol=1e-6)
