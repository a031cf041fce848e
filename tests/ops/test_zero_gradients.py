"""Where a gradient is zero whatever the numbers are, none is computed: 0 times an infinite derivative would be NaN."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.graph.builder import Builder, make_node
from hybrid_lab.graph.node import Value, input_node
from hybrid_lab.ops.framework.operator import records
from hybrid_lab.ops.framework.run import run_gradient

RECORDS = [(record, sample) for record in records() for sample in record.samples]


def test_no_gradient_rule_returns_zeros():
    """The rule of each record on each of its samples."""
    found = []
    for record, sample in RECORDS:
        op = record.bind(**sample.attributes)
        op = op.bind_mode(True) if op.mode_dependent else op
        if not op.differentiable:
            continue
        arrays = sample.arrays(op.name)
        items = [
            input_node(f"x{i}", "data", shape=np.shape(a), dtype=a.dtype) if isinstance(a, np.ndarray) else a
            for i, a in enumerate(arrays)
        ]
        items = items if op.variadic else items[: len(op.signature.inputs)]
        node = make_node(op, items, draw=0 if op.random else None)
        builder = Builder()
        expressions = [builder.expr(item) if isinstance(item, Value) else item for item in items]
        outputs = [builder.expr(value) for value in node.outputs]
        douts = [builder.expr(input_node(f"dy{i}", "head_grad")) for i in range(op.signature.visible)]
        for name, gradient in zip(
            op.signature.inputs, run_gradient(op, builder, expressions, outputs, douts), strict=False
        ):
            if gradient is not None and gradient.value.node.op.name == "zeros_like":
                found.append(f"{op.name}: {name}")
    assert len(RECORDS) > 900 and found == []


CASES = {
    "BlockGrad": lambda F, y: F.BlockGrad(y),
    "sign": lambda F, y: F.sign(y),
    "floor": lambda F, y: F.floor(y),
    "round": lambda F, y: F.round(y),
    "argmax": lambda F, y: F.argmax(y, axis=0),
    "one_hot": lambda F, y: F.sum(F.one_hot(y, 3), axis=1),
    "where": lambda F, y: F.where(y, F.ones_like(y), F.zeros_like(y)),
    "zeros_like": lambda F, y: F.zeros_like(y),
    "pick": lambda F, y: F.pick(F.one_hot(F.BlockGrad(y), 3), y),
}


class Behind(gluon.HybridBlock):
    def __init__(self, name):
        super().__init__()
        self.case = CASES[name]

    def hybrid_forward(self, F, x):
        return self.case(F, F.sqrt(x)).sum() + (x * x).sum()


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime"])
@pytest.mark.parametrize("name", CASES)
def test_a_root_of_zero_behind_it_is_not_differentiated(name, engine):
    net = Behind(name)
    if engine is not None:
        net.hybridize(engine=engine)
    x = nd.array([0.0, 1.0, 4.0])
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [0.0, 2.0, 8.0]


def test_an_input_without_a_gradient_gets_zeros():
    x = nd.array([0.0, 1.0])
    x.attach_grad()
    x.grad[:] = 7
    with autograd.record():
        y = nd.BlockGrad(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [0.0, 0.0]
