"""Gluon against the real MXNet: the same models, losses, metrics, schedules and training steps (tests/golden/gluon)."""

import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.symbol import scopes as names

HERE = pathlib.Path(__file__).parents[1] / "golden" / "gluon"
FACTS = json.loads((HERE / "gluon.json").read_text())
ARRAYS = np.load(HERE / "gluon.npz")

spec = importlib.util.spec_from_file_location("gluon_cases", HERE / "cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)


def build(name):
    """The model of cases.py with its golden values, and its input; names are counted from 0."""
    with names.NameManager():
        net, shape = cases.NETS[name](mx)
        net.initialize()
        x = mx.nd.array(cases.inputs_of(name, shape))
        net(x)
        cases.fill(net)
        return net, x


each_net = pytest.mark.parametrize("name", cases.NETS)


@each_net
def test_parameters_have_mxnets_names_and_paths(name):
    net, _ = build(name)
    assert list(net.collect_params().keys()) == FACTS["nets"][name]["parameters"]
    assert list(net._collect_params_with_prefix()) == FACTS["nets"][name]["paths"]


@each_net
def test_printed_as_mxnet_prints_it(name, capsys):
    net, x = build(name)
    golden = FACTS["nets"][name]
    assert repr(net) == golden["repr"]
    # MXNet prints some dtypes as Python classes.
    assert repr(net.collect_params()) == re.sub(r"<class 'numpy\.(\w+)'>", r"\1", golden["params_repr"])
    net.summary(x)
    assert capsys.readouterr().out == golden["summary"]


@each_net
def test_the_graph_has_mxnets_node_names(name):
    net, _ = build(name)
    with names.NameManager():
        symbol = net(mx.sym.var("data"))
    assert symbol.get_internals().list_outputs() == FACTS["nets"][name]["internals"]


@each_net
def test_the_same_output_from_mxnets_params_file(name):
    net, x = build(name)
    net.initialize(force_reinit=True)
    net.load_parameters(HERE / f"{name}.params")
    np.testing.assert_allclose(net(x).asnumpy(), ARRAYS[f"{name}.y"], rtol=1e-5, atol=1e-6)


@each_net
def test_the_params_file_is_mxnets_byte_for_byte(name, tmp_path):
    net, _ = build(name)
    net.save_parameters(tmp_path / "net.params")
    assert (tmp_path / "net.params").read_bytes() == (HERE / f"{name}.params").read_bytes()


@pytest.mark.parametrize("hybrid", [False, True], ids=["eager", "hybrid"])
@pytest.mark.parametrize("number", range(len(cases.LOSSES)), ids=[f"{n}-{kind}" for n, _, kind in cases.LOSSES])
def test_losses_and_their_gradients(number, hybrid):
    name, options, kind = cases.LOSSES[number]
    inputs = [mx.nd.array(value) for value in cases.loss_inputs(kind)]
    inputs[0].attach_grad()
    loss = getattr(mx.gluon.loss, name)(**options)
    if hybrid:
        loss.hybridize(engine="numpy")
    with mx.autograd.record():
        value = loss(*inputs)
    value.backward()
    np.testing.assert_allclose(value.asnumpy(), ARRAYS[f"loss{number}"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inputs[0].grad.asnumpy(), ARRAYS[f"loss{number}.grad"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sdml_loss_of_any_batch_in_one_graph_and_with_a_weight(dtype):
    hybrid, heavy = mx.gluon.loss.SDMLLoss(), mx.gluon.loss.SDMLLoss(weight=3.0)
    hybrid.hybridize(engine="numpy")
    for batch in (2, 5):
        x1, x2 = mx.nd.random.uniform(shape=(batch, 4), dtype=dtype), mx.nd.ones((batch, 4), dtype=dtype)
        loss = mx.gluon.loss.SDMLLoss()(x1, x2).asnumpy()
        assert loss.shape == (batch,) and loss.dtype == dtype
        np.testing.assert_array_equal(hybrid(x1, x2).asnumpy(), loss)
        np.testing.assert_allclose(heavy(x1, x2).asnumpy(), 3 * loss, rtol=1e-2 if dtype == "float16" else 1e-6)
    with pytest.raises(mx.diagnostics.ShapeError):
        hybrid(mx.nd.ones((4, 5)), mx.nd.ones((4, 1)))


@pytest.mark.parametrize("golden", FACTS["metrics"], ids=lambda golden: f"{golden[1]}-{golden[0]}")
def test_metrics(golden):
    kind, name, options, shown, value = golden
    metric = mx.metric.create(name, **options)
    for label, pred in cases.metric_batches(kind):
        metric.update([mx.nd.array(label)], [mx.nd.array(pred)])
    found_name, found = metric.get()
    assert found_name == shown
    assert found == pytest.approx(value, rel=1e-5)
    assert metric.get_global()[1] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedules(name):
    kind, options = cases.SCHEDULES[name]
    schedule = getattr(mx.lr_scheduler, kind)(**options)
    assert [schedule(update) for update in range(16)] == pytest.approx(FACTS["schedules"][name], rel=1e-12)
    assert schedule(2) == pytest.approx(FACTS["schedules"][name][2])  # also backwards


@pytest.mark.parametrize("number", range(len(cases.TRAININGS)), ids=[name for name, _ in cases.TRAININGS])
def test_five_training_steps(number):
    for place, step in enumerate(cases.train(mx, *cases.TRAININGS[number])):
        for key, value in step.items():
            golden = ARRAYS[f"train{number}.{place}.{key}"]
            np.testing.assert_allclose(value, golden, rtol=2e-5, atol=2e-6, err_msg=f"{key} after step {place}")
