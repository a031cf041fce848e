"""Loops and branches in the real MXNet 1.9.1: writes loops.npz, and the exported models loops-* and nested-*.

Needs the oracle's environment:

    MXNET_MKLDNN_ENABLED=0 .oracle/bin/python tests/golden/control_flow/make_control_flow.py

Keys: x, h inputs; y<i> outputs; dx, dh and d<parameter> gradients of the sum of squares of the outputs.
"""

from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

FOLDER = Path(__file__).resolve().parent


class Loops(gluon.HybridBlock):
    """foreach with a layer, a parameter and an outer tensor inside; cond."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(3, 3))
            self.dense = nn.Dense(3, flatten=False, in_units=3)

    def hybrid_forward(self, F, x, h, weight):
        scale = F.sum(x)

        def step(entry, states):
            new = F.tanh(self.dense(entry) + F.broadcast_mul(F.dot(states[0], weight), scale))
            return [new, new * 2], [new]

        (first, second), (last,) = F.contrib.foreach(step, x, [h])
        chosen = F.contrib.cond(scale > 0, lambda: F.tanh(h) * 2, lambda: F.tanh(h) - 1)
        return first, second, last, chosen


class Nested(gluon.HybridBlock):
    """A while_loop, and a loop inside a loop, of which the real MXNet fails to compute the gradients."""

    def hybrid_forward(self, F, x, h):
        sums, (_, total) = F.contrib.while_loop(
            cond=lambda i, s: i < 4,
            func=lambda i, s: (F.broadcast_mul(s, i), (i + 1, s + h)),
            loop_vars=(F.zeros((1,)), h),
            max_iterations=6,
        )
        # What lies behind the last step is undefined.
        sums = F.slice_axis(sums, axis=0, begin=0, end=4)
        outputs, _ = F.contrib.foreach(
            lambda entry, states: (
                F.contrib.foreach(lambda row, inner: (F.sin(row) * entry, [inner[0] + row]), h, [states[0]])[1][0],
                [states[0] * 0.5],
            ),
            F.sum(x, axis=1),
            [F.sum(h, axis=0)],
        )
        return outputs, sums, total


def main():
    mx.random.seed(1)
    generator = np.random.RandomState(2)
    net = Loops(prefix="loops_")
    net.initialize(mx.init.Uniform(0.5))
    net.hybridize()
    inputs = {
        name: mx.nd.array(generator.uniform(-0.5, 0.6, shape).astype(np.float32))
        for name, shape in (("x", (4, 2, 3)), ("h", (2, 3)))
    }
    for array in inputs.values():
        array.attach_grad()
    with mx.autograd.record():
        outputs = net(*inputs.values())
        loss = sum((y * y).sum() for y in outputs)
    loss.backward()
    found = {f"y{index}": y.asnumpy() for index, y in enumerate(outputs)}
    for name, array in inputs.items():
        found[name], found[f"d{name}"] = array.asnumpy(), array.grad.asnumpy()
    for name, parameter in net._collect_params_with_prefix().items():
        found[f"d{name}"] = parameter.grad().asnumpy()
    nested = Nested(prefix="nested_")
    nested.hybridize()
    found |= {f"nested{index}": y.asnumpy() for index, y in enumerate(nested(*inputs.values()))}
    nested.export(str(FOLDER / "nested"))
    np.savez_compressed(FOLDER / "loops.npz", **found)
    net.export(str(FOLDER / "loops"))


if __name__ == "__main__":
    main()
