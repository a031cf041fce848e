"""mx.mod: training Symbols with Modules."""

import logging

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics.errors import BindError, SettingError
from hybrid_lab.module import ModuleStateError


def classifier():
    data = mx.sym.var("data")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=8, name="fc1"), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2"), name="softmax")


@pytest.fixture
def samples():
    draw = np.random.RandomState(0)
    points = draw.normal(size=(64, 4)).astype("float32")
    return points, (points[:, 0] > points[:, 1]).astype("float32")


def iterator(samples, batch_size=16):
    return mx.io.NDArrayIter(*samples, batch_size=batch_size, label_name="softmax_label")


@pytest.mark.parametrize("contexts", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]])
def test_fit_learns(samples, contexts, caplog):
    mx.random.seed(1)
    module = mx.mod.Module(classifier(), context=contexts)
    with caplog.at_level(logging.INFO):
        module.fit(
            iterator(samples),
            eval_data=iterator(samples),
            initializer=mx.init.Xavier(),
            optimizer_params={"learning_rate": 0.5, "momentum": 0.9},
            num_epoch=12,
            batch_end_callback=mx.callback.Speedometer(16, 2),
        )
    assert dict(module.score(iterator(samples), "acc"))["accuracy"] > 0.9
    assert any("Validation-accuracy" in line for line in caplog.messages)
    assert any("samples/sec" in line for line in caplog.messages)


def test_two_contexts_train_as_one(samples):
    """Each context gets a part of the batch, and the gradients are summed."""
    start = None
    trained = []
    for contexts in ([mx.cpu()], [mx.cpu(0), mx.cpu(1)]):
        module = mx.mod.Module(classifier(), context=contexts)
        batches = iterator(samples)
        module.bind(batches.provide_data, batches.provide_label)
        module.init_params(mx.init.Xavier())
        start = start or {name: array.copy() for name, array in module.get_params()[0].items()}
        module.set_params(start, {})
        module.init_optimizer(optimizer="adam")
        for batch in batches:
            module.forward_backward(batch)
            module.update()
        trained.append(module.get_params()[0])
    for name in start:
        np.testing.assert_allclose(trained[0][name].asnumpy(), trained[1][name].asnumpy(), rtol=1e-4, atol=1e-5)


def test_predict_leaves_the_padding_out(samples):
    module = mx.mod.Module(classifier())
    batches = iterator(samples, 24)  # 64 samples, so that 8 fill the last batch up
    module.bind(batches.provide_data, batches.provide_label, for_training=False)
    module.init_params()
    assert module.predict(batches).shape == (64, 2)
    assert [len(outputs[0]) for outputs, _, _ in module.iter_predict(batches)] == [24, 24, 16]
    assert len(module.predict(batches, merge_batches=False)) == 3
    assert module.predict(np.zeros((24, 4), "float32")).shape == (24, 2)
    with pytest.raises(ValueError, match="an iterator or an array"):
        module.predict("data")


def test_a_checkpoint_goes_on_as_the_original(samples, tmp_path):
    prefix = str(tmp_path / "net")

    def step(module, batch):
        module.forward_backward(batch)
        module.update()

    batches = iterator(samples)
    module = mx.mod.Module(classifier())
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="adam")
    step(module, next(batches))
    module.save_checkpoint(prefix, 3, save_optimizer_states=True)
    other = mx.mod.Module.load(prefix, 3, load_optimizer_states=True)
    other.bind(batches.provide_data, batches.provide_label)
    other.init_optimizer(optimizer="adam")
    batch = next(batches)
    for each in (module, other):
        step(each, batch)
    for name, array in module.get_params()[0].items():
        np.testing.assert_array_equal(array.asnumpy(), other.get_params()[0][name].asnumpy())
    symbol, arguments, states = mx.model.load_checkpoint(prefix, 3)
    assert symbol.list_arguments() == module.symbol.list_arguments()
    assert sorted(arguments) == ["fc1_bias", "fc1_weight", "fc2_bias", "fc2_weight"] and states == {}


def test_callbacks_write_checkpoints(samples, tmp_path):
    module = mx.mod.Module(classifier())
    plain, whole = str(tmp_path / "plain"), str(tmp_path / "whole")
    callbacks = [mx.callback.do_checkpoint(plain, 2), mx.callback.module_checkpoint(module, whole, 2, True)]
    module.fit(iterator(samples), num_epoch=2, epoch_end_callback=callbacks)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"plain-0002.params", "whole-0002.params", "whole-0002.states", "whole-symbol.json"} <= names


