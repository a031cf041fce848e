"""Labels of operators for training, such as SoftmaxOutput's: an import or export for prediction leaves them out, or
names them."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, sym
from hybrid_lab.diagnostics import LoadMismatchError
from hybrid_lab.diagnostics.errors import MissingGraphError, UninitializedError
from hybrid_lab.gluon import nn

X, LABEL = nd.array(np.random.RandomState(0).uniform(-1, 1, (2, 4))), nd.array([1, 0])
OPERATORS = [
    "SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SVMOutput",
]  # fmt: skip


def arrays():
    random = np.random.RandomState(1)
    return {"fc_weight": nd.array(random.uniform(-1, 1, (3, 4))), "fc_bias": nd.array(random.uniform(-1, 1, 3))}


def symbol_of(operator):
    layer = sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")
    return getattr(sym, operator)(layer, name="out")


def label_for(operator):
    return LABEL if operator in ("SoftmaxOutput", "SVMOutput") else nd.ones((2, 3))


@pytest.fixture(params=OPERATORS)
def files(request, tmp_path):
    prefix = str(tmp_path / "net")
    mx.model.save_checkpoint(prefix, 1, symbol_of(request.param), arrays(), {})
    return f"{prefix}-symbol.json", f"{prefix}-0001.params", request.param


def test_an_import_without_the_label_predicts(files):
    symbol_file, params_file, operator = files
    whole = gluon.SymbolBlock.imports(symbol_file, ["data", "out_label"], params_file)
    wanted = whole(X, label_for(operator)).asnumpy()
    block = gluon.SymbolBlock.imports(symbol_file, "data", params_file)
    assert list(block.collect_params()) == ["fc_weight", "fc_bias"]
    for hybridized in (False, True):
        block.hybridize(hybridized)
        np.testing.assert_allclose(block(X).asnumpy(), wanted, rtol=1e-6)


def test_an_export_to_onnx_has_no_labels(files, tmp_path):
    symbol_file, params_file, operator = files
    block = gluon.SymbolBlock.imports(symbol_file, ["data", "out_label"], params_file)
    block.hybridize()
    wanted = block(X, label_for(operator)).asnumpy()
    exported = mx.onnx.export(block, tmp_path / "net.onnx").exported[0]
    assert list(exported.inputs) == ["data"]
    assert exported.notes == ("without the labels out_label, which only training reads",)
    np.testing.assert_allclose(mx.onnx.imports(tmp_path / "net.onnx")(X).asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    with autograd.record():  # the Block itself keeps its label, and trains
        y = block(X, label_for(operator))
    y.backward()


@pytest.mark.parametrize(("option", "label"), [("multi_output", (2, 4, 4)), ("preserve_shape", (2, 2, 4))])
def test_classes_along_another_axis(option, label, tmp_path):
    layer = sym.Convolution(sym.var("data"), kernel=(1, 1), num_filter=2, name="conv")
    out = sym.SoftmaxOutput(layer, name="out", **{option: True})
    random = np.random.RandomState(1)
    values = {"conv_weight": nd.array(random.uniform(-1, 1, (2, 3, 1, 1))), "conv_bias": nd.zeros((2,))}
    mx.model.save_checkpoint(str(tmp_path / "net"), 1, out, values, {})
    names = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0001.params")
    x = nd.array(random.uniform(-1, 1, (2, 3, 4, 4)))
    whole = gluon.SymbolBlock.imports(names[0], ["data", "out_label"], names[1])
    block = gluon.SymbolBlock.imports(names[0], "data", names[1])
    np.testing.assert_allclose(block(x).asnumpy(), whole(x, nd.zeros(label)).asnumpy(), rtol=1e-6)


def test_a_block_whose_code_has_a_label(tmp_path):
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3, in_units=4)

        def hybrid_forward(self, F, x, label):
            return F.SoftmaxOutput(self.dense(x), label)

    net = Net()
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    wanted = net(X, LABEL).asnumpy()
    mx.onnx.export(net, tmp_path / "net.onnx")
    np.testing.assert_allclose(mx.onnx.imports(tmp_path / "net.onnx")(X).asnumpy(), wanted, rtol=1e-5)


class Two(gluon.HybridBlock):
    """Both inputs are read in prediction."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x, y):
        return self.dense(x) * y


def test_an_input_that_is_missing_is_named(tmp_path):
    net = Two()
    net.initialize()
    net.hybridize()
    net(X, nd.ones((2, 3)))
    symbol_file, params_file = net.export(str(tmp_path / "two"))
    with pytest.raises(LoadMismatchError, match=r"data1.*input_names=\['data0', 'data1'\]"):
        gluon.SymbolBlock.imports(symbol_file, "data0", params_file)
    block = gluon.SymbolBlock.imports(symbol_file, "data0", params_file, allow_missing=True)
    with pytest.raises(UninitializedError, match="'data1' .*input_names"):
        block(X)
    block = gluon.SymbolBlock.imports(symbol_file, ["data0", "data1"], params_file)
    net.save(tmp_path / "two.hlab")
    mx.onnx.export(net, tmp_path / "two.onnx")
    for each in (block, gluon.load(tmp_path / "two.hlab"), mx.onnx.imports(tmp_path / "two.onnx")):
        with pytest.raises(MissingGraphError, match="named data0, data1, not"):
            each(X)


def test_sizes_that_are_not_known_are_said_in_words(tmp_path):
    other = gluon.SymbolBlock(sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc"), sym.var("data"))
    nd.save(str(tmp_path / "empty.params"), {})
    with pytest.raises(LoadMismatchError) as caught:
        other.load_parameters(str(tmp_path / "empty.params"))
    assert caught.value.differences == ["missing: weight of unknown shape", "missing: bias of unknown shape"]
