"""Another batch runs the binaries of the first one."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab.engines.triton.build.compiling import divisible
from hybrid_lab.engines.triton.plan import other_batches
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run.steps import KernelOperator
from hybrid_lab.gluon import nn
from hybrid_lab.graph.specialize import specialize_call
from tests.graph.test_specializations import call_of
from tests.triton_device import use_triton


def binaries(call, *shape):
    """What decides whether a kernel of forward and backward is compiled anew."""
    parts = specialize_call(call.specializations, call.graph, [shape, *call.shapes[1:]], *call.rest)
    return {
        (source.name, source.code, *source.blocks.items(), divisible(source), source.warps, source.stages)
        for graph in (parts.forward, parts.backward) for source in kernels_of(graph)[2]
    }  # fmt: skip


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 3), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2), nn.Conv2D(40, 3, strides=2))
    net.add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Dense(50, "tanh"), nn.Dense(10))
    return net


def recurrent():
    return mx.gluon.rnn.LSTM(20, num_layers=2, input_size=12)


def encoder():
    net = nn.HybridSequential()
    net.add(nn.Dense(64, flatten=False), nn.LayerNorm(), nn.GELU(), nn.Dropout(0.1), nn.Dense(30, flatten=False))
    return net


def call(make, *shape):
    net = make()
    net.initialize()
    return call_of(net, [shape], "train")


@pytest.mark.parametrize("make, shape", [(convolutions, (3, 30, 30)), (encoder, (12, 40))])
@pytest.mark.parametrize("batch", [64, 63, 50, 33])
def test_another_batch_compiles_nothing(make, shape, batch):
    """Of 64 too, none more is a multiple of something than of 63."""
    batches = call(make, 62, *shape)
    first = binaries(batches, 62, *shape)
    assert binaries(batches, batch, *shape) <= first


def test_other_lengths_and_batches_of_sequences_compile_nothing_after_the_third():
    """The batch is an inner axis there: strides are numbers in the text of the first two."""
    batches = call(recurrent, 9, 32, 12)
    known = set()
    for steps, batch in ((9, 32), (9, 36), (8, 33)):
        known |= binaries(batches, steps, batch, 12)
    for steps, batch in ((9, 35), (7, 34), (12, 32)):
        assert binaries(batches, steps, batch, 12) <= known


class Places(mx.gluon.HybridBlock):
    """Something for each place of a sequence is added, read with its neighbours: at a digit whose size varies."""

    def hybrid_forward(self, F, x, places):
        return F.broadcast_add(F.exp(x), places)


def test_kernels_with_arguments_are_those_of_all_later_batches(monkeypatch):
    use_triton(monkeypatch)
    net = Places()
    net.hybridize(engine="triton")
    texts = []
    for batch, steps in ((3, 5), (4, 6), (5, 7), (6, 9), (7, 12), (8, 11)):
        x = np.random.RandomState(batch).randn(batch, steps, 3).astype("float32")
        places = np.arange(steps, dtype="float32").reshape(1, steps, 1)
        found = net(mx.nd.array(x), mx.nd.array(places)).asnumpy()
        np.testing.assert_allclose(found, np.exp(x) + places, rtol=1e-5)
        operators = net._graph_calls.compilations[-1].program.forward.graph.operators
        ((kernel,),) = [node.op.kernels for node in operators if isinstance(node.op, KernelOperator)]
        texts.append(kernel.source.code)
    assert len(set(texts)) == 3 == len(set(texts[:3])) == other_batches.LITERAL + 1
