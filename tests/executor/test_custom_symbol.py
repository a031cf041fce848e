"""Operators in Python as nodes of graphs: `sym.Custom` in Executors, Modules, hybridized Blocks and files."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import (
    ArchiveError,
    AutogradError,
    DTypeError,
    HybridLabError,
    LoadMismatchError,
    ShapeError,
)
from hybrid_lab.gluon import nn


class _Pair(mx.operator.CustomOp):
    """data * factor + shift and data * shift, with a count of the calls as its state."""

    def __init__(self, factor):
        self.factor = factor
        self.shift = None

    def forward(self, is_train, req, in_data, out_data, aux):
        self.shift = in_data[1].copy()  # what the backward of this call needs
        self.assign(out_data[0], req[0], in_data[0] * self.factor + in_data[1])
        self.assign(out_data[1], req[1], in_data[0] * in_data[1])
        aux[0][:] += 1 + 10 * is_train

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * self.factor + out_grad[1] * self.shift)
        self.assign(in_grad[1], req[1], out_grad[0] + out_grad[1] * in_data[0])


@mx.operator.register("pair_for_test")
class _PairProp(mx.operator.CustomOpProp):
    def __init__(self, factor="2"):
        super().__init__(need_top_grad=True)
        self.factor = float(factor)

    def list_arguments(self):
        return ["data", "shift"]

    def list_outputs(self):
        return ["sum", "product"]

    def list_auxiliary_states(self):
        return ["calls"]

    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[0]], [in_shape[0], in_shape[0]], [[1]]

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Pair(self.factor)


class _Softmax(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], nd.softmax(in_data[0]))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        label = in_data[1].asnumpy().astype(int)
        gradient = out_data[0].asnumpy()
        gradient[np.arange(len(label)), label] -= 1.0
        self.assign(in_grad[0], req[0], nd.array(gradient))


@mx.operator.register("softmax_for_test")
class _SoftmaxProp(mx.operator.CustomOpProp):
    """The loss of MXNet's example of an operator in NumPy."""

    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Softmax()


class _Noise(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + nd.random.uniform(shape=in_data[0].shape))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("noise_for_test")
class _NoiseProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Noise()


def _pair(**keywords):
    return mx.sym.Custom(mx.sym.var("x"), op_type="pair_for_test", name="pair", **keywords)


def test_names_shapes_and_types_are_those_of_mxnet():
    symbol = _pair(factor=3)
    assert symbol.list_arguments() == ["x", "pair_shift"]
    assert symbol.list_outputs() == ["pair_sum", "pair_product"]
    assert symbol.list_auxiliary_states() == ["pair_calls"]
    assert symbol.attr_dict()["pair"] == {"op_type": "pair_for_test", "factor": "3"}
    assert symbol.infer_shape(x=(2, 3)) == ([(2, 3), (2, 3)], [(2, 3), (2, 3)], [(1,)])
    assert symbol.infer_type(x="float64")[1] == [np.float64, np.float64]
    assert mx.sym.Custom(mx.sym.var("x"), op_type="noise_for_test").name.startswith("custom")


def test_a_bound_symbol_has_the_values_and_gradients_of_mxnet():
    executor = _pair().simple_bind(mx.cpu(), x=(2,))
    executor.arg_dict["x"][:] = [1, 2]
    executor.arg_dict["pair_shift"][:] = [5, 6]
    for train in (True, False, True):
        outputs = executor.forward(is_train=train)
    assert [each.asnumpy().tolist() for each in outputs] == [[7, 10], [5, 12]]
    executor.backward([nd.ones((2,)), nd.ones((2,))])
    gradients = {name: array.asnumpy().tolist() for name, array in executor.grad_dict.items()}
    assert gradients == {"x": [7, 8], "pair_shift": [2, 3]}
    assert executor.aux_dict["pair_calls"].asscalar() == 23


def test_gradients_are_added_or_left_out_as_grad_req_says():
    arrays = {"x": nd.ones((2,)), "pair_shift": nd.ones((2,))}
    executor = _pair().bind(
        mx.cpu(),
        arrays,
        args_grad={"x": nd.ones((2,))},
        grad_req={"x": "add", "pair_shift": "null"},
        aux_states=[nd.zeros((1,))],
    )
    executor.forward(is_train=True)
    executor.backward([nd.ones((2,)), nd.ones((2,))])
    assert executor.grad_dict["x"].asnumpy().tolist() == [4, 4]


