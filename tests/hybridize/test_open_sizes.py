"""A size of 0 in F.zeros, F.ones and F.full of `hybrid_forward`: in a graph it follows from the readers (MXNet)."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, util
from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.gluon import nn, rnn


class Code(gluon.HybridBlock):
    def __init__(self, code, **kwargs):
        super().__init__(**kwargs)
        self.code = code

    def hybrid_forward(self, F, x):
        return self.code(F, x)


def row(F, x):
    return x.slice_axis(axis=1, begin=0, end=1).repeat(repeats=8, axis=1)


# MXNet 1.9.1 gives these shapes hybridized, but for `where`, and refuses the code in eager calls.
FOLLOWS = {
    "add": (lambda F, x: x + F.zeros((0, 8)), lambda x: x),
    "add_n": (lambda F, x: F.add_n(x, F.ones((0, 8))), lambda x: x + 1),
    "broadcast_add": (lambda F, x: F.broadcast_add(x, F.full((0, 8), 2)), lambda x: x + 2),
    "concat": (lambda F, x: F.concat(x, F.ones((0, 3)), dim=1), lambda x: np.concatenate([x, x[:, :3] * 0 + 1], 1)),
    "where": (lambda F, x: F.where(x > 0, F.zeros((0, 8)), x), lambda x: np.where(x > 0, 0, x)),
    "where, of two states": (
        lambda F, x: F.where(row(F, x), F.zeros((0, 8)), F.ones((0, 8))),
        lambda x: np.where(x[:, :1] != 0, 0, 1) + np.zeros_like(x),
    ),
    "behind a product": (
        lambda F, x: F.FullyConnected(F.ones((0, 4)), F.ones((8, 4)), no_bias=True, num_hidden=8) + x,
        lambda x: x + 4,
    ),
}


@pytest.mark.parametrize("batch", [4, 1])
@pytest.mark.parametrize("name", FOLLOWS)
def test_the_size_follows_from_the_readers(name, batch):
    code, wanted = FOLLOWS[name]
    net = Code(code)
    net.hybridize()
    for size in (batch, batch + 2):
        x = np.random.RandomState(0).uniform(-1, 1, (size, 8)).astype("float32")
        np.testing.assert_allclose(net(nd.array(x)).asnumpy(), wanted(x), rtol=1e-6)


@pytest.mark.parametrize("name", ["add", "where"])
def test_an_eager_call_has_an_empty_array(name):
    with pytest.raises(ShapeError, match=r"\(0, 8\)"):
        Code(FOLLOWS[name][0])(nd.ones((4, 8)))


@pytest.mark.parametrize(
    "code",
    [
        lambda F, x: F.zeros((0, 8)),
        lambda F, x: x.sum() + F.ones((0, 8)).sum(),
        lambda F, x: F.concat(F.zeros((0, 8)), x, dim=0) * 2,
        lambda F, x: F.concat(F.zeros((0, 8)), x, dim=0) + x,
        lambda F, x: F.broadcast_add(F.concat(F.zeros((0, 8)), x, dim=0), F.ones((1, 8))),
    ],
)
def test_where_nothing_follows_the_size_is_0_as_in_an_eager_call(code):
    net, x = Code(code), nd.array(np.arange(32).reshape(4, 8))
    eager = net(x).asnumpy()
    net.hybridize()
    np.testing.assert_array_equal(net(x).asnumpy(), eager)


def test_with_numpy_shapes_0_is_a_size():
    net = Code(lambda F, x: x + F.zeros((0, 8)))
    net.hybridize()
    with util.np_shape(True), pytest.raises(ShapeError):
        net(nd.ones((4, 8)))


class Recurrent(gluon.HybridBlock):
    """States as GluonTS makes them in graphs, for cells with deferred parameters."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell, self.out = rnn.LSTMCell(8), nn.Dense(3, flatten=False)

    def hybrid_forward(self, F, x, mask):
        size = x.shape[0] if isinstance(x, nd.NDArray) else 0
        states = self.cell.begin_state(func=F.zeros, batch_size=size)
        masks = mask.slice_axis(axis=1, begin=0, end=1).repeat(repeats=8, axis=1)
        states = [F.where(masks, state, state) for state in states]
        outputs, _ = self.cell.unroll(5, x, begin_state=states, layout="NTC", merge_outputs=True)
        return self.out(outputs)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_states_of_cells(engine, tmp_path):
    random = np.random.RandomState(1)
    x, mask = nd.array(random.randn(4, 5, 6)), nd.array(random.rand(4, 5) > 0.5)
    net = Recurrent()
    net.initialize(mx.init.Xavier())
    net.hybridize(engine=engine)
    hybrid = net(x, mask)
    with autograd.record():
        loss = (net(x, mask) ** 2).sum()
    loss.backward()
    gradients = [p.grad().asnumpy() for p in net.collect_params().values()]
    net.save(tmp_path / "net.hlab")
    net.hybridize(False)
    np.testing.assert_allclose(net(x, mask).asnumpy(), hybrid.asnumpy(), rtol=1e-5, atol=1e-6)
    with autograd.record():
        loss = (net(x, mask) ** 2).sum()
    loss.backward()
    for one, other in zip(gradients, net.collect_params().values(), strict=True):
        np.testing.assert_allclose(one, other.grad().asnumpy(), rtol=1e-4, atol=1e-5)
    again = gluon.load(tmp_path / "net.hlab")
    for size in (4, 1, 3):
        np.testing.assert_allclose(
            again(x[:size], mask[:size]).asnumpy(), net(x[:size], mask[:size]).asnumpy(), rtol=1e-5, atol=1e-6
        )


def test_mxnet_gets_the_open_size(tmp_path):
    net = Code(FOLLOWS["add"][0])
    net.hybridize()
    net(nd.ones((4, 8)))
    net.export(str(tmp_path / "net"))
    text = (tmp_path / "net-symbol.json").read_text()
    assert '"shape": "(0, 8)"' in text
    read = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"])
    assert read(nd.ones((3, 8))).shape == (3, 8)


@pytest.mark.parametrize(
    "code",
    [
        lambda F, x: F.concat(F.zeros((0, 8)), x, dim=0) * 2,
        lambda F, x: x.sum() + F.full((0, 8), 3).sum(),
        FOLLOWS["add"][0],
    ],
)
def test_an_archive_keeps_sizes_that_are_0_where_nothing_follows(code, tmp_path):
    net = Code(code)
    net.hybridize()
    net(nd.ones((4, 8)))
    net.save(tmp_path / "net.hlab")
    again = gluon.load(tmp_path / "net.hlab")
    for active in (False, True):
        again.hybridize(active)
        for size in (4, 2):
            x = nd.array(np.arange(size * 8).reshape(size, 8))
            np.testing.assert_array_equal(again(x).asnumpy(), net(x).asnumpy())
    again.save(tmp_path / "twice.hlab")
    np.testing.assert_array_equal(gluon.load(tmp_path / "twice.hlab")(x).asnumpy(), net(x).asnumpy())
