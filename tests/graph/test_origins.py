"""Every node of every pass knows the block and the source line it comes from, gradients too."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.gluon import HybridBlock, nn
from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.decompose import decompose, lower_random
from hybrid_lab.graph.passes.differentiate import differentiate
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.passes.split import split


class Inner(HybridBlock):
    """hybrid_forward, with layers of every kind of operator."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.conv, self.norm, self.pool = nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.MaxPool2D()
            self.scale, self.drop, self.dense = nn.LayerNorm(), nn.Dropout(0.5), nn.Dense(3)

    def hybrid_forward(self, F, x):
        y = self.dense(self.drop(self.scale(self.pool(F.relu(self.norm(self.conv(x)))))))
        return F.softmax(y) * 2, F.split(y + F.zeros((3,)), num_outputs=3, axis=1)[1]


class Outer(HybridBlock):
    """2.x-style forward, reading a shape."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.inner, self.dense = Inner(), nn.Dense(2)

    def forward(self, x):
        y, z = self.inner(x)
        return self.dense(y.reshape((y.shape[0], -1))) + nd.ones((2,)) * z.sum()


@pytest.fixture(scope="module")
def passes() -> dict[str, Graph]:
    net = Outer()
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.array(np.random.RandomState(0).rand(2, 3, 8, 8))
    net(x)
    neutral = net._graphs.first()
    arrays = [x, *(parameter.data() for parameter in neutral.parameters)]
    made = {"neutral": neutral.graph}
    inputs = neutral.graph.inputs
    made["infer"] = infer(
        neutral.graph,
        {value: array.shape for value, array in zip(inputs, arrays, strict=True)},
        {value: array.dtype for value, array in zip(inputs, arrays, strict=True)},
    )
    made["bind_mode"] = bind_mode(made["infer"], train=True)
    made["differentiate"] = differentiate(made["bind_mode"], made["bind_mode"].inputs)
    made["simplify"] = simplify(made["differentiate"])
    parts = split(made["simplify"], len(inputs), len(neutral.graph.outputs))
    made["forward"], made["backward"] = parts.forward, parts.backward
    made["decompose"] = decompose(lower_random(parts.forward))
    return made


@pytest.mark.parametrize(
    "name", ["neutral", "infer", "bind_mode", "differentiate", "simplify", "forward", "backward", "decompose"]
)
def test_every_node_has_a_block_and_a_line(passes: dict[str, Graph], name: str):
    for node in passes[name].operators:
        assert node.scope.startswith("outer"), node
        assert node.location is not None and "test_origins.py" in str(node.location), node


def test_a_gradient_stands_where_its_operator_does(passes: dict[str, Graph]):
    (gradient,) = (node for node in passes["backward"].nodes if node.op.name == "_conv_weight_grad")
    (forward,) = (node for node in passes["forward"].nodes if node.op.name == "Convolution")
    assert (gradient.scope, gradient.location) == (forward.scope, forward.location)