def test_a_module_learns_with_a_loss_in_python():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(64, 4)).astype(np.float32)
    label = (data[:, 0] > 0).astype(np.float32)
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    symbol = mx.sym.Custom(data=hidden, label=mx.sym.var("softmax_label"), op_type="softmax_for_test", name="softmax")
    module = mx.mod.Module(symbol)
    iterator = mx.io.NDArrayIter(data, label, 16, label_name="softmax_label")
    module.fit(iterator, num_epoch=8, optimizer_params={"learning_rate": 0.5}, initializer=mx.init.Xavier())
    assert dict(module.score(iterator, "acc"))["accuracy"] > 0.95


class _Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=4)
            self.calls = self.params.get("calls", shape=(1,), init="zeros", grad_req="null", differentiable=False)

    def hybrid_forward(self, F, x, calls):
        hidden = self.dense(x)
        added, times = F.Custom(hidden, F.sigmoid(hidden), calls, op_type="pair_for_test", factor=3)
        return F.relu(added) + F.Custom(times, op_type="noise_for_test") + F.random.uniform(shape=(2, 3))


def _step(hybridize, engine=None):
    mx.random.seed(3)
    net = _Net()
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize(**({} if engine is None else {"engine": engine}))
    x = nd.array(np.linspace(-1, 1, 8).reshape(2, 4))
    results = []
    for _ in range(2):
        with mx.autograd.record():
            y = net(x)
        y.backward()
        results += [y.asnumpy(), net.dense.weight.grad().asnumpy(), net(x).asnumpy()]
    return [*results, net.calls.data().asnumpy()]


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime", "torch"])
def test_a_hybridized_block_equals_the_eager_one(engine):
    """States, random numbers of the code and of the graph around it, and gradients are the same."""
    for eager, hybrid in zip(_step(False), _step(True, engine), strict=True):
        np.testing.assert_allclose(hybrid, eager, rtol=1e-5, atol=1e-6)


def test_what_a_forward_kept_serves_the_backward_of_this_forward():
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x, shift, calls):
            return F.Custom(x, shift, calls, op_type="pair_for_test")[1]

    net = Net()
    net.hybridize()
    x, calls = nd.ones((2,)), nd.zeros((1,))
    x.attach_grad()
    with mx.autograd.record():
        total = net(x, nd.array([1, 2]), calls) + 10 * net(x, nd.array([3, 4]), calls)
    total.backward()
    assert x.grad.asnumpy().tolist() == [31, 42]


def test_an_operator_runs_in_every_prediction():
    """A prediction computes what depends on parameters alone only once, but calls code each time."""
    executor = mx.sym.Custom(mx.sym.var("fc_weight"), op_type="noise_for_test").simple_bind(mx.cpu(), fc_weight=(3,))
    first = executor.forward()[0].asnumpy()
    assert (executor.forward()[0].asnumpy() != first).all()


def test_files_have_the_name_of_the_operator_and_open_where_it_is_registered(tmp_path):
    symbol = _pair(factor=3)
    node = json.loads(symbol.tojson())["nodes"][-1]
    assert node == {
        "op": "Custom",
        "name": "pair",
        "attrs": {"factor": "3", "op_type": "pair_for_test"},
        "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 1]],
    }
    again = mx.sym.load_json(symbol.tojson())
    assert again.list_auxiliary_states() == ["pair_calls"]
    executor = again.simple_bind(mx.cpu(), x=(2,))
    executor.arg_dict["x"][:] = 1
    assert executor.forward()[0].asnumpy().tolist() == [3, 3]
    with pytest.raises(ArchiveError, match=r"'pair'.*'elsewhere'.*Run the code that calls mx.operator.register"):
        mx.sym.load_json(symbol.tojson().replace("pair_for_test", "elsewhere"))
    with pytest.raises(ArchiveError, match="unexpected keyword argument 'faktor'"):
        mx.sym.load_json(symbol.tojson().replace("factor", "faktor"))


