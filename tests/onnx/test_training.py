"""Training information in ONNX files: written, what it means, and read back into what trains on bit by bit the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError, MissingGraphError, SettingError, Unmappable
from hybrid_lab.gluon import nn
from hybrid_lab.onnx.errors import OnnxError
from hybrid_lab.onnx.training_info import optimizers as written

DOMAIN = "ai.onnx.preview.training"
rng = np.random.default_rng(3)


class Net(gluon.HybridBlock):
    """Whatever differs between training and prediction, and what does not."""

    def __init__(self, plain=False, log=False, scale=True):
        super().__init__()
        self.log, self.body = log, nn.HybridSequential()
        self.body.add(nn.Conv2D(3, 3, padding=1, activation="relu"))
        if not plain:
            self.body.add(nn.BatchNorm(scale=scale, momentum=0.8), nn.Dropout(0.3))
        self.body.add(nn.Dense(4, activation="tanh"))
        self.out = nn.Dense(3)

    def hybrid_forward(self, F, x):
        y = self.out(self.body(x))
        return F.log_softmax(y) if self.log else y


def made(optimizer="sgd", settings=None, loss="cross entropy", **options):
    """(net, loss, trainer, x, labels) after two steps."""
    net = Net(log=loss == "nll", **options)
    net.initialize(mx.init.Xavier())
    function = gluon.loss.L2Loss() if loss == "mse" else gluon.loss.SoftmaxCrossEntropyLoss(from_logits=loss == "nll")
    net.hybridize()
    function.hybridize()
    x = nd.array(rng.normal(size=(4, 2, 4, 4)), dtype="float32")
    labels = [
        nd.array(rng.normal(size=(4, 3)) if loss == "mse" else rng.integers(0, 3, 4), dtype="float32") for _ in range(3)
    ]
    net(x)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.03, **(settings or {})})
    steps(net, function, trainer, x, labels, 2)
    return net, function, trainer, x, labels


def steps(net, loss, trainer, x, labels, number=10):
    mx.random.seed(5)
    found = []
    for step in range(number):
        with autograd.record():
            value = loss(net(x), labels[step % len(labels)])
        value.backward()
        trainer.step(value.size)
        found.append(value.asnumpy())
    return found


def exported(path, net, loss, trainer, **options):
    return mx.onnx.export(net, path, training=True, loss=loss, trainer=trainer, **options)


def read(path, hybridize=True):
    training = mx.onnx.imports_training(path)
    if hybridize:
        training.net.hybridize()
        training.loss.hybridize()
    return training


def assert_goes_on_the_same(path, net, loss, trainer, x, labels):
    again = read(path)
    for one, two in zip(steps(net, loss, trainer, x, labels), steps(*again, x, labels), strict=True):
        np.testing.assert_array_equal(one, two)
    values = {parameter.name: parameter.data().asnumpy() for parameter in again.net.collect_params().values()}
    for name, parameter in net._collect_params_with_prefix().items():
        if name in values:
            np.testing.assert_array_equal(values[name], parameter.data().asnumpy(), err_msg=name)
    np.testing.assert_array_equal(net(x).asnumpy(), again.net(x).asnumpy())
    return again


def combined(model):
    """The network and the algorithm as one graph, as the format defines a step of training."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.training_info[:]
    algorithm = model.training_info[0].algorithm
    for field in ("node", "input", "output", "initializer", "value_info"):
        getattr(whole.graph, field).extend(getattr(algorithm, field))
    return whole


# -- there and back ----------------------------------------------------------------------------------------------------

