"""Stores that users write: KVStoreBase, in `create`, a Trainer and a Module."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.gluon import nn
from hybrid_lab.kvstore import KVStoreBase, KVStoreError


@KVStoreBase.register
class CountingStore(mx.kv.TestStore):
    """Sums, and keeps what it was asked."""

    def __init__(self):
        self.calls = []

    def broadcast(self, key, value, out, priority=0):
        self.calls.append(("broadcast", key))
        super().broadcast(key, value, out, priority)

    def pushpull(self, key, value, out=None, priority=0):
        self.calls.append(("pushpull", key, priority))
        super().pushpull(key, value, out, priority)


@KVStoreBase.register
class UpdatingStore(KVStoreBase):
    """Holds weights, and updates them."""

    def __init__(self):
        self.weights, self.updater, self.saved = {}, None, []

    @staticmethod
    def is_capable(capability):
        return capability == KVStoreBase.OPTIMIZER

    def set_optimizer(self, optimizer):
        self.updater = mx.optimizer.get_updater(optimizer)

    def broadcast(self, key, value, out, priority=0):
        self.weights[key] = value.copy()
        for array in out:
            array[:] = value

    def pushpull(self, key, value, out=None, priority=0):
        total = sum(value[1:], value[0].copy())
        self.updater(key, total, self.weights[key])
        for array in out:
            array[:] = self.weights[key]

    def save_optimizer_states(self, fname, dump_optimizer=False):
        self.saved.append((fname, dump_optimizer))


def test_registered_stores_are_made_by_name():
    store = mx.kv.create("CountingStore")
    assert type(store) is CountingStore
    assert store.type == "teststore"
    outs = [nd.empty((2,)), nd.empty((2,))]
    store.pushpull(3, [nd.ones((2,)), nd.ones((2,))], out=outs)
    assert [out.asnumpy().tolist() for out in outs] == [[2, 2], [2, 2]]
    assert isinstance(mx.kv.create("local"), KVStoreBase)
    with pytest.raises(KVStoreError, match="there are local, .*countingstore"):
        mx.kv.create("nothing")
    with pytest.raises(SettingError, match="register takes a subclass of KVStoreBase"):
        KVStoreBase.register(dict)
    with pytest.warns(UserWarning, match="takes the place of"):
        KVStoreBase.register(type("CountingStore", (CountingStore,), {}))
    KVStoreBase.kv_registry["countingstore"] = CountingStore


def test_what_a_store_does_not_define_says_so():
    store = mx.kv.TestStore()
    assert not store.is_capable("optimizer")
    for call in (lambda: store.set_optimizer(mx.optimizer.create("sgd")), lambda: store.save_optimizer_states("x")):
        with pytest.raises(NotImplementedError, match="TestStore does not define"):
            call()
    with pytest.raises(NotImplementedError, match="KVStoreBase does not define rank"):
        KVStoreBase().rank  # noqa: B018


def _trained(kvstore, contexts=1, **options):
    mx.random.seed(2)
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.Dense(1))
    net.initialize(mx.init.Xavier(), ctx=[mx.cpu(index) for index in range(contexts)])
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=kvstore, **options)
    x = nd.array(np.arange(8).reshape(4, 2) / 8)
    for _ in range(3):
        parts = gluon.utils.split_and_load(x, [mx.cpu(index) for index in range(contexts)])
        with autograd.record():
            losses = [net(part).square() for part in parts]
        autograd.backward(losses)
        trainer.step(4)
    return trainer, [parameter.data(mx.cpu(0)).asnumpy() for parameter in net.collect_params().values()]


@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("store", ["countingstore", CountingStore, UpdatingStore])
def test_a_trainer_learns_the_same_with_any_store(store, contexts):
    _, expected = _trained("device", contexts)
    trainer, weights = _trained(store if isinstance(store, str) else store(), contexts)
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5)
    if store is CountingStore:
        calls = trainer._kvstore.calls
        assert calls[:4] == [("broadcast", index) for index in range(4)]
        assert calls[4:8] == [("pushpull", index, -index) for index in range(4)]
        assert len(calls) == 16


def test_a_store_that_updates_holds_the_states(tmp_path):
    trainer, _ = _trained(UpdatingStore())
    trainer.save_states(tmp_path / "states")
    assert trainer._kvstore.saved == [(tmp_path / "states", True)]
    for call in (trainer.allreduce_grads, trainer.get_states, lambda: trainer.update(1)):
        with pytest.raises(SettingError, match="set update_on_kvstore=False"):
            call()
    trainer, _ = _trained(CountingStore())
    trainer.allreduce_grads()
    assert "0" in trainer.get_states()[1]
    with pytest.raises(SettingError, match="a CountingStore cannot update parameters"):
        _trained(CountingStore(), update_on_kvstore=True)
    with pytest.raises(SettingError, match="None, a name or a KVStore, not int"):
        _trained(3)


@pytest.mark.parametrize("store", [CountingStore, UpdatingStore])
def test_a_module_learns_the_same_with_any_store(store):
    def weights(kvstore):
        mx.random.seed(1)
        symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
        symbol = mx.sym.LinearRegressionOutput(symbol, mx.sym.var("lro_label"), name="lro")
        module = mx.mod.Module(symbol, label_names=["lro_label"], context=[mx.cpu(0), mx.cpu(1)])
        data = np.arange(12, dtype=np.float32).reshape(6, 2) / 12
        iterator = mx.io.NDArrayIter(data, data.sum(1), 2, label_name="lro_label")
        options = {"learning_rate": 0.1, "momentum": 0.5}
        module.fit(iterator, num_epoch=2, kvstore=kvstore, optimizer_params=options, eval_metric="mse")
        return module.get_params()[0]

    expected, found = weights("local"), weights(store())
    for name, array in expected.items():
        np.testing.assert_allclose(found[name].asnumpy(), array.asnumpy(), rtol=1e-5)