def test_batches_of_other_shapes_bind_once(samples):
    module = mx.mod.Module(classifier())
    batches = iterator(samples)
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params()
    group = module._exec_group
    first = group.execs[0]
    points, labels = samples
    for size in (4, 16, 4):
        module.forward(mx.io.DataBatch([mx.nd.array(points[:size])], [mx.nd.array(labels[:size])]))
        assert module.get_outputs()[0].shape == (size, 2)
    assert len(group._executors) == 2
    assert group.execs[0].arg_dict["fc1_weight"] is first.arg_dict["fc1_weight"]


def test_gradients_of_the_data_and_fixed_parameters():
    data = mx.sym.var("data")
    out = mx.sym.FullyConnected(data, num_hidden=2, name="fc")
    module = mx.mod.Module(out, label_names=None, fixed_param_names=["fc_bias"])
    module.bind([("data", (3, 4))], inputs_need_grad=True)
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer_params={"learning_rate": 1.0, "rescale_grad": 1.0})
    module.forward(mx.io.DataBatch([mx.nd.ones((3, 4))]), is_train=True)
    module.backward([mx.nd.ones((3, 2))])
    assert (module.get_input_grads()[0].asnumpy() == 2).all()
    module.update()
    arguments, _ = module.get_params()
    assert (arguments["fc_weight"].asnumpy() == -2).all() and (arguments["fc_bias"].asnumpy() == 0).all()


def test_parameters_given_must_fit():
    module = mx.mod.Module(classifier())
    module.bind([("data", (2, 4))], [("softmax_label", (2,))])
    with pytest.raises(RuntimeError, match="fc1_bias"):
        module.init_params(arg_params={}, aux_params={})
    module.init_params()
    arguments, _ = module.get_params()
    with pytest.raises(ValueError, match="no parameter extra"):
        module.set_params({**arguments, "extra": mx.nd.ones(1)}, {})
    module.set_params({**arguments, "extra": mx.nd.ones(1)}, {}, allow_extra=True)
    module.set_params({"fc1_bias": mx.nd.ones(8)}, {}, allow_missing=True)
    assert module.get_params()[0]["fc1_bias"].asnumpy().tolist() == [1] * 8


def test_attributes_of_variables_set_initializers_and_rates():
    weight = mx.sym.var("w", init=mx.init.Constant(3), lr_mult=0)
    out = mx.sym.FullyConnected(mx.sym.var("data"), weight, num_hidden=2, name="fc")
    module = mx.mod.Module(out, label_names=None)
    module.bind([("data", (1, 2))])
    module.init_params()
    module.init_optimizer()
    module.forward(mx.io.DataBatch([mx.nd.ones((1, 2))]), is_train=True)
    module.backward([mx.nd.ones((1, 2))])
    module.update()
    arguments, _ = module.get_params()
    assert (arguments["w"].asnumpy() == 3).all() and (arguments["fc_bias"].asnumpy() < 0).all()


def test_calls_in_the_wrong_order_say_what_is_missing(samples):
    module = mx.mod.Module(classifier())
    batch = next(iterator(samples))
    with pytest.raises(ModuleStateError, match="not bound"):
        module.forward(batch)
    module.bind(iterator(samples).provide_data, iterator(samples).provide_label)
    with pytest.raises(ModuleStateError, match="init_params"):
        module.forward(batch)
    module.init_params()
    with pytest.raises(ModuleStateError, match="init_optimizer"):
        module.update()
    with pytest.raises(SettingError, match="num_epoch"):
        module.fit(iterator(samples))
    with pytest.raises(BindError, match="not an argument"):
        mx.mod.Module(classifier(), data_names=["picture"])
    with pytest.raises(BindError, match="batch size"):
        mx.mod.Module(classifier()).bind([("data", (2, 4))], [("softmax_label", (3,))])


def test_monitor_sees_outputs_and_arguments():
    module = mx.mod.Module(classifier())
    module.bind([("data", (2, 4))], [("softmax_label", (2,))])
    module.init_params()
    monitor = mx.mon.Monitor(2, pattern="fc1.*", sort=True)
    module.install_monitor(monitor)
    batch = mx.io.DataBatch([mx.nd.ones((2, 4))], [mx.nd.zeros(2)])
    rows = []
    for _ in range(2):
        monitor.tic()
        module.forward(batch)
        rows.append([name for _, name, _ in monitor.toc()])
    assert rows == [["fc1_bias", "fc1_output", "fc1_weight"], []]


