"""gluon.contrib.rnn.dynamic_unroll beside MXNet's numbers, `unroll`, and its own graph."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import rnn
from hybrid_lab.gluon.contrib.rnn import dynamic_unroll

#: Cell, layout, whether sequences have lengths -> norms of outputs, of states, of the inputs' gradient in MXNet 1.9.1.
MXNET = {
    ("RNNCell", "TNC", False): (3.7513, [2.14412], 5.3291),
    ("RNNCell", "TNC", True): (3.25838, [1.94835], 6.0413),
    ("RNNCell", "NTC", False): (3.06589, [1.56839], 5.792),
    ("RNNCell", "NTC", True): (2.57835, [1.83203], 4.4864),
    ("LSTMCell", "TNC", False): (1.16451, [0.3823, 0.80349], 1.8735),
    ("LSTMCell", "TNC", True): (1.06622, [0.70524, 1.36104], 1.5531),
    ("LSTMCell", "NTC", False): (1.3971, [0.71748, 1.4589], 1.8668),
    ("LSTMCell", "NTC", True): (1.21698, [0.77534, 1.40895], 0.9455),
    ("GRUCell", "TNC", False): (1.91821, [1.12964], 1.7696),
    ("GRUCell", "TNC", True): (1.63029, [1.05441], 1.6329),
    ("GRUCell", "NTC", False): (2.67353, [1.47454], 3.5097),
    ("GRUCell", "NTC", True): (2.27946, [1.23259], 3.3294),
}


def test_values_and_gradients_are_those_of_mxnet():
    numbers = np.random.RandomState(0)
    for name in ("RNNCell", "LSTMCell", "GRUCell"):
        for layout in ("TNC", "NTC"):
            cell = getattr(rnn, name)(3, input_size=2)
            cell.initialize()
            for parameter in cell.collect_params().values():
                parameter.set_data(nd.array(numbers.randn(*parameter.shape) * 0.5))
            x = nd.array(numbers.randn(*((4, 2, 2) if layout == "TNC" else (2, 4, 2))))
            begin = [nd.array(numbers.randn(2, 3)) for _ in cell.state_info()]
            for length in (None, nd.array([2, 4])):
                x.attach_grad()
                with autograd.record():
                    outputs, states = dynamic_unroll(cell, x, begin, layout=layout, valid_length=length)
                    total = outputs.sum() + sum(state.sum() for state in states) * 2
                total.backward()
                expected = MXNET[name, layout, length is not None]
                np.testing.assert_allclose(outputs.norm().asscalar(), expected[0], rtol=1e-4)
                np.testing.assert_allclose([state.norm().asscalar() for state in states], expected[1], rtol=1e-4)
                np.testing.assert_allclose(x.grad.norm().asscalar(), expected[2], rtol=1e-4)


class _Net(gluon.HybridBlock):
    def __init__(self, layout, **options):
        super().__init__()
        self.layout, self.options = layout, options
        with self.name_scope():
            self.cell = rnn.LSTMCell(3, input_size=2)

    def hybrid_forward(self, F, x, h, c, length):
        outputs, states = dynamic_unroll(self.cell, x, [h, c], layout=self.layout, valid_length=length, **self.options)
        return outputs, states[0], states[1]


@pytest.mark.parametrize("options", [{}, {"drop_inputs": 0.5, "drop_outputs": 0.5}])
@pytest.mark.parametrize("layout", ["TNC", "NTC"])
def test_a_graph_computes_the_same_as_eager_code_and_as_unroll(layout, options):
    net = _Net(layout, **options)
    net.initialize()
    shape = (4, 2, 2) if layout == "TNC" else (2, 4, 2)
    x, h, c = nd.random.normal(shape=shape), nd.random.normal(shape=(2, 3)), nd.random.normal(shape=(2, 3))
    length = nd.array([3, 1], dtype="int32")
    results = []
    for hybridize in (False, True):
        net.hybridize(hybridize)
        mx.random.seed(5)
        with autograd.record():
            outputs, hidden, memory = net(x, h, c, length)
            total = outputs.sum() + hidden.sum() + memory.sum()
        total.backward()
        results.append([outputs, hidden, memory, net.cell.i2h_weight.grad().copy()])
    for eager, hybrid in zip(*results, strict=True):
        np.testing.assert_allclose(hybrid.asnumpy(), eager.asnumpy(), rtol=1e-5, atol=1e-6)
    if options:
        mask = results[0][0].asnumpy() != 0
        steps = mask if layout == "TNC" else mask.swapaxes(0, 1)
        assert (steps[0, 0] == steps[1, 0]).all()  # one mask for all steps
        return
    outputs, states = net.cell.unroll(4, x, [h, c], layout=layout, merge_outputs=True, valid_length=length)
    np.testing.assert_allclose(outputs.asnumpy(), results[0][0].asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(states[1].asnumpy(), results[0][2].asnumpy(), rtol=1e-5, atol=1e-6)


def test_the_state_may_be_one_tensor():
    cell = rnn.GRUCell(3, input_size=2)
    cell.initialize()
    outputs, state = dynamic_unroll(_Single(cell), nd.ones((4, 2, 2)), nd.zeros((2, 3)), valid_length=nd.array([1, 4]))
    np.testing.assert_allclose(state[0].asnumpy(), outputs[0, 0].asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(state[1].asnumpy(), outputs[3, 1].asnumpy(), rtol=1e-6)


class _Single:
    """A cell as a function of one state."""

    def __init__(self, cell):
        self.cell = cell

    def __call__(self, x, state):
        output, (new,) = self.cell(x, [state])
        return output, new