def test_an_archive_opens_where_the_operator_is_registered(tmp_path):
    net = _Net()
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 4))
    net(x)
    net.save(tmp_path / "net.hlab")
    again = gluon.load(tmp_path / "net.hlab")
    mx.random.seed(1)
    expected = net(x).asnumpy()
    mx.random.seed(1)
    np.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-6)
    prop = mx.operator.base._registered.pop("noise_for_test")
    try:
        with pytest.raises(ArchiveError, match="no operator is registered as 'noise_for_test'"):
            gluon.load(tmp_path / "net.hlab")
    finally:
        mx.operator.register("noise_for_test")(prop)


def test_wrong_calls_say_so():
    x = mx.sym.var("x")
    with pytest.raises(HybridLabError, match="no operator is registered as 'nothing'"):
        mx.sym.Custom(x, op_type="nothing")
    with pytest.raises(HybridLabError, match=r"takes 3 arrays .data, shift, calls., not 4"):
        mx.sym.Custom(x, x, x, x, op_type="pair_for_test")
    with pytest.raises(HybridLabError, match="takes 3 arrays"):
        mx.sym.Custom(x, data=x, op_type="pair_for_test")
    with pytest.raises(ShapeError, match=r"shift has shape \(3,\); infer_shape says \(2,\)"):
        _pair().infer_shape(x=(2,), pair_shift=(3,))
    with pytest.raises(DTypeError, match="shift must be a Symbol, not a number"):
        mx.sym.Custom(x, 2.0, op_type="pair_for_test")


@mx.operator.register("broken_for_test")
class _BrokenProp(mx.operator.CustomOpProp):
    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[3]], [in_shape[0]], []


def test_an_error_of_a_shape_rule_names_the_operator():
    symbol = mx.sym.Custom(mx.sym.var("x"), op_type="broken_for_test")
    with pytest.raises(ShapeError, match=r"broken_for_test: infer_shape\(\[\[2\]\]\) failed: IndexError"):
        symbol.infer_shape(x=(2,))


class _Writes(_Pair):
    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        aux[0][:] = 7


@mx.operator.register("writes_for_test")
class _WritesProp(_PairProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Writes(self.factor)


def test_a_backward_that_writes_to_a_state_is_refused():
    executor = mx.sym.Custom(mx.sym.var("x"), op_type="writes_for_test").simple_bind(mx.cpu(), x=(2,))
    executor.forward(is_train=True)
    with pytest.raises(AutogradError, match="the backward of writes_for_test wrote to a state"):
        executor.backward([nd.ones((2,)), nd.ones((2,))])


class _Scaled(mx.operator.CustomOp):
    """data times a number."""

    def __init__(self, factor):
        self.factor = factor

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * self.factor)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * self.factor)


def _register_scaled(factor):
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            return _Scaled(factor)

    mx.operator.register("times_for_test")(Prop)


