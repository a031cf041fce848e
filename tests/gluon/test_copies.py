"""copy.copy, copy.deepcopy and pickle of every public class that holds a training, before its first use and after."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, lr_scheduler, metric, nd
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import data as gdata
from hybrid_lab.gluon import loss as gloss
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.contrib.estimator import Estimator
from hybrid_lab.optimizer.optimizer import _registry

X = nd.array(np.random.RandomState(0).rand(4, 3))


#: But GroupAdaGrad, which updates matrices only, and Test, which counts nothing.
OPTIMIZERS = sorted(
    name
    for name, kind in _registry.items()
    if kind.__module__.startswith("hybrid_lab.") and name not in ("groupadagrad", "test")
)


def pickled(value):
    return pickle.loads(pickle.dumps(value))


WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": pickled}
DEEP = {name: way for name, way in WAYS.items() if name != "copy"}


class Model(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.scale, self.trainer = 1.0, None
        self.norm, self.out = nn.BatchNorm(), nn.Dense(2)
        self.out.weight.lr_mult = 0.5

    def hybrid_forward(self, F, x):
        return self.out(F.relu(self.norm(x))) * self.scale


def step(net, trainer):
    with autograd.record():
        loss = (net(X) ** 2).mean()
    loss.backward()
    trainer.step(1)
    return float(loss.asscalar())


def model(optimizer="adam", steps=0, hybrid=True, **settings):
    mx.random.seed(0)
    net = Model()
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    net(X)
    net.trainer = gluon.Trainer(net.collect_params(), optimizer, settings)
    for _ in range(steps):
        step(net, net.trainer)
    return net


@pytest.mark.parametrize("way", DEEP)
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_net_that_holds_its_trainer_goes_on_alike(optimizer, steps, way):
    """With every optimizer: the twin trains as the original would, and neither changes the other."""
    net = model(optimizer, steps)
    twin = DEEP[way](net)
    assert twin.trainer is not net.trainer and twin.trainer._params[0] is twin.norm.gamma
    losses = []
    for each in (net, twin):
        mx.random.seed(3)  # SGLD draws random numbers
        losses.append([step(each, each.trainer) for _ in range(3)])
    assert losses[0] == losses[1]
    assert twin.trainer.optimizer.num_update == net.trainer.optimizer.num_update == steps + 3


def test_schedules_and_loss_scales_come_along():
    net = model("sgd", 3, learning_rate=0.1, momentum=0.9, lr_scheduler=lr_scheduler.FactorScheduler(2, 0.5))
    for way in DEEP.values():
        twin = way(net)
        assert twin.trainer.learning_rate == net.trainer.learning_rate
        assert twin.trainer.optimizer.lr_scheduler is not net.trainer.optimizer.lr_scheduler


def test_a_loss_scale_comes_along(monkeypatch):
    net = model("sgd", 1)
    monkeypatch.setattr(net.trainer, "_amp_loss_scaler", amp.LossScaler())
    for way in DEEP.values():
        twin = way(net)
        assert twin.trainer._amp_loss_scaler.get_state() == net.trainer._amp_loss_scaler.get_state()


@pytest.mark.parametrize("way", DEEP)
def test_a_trainer_of_several_contexts(way):
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = Model()
    net.initialize(ctx=contexts)
    parts = [X.as_in_context(ctx) for ctx in contexts]
    [net(part) for part in parts]
    net.trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})

    def run(net):
        with autograd.record():
            losses = [(net(part) ** 2).mean() for part in parts]
        autograd.backward(losses)
        net.trainer.step(1)
        return [float(loss.asscalar()) for loss in losses]

    run(net)
    twin = DEEP[way](net)
    assert [run(net) for _ in range(2)] == [run(twin) for _ in range(2)]


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_shallow_copy_runs_its_own_attributes(hybrid):
    """The copy shares parameters and children. What is changed in it alone does not change the original."""
    net = model(hybrid=hybrid)
    before = net(X).asnumpy()
    twin = copy.copy(net)
    assert twin.out is net.out and twin.collect_params().keys() == net.collect_params().keys()
    twin.scale = 2.0
    assert np.array_equal(twin(X).asnumpy(), before * 2) and np.array_equal(net(X).asnumpy(), before)
    twin.more = nn.Dense(1)
    assert "more" not in net._children and not hasattr(net, "more")
    twin.register_forward_hook(lambda *args: None)
    assert not net._forward_hooks
    net.out.weight.set_data(net.out.weight.data() * 0)  # both see it
    assert np.array_equal(net(X).asnumpy(), twin(X).asnumpy() / 2)


def test_a_shallow_copy_notices_a_replaced_child():
    net = model()
    twin = copy.copy(net)
    twin(X)
    net.out.add_to = 1
    net.out._structure_changed()
    twin.out = nn.Dense(5)
    twin.out.initialize()
    assert twin(X).shape == (4, 5) and net(X).shape == (4, 2)


def iterator(**options):
    return mx.io.NDArrayIter(np.arange(10.0).reshape(10, 1), np.zeros(10), 2, **options)


def batches(source):
    return [np.asarray(batch.data[0].asnumpy()).ravel().tolist() for batch in source]


@pytest.mark.parametrize("way", DEEP)
@pytest.mark.parametrize("taken", [0, 2])
@pytest.mark.parametrize(
    "made", [iterator, lambda: mx.io.PrefetchingIter(iterator()), lambda: mx.io.ResizeIter(iterator(), 5)]
)
def test_iterators_go_on_where_they_were(made, taken, way):
    source = made()
    for _ in range(taken):
        source.next()
    twin = DEEP[way](source)
    left = batches(source)
    assert batches(twin) == left and len(left) == 5 - taken


@pytest.mark.parametrize("way", DEEP)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 2])
def test_a_loader_goes_on_where_it_was(taken, workers, way):
    loader = gdata.DataLoader(gdata.ArrayDataset(np.arange(10.0)), 2, shuffle=True, num_workers=workers)
    running = iter(loader)
    for _ in range(taken):
        next(running)
    twin = DEEP[way](loader)
    assert twin.epoch == loader.epoch
    if taken:
        assert [batch.asnumpy().tolist() for batch in twin] == [batch.asnumpy().tolist() for batch in running]


def store(steps):
    kv = mx.kv.create("local")
    kv.set_optimizer(mx.optimizer.create("adam"))
    kv.init(3, nd.ones((2,)))
    for _ in range(steps):
        kv.push(3, nd.ones((2,)))
    return kv


def pulled(kv):
    out = nd.zeros((2,))
    kv.push(3, nd.ones((2,)))
    kv.pull(3, out=out)
    return out.asnumpy().tolist()


@pytest.mark.parametrize("way", DEEP)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_store_with_an_optimizer(steps, way):
    kv = store(steps)
    twin = DEEP[way](kv)
    assert pulled(kv) == pulled(twin) and pulled(kv) == pulled(twin)


def test_updaters_and_optimizers():
    updater = mx.optimizer.get_updater(mx.optimizer.create("adam"))
    weight = nd.ones((2,))
    updater([0, 1], [nd.ones((2,))] * 2, [weight, nd.ones((2,))])
    for way in DEEP.values():
        twin, own, other = way(updater), weight.copy(), weight.copy()
        twin(0, nd.ones((2,)), own)
        copy.deepcopy(updater)(0, nd.ones((2,)), other)
        assert np.array_equal(own.asnumpy(), other.asnumpy()) and way(updater.optimizer).num_update == 1


@pytest.mark.parametrize("way", DEEP)
@pytest.mark.parametrize("fit", [False, True])
def test_an_estimator(fit, way):
    net = nn.HybridSequential()
    net.add(nn.Dense(1))
    net.initialize()
    net.hybridize()
    net(X)
    trainer = gluon.Trainer(net.collect_params(), "adam")
    estimator = Estimator(net, gloss.L2Loss(), [metric.MSE()], trainer=trainer)
    loader = gdata.DataLoader(gdata.ArrayDataset(X.asnumpy(), np.ones((4, 1), "float32")), 2)
    if fit:
        estimator.fit(loader, epochs=1)
    twin = DEEP[way](estimator)
    assert twin.trainer._params[0] is twin.net[0].weight and twin.logger is not estimator.logger
    for each in (estimator, twin):
        each.fit(loader, epochs=1)
    assert np.array_equal(net(X).asnumpy(), twin.net(X).asnumpy())


def symbol():
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(data, name="softmax")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("called", [False, True])
def test_an_executor(called, way):
    executor = symbol().simple_bind(mx.cpu(), data=(4, 3), softmax_label=(4,))
    for array in executor.arg_arrays:
        array[:] = nd.ones(array.shape)
    if called:
        executor.forward(is_train=True)
        executor.backward()
    twin = WAYS[way](executor)
    for each in (executor, twin):
        each.forward(is_train=True, data=X)
        each.backward()
    assert np.array_equal(executor.outputs[0].asnumpy(), twin.outputs[0].asnumpy())
    assert np.array_equal(executor.grad_dict["fc_weight"].asnumpy(), twin.grad_dict["fc_weight"].asnumpy())
    shared = twin.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    assert shared == (way == "copy")


def generate(length):
    data = mx.sym.mean(mx.sym.var("data"), axis=1)
    net = mx.sym.FullyConnected(data, num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def batch(length):
    data = nd.array(np.random.RandomState(length).rand(4, length, 3))
    return mx.io.DataBatch(
        [data],
        [nd.array([0, 1, 0, 1])],
        bucket_key=length,
        provide_data=[mx.io.DataDesc("data", (4, length, 3))],
        provide_label=[mx.io.DataDesc("softmax_label", (4,))],
    )


def module(kind):
    made = mx.mod.Module(symbol()) if kind == "module" else mx.mod.BucketingModule(generate, 5)
    shape = (4, 3) if kind == "module" else (4, 5, 3)
    made.bind([("data", shape)], [("softmax_label", (4,))])
    mx.random.seed(0)
    made.init_params(mx.init.Xavier())
    made.init_optimizer(optimizer="adam")
    return made


def train(made, kind, number=3):
    for length in (5, 3, 4)[:number]:
        one = batch(length) if kind == "bucketing" else mx.io.DataBatch([X], [nd.array([0, 1, 0, 1])])
        made.forward(one, is_train=True)
        made.backward()
        made.update()
    return {name: array.asnumpy().tolist() for name, array in made.get_params()[0].items()}


@pytest.mark.parametrize("way", DEEP)
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("kind", ["module", "bucketing"])
def test_modules_train_on_alike(kind, steps, way):
    made = module(kind)
    train(made, kind, steps)
    twin = DEEP[way](made)
    assert train(made, kind) == train(twin, kind)
    assert train(made, kind) == train(twin, kind)


def test_a_fresh_module():
    for way in WAYS.values():
        assert way(mx.mod.Module(symbol())).data_names == ["data"]


def test_hook_handles_belong_to_the_copied_block():
    net = model()
    calls = []
    net.handle = net.register_forward_hook(lambda *args: calls.append(1))
    twin = copy.deepcopy(net)
    twin.handle.detach()
    twin(X)
    assert not calls
    net(X)
    assert calls == [1]


OTHERS = {
    "parameter": lambda: model().out.weight,
    "fresh parameter": lambda: gluon.Parameter("w", shape=(2, 0), allow_deferred_init=True),
    "constant": lambda: gluon.Constant("c", [1, 2]),
    "parameters": lambda: model().collect_params(),
    "array": lambda: nd.ones((2,)),
    "mx.np": lambda: mx.np.ones((2,)),
    "csr": lambda: nd.ones((2, 2)).tostype("csr"),
    "symbol": symbol,
    "context": lambda: mx.gpu(1),
    "initializer": lambda: mx.init.Xavier(),
    "loss": lambda: gloss.SoftmaxCrossEntropyLoss(),
    "lstm": lambda: rnn.LSTM(3, input_size=2),
    "cell": lambda: rnn.ZoneoutCell(rnn.LSTMCell(3)),
    "lambda": lambda: nn.HybridLambda("relu"),
    "dataset": lambda: gdata.ArrayDataset(np.ones(3)),
    "sampler": lambda: gdata.BatchSampler(gdata.RandomSampler(8), 3, "rollover"),
    "speedometer": lambda: mx.callback.Speedometer(1),
    "schedule": lambda: lr_scheduler.CosineScheduler(10),
    "metric": lambda: metric.CompositeEvalMetric([metric.F1(), metric.PearsonCorrelation()]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OTHERS)
def test_other_objects(name, way):
    value = OTHERS[name]()
    twin = WAYS[way](value)
    assert type(twin) is type(value)
    if " object at 0x" not in repr(value):
        assert repr(twin) == repr(value)


def test_graphs_from_a_file_say_how_to_save_them(tmp_path):
    """What is copied, and not pickled."""
    net = model()
    net.save(tmp_path / "m")
    opened = gluon.load(tmp_path / "m")
    for way in (copy.copy, copy.deepcopy):
        assert np.array_equal(way(opened)(X).asnumpy(), net(X).asnumpy())
    with pytest.raises(HybridLabError, match=r"save it with net.save\(path\)"):
        pickle.dumps(opened)


REPORTS = {
    "explain": lambda net: mx.explain(net),
    "profile": lambda net: mx.profile(net, X),
    "compare": lambda net: mx.compare(net, X),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REPORTS)
def test_reports_say_the_same(name, way):
    report = REPORTS[name](model())
    twin = WAYS[way](report)
    assert type(twin) is type(report) and str(twin) == str(report)
    if name == "compare":
        with pytest.raises(HybridLabError, match="call mx.compare"):
            twin.diff()


def test_graphs_are_not_pickled():
    graph = model()._graphs.first().graph
    assert copy.deepcopy(graph) is graph and copy.copy(graph) is graph
    with pytest.raises(HybridLabError, match="graphs are not pickled"):
        pickle.dumps(graph)
