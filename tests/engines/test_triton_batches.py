"""Another batch runs the binaries of the first one."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import engines
from hybrid_lab.engines.triton.building.compiling import divisible
from hybrid_lab.engines.triton.engine import kernels_of
from hybrid_lab.engines.triton.reusing import recipes
from hybrid_lab.engines.triton.writing import symbolic
from hybrid_lab.gluon import ahead, nn
from tests.engines.random_graphs import random_case
from tests.engines.small_tiles import use_small_tiles
from tests.engines.test_random_graphs import problems
from tests.triton_device import use_triton


def binaries(net, *shape):
    """What decides whether a kernel of forward and backward is compiled anew."""
    x = mx.nd.array(np.zeros(shape, "float32"))
    return {
        (source.name, source.code, *source.blocks.items(), divisible(source), source.warps, source.stages)
        for graph in ahead.graphs_of(net, x, train=True).values() for source in kernels_of(graph)[2]
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


@pytest.mark.parametrize("make, shape", [(convolutions, (3, 30, 30)), (encoder, (12, 40))])
@pytest.mark.parametrize("batch", [64, 63, 50, 33])
def test_another_batch_compiles_nothing(make, shape, batch):
    """Of 64 too, none more is a multiple of something than of 63."""
    net = make()
    net.initialize()
    first = binaries(net, 62, *shape)
    assert binaries(net, batch, *shape) <= first


def test_other_lengths_and_batches_of_sequences_compile_nothing_after_the_third():
    """The batch is an inner axis there: strides are numbers in the text of the first two."""
    net = recurrent()
    net.initialize()
    known = set()
    for steps, batch in ((9, 32), (9, 36), (8, 33)):
        known |= binaries(net, steps, batch, 12)
    for steps, batch in ((9, 35), (7, 34), (12, 32)):
        assert binaries(net, steps, batch, 12) <= known


class Everything:
    """All formulas but constants."""

    def __contains__(self, formula):
        return formula[0] != "constant"


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_random_graphs_whose_numbers_are_all_arguments(first, monkeypatch):
    """More than `GroupRecipe.varying` would ever ask for, in products too."""
    use_triton(monkeypatch)
    monkeypatch.setattr(symbolic.Trace, "varying", property(lambda trace: Everything(), lambda trace, _: None), False)
    written = recipes._Recorder.write
    counts = [0, 0]

    def counted(recorder, *given):
        sources = written(recorder, *given)
        counts[recorder.way(sources).has_arguments] += 1
        return sources

    monkeypatch.setattr(recipes._Recorder, "write", counted)
    for seed in range(first, first + 40, 5):
        with monkeypatch.context() as patch:
            if seed % 2:
                use_small_tiles(patch, loops=seed % 4 == 1, split=seed % 3 == 0)
            assert problems(random_case(seed), engines.get("triton"), train=True) == [], seed
    assert min(counts) > 10  # kernels with arguments, and without


class Places(mx.gluon.HybridBlock):
    """Something for each place of a sequence is added, read with its neighbours: at a digit whose size varies."""

    def hybrid_forward(self, F, x, places):
        return F.broadcast_add(F.exp(x), places)


def test_kernels_with_arguments_are_not_written_again(monkeypatch):
    use_triton(monkeypatch)
    written, inner = [], recipes._Recorder.write
    monkeypatch.setattr(
        recipes._Recorder, "write", lambda *given: written.append(given[1].outputs[0].shape) or inner(*given)
    )
    net = Places()
    net.hybridize(engine="triton")
    for batch, steps in ((3, 5), (4, 6), (5, 7), (6, 9), (7, 12), (8, 11)):
        x = np.random.RandomState(batch).randn(batch, 3, steps).astype("float32")
        places = np.arange(steps, dtype="float32").reshape(1, 1, steps)
        found = net(mx.nd.array(x), mx.nd.array(places)).asnumpy()
        np.testing.assert_allclose(found, np.exp(x) + places, rtol=1e-5)
    assert written == [(3, 3, 5), (4, 3, 6), (5, 3, 7)]