class _UsesScaled(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.Custom(x, op_type="times_for_test")


class _AroundScaled(gluon.HybridBlock):
    """The operator in a Block below, and in a loop."""

    def __init__(self):
        super().__init__()
        self.inner = _UsesScaled()

    def hybrid_forward(self, F, x):
        looped = F.contrib.while_loop(
            lambda i, s: i < 2, lambda i, s: (s, (i + 1, F.Custom(s, op_type="times_for_test"))), (F.zeros((1,)), x), 2
        )[1][1]
        return self.inner(x) + looped


@pytest.mark.parametrize(
    ("kind", "before", "after"), [(_UsesScaled, [2, 6], [5, 15]), (_AroundScaled, [6, 18], [30, 90])]
)
def test_an_operator_that_is_registered_again_is_what_hybridized_blocks_call(kind, before, after, caplog):
    _register_scaled(2)
    net, x = kind(), nd.array([1.0, 3.0])
    other = gluon.nn.Activation("relu")
    for each in (net, other):
        each.hybridize()
        each(x)
    assert net(x).asnumpy().tolist() == before
    _register_scaled(5)
    assert net(x).asnumpy().tolist() == after
    assert other._graphs.variants, "graphs without the operator stay"
    assert not caplog.records or caplog.records[-1].levelname == "INFO"


class _AnyOrder(mx.operator.CustomOp):
    """The sum of the inputs. MXNet calls both methods with keywords."""

    def forward(self, aux, out_data, in_data, is_train, req):
        self.assign(out_data[0], req[0], sum(in_data[1:], in_data[0]))

    def backward(self, in_grad, aux, out_data, in_data, out_grad, req):
        for gradient, how in zip(in_grad, req, strict=True):
            self.assign(gradient, how, out_grad[0] * 2)


def _register_sum(count):
    class Prop(mx.operator.CustomOpProp):
        def list_arguments(self):
            return ["a", "b", "c"][:count]

        def create_operator(self, ctx, in_shapes, in_dtypes):
            return _AnyOrder()

    mx.operator.register("sum_for_test")(Prop)


class _UsesSum(gluon.HybridBlock):
    def hybrid_forward(self, F, x, y):
        return F.Custom(x, y, op_type="sum_for_test")


@pytest.mark.parametrize("how", ["eager", "hybridized", "bound"])
def test_methods_may_have_their_arguments_in_any_order(how):
    _register_sum(2)
    x, y = nd.array([1.0, 2.0]), nd.array([3.0, 5.0])
    if how == "bound":
        grads = {"x": nd.zeros(2), "y": nd.zeros(2)}
        symbol = _UsesSum()(mx.sym.var("x"), mx.sym.var("y"))
        bound = symbol.bind(mx.cpu(), {"x": x, "y": y}, grads)
        (out,) = bound.forward(is_train=True)
        bound.backward(nd.ones(2))
    else:
        net = _UsesSum()
        net.hybridize(how == "hybridized")
        for each in (x, y):
            each.attach_grad()
        with autograd.record():
            out = net(x, y)
        out.backward()
        grads = {"x": x.grad, "y": y.grad}
    assert out.asnumpy().tolist() == [4, 7]
    assert [grad.asnumpy().tolist() for grad in grads.values()] == [[2, 2], [2, 2]]


@pytest.mark.parametrize("count", [1, 3])
def test_an_operator_that_is_registered_again_with_other_inputs_is_the_error_of_eager_mode(count):
    _register_sum(2)
    net, x = _UsesSum(), nd.ones(2)
    net.hybridize()
    net(x, x)
    _register_sum(count)
    text = rf"sum_for_test takes {count} arrays \(.*\), not 2"
    for each in (net, _UsesSum()):
        with pytest.raises(mx.MXNetError, match=text):
            each(x, x)


def test_an_input_that_is_left_out_is_the_error_of_eager_mode_in_a_hybridized_block():
    net, x = gluon.nn.HybridLambda(lambda F, x: F.FullyConnected(x, num_hidden=3)), nd.ones((2, 2))
    for _ in range(2):
        with pytest.raises(TypeError, match="FullyConnected: the input weight is missing"):
            net(x)
        net.hybridize()
    assert len(net(mx.sym.var("x")).list_arguments()) == 3, "on the user's Symbols it is a variable"


def test_symbols_and_graphs_from_files_keep_the_class_of_their_operator(tmp_path, caplog):
    """The first as in MXNet."""
    _register_scaled(2)
    executor = mx.sym.Custom(mx.sym.var("x"), op_type="times_for_test").bind(mx.cpu(), {"x": nd.ones((2,))})
    net = _UsesScaled()
    net.hybridize()
    net(nd.ones((2,)))
    net.save(tmp_path / "net.hlab")
    loaded = gluon.load(tmp_path / "net.hlab")
    _register_scaled(5)
    assert "its graph is from a file and keeps the earlier code of 'times_for_test'" in caplog.text
    assert executor.forward()[0].asnumpy().tolist() == loaded(nd.ones((2,))).asnumpy().tolist() == [2, 2]
    with pytest.raises(LoadMismatchError, match="do not reproduce the outputs of its own examples"):
        gluon.load(tmp_path / "net.hlab")


class _Square(mx.operator.CustomOp):
    """Keeps its input for the backward."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.kept = in_data[0] * 1
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], 2 * self.kept * out_grad[0])


@mx.operator.register("square_for_test")
class _SquareProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Square()


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_retained_history_has_a_second_backward_after_another_forward(hybrid):
    """As in MXNet."""

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.Custom(x, op_type="square_for_test")

    net = Net()
    if hybrid:
        net.hybridize()
    first, second = nd.array([1.0, 2.0]), nd.array([5.0, 6.0])
    gradients = []
    for x in (first, second):
        x.attach_grad()
    with mx.autograd.record():
        y = net(first)
    y.backward(retain_graph=True)
    gradients += first.grad.asnumpy().tolist()
    with mx.autograd.record():
        z = net(second)
    z.backward()
    gradients += second.grad.asnumpy().tolist()
    (again,) = mx.autograd.grad(y, [first], retain_graph=True)
    gradients += again.asnumpy().tolist()
    with mx.autograd.record():
        z = net(second)
    y.backward(10 * nd.ones((2,)))
    gradients += first.grad.asnumpy().tolist()
    assert gradients == [2, 4, 10, 12, 2, 4, 20, 40]


def _fails(*args):
    raise KeyError("mine")


WRONG = {
    "infer_shape: None": ("infer_shape", lambda self, s: None, ShapeError, "must return three lists"),
    "infer_shape: too few": ("infer_shape", lambda self, s: (s, [], []), ShapeError, r"lengths \[1, 1, 0\]"),
    "infer_shape: too many": ("infer_shape", lambda self, s: (s, s * 2, []), ShapeError, r"lengths \[1, 1, 0\]"),
    "infer_shape: one list": ("infer_shape", lambda self, s: (s,), ShapeError, "must return three lists"),
    "infer_shape: a shape": ("infer_shape", lambda self, s: (s[0], s[0], 0), ShapeError, "must return three lists"),
    "infer_shape: text": ("infer_shape", lambda self, s: (s, ["ab"], []), ShapeError, "whole numbers, not 'ab'"),
    "infer_shape: a number": ("infer_shape", lambda self, s: (s, [3], []), ShapeError, "list of whole numbers, not 3"),
    "infer_shape: of inputs": (
        "infer_shape", lambda self, s: ([(9,)], s, []), ShapeError, r"data has shape \(2,\); infer_shape says \(9,\)"
    ),
    "infer_shape: an error": ("infer_shape", _fails, ShapeError, r"infer_shape\(\[\[2\]\]\) failed: KeyError"),
    "infer_type: None": ("infer_type", lambda self, t: None, DTypeError, "must return three lists"),
    "infer_type: no dtype": ("infer_type", lambda self, t: (t, ["x"], []), DTypeError, "returned 'x', which is not a"),
    "infer_type: of inputs": (
        "infer_type", lambda self, t: ([np.float64], t, []), DTypeError, "data is float32; infer_type says float64"
    ),
    "infer_type: an error": ("infer_type", _fails, DTypeError, "failed: KeyError"),
    "create_operator": ("create_operator", lambda *args: None, HybridLabError, "must return a CustomOp, not None"),
    "list_outputs": ("list_outputs", lambda self: [], HybridLabError, "must name at least one output"),
    "list_arguments": ("list_arguments", lambda self: "data", HybridLabError, "a list of names, not 'data'"),
    "list_auxiliary_states": ("list_auxiliary_states", lambda self: None, HybridLabError, "list of names, not None"),
}  # fmt: skip


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(("rule", "answer", "kind", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_description_is_the_same_error_eagerly_and_in_a_graph(rule, answer, kind, text, hybrid):
    body = {"create_operator": lambda *args: _Square(), rule: answer}
    mx.operator.register("wrong_for_test")(type("Prop", (mx.operator.CustomOpProp,), body))

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.Custom(x, op_type="wrong_for_test")

    net = Net()
    if hybrid:
        net.hybridize()
    with pytest.raises(kind, match=f"wrong_for_test: .*{text}"):
        net(nd.ones((2,)))


def test_sparse_inputs_and_states_are_dense_arrays_for_the_code():
    x = nd.array([[0.0, 2.0], [3.0, 0.0]])
    found = nd.Custom(x.tostype("csr"), op_type="square_for_test")
    assert found.stype == "default" and found.asnumpy().tolist() == [[0, 4], [9, 0]]
    calls = nd.zeros((1, 2)).tostype("csr")
    with mx.autograd.record():
        nd.Custom(x, x.tostype("row_sparse"), calls, op_type="wide_state_for_test")
    assert calls.stype == "csr" and calls.asnumpy().tolist() == [[11, 11]]


@mx.operator.register("wide_state_for_test")
class _WideStateProp(_PairProp):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]] * 2, [[1, 2]]


def test_compare_finds_nothing_in_a_recorded_graph_with_a_custom_operator():
    _register_scaled(2)
    net, x = _UsesScaled(), nd.array([1.0, 3.0])
    x.attach_grad()
    net.hybridize()
    net(x)
    assert "NOT EQUAL" not in str(mx.compare(net, x))
