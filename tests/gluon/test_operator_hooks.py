"""register_op_hook, optimize_for, and MXNet's smaller names of Gluon."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import nn


@pytest.fixture
def net():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(2), nn.Activation("relu"), nn.BatchNorm())
    net.initialize()
    net.hybridize(engine="numpy")
    return net


def test_hooks_on_operators(net):
    x, seen, all_seen = nd.random.normal(shape=(3, 4)), [], []
    expected = net(x).asnumpy()
    net.register_op_hook(lambda name, operator, array: seen.append((name, operator, array.shape)))
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    assert seen[:2] == [
        ("net_dense0_fwd_output", "FullyConnected", (3, 2)),
        ("net_relu0_fwd_output", "Activation", (3, 2)),
    ]
    net.register_op_hook(lambda name, operator, array: all_seen.append(name), monitor_all=True)
    seen.clear()
    net(x)
    assert seen == []
    assert all_seen[:4] == [f"net_dense0_fwd_{name}" for name in ("data", "weight", "bias", "output")]


def test_training_goes_on_with_hooks(net):
    x = nd.random.normal(shape=(3, 4))
    net(x)
    net.register_op_hook(lambda name, operator, array: None)
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    assert abs(net[2].gamma.grad().asnumpy()).sum() > 0
    assert abs(net[2].running_mean.data().asnumpy()).sum() > 0


def test_a_plain_block_hands_hooks_to_the_hybrid_blocks_below(net):
    outer, seen = nn.Sequential(), []
    outer.add(net)
    outer.register_op_hook(lambda name, operator, array: seen.append(operator))
    outer(nd.ones((3, 4)))
    assert seen[0] == "FullyConnected"


def test_optimize_for():
    net = nn.Dense(2)
    net.initialize()
    x = nd.ones((3, 4))
    net.optimize_for(x, backend="numpy")
    assert "numpy" in str(mx.explain(net))
    with pytest.raises(HybridLabError, match="MKLDNN"):
        net.optimize_for(x, backend="MKLDNN")


def test_a_store_of_several_processes_is_an_error():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    for kind in ("dist_sync", "horovod"):
        with pytest.raises(mx.distributed.WorkersError, match="torchrun"):
            gluon.Trainer(net.collect_params(), "sgd", kvstore=kind)
    for kind in ("dist_async", "no_such_store"):
        with pytest.raises(mx.kv.KVStoreError, match=kind):
            gluon.Trainer(net.collect_params(), "sgd", kvstore=kind)
    for kind in ("local", "device", None, mx.kv.create("local")):
        gluon.Trainer(net.collect_params(), "sgd", kvstore=kind)


def test_sparse_embedding_and_loader():
    layer = gluon.contrib.nn.SparseEmbedding(10, 4)
    layer.initialize()
    with autograd.record():
        y = layer(nd.array([3, 3, 1]))
    y.backward()
    assert layer.weight.grad().asnumpy().sum(1).tolist() == [0, 4, 0, 8, 0, 0, 0, 0, 0, 0]
    loader = gluon.data.DataLoader(list(range(6)), 2, num_workers=2, auto_reload=True)
    assert [batch.asnumpy().tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


def test_a_schedule_may_be_any_function():
    net = nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"lr_scheduler": lambda update: 1.0 / (1 + update)})
    assert trainer.learning_rate == 1.0
    for _ in range(2):
        with autograd.record():
            loss = net(nd.ones((1, 1)))
        loss.backward()
        trainer.step(1)
    np.testing.assert_allclose(net.weight.data().asnumpy(), [[1 - 1 / 2 - 1 / 3]], rtol=1e-6)


@pytest.mark.parametrize("metric", ["acc", "f1", ["acc", "mse"], {"metric": "acc", "axis": 0}])
def test_metrics_from_their_settings(metric):
    import json

    made = mx.metric.create(metric)
    for settings in (made.get_config(), json.dumps(made.get_config())):
        assert mx.metric.create(settings).get_config() == made.get_config()
    assert mx.metric.create('["acc", {"axis": 0}]').get_config()["axis"] == 0
    with pytest.raises(ValueError, match="does not describe a metric"):
        mx.metric.create("{acc")


def test_the_slopes_of_prelu_begin_at_a_quarter():
    symbol = mx.sym.LeakyReLU(mx.sym.var("data"), act_type="prelu", name="act")
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", (4, 3))], for_training=False)
    module.init_params()
    assert module.get_params()[0]["act_gamma"].asnumpy().tolist() == [0.25] * 3
    other = mx.sym.LeakyReLU(mx.sym.var("data"), mx.sym.var("g", init=mx.init.One()), act_type="prelu")
    module = mx.mod.Module(other, label_names=None)
    module.bind([("data", (4, 3))], for_training=False)
    module.init_params()
    assert module.get_params()[0]["g"].asnumpy().tolist() == [1] * 3