OPTIMIZERS = [
    ("sgd", {}), ("sgd", {"momentum": 0.9, "wd": 1e-3}), ("nag", {"momentum": 0.9, "wd": 1e-3}),
    ("adagrad", {"wd": 1e-3}), ("adam", {}), ("adam", {"wd": 1e-3, "clip_gradient": 0.1}), ("adamw", {"wd": 0.1}),
    ("rmsprop", {"centered": True}), ("signum", {}), ("ftrl", {}), ("sgd", {"momentum": 1 / 3, "wd": 1 / 7}),
]  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize("loss", ["cross entropy", "nll", "mse"])
@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS, ids=[f"{name}-{len(s)}" for name, s in OPTIMIZERS])
def test_ten_steps_after_reading_are_those_of_the_original(loss, optimizer, settings, tmp_path):
    net, function, trainer, x, labels = made(optimizer, settings, loss)
    report = exported(tmp_path / "net.onnx", net, function, trainer)
    model = onnx.load(report.path)
    onnx.checker.check_model(model, full_check=True)
    onnx.checker.check_model(combined(model), full_check=True)
    assert_goes_on_the_same(report.path, net, function, trainer, x, labels)


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("scale", [True, False])
def test_batch_norm_over_another_axis(axis, scale, tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, layout="NHWC", in_channels=2), nn.BatchNorm(axis=axis, scale=scale), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x, labels = nd.random.normal(shape=(6, 5, 6, 2)), [nd.array([0, 1, 2, 1, 0, 2])]
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    steps(net, loss, trainer, x, labels, 2)
    report = exported(tmp_path / "net.onnx", net, loss, trainer)
    onnx.checker.check_model(combined(onnx.load(report.path)), full_check=True)
    assert_goes_on_the_same(report.path, net, loss, trainer, x, labels)


def test_a_file_that_was_read_is_written_as_the_same_file(tmp_path):
    net, function, trainer, *_ = made("adam", plain=True)
    first = exported(tmp_path / "first.onnx", net, function, trainer)
    again = read(first.path)
    second = exported(tmp_path / "second.onnx", *again, inputs=("batch", 2, 4, 4), label=("batch",))
    one, two = (onnx.load(each.path) for each in (first, second))
    for field in ("algorithm", "initialization", "update_binding", "initialization_binding"):
        ours, theirs = (str(getattr(each.training_info[0], field)) for each in (one, two))
        assert _without_metadata(ours) == _without_metadata(theirs), field


def _without_metadata(text):
    import re

    return re.sub(r"metadata_props \{.*?\n\s*\}\n", "", text, flags=re.S)


