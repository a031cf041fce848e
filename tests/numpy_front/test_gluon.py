"""gluon with arrays of `mx.np`: layers, losses, Trainer, data loaders, hybridized calls and their files."""

import numpy
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, init, nd, np, npx
from hybrid_lab.gluon import nn, rnn


class Scores(gluon.HybridBlock):
    """Functions of `F.np` and `F.npx` beside layers and parameters."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = nn.Dense(4)
        self.weight = self.params.get("weight", shape=(4, 4), init=init.Normal(1))

    def hybrid_forward(self, F, x, weight):
        y = F.np.dot(self.dense(x), weight) + F.np.ones((4,))
        return F.np.sum(F.npx.relu(y) * 2, axis=1), y > 0.5, F.np.mean(y), y[0]


class Joined(gluon.HybridBlock):
    """2.x style: forward on arrays."""

    def forward(self, x):
        return np.concatenate([x, np.zeros_like(x)], axis=1).reshape(x.shape[0], -1).T


def test_results_have_the_class_of_the_inputs(np_mode):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(1))
    net.initialize()
    x = np.ones((2, 3))
    for hybrid in (False, True):
        net.hybridize(hybrid)
        assert type(net(x)) is np.ndarray
        assert type(net(nd.ones((2, 3)))) is np.ndarray  # because the parameters are
    assert type(net[0].weight.data()) is type(net[0].weight.grad()) is np.ndarray


def test_without_the_mode_parameters_are_ndarrays():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    assert type(net.weight.data()) is nd.NDArray
    for hybrid in (False, True):
        net.hybridize(hybrid)
        assert type(net(nd.ones((1, 3)))) is nd.NDArray
        assert type(net(np.ones((1, 3)))) is np.ndarray


@pytest.mark.parametrize("make", [Scores, Joined])
def test_hybrid_equals_eager(np_mode, make):
    net = make()
    net.initialize()
    x = np.random.normal(size=(3, 5))
    x.attach_grad()
    eager = net(x)
    net.hybridize()
    hybrid = net(x)
    for first, second in zip(eager, hybrid):
        assert (type(first), first.shape, first.dtype) == (type(second), second.shape, second.dtype)
        numpy.testing.assert_allclose(first.asnumpy(), second.asnumpy(), rtol=1e-5, atol=1e-6)


def test_one_graph_serves_all_batch_sizes_but_not_other_dtypes(np_mode):
    class Half(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.np.exp(x) / 2 + F.np.mean(x, axis=0)

    net = Half()
    net.hybridize()
    for size in (2, 3):
        assert net(np.ones((size, 4))).shape == (size, 4)
    assert len(net._graphs.graphs()) == 1
    assert net(np.ones((2, 4), dtype="int32")).dtype == numpy.float32
    assert len(net._graphs.graphs()) == 2


def test_archives_and_symbol_files_keep_the_class(np_mode, tmp_path):
    net = Scores(prefix="scores_")
    net.initialize()
    net.hybridize()
    x = np.random.normal(size=(3, 5))
    expected = net(x)
    net.save(tmp_path / "net")
    loaded = gluon.load(tmp_path / "net.hlab")
    net.export(str(tmp_path / "net"))
    imported = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    for again in (loaded, imported):
        for first, second in zip(expected, again(x)):
            assert type(second) is np.ndarray
            numpy.testing.assert_allclose(first.asnumpy(), second.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hybrid", [False, True])
def test_training(np_mode, hybrid):
    numbers = np.random.normal(size=(64, 2))
    labels = (np.dot(numbers, np.array([2.0, -3.4])) + 4.2).reshape(-1, 1)
    net = nn.HybridSequential()
    net.add(nn.Dense(1))
    net.initialize(init.Normal(0.01))
    net.hybridize(hybrid)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(numbers, labels), batch_size=16, shuffle=True)
    for _ in range(20):
        for x, y in loader:
            assert type(x) is type(y) is np.ndarray
            with autograd.record():
                loss = gluon.loss.L2Loss()(net(x), y)
            loss.backward()
            trainer.step(16)
    weight = net[0].weight.data()
    assert float(np.abs(weight.reshape(2) - np.array([2.0, -3.4])).max()) < 0.01
    assert float(loss.mean()) < 1e-3


def test_recurrent_layers_and_their_states(np_mode):
    layer = rnn.GRU(4)
    layer.initialize()
    states = layer.begin_state(2)
    assert type(states[0]) is np.ndarray
    output, states = layer(np.ones((3, 2, 5)), states)
    assert type(output) is type(states[0]) is np.ndarray
    assert output.shape == (3, 2, 4)


def test_initializers_may_compute_with_np(np_mode):
    class Large(init.Initializer):
        def _init_weight(self, name, data):
            data[:] = np.random.uniform(-10, 10, data.shape)
            data *= np.abs(data) >= 5

    net = nn.Dense(50, in_units=4)
    net.initialize(Large())
    values = np.abs(net.weight.data())
    assert bool(((values == 0) | (values >= 5)).all())


def test_deferred_shapes_follow_from_dot():
    class Product(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.weight = self.params.get("weight", shape=(0, 3), allow_deferred_init=True)

        def hybrid_forward(self, F, x, weight):
            return x.dot(weight)

    for hybrid in (False, True):
        net = Product()
        net.initialize()
        net.hybridize(hybrid)
        assert net(np.ones((2, 5))).shape == (2, 3)
        assert net.weight.shape == (5, 3)


def test_split_and_load_and_files(np_mode, tmp_path):
    (part,) = gluon.utils.split_and_load(numpy.ones((2, 2)), [mx.cpu()])
    assert type(part) is np.ndarray
    npx.save(str(tmp_path / "x"), {"a": np.array(2.0), "b": np.zeros((0, 3))})
    loaded = npx.load(str(tmp_path / "x"))
    assert {name: item.shape for name, item in loaded.items()} == {"a": (), "b": (0, 3)}
    assert type(loaded["a"]) is np.ndarray


def test_the_mode_and_its_scopes():
    assert not mx.is_np_array()
    with mx.np_array(True):
        assert mx.is_np_array()
        with mx.np_array(False):
            assert not mx.is_np_array()

    @mx.use_np
    def inside():
        return mx.is_np_array(), mx.is_np_shape()

    assert inside() == (True, True)
    npx.set_np()
    assert mx.is_np_array() and mx.is_np_shape()
    npx.reset_np()
    assert not mx.is_np_array() and not mx.is_np_shape()
    with pytest.raises(mx.MXNetError, match="NumPy's shapes"):
        npx.set_np(shape=False)


def test_symbols_by_hand():
    x = mx.sym.var("x").as_np_ndarray()
    y = mx.sym.np.ones((2, 3)) + mx.sym.npx.relu(x)
    assert type(y) is type(x) is mx.sym.np.ndarray
    executor = y.bind(mx.cpu(), {"x": nd.array([[-1.0, 2.0, 3.0]])})
    assert executor.forward()[0].asnumpy().tolist() == [[1.0, 3.0, 4.0]] * 2


def test_a_recorded_call_can_be_compared_and_profiled():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = np.ones((3, 5))
    with autograd.record():
        net(x).sum().backward()
    assert mx.compare(net, x).first is None
    assert mx.profile(net, x).slowest(1)
