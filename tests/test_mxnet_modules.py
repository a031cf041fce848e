"""mx.runtime, mx.engine, mx.registry and MXNet's names of scopes."""

from __future__ import annotations

import importlib
import json
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
import hybrid_lab.compat  # noqa: F401
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridLabError, UnknownNameError
from hybrid_lab.gluon import block
from hybrid_lab.util import _NumpyArrayScope


def test_features_say_what_is_here():
    features = mx.runtime.Features()
    assert features is mx.runtime.Features()
    assert features.is_enabled("lapack") and features["LAPACK"].enabled
    assert features.is_enabled("CUDA") == (mx.num_gpus() > 0 and features["CUDA"].enabled)
    assert not features.is_enabled("MKLDNN")
    assert repr(mx.runtime.Feature("CUDA", False)) == "✖ CUDA"
    assert [feature.name for feature in mx.runtime.feature_list()] == list(features)


MODULES = json.loads((Path(__file__).parent / "golden" / "coverage" / "names.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"contrib.quantization"}))
def test_a_wrong_name_of_each_module_leads_on(module):
    """The error has the name that users write, no file of this package, and the nearest names or the next step."""
    place = importlib.import_module("mxnet")
    for part in module.split(".") if module != "mx" else ():
        place = getattr(place, part)
    there = vars(place).get("__all__") or dir(place)
    known = next((name for name in MODULES[module] if len(name) > 5 and name in there), None)
    with pytest.raises(UnknownNameError, match="has no 'nosuchname'; (did you mean|see Limits)") as caught:
        place.nosuchname  # noqa: B018
    assert "hybrid_lab" not in str(caught.value)
    if known is not None:
        with pytest.raises(UnknownNameError, match="(?i)did you mean .*" + known):
            getattr(place, known + "q")


def test_an_unknown_feature_is_an_error():
    with pytest.raises(RuntimeError, match="there is no feature 'OPENCL'"):
        mx.runtime.Features().is_enabled("OPENCL")


def test_bulk_sizes_are_kept_and_change_nothing():
    assert mx.engine.set_bulk_size(4) == 15
    with mx.engine.bulk(10):
        x = nd.ones((2,))
        x += 1
        assert mx.engine.set_bulk_size(3) == 10
    assert mx.engine.set_bulk_size(15) == 4
    assert x.asnumpy().tolist() == [2, 2]


class Shape:
    def __init__(self, size=1):
        self.size = size


def test_a_registry_of_own_classes():
    register = mx.registry.get_register_func(Shape, "shape")
    alias = mx.registry.get_alias_func(Shape, "shape")
    create = mx.registry.get_create_func(Shape, "shape")

    @alias("disc", "round")
    @register
    class Circle(Shape):
        pass

    assert mx.registry.get_registry(Shape) == {"circle": Circle, "disc": Circle, "round": Circle}
    assert create("Circle", 2).size == create("round", size=2).size == create(shape="disc", size=2).size == 2
    assert create('["circle", {"size": 3}]').size == create('{"shape": "circle", "size": 3}').size == 3
    assert create({"shape": "circle", "size": 3}).size == 3
    circle = Circle()
    assert create(circle) is circle
    with pytest.warns(UserWarning, match="the shape 'circle' is now"):
        register(Circle)
    with pytest.raises(ValueError, match="no shape named 'circel'; did you mean 'circle'"):
        create("circel")
    for mistake in (lambda: create(circle, 2), lambda: create(), lambda: create(3), lambda: register(dict)):
        with pytest.raises(HybridLabError):
            mistake()


def test_registries_of_initializers_and_metrics():
    assert mx.registry.get_registry(mx.init.Initializer)["xavier"] is mx.init.Xavier
    assert mx.registry.get_registry(mx.metric.EvalMetric)["acc"] is mx.metric.Accuracy


def test_the_default_context_belongs_to_the_thread():
    seen = []

    def other():
        mx.Context.default_ctx = mx.cpu(3)
        seen.append(mx.current_context())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [mx.cpu(3)] and mx.Context.default_ctx == mx.cpu(0)
    with mx.cpu(1):
        assert mx.Context.default_ctx == mx.cpu(1)
        mx.Context.default_ctx = mx.cpu(2)
        assert nd.zeros((1,)).context == mx.cpu(2)
    assert mx.Context.default_ctx == mx.cpu(0)


def test_mxnets_names_of_scopes():
    assert block._BlockScope.create("own_", None, "net")[0] == "own_"
    with gluon.nn.Sequential(prefix="net_").name_scope() as scope:
        assert isinstance(scope, block._BlockScope)
        assert block._BlockScope.create(None, None, "dense")[0] == "net_dense0_"
    assert not _NumpyArrayScope._current._is_np_array
    with mx.np_array(True):
        assert _NumpyArrayScope._current._is_np_array and mx.is_np_array()
        _NumpyArrayScope._current = _NumpyArrayScope(False)
        assert not mx.is_np_array()


@pytest.mark.parametrize("refused", [bool, float, lambda x: x.asnumpy(), np.asarray])
def test_what_a_symbol_refuses_is_not_implemented_for_symbol(refused):
    with pytest.raises(mx.base.NotImplementedForSymbol):
        refused(mx.sym.var("x"))


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.runtime.Features()
        str(mx.runtime.feature_list())


def test_operators_and_their_arguments():
    assert "Activation" in mx.operator.get_all_registered_operators()
    assert mx.operator.get_operator_arguments("Activation") == (
        2,
        ["data", "act_type"],
        ["NDArray-or-Symbol", "{'relu', 'sigmoid', 'softrelu', 'softsign', 'tanh'}, required"],
    )
    slope = dict(zip(*mx.operator.get_operator_arguments("LeakyReLU")[1:], strict=True))
    assert slope["act_type"] == "{'elu', 'gelu', 'leaky', 'prelu', 'rrelu', 'selu'},optional, default='leaky'"
    assert slope["slope"] == "float, optional, default=0.25"
    convolution = dict(zip(*mx.operator.get_operator_arguments("Convolution")[1:], strict=True))
    assert convolution["kernel"] == "Shape(tuple), required"
    assert convolution["stride"] == "Shape(tuple), optional, default=[]"
    assert convolution["no_bias"] == "boolean, optional, default=0"
    assert mx.operator.get_operator_arguments("sum").types[1] == "Shape or None, optional, default=None"
    assert mx.operator.get_operator_arguments("topk").types[1:3] == [
        "int or None, optional, default='-1'",
        "int, optional, default='1'",
    ]
    assert mx.operator.get_operator_arguments("add_n").types == ["NDArray-or-Symbol[]"]
    for name in mx.operator.get_all_registered_operators():
        assert len(mx.operator.get_operator_arguments(name).names) == mx.operator.get_operator_arguments(name).narg
    with pytest.raises(HybridLabError, match="no operator 'Nothing'"):
        mx.operator.get_operator_arguments("Nothing")


def test_arguments_of_operators_in_python():
    """MXNet has the first answer only."""

    @mx.operator.register("arguments_for_test")
    class _(mx.operator.CustomOpProp):
        def __init__(self, factor, mode="plain"):
            super().__init__()

    assert mx.operator.get_operator_arguments("Custom") == (2, ["data", "op_type"], ["NDArray-or-Symbol[]", "string"])
    assert mx.operator.get_operator_arguments("arguments_for_test") == (
        3,
        ["data", "factor", "mode"],
        ["NDArray-or-Symbol[]", "string, required", "string, optional, default='plain'"],
    )


def test_views_in_place_of_copies():
    x = nd.arange(6).reshape((2, 1, 3))
    views = x.flatten(inplace=True), x.squeeze(axis=1, inplace=True), x.expand_dims(0, inplace=True)
    copies = x.flatten(), x.squeeze(axis=1), x.expand_dims(0)
    x[0] = -1
    assert [view.shape for view in views] == [copy.shape for copy in copies] == [(2, 3), (2, 3), (1, 2, 1, 3)]
    assert all((view.reshape((-1,))[:3] == -1).asnumpy().all() for view in views)
    assert all(copy.reshape((-1,))[:3].asnumpy().tolist() == [0, 1, 2] for copy in copies)
    symbol = mx.sym.var("x", shape=(2, 1, 3))
    made = symbol.flatten(inplace=True), symbol.squeeze(axis=1, inplace=True), symbol.expand_dims(0, inplace=True)
    assert [each.infer_shape()[1][0] for each in made] == [copy.shape for copy in copies]


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2, 2)])
def test_argmax_channel_takes_any_rank(shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    wanted = np.atleast_1d(x.argmax(axis=min(1, x.ndim - 1)))
    assert np.array_equal(nd.argmax_channel(nd.array(x)).asnumpy(), wanted)


def test_prelu_with_a_slope_for_each_element():
    data, slopes = (np.random.default_rng(0).normal(size=(3, 4)).astype("float32") for _ in range(2))
    symbol = mx.sym.LeakyReLU(mx.sym.var("x"), gamma=mx.sym.var("g"), act_type="prelu")
    arrays = {"x": nd.array(data), "g": nd.array(slopes)}
    executor = symbol.bind(mx.cpu(), arrays, {"x": nd.zeros((3, 4)), "g": nd.zeros((3, 4))})
    assert np.allclose(executor.forward(is_train=True)[0].asnumpy(), np.where(data > 0, data, data * slopes))
    executor.backward(nd.ones((3, 4)))
    assert np.allclose(executor.grad_dict["g"].asnumpy(), np.where(data > 0, 0, data))
    assert np.allclose(executor.grad_dict["x"].asnumpy(), np.where(data > 0, 1, slopes))


@pytest.mark.parametrize("packed", [nd.to_dlpack_for_read, nd.to_dlpack_for_write])
def test_a_capsule_of_dlpack_becomes_an_array(packed):
    x = nd.array([[1, 2], [3, 4]], dtype="int32")
    assert nd.from_dlpack(packed(x)).asnumpy().tolist() == [[1, 2], [3, 4]]
