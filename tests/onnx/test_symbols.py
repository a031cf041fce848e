"""MXNet's functions for ONNX files: Symbols and arrays to files and back."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.contrib import onnx as mx_onnx
from hybrid_lab.diagnostics import HybridLabError

onnxruntime = pytest.importorskip("onnxruntime")


def classifier():
    data = mx.sym.var("data")
    hidden = mx.sym.Convolution(data, kernel=(3, 3), num_filter=4, name="conv")
    hidden = mx.sym.BatchNorm(hidden, fix_gamma=False, name="bn")
    sym = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="fc"), name="softmax")
    draw = np.random.default_rng(0)
    arg_shapes, _, aux_shapes = sym.infer_shape(data=(2, 3, 8, 8))

    def drawn(names, shapes):
        return {name: mx.nd.array(draw.uniform(0.05, 0.1, shape)) for name, shape in zip(names, shapes, strict=True)}

    args = drawn(sym.list_arguments(), arg_shapes)
    del args["data"], args["softmax_label"]
    return sym, args, drawn(sym.list_auxiliary_states(), aux_shapes)


def predicted(sym, args, aux, x):
    executor = sym.simple_bind(mx.cpu(), data=x.shape, grad_req="null")
    executor.copy_params_from(args, aux)
    return executor.forward(is_train=False, data=mx.nd.array(x))[0].asnumpy()


def run(path, **inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


X = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype("float32")


def test_a_symbol_is_written_without_the_label_of_its_loss_and_read_again(tmp_path):
    sym, args, aux = classifier()
    wanted = predicted(sym, args, aux, X)
    path = mx_onnx.export_model(sym, [args, aux], [X.shape], np.float32, tmp_path / "m.onnx")
    np.testing.assert_allclose(run(path, data=X), wanted, rtol=1e-4, atol=1e-6)

    again, args_again, aux_again = mx_onnx.import_model(path)
    assert again.list_auxiliary_states() == list(aux_again)
    assert set(again.list_arguments()) == {"data", *args_again}
    np.testing.assert_allclose(predicted(again, args_again, aux_again, X), wanted, rtol=1e-5)
    np.testing.assert_allclose(mx_onnx.import_to_gluon(path)(mx.nd.array(X)).asnumpy(), wanted, rtol=1e-5)
    assert mx_onnx.get_model_metadata(path) == {
        "input_tensor_data": [("data", (0, 3, 8, 8))],  # the batch is open
        "output_tensor_data": [("output", (0, 3))],
    }


def test_the_files_of_a_checkpoint_are_taken(tmp_path):
    sym, args, aux = classifier()
    mx.model.save_checkpoint(str(tmp_path / "m"), 3, sym, args, aux)
    files = str(tmp_path / "m-symbol.json"), str(tmp_path / "m-0003.params")
    path = mx.onnx.export_model(*files, input_shape=[X.shape], onnx_file_path=str(tmp_path / "m.onnx"))
    np.testing.assert_allclose(run(path, data=X), predicted(sym, args, aux, X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("opened", [None, [(None, 3, 8, 8)], [("batch", 3, 8, 8)]])
def test_sizes_can_be_open(opened, tmp_path):
    sym, args, aux = classifier()
    path = mx.onnx.export_model(
        sym, {**args, **aux}, [X.shape], onnx_file_path=tmp_path / "m.onnx", dynamic=True, dynamic_input_shapes=opened
    )
    np.testing.assert_allclose(run(path, data=X[:1]), predicted(sym, args, aux, X[:1]), rtol=1e-4, atol=1e-6)


def test_each_input_has_its_dtype(tmp_path):
    words, scale = mx.sym.var("words"), mx.sym.var("scale")
    sym = mx.sym.broadcast_mul(mx.sym.Embedding(words, input_dim=5, output_dim=3, name="table"), scale)
    params = {"table_weight": mx.nd.array(np.arange(15).reshape(5, 3))}
    shapes, types = [(2, 4), (1, 1, 1)], [np.int32, np.float32]
    for dynamic in (False, True):
        opened = [("n", 4), (1, 1, 1)] if dynamic else None
        path = mx.onnx.export_model(sym, params, shapes, types, tmp_path / "m.onnx", False, dynamic, opened)
        x = np.array([[0, 1, 2, 3], [4, 0, 1, 2]], "int32")
        found = run(path, words=x, scale=np.full((1, 1, 1), 2, "float32"))
        np.testing.assert_array_equal(found, 2 * params["table_weight"].asnumpy()[x])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"in_shapes": None}, "in_shapes needs one item for each of the inputs data; none was given"),
        ({"in_shapes": [(2, 3), (4,)]}, "in_shapes needs one item.* data; not 2"),
        ({"in_types": ["float32", "int32"]}, "in_types needs one item"),
        ({"params": 3}, "params must be a dict of arrays"),
        ({"params": {}}, "in_shapes needs one item for each of the inputs data, conv_weight"),
        ({"dynamic": True, "dynamic_input_shapes": []}, "dynamic_input_shapes needs one item"),
    ],
)
def test_bad_arguments_are_told_in_their_terms(changed, message, tmp_path):
    sym, args, aux = classifier()
    given = {"sym": sym, "params": [args, aux], "in_shapes": [X.shape], "onnx_file_path": tmp_path / "m.onnx"}
    with pytest.raises(HybridLabError, match=message):
        mx.onnx.export_model(**(given | changed))
    assert not (tmp_path / "m.onnx").exists()


def dense(name="fc"):
    data = mx.sym.var("data")
    params = {
        f"{name}_weight": mx.nd.array(np.linspace(-1, 1, 15).reshape(3, 5)),
        f"{name}_bias": mx.nd.array([1, 2, 3]),
    }
    return data, mx.sym.FullyConnected(data, num_hidden=3, name=name), params


ROWS = np.random.default_rng(2).normal(size=(2, 5)).astype("float32")


@pytest.mark.parametrize(
    ("head", "predicts"),
    [
        (lambda fc: mx.sym.SoftmaxOutput(fc, name="out"), lambda y: np.exp(y) / np.exp(y).sum(1, keepdims=True)),
        (lambda fc: mx.sym.SVMOutput(fc), lambda y: y),
        (lambda fc: mx.sym.LinearRegressionOutput(fc), lambda y: y),
        (lambda fc: mx.sym.MAERegressionOutput(fc, mx.sym.var("y") * 2), lambda y: y),
        (lambda fc: mx.sym.LogisticRegressionOutput(fc), lambda y: 1 / (1 + np.exp(-y))),
        (lambda fc: mx.sym.reshape(mx.sym.LinearRegressionOutput(fc), shape=(-1, 1)), lambda y: y.reshape(-1, 1)),
    ],
    ids=["softmax", "svm", "linear", "mae", "logistic", "inside"],
)
def test_losses_are_written_as_what_they_predict(head, predicts, tmp_path):
    _, fc, params = dense()
    path = mx.onnx.export_model(head(fc), params, [ROWS.shape], onnx_file_path=tmp_path / "m.onnx")
    y = ROWS @ params["fc_weight"].asnumpy().T + params["fc_bias"].asnumpy()
    np.testing.assert_allclose(run(path, data=ROWS), predicts(y), rtol=1e-4, atol=1e-6)


def test_softmax_of_images_is_over_all_pixels_of_each(tmp_path):
    sym = mx.sym.SoftmaxOutput(mx.sym.var("data") * 2, name="softmax")
    path = mx.onnx.export_model(sym, {}, [X.shape], onnx_file_path=tmp_path / "m.onnx")
    rows = np.exp(2 * X.reshape(2, -1))
    np.testing.assert_allclose(run(path, data=X), (rows / rows.sum(1, keepdims=True)).reshape(X.shape), rtol=1e-4)


def test_a_label_that_is_read_elsewhere_stays_an_input(tmp_path):
    data, _, _ = dense()
    decoded = mx.sym.FullyConnected(data, num_hidden=5, name="fc")
    params = {"fc_weight": mx.nd.array(np.eye(5) * 3), "fc_bias": mx.nd.zeros(5)}
    sym = mx.sym.LinearRegressionOutput(decoded, data)
    path = mx.onnx.export_model(sym, params, [ROWS.shape], onnx_file_path=tmp_path / "auto.onnx")
    np.testing.assert_allclose(run(path, data=ROWS), 3 * ROWS, rtol=1e-5)

    label = mx.sym.var("label")
    both = mx.sym.Group([mx.sym.LinearRegressionOutput(decoded, label), label * 2 + 1])
    path = mx.onnx.export_model(both, params, [ROWS.shape] * 2, onnx_file_path=tmp_path / "both.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {"data": ROWS, "label": ROWS})
    np.testing.assert_allclose(found[1], 2 * ROWS + 1, rtol=1e-5)


def test_names_stay_and_the_model_that_comes_back_trains_as_softmax(tmp_path):
    _, fc, params = dense("net_fc")
    path = mx.onnx.export_model(mx.sym.SoftmaxOutput(fc), params, [ROWS.shape], onnx_file_path=tmp_path / "m.onnx")
    sym, args, _ = mx_onnx.import_model(path)
    assert sorted(args) == ["net_fc_bias", "net_fc_weight"]
    gradients = []
    for each in (
        mx.gluon.SymbolBlock(sym, mx.sym.var("data")),
        mx.gluon.SymbolBlock(mx.sym.softmax(fc), mx.sym.var("data")),
    ):
        for name, parameter in each.collect_params().items():
            parameter.initialize()
            parameter.shape = args[name].shape
            parameter.set_data(args[name])
        with mx.autograd.record():
            loss = (each(mx.nd.array(ROWS)) * mx.nd.array([1, 2, 5])).sum()
        loss.backward()
        gradients.append(each.collect_params()["net_fc_bias"].grad().asnumpy())
    np.testing.assert_allclose(*gradients, rtol=1e-5)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"sym": mx.gluon.nn.Dense(3)}, "export_model takes a Symbol, not Dense.*mx.onnx.export takes a Block"),
        ({"params": {"fc_weight": np.ones((3, 5))}}, "params must hold arrays of mx.nd, not array"),
        ({"in_shapes": [(None, 5)]}, r"not \(None, 5\). Open sizes are given by dynamic=True"),
        ({"dynamic": True, "dynamic_input_shapes": [(-1, 5)]}, r"None or a name for an open size, not \(-1, 5\)"),
    ],
    ids=["block", "numpy", "open", "negative"],
)
def test_the_next_step_is_told(keywords, message, tmp_path):
    _, fc, params = dense()
    given = {"sym": fc, "params": params, "in_shapes": [ROWS.shape], "onnx_file_path": tmp_path / "m.onnx"}
    with pytest.raises(HybridLabError, match=message):
        mx.onnx.export_model(**(given | keywords))


def test_operators_that_can_be_written():
    names = mx.onnx.get_operator_support()
    assert {"Convolution", "FullyConnected", "_contrib_box_nms", "RNN"} <= set(names)
    assert not {"CTCLoss", "gammaln"}.intersection(names)
    assert names == sorted(names)
    with pytest.raises(mx.MXNetError, match="opset=12: files are written for 13 to"):
        mx.onnx.get_operator_support(12)