def test_two_exports_are_the_same_bytes_and_the_network_is_read_alone(tmp_path):
    net, function, trainer, x, _ = made()
    first, second = (exported(tmp_path / name, net, function, trainer).path for name in ("a.onnx", "b.onnx"))
    assert Path(first).read_bytes() == Path(second).read_bytes()
    np.testing.assert_allclose(mx.onnx.imports(first)(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_a_network_that_is_the_same_in_training_is_not_written_twice(tmp_path):
    net, function, trainer, x, labels = made(plain=True)
    report = exported(tmp_path / "net.onnx", net, function, trainer)
    (info,) = onnx.load(report.path).training_info
    assert [node.op_type for node in info.algorithm.node if node.op_type in ("Conv", "Gemm")] == []
    loss = next(node for node in info.algorithm.node if node.op_type == "SoftmaxCrossEntropyLoss")
    assert loss.input[0] == "output"
    assert_goes_on_the_same(report.path, net, function, trainer, x, labels)


def test_the_label_may_be_given_and_sizes_are_open(tmp_path):
    net = nn.Dense(3, in_units=2)
    net.initialize()
    loss, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(MissingGraphError, match="label="):
        exported(tmp_path / "net.onnx", net, loss, trainer, inputs=("batch", 2))
    report = exported(tmp_path / "net.onnx", net, loss, trainer, inputs=("batch", 2), label=("batch",))
    (label,) = onnx.load(report.path).training_info[0].algorithm.input
    assert [item.dim_param for item in label.type.tensor_type.shape.dim] == ["batch"]
    again = read(report.path)
    for size in (4, 7):
        steps(*again, nd.ones((size, 2)), [nd.zeros((size,))], 1)


def test_factors_of_parameters_frozen_ones_and_changed_rates(tmp_path):
    net, function, trainer, x, labels = made("sgd", {"momentum": 0.9, "wd": 0.01})
    net.out.weight.lr_mult, net.out.bias.wd_mult = 0.1, 0.0
    net.body[0].bias.grad_req = "null"
    net.out.bias.lr_mult = 1 / 3
    trainer.set_learning_rate(0.02 * 0.9**3)
    steps(net, function, trainer, x, labels, 3)
    report = exported(tmp_path / "net.onnx", net, function, trainer)
    nodes = [node for node in onnx.load(report.path).training_info[0].algorithm.node if node.op_type == "Momentum"]
    assert len(nodes) == 3
    again = assert_goes_on_the_same(report.path, net, function, trainer, x, labels)
    by_name = {parameter.name: parameter for parameter in again.net.collect_params().values()}
    assert by_name["out.weight"].lr_mult == 0.1 and by_name["body.0.bias"].grad_req == "null"
    assert again.trainer.learning_rate == trainer.learning_rate


def test_counts_go_on_where_others_ran_the_algorithm(tmp_path):
    net, function, trainer, *_ = made("adam")
    report = exported(tmp_path / "net.onnx", net, function, trainer)
    model = onnx.load(report.path)
    for tensor in model.training_info[0].algorithm.initializer:
        if tensor.name == "training/update_count":
            assert numpy_helper.to_array(tensor) == 3
            tensor.CopyFrom(numpy_helper.from_array(np.array(8, np.int64), tensor.name))
    onnx.save(model, report.path)
    optimizer = read(report.path).trainer.optimizer
    assert optimizer.num_update == 7 and set(optimizer._index_update_count.values()) == {7}


def test_arrays_in_a_file_beside_it(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(40, in_units=30), nn.Dense(3, in_units=40))
    net.initialize()
    net.hybridize()
    loss, trainer = gluon.loss.L2Loss(), gluon.Trainer(net.collect_params(), "adam")
    x, labels = nd.random.normal(shape=(4, 30)), [nd.ones((4, 3))]
    steps(net, loss, trainer, x, labels, 1)
    report = exported(tmp_path / "net.onnx", net, loss, trainer, external_data=True)
    assert len(report.files) == 2 and Path(report.path).stat().st_size < 16_000
    onnx.checker.check_model(report.path)
    assert_goes_on_the_same(report.path, net, loss, trainer, x, labels)


def test_other_losses_are_graphs(tmp_path):
    class Own(gluon.HybridBlock):
        def hybrid_forward(self, F, y, label):
            return F.mean(F.smooth_l1(y - label, scalar=2.0), axis=1) * 3

    net, _, trainer, x, labels = made("adam", loss="mse")
    for loss in (Own(), gluon.loss.L1Loss(weight=0.5), gluon.loss.HuberLoss(), gluon.loss.SigmoidBCELoss()):
        loss.hybridize()
        steps(net, loss, trainer, x, labels, 1)
        report = exported(tmp_path / "net.onnx", net, loss, trainer)
        again = read(report.path)
        one, two = steps(net, loss, trainer, x, labels, 3), steps(*again, x, labels, 3)
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


# -- what the file means -----------------------------------------------------------------------------------------------


def proto(node):
    found = helper.make_node(
        node.op_type, node.inputs, node.outputs, name=node.name, domain=getattr(node, "domain", None)
    )
    found.attribute.extend(helper.make_attribute(key, value) for key, value in sorted(node.attributes.items()))
    return found


RULES = [
    *itertools.product(("sgd", "nag"), ({}, {"momentum": 0.9})), ("adagrad", {}), ("adam", {}), ("adamw", {}),
    ("signum", {}), ("rmsprop", {}), ("rmsprop", {"centered": True}), ("adadelta", {}), ("ftrl", {}),
]  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("wd", [0.0, 0.03])
@pytest.mark.parametrize(("name", "settings"), RULES, ids=[f"{name}-{len(settings)}" for name, settings in RULES])
def test_the_nodes_compute_what_the_optimizer_does(name, settings, wd, clip):
    """Four steps of two weights, in onnx's own reference implementation."""
    rate = {} if name == "adadelta" else {"learning_rate": 0.1}
    optimizer = mx.optimizer.create(name, wd=wd, clip_gradient=clip, **rate, **settings)
    weights = [nd.array(rng.normal(size=shape), dtype="float32") for shape in ((3, 4), (5,))]
    states = [optimizer.create_state(number, weight) for number, weight in enumerate(weights)]
    kinds = optimizer.state_names()
    for update in range(4):
        gradients = [rng.normal(size=weight.shape).astype(np.float32) for weight in weights]
        items = [
            written.Weight(
                f"w{number}", weight.shape, np.dtype("float32"), optimizer._get_lr(number), optimizer._get_wd(number),
                update, [state.asnumpy() * 1 for state in _arrays(states[number])],
            )
            for number, weight in enumerate(weights)
        ]  # fmt: skip
        step = written.written(optimizer, items, 20)
        feeds = dict(step.arrays)
        for item, weight, gradient in zip(items, weights, gradients, strict=True):
            feeds |= {item.name: weight.asnumpy(), item.gradient: gradient}
        graph = helper.make_graph(
            [proto(node) for node in step.nodes], "step",
            [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for key, array in feeds.items()],
            [helper.make_tensor_value_info(value, 1, None) for value in step.bindings.values()],
            [numpy_helper.from_array(array, key) for key, array in step.constants.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)])
        new = dict(zip(step.bindings, ReferenceEvaluator(model).run(None, feeds), strict=True))
        for number, weight in enumerate(weights):
            optimizer.update(number, weight, nd.array(gradients[number]), states[number])
        assert new["training/update_count"] == update + 2
        for item, weight, state in zip(items, weights, states, strict=True):
            np.testing.assert_allclose(new[item.name], weight.asnumpy(), rtol=2e-5, atol=2e-6)
            for kind, array in zip(kinds, _arrays(state), strict=True):
                got = written.stored_state(optimizer, new[written.state_name(item, kind)])
                np.testing.assert_allclose(got, array.asnumpy(), rtol=2e-5, atol=2e-6)


def _arrays(state):
    return () if state is None else state if isinstance(state, tuple) else (state,)


def evaluator(whole):
    """onnx's reference implementation with a Gradient, which it lacks, by central differences."""

    def derivative(feeds, xs, y, epsilon=1e-6):
        graph = onnx.ModelProto()
        graph.CopyFrom(whole)
        nodes = [node for node in graph.graph.node if node.domain != DOMAIN]
        of_loss = [node for node in nodes if not any(name.endswith(("gradient", "count")) for name in node.input)]
        del graph.graph.node[:], graph.graph.output[:]
        graph.graph.node.extend(of_loss)
        graph.graph.output.add(name=y)
        run = ReferenceEvaluator(graph)
        initial = {item.name for item in graph.graph.initializer}
        names = {item.name for item in graph.graph.input} | initial
        given = {name: value for name, value in feeds.items() if name in names}
        found = []
        for name in xs:
            slope = np.zeros_like(given[name])
            for place in np.ndindex(slope.shape):
                ends = []
                for sign in (1, -1):
                    moved = given[name].copy()
                    moved[place] += sign * epsilon
                    ends.append(run.run(None, {**given, name: moved})[0])
                slope[place] = (ends[0] - ends[1]) / (2 * epsilon)
            found.append(slope)
        return tuple(found)

    class Gradient(OpRun):
        op_domain = DOMAIN

        def _run(self, *values, xs=None, zs=None, y=None):
            return derivative(dict(zip([*xs, *(zs or [])], values, strict=True)), xs, y)

    return ReferenceEvaluator(whole, new_ops=[Gradient])


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_step_of_the_algorithm_is_one_step_of_the_trainer(optimizer, plain, tmp_path):
    """In float64, where differences give the gradient: loss, weights, states and running statistics."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2, activation="tanh"))
    if not plain:
        net.add(nn.BatchNorm(in_channels=3))
    net.add(nn.Dense(3, in_units=3))
    net.initialize(mx.init.Xavier())
    net.cast("float64")
    net.hybridize()
    settings = {"momentum": 0.9} if optimizer == "sgd" else {}
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1, "wd": 0.01, **settings})
    x, labels = nd.array(rng.normal(size=(5, 2)), dtype="float64"), [nd.array([0, 1, 2, 1, 0], dtype="float64")]
    steps(net, loss, trainer, x, labels, 2)
    report = exported(tmp_path / "net.onnx", net, loss, trainer)
    model = onnx.load(report.path)
    bindings = {item.key: item.value for item in model.training_info[0].update_binding}
    whole = combined(model)
    names = [item.name for item in whole.graph.output]
    feeds = {"data": x.asnumpy(), "label": labels[0].asnumpy()}
    results = dict(zip(names, evaluator(whole).run(None, feeds), strict=True))
    (value,) = steps(net, loss, trainer, x, labels, 1)
    np.testing.assert_allclose(results["loss"], value.mean(), rtol=1e-9)
    for name, parameter in net._collect_params_with_prefix().items():
        # onnx's Adam rounds its results to float32
        np.testing.assert_allclose(results[bindings[name]], parameter.data().asnumpy(), rtol=1e-6, atol=2e-6)


def test_first_values_come_from_the_initializers(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(200, in_units=300, weight_initializer=mx.init.Normal(0.5)), nn.BatchNorm(in_channels=200))
    net.add(nn.Dense(150, in_units=200, bias_initializer=mx.init.Constant(0.25)))
    net.add(nn.Dense(4, in_units=150, weight_initializer=mx.init.Orthogonal()))
    net.initialize(mx.init.Xavier(magnitude=2))
    loss, trainer = gluon.loss.L2Loss(), gluon.Trainer(net.collect_params(), "adam")
    report = exported(tmp_path / "net.onnx", net, loss, trainer, inputs=("n", 300), label=("n", 4))
    assert "3.weight" in report.notes[0] and len(report.notes) == 1
    (info,) = onnx.load(report.path).training_info
    graph = onnx.GraphProto()
    graph.CopyFrom(info.initialization)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    values = dict(zip([item.name for item in graph.output], ReferenceEvaluator(model).run(None, {}), strict=True))
    first = {item.key: values[item.value] for item in info.initialization_binding}
    assert abs(first["0.weight"].std() - 0.5) < 0.01 and abs(first["0.weight"].mean()) < 0.01
    bound = (2 / 175) ** 0.5
    assert 0.98 * bound < np.abs(first["2.weight"]).max() <= bound
    assert set(first["2.bias"]) == {0.25} and set(first["1.gamma"]) == {1} and not first["0.bias"].any()
    assert first["training/update_count"] == 1 and not first["training/0.weight.mean"].any()
    assert first.keys() == {item.key for item in info.update_binding} - {"3.weight"}

    again = read(report.path)
    parameters = {parameter.name: parameter for parameter in again.net.collect_params().values()}
    assert parameters["0.weight"].init == mx.init.Normal(0.5) and parameters["2.bias"].init == mx.init.Constant(0.25)
    assert isinstance(parameters["2.weight"].init, mx.init.Uniform) and parameters["3.weight"].init is None
    again.net.initialize(force_reinit=True)
    assert set(parameters["2.bias"].data().asnumpy()) == {0.25}


def test_values_that_were_loaded_have_no_initializer(tmp_path):
    net, function, trainer, x, labels = made(plain=True)
    net.save_parameters(tmp_path / "net.params")
    other = Net(plain=True)
    other.load_parameters(tmp_path / "net.params")
    trainer = gluon.Trainer(other.collect_params(), "sgd")
    steps(other, function, trainer, x, labels, 1)
    report = exported(tmp_path / "net.onnx", other, function, trainer)
    assert "were loaded" in report.notes[0]
    assert read(report.path).net.collect_params()["out.weight"].init is None


def test_lazy_updates_are_refused_where_they_differ_from_updates_of_all_rows(tmp_path):
    net, function = nn.HybridSequential(), gluon.loss.L2Loss()
    net.add(nn.Embedding(4, 2, sparse_grad=True))
    net.initialize()
    net.hybridize()
    function(net(nd.array([[1, 2]])), nd.zeros((1, 2, 2)))

    def write(name, **settings):
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.1, **settings})
        return exported(tmp_path / "net.onnx", net, function, trainer)

    for name, settings in (("sgd", {"momentum": 0.9}), ("sgd", {"wd": 0.1}), ("adagrad", {"wd": 0.1})):
        with pytest.raises(HybridLabError, match=r"embedding.*weight is row_sparse.*stored rows only"):
            write(name, **settings)
    write("sgd")
    write("adagrad")
    write("sgd", momentum=0.9, lazy_update=False)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_a_typed_error_and_leaves_no_file(tmp_path):
    net, function, trainer, x, labels = made()
    path = tmp_path / "net.onnx"

    def refused(words, kind=HybridLabError, trainer=trainer, loss=function, block=net, **options):
        with pytest.raises(kind, match=words):
            exported(path, block, loss, trainer, **options)

    def trained_by(name="sgd", **settings):
        return gluon.Trainer(net.collect_params(), name, settings)

    refused("lr_scheduler", trainer=trained_by(lr_scheduler=mx.lr_scheduler.FactorScheduler(10)))
    refused("multi_precision", trainer=trained_by(multi_precision=True))
    refused("rescale_grad", trainer=trained_by(rescale_grad=0.5))
    refused("Adamax.*rate changes by itself", Unmappable, trainer=trained_by("adamax"))
    refused("correct_bias", Unmappable, trainer=trained_by("adamw", correct_bias=False))
    refused("loss=", SettingError, loss=None)
    refused("trainer=", SettingError, trainer=None)
    refused("parameters of its own", loss=nn.Dense(3, in_units=3))
    refused("does not read", trainer=gluon.Trainer(_other_params(), "sgd"))

    class Mine(mx.optimizer.SGD):
        pass

    refused("not one of this package", Unmappable, trainer=gluon.Trainer(net.collect_params(), Mine()))
    net.out.weight.grad_req = "add"
    refused("grad_req='add'")
    net.out.weight.grad_req = "write"
    with pytest.raises(SettingError, match="training=True"):
        mx.onnx.export(net, path, loss=function)
    outer = gluon.nn.Sequential()
    outer.add(net)
    refused("is not hybrid", block=outer)
    assert not path.exists()


def _other_params():
    other = nn.Dense(2, in_units=2)
    other.initialize()
    return other.collect_params()


def test_networks_whose_training_has_no_form_are_refused(tmp_path):
    class Asks(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.out = nn.Dense(3)

        def hybrid_forward(self, F, x):
            return self.out(x * 2 if autograd.is_training() else x)

    shared = nn.HybridSequential()
    shared.add(nn.Dropout(0.5, axes=(1,)), nn.Dense(3))
    for net, words in ((Asks(), "asks whether it is training"), (shared, "Dropout with axes")):
        net.initialize()
        net.hybridize()
        x, loss = nd.ones((4, 5, 2)), gluon.loss.SoftmaxCrossEntropyLoss()
        loss(net(x), nd.zeros((4,)))
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        with pytest.raises(HybridLabError, match=words):
            exported(tmp_path / "net.onnx", net, loss, trainer)


# -- files of others, and damaged ones ---------------------------------------------------------------------------------


def foreign(update, initializers, bindings, loss=None, extra=()):
    """y = Gemm(x, w), a loss, its gradient by w, and `update`."""
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"])], "net", [helper.make_tensor_value_info("x", 1, ["n", 2])],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
        [numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3) / 10, "w")],
    )  # fmt: skip
    nodes = [
        loss or helper.make_node("SoftmaxCrossEntropyLoss", ["y", "label"], ["loss"], reduction="mean"),
        helper.make_node("Gradient", ["w", "x", "label"], ["g"], domain=DOMAIN, xs=["w"], zs=["x", "label"], y="loss"),
        *update,
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("loss", *bindings.values())]
    algorithm = helper.make_graph(
        nodes, "step", [helper.make_tensor_value_info("label", 7, ["n"])], outputs,
        [numpy_helper.from_array(np.asarray(value), name) for name, value in initializers.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])
    model.training_info.append(helper.make_training_info(algorithm, list(bindings.items()), None, None))
    return model


COUNT = helper.make_node("Add", ["t", "one"], ["t2"])
R, T, ONE = np.float32(0.05), np.int64(1), np.int64(1)
V = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


def optimizer_node(name, states, **attributes):
    new = [f"{item}2" for item in ("w", *states)]
    return helper.make_node(name, ["r", "t", "w", "g", *states], new, domain=DOMAIN, **attributes)


MOMENTUM = {"alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.01, "mode": "standard"}
FOREIGN = {
    "adam": (optimizer_node("Adam", ["v", "h"], epsilon=1e-4, norm_coefficient=0.02), ["v", "h"]),
    "momentum": (optimizer_node("Momentum", ["v"], **MOMENTUM), ["v"]),
    "momentum with beta": (optimizer_node("Momentum", ["v"], **{**MOMENTUM, "beta": 0.5}), ["v"]),
    "nesterov": (optimizer_node("Momentum", ["v"], **{**MOMENTUM, "mode": "nesterov", "norm_coefficient": 0.0}), ["v"]),
    "adagrad": (optimizer_node("Adagrad", ["h"], epsilon=0.0), ["h"]),
}


def foreign_file(path, node, states, **changes):
    initializers = {"r": R, "t": T, "one": ONE, **dict.fromkeys(states, V), **changes}
    bindings = {"w": "w2", "t": "t2", **{name: f"{name}2" for name in states}}
    path.write_bytes(foreign([node, COUNT], initializers, bindings).SerializeToString())
    return path


@pytest.mark.parametrize("name", FOREIGN)
def test_optimizers_in_files_of_others(name, tmp_path):
    """One step here is the node in onnx's reference implementation."""
    node, states = FOREIGN[name]
    path = foreign_file(tmp_path / "m.onnx", node, states)
    training = read(path)
    (weight,) = training.net.collect_params().values()
    before = weight.data().asnumpy().copy()
    steps(*training, nd.array(rng.normal(size=(4, 2)), dtype="float32"), [nd.array([0, 1, 2, 0], dtype="int64")], 1)
    gradient = weight.grad().asnumpy() / 4
    graph = helper.make_graph(
        [node], "step", [helper.make_tensor_value_info(item, 7 if item == "t" else 1, None) for item in node.input],
        [helper.make_tensor_value_info("w2", 1, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])
    feeds = {"r": R, "t": T, "w": before, "g": gradient, **dict.fromkeys(states, V)}
    (new,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(weight.data().asnumpy(), new, rtol=1e-5, atol=1e-6)


def test_plain_descent_and_a_sum_in_files_of_others(tmp_path):
    nodes = [helper.make_node("Mul", ["r", "g"], ["m"]), helper.make_node("Sub", ["w", "m"], ["w2"])]
    loss = helper.make_node("SoftmaxCrossEntropyLoss", ["y", "label"], ["loss"], reduction="sum")
    (tmp_path / "m.onnx").write_bytes(foreign(nodes, {"r": R}, {"w": "w2"}, loss).SerializeToString())
    training = read(tmp_path / "m.onnx")
    (weight,) = training.net.collect_params().values()
    before = weight.data().asnumpy().copy()
    (value,) = steps(*training, nd.ones((4, 2)), [nd.array([0, 1, 2, 0], dtype="int64")], 1)
    assert value.size == 1 and training.trainer.learning_rate == 0.05
    np.testing.assert_allclose(weight.data().asnumpy(), before - 0.05 * weight.grad().asnumpy(), rtol=1e-5)


REFUSED = {
    "an Adam that begins at 0": (FOREIGN["adam"], {"t": np.int64(0)}, "begins at 0"),
    "decay after the step": ((optimizer_node("Adam", ["v", "h"], norm_coefficient_post=0.1), ["v", "h"]), {}, "_post"),
    "epsilon beside the root": ((optimizer_node("Adagrad", ["h"]), ["h"]), {}, "epsilon inside the root"),
    "a nesterov with decay": (
        (optimizer_node("Momentum", ["v"], **{**MOMENTUM, "mode": "nesterov"}), ["v"]), {}, "decay in another way"),
    "another first step": (FOREIGN["momentum with beta"], {"t": np.int64(0)}, "first step"),
    "a step of two": (FOREIGN["adam"], {"one": np.int64(2)}, "does not grow by one"),
    "an unknown operator": ((optimizer_node("Lion", ["v"]), ["v"]), {}, "Lion"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_rules_that_are_not_ours_are_refused(name, tmp_path):
    (node, states), changes, words = REFUSED[name]
    path = foreign_file(tmp_path / "m.onnx", node, states, **changes)
    with pytest.raises(OnnxError, match=words) as caught:
        mx.onnx.imports_training(path)
    assert str(path) in str(caught.value)


def _without_training(model):
    del model.training_info[:]


def _twice(model):
    model.training_info.add().CopyFrom(model.training_info[0])


def _no_gradient(model):
    nodes = model.training_info[0].algorithm.node
    del nodes[next(place for place, node in enumerate(nodes) if node.op_type == "Gradient")]


def _other_network(model):
    node = next(node for node in model.training_info[0].algorithm.node if node.op_type == "Tanh")
    node.op_type = "Sigmoid"


def _statistics(model):
    bindings = model.training_info[0].update_binding
    for item in bindings:
        if item.key.endswith("running_var"):
            item.value = next(other.value for other in bindings if other.key.endswith("running_mean"))


def _another_rate(model):
    for node in model.training_info[0].algorithm.node:
        if node.op_type == "Momentum":
            node.attribute[0].f = 0.5


def _more_nodes(model):
    model.training_info[0].algorithm.node.append(helper.make_node("Neg", ["loss"], ["more"]))


def _binding(model):
    model.training_info[0].update_binding.add(key="nothing", value="loss")


def _metadata(model):
    for item in model.metadata_props:
        if item.key == "hybrid_lab.training":
            item.value = item.value.replace('"SGD"', '"__import__"')


def _random_states(model):
    for node in model.training_info[0].initialization.node:
        if node.op_type == "Identity":
            node.op_type = "Sqrt"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_without_training, "no training information"), (_twice, "2 parts"), (_no_gradient, "0 nodes.*Gradient"),
        (_other_network, "another network"), (_statistics, "running statistic"), (_another_rate, "Momentum"),
        (_more_nodes, "Neg"), (_binding, "'nothing' is no initializer"), (_metadata, "__import__"),
        (_random_states, "no initializer gives"),
    ],
)  # fmt: skip
def test_damaged_training_information_is_refused(damage, words, tmp_path):
    net, function, trainer, *_ = made("sgd", {"momentum": 0.9})
    report = exported(tmp_path / "net.onnx", net, function, trainer)
    model = onnx.load(report.path)
    damage(model)
    onnx.save(model, report.path)
    with pytest.raises(OnnxError, match=words) as caught:
        mx.onnx.imports_training(report.path)
    assert "net.onnx" in str(caught.value)
    assert mx.onnx.imports(report.path) is not None
