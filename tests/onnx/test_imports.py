"""mx.onnx.imports and OnnxBlock: numbers, gradients and files of imported models, beside onnxruntime and torch."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.model_zoo import vision

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.output = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.conv1(x))))
        return self.output(torch.relu(x + self.conv2(x)).mean((2, 3)))


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(6, 7, 2, bidirectional=True, batch_first=True)
        self.output = torch.nn.Linear(14, 3)

    def forward(self, x):
        return self.output(self.lstm(x)[0][:, -1])


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.output = torch.nn.Linear(16, 20)

    def forward(self, x):
        return self.output(self.layer(self.embedding(x)))


MODELS = {
    "residual": (Residual, lambda n: np.random.default_rng(n).normal(size=(n, 3, 8, 8)).astype(np.float32)),
    "recurrent": (Recurrent, lambda n: np.random.default_rng(n).normal(size=(n, 5, 6)).astype(np.float32)),
    "transformer": (Transformer, lambda n: np.random.default_rng(n).integers(0, 20, (n, 6))),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Name -> (file, torch's module, inputs for a batch)."""
    folder = tmp_path_factory.mktemp("onnx")
    found = {}
    for name, (kind, inputs) in MODELS.items():
        torch.manual_seed(3)
        net, path = kind().eval(), folder / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                net, (torch.from_numpy(inputs(2)),), str(path), dynamo=False, input_names=["x"], output_names=["y"],
                dynamic_axes={"x": {0: "batch"}}, opset_version=17, do_constant_folding=False,
                training=torch.onnx.TrainingMode.PRESERVE if name == "residual" else torch.onnx.TrainingMode.EVAL,
            )  # fmt: skip
        found[name] = str(path), net, inputs
    return found


def array(values):
    return nd.array(values, dtype=values.dtype)