def bucketed():
    def generate(length):
        data = mx.sym.var("data")
        embedded = mx.sym.Embedding(data, input_dim=10, output_dim=4, name="embed")
        out = mx.sym.FullyConnected(mx.sym.sum(embedded, axis=1) / length, num_hidden=2, name="fc")
        return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)

    return generate


def sentence(length):
    words = mx.nd.array(np.arange(2 * length).reshape(2, length) % 10)
    return mx.io.DataBatch(
        [words],
        [mx.nd.array([0, 1])],
        bucket_key=length,
        provide_data=[mx.io.DataDesc("data", (2, length))],
        provide_label=[mx.io.DataDesc("softmax_label", (2,))],
    )


def test_buckets_share_parameters(tmp_path):
    module = mx.mod.BucketingModule(bucketed(), default_bucket_key=6)
    batch = sentence(6)
    module.bind(batch.provide_data, batch.provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 1.0})
    for length in (6, 3, 6, 3, 4):
        module.prepare(sentence(length), sparse_row_id_fn=lambda batch: {})  # without effect: parameters are dense
        module.forward_backward(sentence(length))
        module.update()
    assert sorted(module._buckets) == [3, 4, 6]
    arrays = [each._exec_group.execs[0].arg_dict["fc_weight"] for each in module._buckets.values()]
    assert arrays[0] is arrays[1] is arrays[2]
    np.testing.assert_array_equal(module.get_params()[0]["fc_weight"].asnumpy(), arrays[0].asnumpy())

    prefix = str(tmp_path / "net")
    module.save_checkpoint(prefix, 1)
    other = mx.mod.BucketingModule.load(prefix, 1, sym_gen=bucketed(), default_bucket_key=6)
    other.bind(batch.provide_data, batch.provide_label, for_training=False)
    for each in (module, other):
        each.forward(sentence(3), is_train=False)
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), other.get_outputs()[0].asnumpy())


def test_gradients_add_up_over_buckets():
    """With grad_req="add" the second bucket adds to the gradient of the first."""

    def generate(_):
        loss = mx.sym.make_loss(mx.sym.broadcast_mul(mx.sym.var("data"), mx.sym.var("a", shape=(1,), init="one")))
        return loss, ("data",), None

    module = mx.mod.BucketingModule(generate, default_bucket_key=10)
    module.bind([("data", (2,))], grad_req="add")
    module.init_params()
    for key in (10, 5):
        desc = [mx.io.DataDesc("data", (2,), layout="N")]
        module.forward_backward(mx.io.DataBatch([mx.nd.ones(2)], bucket_key=key, provide_data=desc))
    assert module._curr_module._exec_group.execs[0].grad_dict["a"].asscalar() == 4


def test_modules_in_a_chain(samples):
    hidden = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="a"), act_type="tanh")
    out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="b"), name="softmax")
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(hidden, label_names=None)).add(mx.mod.Module(out), take_labels=True, auto_wiring=True)
    mx.random.seed(2)
    chain.fit(iterator(samples), num_epoch=15, initializer=mx.init.Xavier(), optimizer_params={"learning_rate": 1.0})
    assert dict(chain.score(iterator(samples), "acc"))["accuracy"] > 0.9


def test_a_loss_in_python(samples):
    """The gradient of the squared distance to the label, in place of a loss operator."""
    out = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
    loss = mx.mod.PythonLossModule(
        data_names=["scores"], grad_func=lambda scores, labels: scores - labels.reshape((-1, 1))
    )
    chain = mx.mod.SequentialModule().add(mx.mod.Module(out, label_names=None))
    chain.add(loss, take_labels=True, auto_wiring=True)
    points, _ = samples
    data = mx.io.NDArrayIter(points, points.sum(axis=1), batch_size=16, label_name="softmax_label")
    chain.fit(data, eval_metric="mse", num_epoch=40, optimizer_params={"learning_rate": 0.5})
    np.testing.assert_allclose(chain.get_params()[0]["fc_weight"].asnumpy(), np.ones((1, 4)), atol=0.02)