@pytest.mark.parametrize("name", MODELS)
def test_numbers_of_a_model_for_two_batches(exported, name):
    path, _, inputs = exported[name]
    session, block = ort.InferenceSession(path), mx.onnx.imports(path)
    for hybridize in (False, True):
        block.hybridize(hybridize)
        for batch in (2, 3):
            expected = session.run(None, {"x": inputs(batch)})[0]
            np.testing.assert_allclose(block(array(inputs(batch))).asnumpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_every_engine(exported, name, engine):
    path, _, inputs = exported[name]
    block = mx.onnx.imports(path)
    eager = block(array(inputs(2))).asnumpy()
    block.hybridize(engine=engine)
    np.testing.assert_allclose(block(array(inputs(2))).asnumpy(), eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", ["residual", "transformer"])
def test_gradients_are_those_of_torch(exported, name, hybridize):
    path, net, inputs = exported[name]
    block = mx.onnx.imports(path)
    block.hybridize(hybridize)
    net.zero_grad()
    net(torch.from_numpy(inputs(2))).square().sum().backward()
    with autograd.record(train_mode=False):
        loss = nd.square(block(array(inputs(2)))).sum()
    loss.backward()
    expected = {key: value.grad.numpy() for key, value in net.named_parameters()}
    compared = 0
    for key, parameter in block.collect_params().items():
        if key in expected:
            compared += 1
            np.testing.assert_allclose(parameter.grad().asnumpy(), expected[key], rtol=1e-3, atol=1e-4, err_msg=key)
    assert compared >= 5


def test_an_imported_model_trains_on(exported):
    block = mx.onnx.imports(exported["residual"][0])
    assert not block._composed.parameters, "the parameters own their arrays"
    block.hybridize()
    x, label = array(exported["residual"][2](8)), nd.array([0, 1, 2, 3, 4, 0, 1, 2])
    trainer = gluon.Trainer(block.collect_params(), "adam", {"learning_rate": 0.01})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    before = block.collect_params()["norm.running_mean"].data().asnumpy()
    losses = []
    for _ in range(20):
        with autograd.record():
            loss = loss_of(block(x), label).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
    assert losses[-1] < losses[0] / 2
    assert not np.array_equal(block.collect_params()["norm.running_mean"].data().asnumpy(), before)


def test_a_saved_import_opens_where_onnx_is_not_installed(exported, tmp_path):
    path, _, inputs = exported["residual"]
    block, x = mx.onnx.imports(path), array(inputs(2))
    np.save(tmp_path / "y.npy", block(x).asnumpy())
    np.save(tmp_path / "x.npy", x.asnumpy())
    block.save(str(tmp_path / "m.hlab"))
    code = """
import sys; sys.modules["onnx"] = None
import numpy as np, hybrid_lab as mx
net = mx.gluon.load(sys.argv[1] + "/m.hlab")
y = net(mx.nd.array(np.load(sys.argv[1] + "/x.npy"))).asnumpy()
np.testing.assert_allclose(y, np.load(sys.argv[1] + "/y.npy"), rtol=1e-6)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


# -- a tree ----------------------------------------------------------------------------------------------------------


ZOO = {
    "mobilenet": lambda: vision.get_model("mobilenet0.25", classes=10),
    "resnet": lambda: vision.ResNetV1(vision.BasicBlockV1, [1, 1], [8, 8, 16], classes=10),
}


@pytest.mark.parametrize("name", ZOO)
def test_export_import_export_gives_the_same_file(tmp_path, name):
    net = ZOO[name]()
    net.initialize(mx.init.Xavier())
    x = nd.random.uniform(shape=(2, 3, 32, 32))
    expected = net(x).asnumpy()
    one, two = tmp_path / "one.onnx", tmp_path / "two.onnx"
    mx.onnx.export(net, one, inputs=x)
    block = mx.onnx.imports(one)
    np.testing.assert_allclose(block(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    mx.onnx.export(block, two, inputs=x)
    assert one.read_bytes() == two.read_bytes()


def test_functions_become_blocks_with_graphs_and_parameters(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.HybridSequential(), nn.Dense(2))
    net[1].add(nn.Dense(3))
    net.initialize(mx.init.Xavier())
    x = nd.random.uniform(shape=(2, 5))
    expected = net(x).asnumpy()
    mx.onnx.export(net, tmp_path / "net.onnx", inputs=x)
    block = mx.onnx.imports(tmp_path / "net.onnx")
    assert list(block._children) == ["0", "1", "2"] and list(block._children["1"]._children) == ["0"]
    assert set(block._children["1"]._children["0"]._reg_params) == {"weight", "bias"}
    first = block._children["0"](x)
    np.testing.assert_allclose(first.asnumpy(), net[0](x).asnumpy(), rtol=1e-6)
    rest = block._children["2"](block._children["1"](first))
    np.testing.assert_allclose(rest.asnumpy(), expected, rtol=1e-5)
    assert set(block._collect_params_with_prefix()) == set(net._collect_params_with_prefix())


def test_metadata_of_torch_becomes_blocks(tmp_path):
    def node(op, inputs, output, namespace):
        made = helper.make_node(op, inputs, [output], name=output)
        entry = made.metadata_props.add()
        entry.key, entry.value = "namespace", namespace
        return made

    nodes = [
        node("MatMul", ["x", "layer.linear.weight"], "a", ": Net/layer: Block/layer.linear: Linear/matmul"),
        node("Add", ["a", "layer.linear.bias"], "b", ": Net/layer: Block/layer.linear: Linear/add"),
        node("Relu", ["b"], "c", ": Net/layer: Block/relu"),
        node("Neg", ["c"], "y", ": Net/neg"),
    ]
    weights = {"layer.linear.weight": np.eye(3, dtype=np.float32), "layer.linear.bias": np.ones(3, np.float32)}
    path = save(tmp_path, nodes, weights)
    block = mx.onnx.imports(path)
    assert list(block._children) == ["layer"] and list(block.layer._children) == ["linear"]
    assert list(block.layer.linear._reg_params) == ["weight", "bias"]
    x = nd.array([[1.0, -2.0, 3.0]])
    assert block.layer(x).asnumpy().tolist() == [[2.0, 0.0, 4.0]]
    assert block(x).asnumpy().tolist() == [[-2.0, -0.0, -4.0]]
    assert "Net(" in repr(block) and "Linear" in repr(block)


# -- subclasses ------------------------------------------------------------------------------------------------------


def save(folder, nodes, initializers=(), inputs=(("x", (None, 3)),), outputs=("y",), opset=17):
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in dict(initializers).items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def perceptron(tmp_path):
    rng = np.random.default_rng(0)
    weights = {f"w{k}": rng.normal(size=(3, 3)).astype(np.float32) for k in range(3)}
    nodes = []
    for k in range(3):
        nodes.append(helper.make_node("MatMul", ["x" if k == 0 else f"r{k - 1}", f"w{k}"], [f"m{k}"]))
        nodes.append(helper.make_node("Relu", [f"m{k}"], [f"r{k}" if k < 2 else "y"]))
    return save(tmp_path, nodes, weights), weights


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_subclass_cuts_reads_inside_and_adds_layers(perceptron, hybridize):
    path, weights = perceptron

    class MyModel(mx.onnx.OnnxBlock):
        def __init__(self, path):
            super().__init__(path, last_layers=-2)
            self.layer = nn.Dense(2, in_units=3)

        def forward(self, x):
            features, first = super().forward(x, aux_output=["r0"])
            return self.layer(features) + first.sum(axis=1, keepdims=True)

    model = MyModel(path)
    model.layer.initialize()
    model.hybridize(hybridize)
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    first = np.maximum(x @ weights["w0"], 0)
    features = np.maximum(first @ weights["w1"], 0)
    expected = features @ model.layer.weight.data().asnumpy().T + first.sum(axis=1, keepdims=True)
    with autograd.record():
        y = model(nd.array(x))
    y.backward()
    np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-5, atol=1e-6)
    assert set(weights) - {"w2"} <= set(model.collect_params())
    assert np.abs(model.collect_params()["w0"].grad().asnumpy()).sum() > 0
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1})
    trainer.step(4)
    assert not np.array_equal(model.collect_params()["w0"].data().asnumpy(), weights["w0"])


def test_the_base_itself_is_the_whole_model(perceptron):
    path, _ = perceptron
    x = nd.array(np.ones((2, 3), np.float32))
    model = mx.onnx.OnnxBlock(path)
    assert np.array_equal(model(x).asnumpy(), mx.onnx.imports(path)(x).asnumpy())
    with pytest.raises(HybridLabError, match="computes no 'nothing'"):
        model.forward(x, aux_output=["nothing"])
    with pytest.raises(HybridLabError, match=r"computes no 'R0'; it has r0, m0\. `tensor_names`"):
        model.forward(x, aux_output=["R0"])
    with pytest.raises(HybridLabError, match=r"a list of names: aux_output=\['r0'\]"):
        model.forward(x, aux_output="r0")
    assert model.tensor_names == ["m0", "r0", "m1", "r1", "m2", "y"]
    with pytest.raises(HybridLabError, match="leaves none"):
        mx.onnx.OnnxBlock(path, last_layers=-6)
    for wrong in ("a", 1.5, True):
        with pytest.raises(HybridLabError, match="last_layers is a whole number"):
            mx.onnx.OnnxBlock(path, last_layers=wrong)


def test_a_subclass_overrides_forward(perceptron):
    class MyModel(mx.onnx.OnnxBlock):
        def hybrid_forward(self, F, x):
            return F.relu(x)

    with pytest.raises(HybridLabError, match=r"MyModel is an OnnxBlock, which runs forward\(self, x\)"):
        MyModel(perceptron[0])


def test_a_registered_subclass_opens_its_file_and_its_archive(perceptron, tmp_path, monkeypatch):
    monkeypatch.setattr(nn.registry, "_classes", dict(nn.registry._classes))

    @gluon.register
    class MyModel(mx.onnx.OnnxBlock):
        pass

    path, weights = perceptron
    model = MyModel(path)
    x = nd.ones((2, 3))
    y = model(x)
    archive = model.save(tmp_path / "mine")
    for opened in (MyModel(archive), gluon.load(archive)):
        assert np.array_equal(opened(x).asnumpy(), y.asnumpy())


def test_what_is_no_onnx_file_says_so(tmp_path):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    with pytest.raises(HybridLabError, match=r"not an ONNX file but a zip file.*gluon\.load"):
        mx.onnx.imports(net.save(tmp_path / "dense"))


def test_classes_are_shown_without_their_modules(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    net.initialize()
    mx.onnx.export(net, tmp_path / "m.onnx", inputs=(1, 2))
    imported = mx.onnx.imports(tmp_path / "m.onnx")
    assert repr(imported) == "HybridSequential(\n  (0): Dense()\n)"


def test_a_shape_from_data_is_a_typed_error_that_says_what_to_give(tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    path = save(tmp_path, nodes, inputs=[("x", (2, 3)), ("shape", (2,))])
    model = onnx.load(path)
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(model, path)
    with pytest.raises(HybridLabError, match=r"computed from shape.*values="):
        mx.onnx.imports(path)
    block = mx.onnx.imports(path, values={"shape": np.array([3, 2])})
    assert block(nd.ones((2, 3))).shape == (3, 2)


def test_an_unknown_operator_names_the_nearest(tmp_path):
    path = save(tmp_path, [helper.make_node("Sigmoidd", ["x"], ["y"], name="one")])
    with pytest.raises(HybridLabError, match=r"node 'one'.*Sigmoidd.*nearest one that is: Sigmoid"):
        mx.onnx.imports(path)


def test_backend_is_the_interface_of_onnx(perceptron):
    import onnx.backend.base

    path, _ = perceptron
    x = np.ones((2, 3), np.float32)
    assert issubclass(mx.onnx.Backend, onnx.backend.base.Backend)
    assert mx.onnx.Backend.supports_device("CPU") and not mx.onnx.Backend.supports_device("CUDA")
    prepared = mx.onnx.Backend.prepare(onnx.load(path))
    assert isinstance(prepared, onnx.backend.base.BackendRep)
    expected = mx.onnx.imports(path)(nd.array(x)).asnumpy()
    assert np.array_equal(prepared.run([x])[0], expected)
    assert np.array_equal(mx.onnx.Backend.run_model(onnx.load(path), [x])[0], expected)
    (y,) = mx.onnx.Backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [x])
    assert np.array_equal(y, -x)
