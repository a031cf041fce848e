"""compare: equal models are equal and stay as they are; a planted error is found, with its line and its Block."""

import json
import random
import weakref
from html.parser import HTMLParser

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn
from hybrid_lab.hybridize import graphs
from hybrid_lab.insight import checking
from hybrid_lab.insight.calls import compile_call, outer_calls, unchanged
from hybrid_lab.insight.reference import unlike
from hybrid_lab.lab.kernel.lifecycle import drop_stale
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.ops.framework.kernel import Pointwise
from hybrid_lab.ops.framework.operator import get
from tests.insight import resnet as resnet18
from tests.triton_device import use_triton


class Net(gluon.HybridBlock):
    """Every kind of step: products, a view, statistics, a mask, a reduction."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = nn.Conv2D(4, 3, padding=1)
            self.norm = nn.BatchNorm()
            self.drop = nn.Dropout(0.4)
            self.fc = nn.Dense(5)

    def hybrid_forward(self, F, x):
        y = F.relu(self.norm(self.conv(x)))
        return self.fc(self.drop(y)), F.softmax(y.reshape((0, -1)))


def make(kind=Net, engine="numpy", **options):
    net = kind(**options)
    net.initialize(mx.init.Xavier())
    net.hybridize(engine=engine)
    return net


def images(count=2, size=8):
    return mx.nd.array(np.random.RandomState(0).rand(count, 3, size, size).astype("float32"))


def engine_or_skip(name):
    missing = mx.engines.registry.find(name).missing()
    if missing:
        pytest.skip(missing)
    return name


@pytest.fixture(params=["numpy", "onnxruntime"])
def engine(request):
    return engine_or_skip(request.param)


@pytest.fixture
def sessions(monkeypatch):
    """Every region in a session, however small."""
    engine_or_skip("onnxruntime")
    from hybrid_lab.engines.onnxruntime import ENGINE

    monkeypatch.setattr(ENGINE, "worth", lambda region: None)
    return "onnxruntime"


def test_equal_models_are_equal(engine):
    found = mx.compare(make(engine=engine), images())
    assert found.equal and found.first is None, found
    prediction, training = found.calls
    assert (prediction.mode, training.mode) == ("prediction", "training, recorded")
    assert [row.value for row in training.values][:3] == ["output 0", "output 1", "gradient of data"]
    assert {row.part for row in training.nodes} == {"forward", "backward"}
    assert all(row.agrees and row.own <= row.tolerance for row in training.nodes)
    assert "hybrid equals eager" in str(found)


def test_operators_inside_sessions_are_seen(sessions):
    found = mx.compare(make(engine=sessions), images(), train=False)
    inside = [row for row in found.calls[0].nodes if row.inside]
    assert {"Convolution", "FullyConnected"} <= {row.operator.partition("(")[0] for row in inside}
    assert all(row.region is not None for row in inside)
    assert any(row.line.endswith("test_compare.py:36") or ":3" in row.line for row in inside)


def test_nothing_of_the_model_changes():
    net, x = make(), images()
    with autograd.record():
        sum(y.sum() for y in net(x)).backward()
    before = {key: (p.data().asnumpy(), p.grad_req) for key, p in net.collect_params().items()}
    grads = {key: p.grad().asnumpy() for key, p in net.collect_params().items() if p.grad_req != "null"}
    draws, programs = state.get_state(), len(net._graph_calls.programs)
    mx.compare(net, x)
    assert state.get_state() == draws and len(net._graph_calls.programs) == programs
    for key, parameter in net.collect_params().items():
        assert np.array_equal(parameter.data().asnumpy(), before[key][0]), key
        if key in grads:
            assert np.array_equal(parameter.grad().asnumpy(), grads[key]), key
    assert x.tape_link is None and net._active


def test_a_net_need_not_be_hybridized():
    net = Net()
    net.initialize()
    assert mx.compare(net, images()).equal
    assert not net._active and not net._graphs.variants


def test_blocks_below_a_plain_block_are_compared_each():
    class Top(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.body, self.heads = Net(), nn.HybridSequential()
            self.heads.add(nn.Dense(3))

        def forward(self, x):
            return self.heads(self.body(x)[0])

    found = mx.compare(make(Top), images())
    assert found.equal and [call.name.partition(" ")[2] for call in found.calls] == ["(body)"] * 2 + ["(heads)"] * 2


def test_the_headline_has_the_measure_that_decides(sessions):
    """The true gradient of a bias before BatchNorm is zero: eager and hybrid have nothing but rounding there."""

    def body():
        net = nn.HybridSequential()
        net.add(nn.Conv2D(8, 3), nn.BatchNorm(), nn.Dense(3))
        return net

    found = mx.compare(make(body, sessions), images(4), train=True)
    (call,) = found.calls
    bias = next(row for row in call.values if "conv" in row.value and row.value.endswith("_bias"))
    assert found.equal and bias.difference > bias.tolerance and 0 <= bias.rounding <= 16
    largest = max(row.difference for row in call.values if row is not bias)
    assert f"largest difference {largest:.1e}; 1 value depends on rounding, in eager too: at most " in call.headline
    assert f"{bias.difference:.1e}" not in call.headline and "16 is allowed" in call.headline
    assert any(line.endswith("rounding") for line in str(found).split("\n"))


# -- planted kernels ---------------------------------------------------------------------------------------------------


def spoil_onnx(monkeypatch, name, when):
    """Let ONNX models compute 1.01 times the operator's result where `when(operator)`."""
    record = get(name)
    right = record.onnx

    def onnx(self, g, *inputs):
        result = right(self, g, *inputs)
        if not when(self):
            return result
        first = result[0] if isinstance(result, tuple) else result
        wrong = g.Mul(first, g.const(1.01, "float32"))
        return (wrong, *result[1:]) if isinstance(result, tuple) else wrong

    monkeypatch.setattr(record, "onnx", onnx)


def resnet(engine):
    return make(lambda: resnet18.ResNet18((8, 16, 24, 32), prefix="resnet_"), engine)


def test_a_wrong_kernel_in_resnet_18_is_named_with_its_line(monkeypatch, sessions):
    net, x = resnet(sessions), images(2, 32)
    assert mx.compare(net, x, train=False).equal
    spoil_onnx(monkeypatch, "Convolution", lambda op: op.kernel == (1, 1))
    net.hybridize(engine=sessions)
    found = mx.compare(net, x, train=False)
    assert not found.equal and found.first.layer == "kernel"
    assert found.first.operator.startswith("Convolution(kernel=(1, 1)")
    assert found.first.block == "resnet.stages.2.project"
    line = 1 + next(i for i, text in enumerate(open(resnet18.__file__)) if "self.project(x)" in text)
    assert f"resnet.py, line {line}, in BasicBlock.hybrid_forward" in found.first.place
    assert "self.project(x)" in found.first.excerpt and "^" in found.first.excerpt
    text = str(found)
    assert "The first node that differs" in text and f"resnet.py:{line}" in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_wrong_gradient_kernel_in_resnet_18_is_named(monkeypatch, sessions):
    """On images large enough that batch normalization does not amplify rounding to the size of the error."""
    net, x, name = resnet(sessions), images(4, 64), "_conv_weight_grad"
    spoil_onnx(monkeypatch, name, lambda op: True)
    net.hybridize(engine=sessions)
    found = mx.compare(net, x, train=True)
    assert found.first.layer == "kernel" and found.first.operator.startswith(name)
    assert found.first.block.startswith("resnet.")
    rows = found.calls[0]
    assert all(row.agrees for row in rows.values if row.value.startswith("output"))
    assert any(not row.agrees for row in rows.values if row.value.startswith("gradient"))


def test_a_wrong_numpy_kernel_is_named(monkeypatch):
    """Wrong only where the program gives it memory to write into, as eager never does."""
    record = get("Pooling")
    right = record.numpy

    def numpy(self, data, out=None, **keywords):
        result = right(self, data, out=out, **keywords)
        if out is not None:
            first = out[0] if isinstance(out, tuple) else out
            if first is not None:
                first += 0.5
        return result

    monkeypatch.setattr(record, "numpy", numpy)
    monkeypatch.setattr(record, "run_keywords", frozenset({"out", *record.run_keywords} - {"need", "scratch"}))
    found = mx.compare(resnet("numpy"), images(2, 32), train=False)
    assert found.first.operator.startswith("Pooling") and found.first.block == "resnet.pool"


class Small(gluon.HybridBlock):
    """Operators that every engine puts into one region."""

    def hybrid_forward(self, F, x):
        y = F.exp(x * 0.5)
        y = F.tanh(y)
        return F.sqrt(y + 1)


def spoil_torch(monkeypatch):
    engine_or_skip("torch")
    from hybrid_lab.engines.torch_kernels import table

    monkeypatch.setitem(table._UNARY, "tanh", "sinh")


def spoil_triton(monkeypatch):
    pytest.importorskip("torch")
    use_triton(monkeypatch)
    engine_or_skip("triton")
    monkeypatch.setattr(get("tanh"), "triton", Pointwise("tl.exp({0})"))


@pytest.mark.parametrize("name, spoil", [("torch", spoil_torch), ("triton", spoil_triton)])
def test_regions_of_every_engine_are_looked_into(monkeypatch, name, spoil):
    spoil(monkeypatch)
    found = mx.compare(make(Small, name), mx.nd.array([[0.1, 0.2, 0.3]]), train=False)
    assert found.first.operator == "tanh" and "y = F.tanh(y)" in found.first.excerpt
    assert f"on {name} (region 0)" in found.first.text
    inside = [row for row in found.calls[0].nodes if row.inside]
    assert [row.operator for row in inside if not row.agrees] == ["tanh"] and len(inside) > 3


def test_an_operator_that_is_wrong_only_where_it_is_fused(monkeypatch, sessions):
    """Seen as an output it is right: found by compiling ever longer parts of its region."""
    from hybrid_lab.engines.onnxruntime import engine as room

    right = room.build_model

    def build_model(region, *rest):
        inner = [n for n in region.nodes if n.op.name == "tanh" and n.outputs[0] not in region.outputs]
        if not inner:
            return right(region, *rest)
        record = get("tanh")
        with monkeypatch.context() as patch:
            patch.setattr(record, "onnx", "Sigmoid")
            return right(region, *rest)

    monkeypatch.setattr(room, "build_model", build_model)

    found = mx.compare(make(Small, sessions), mx.nd.array([[0.1, 0.2, 0.3]]), train=False)
    assert found.first is not None and "compiled together" in found.first.text
    assert found.first.operator in ("sqrt", "broadcast_add")


def test_a_region_that_is_wrong_only_as_it_runs(monkeypatch, sessions):
    from hybrid_lab.engines.onnxruntime.session import BoundSession

    right = BoundSession.__call__
    count = []

    def call(self, inputs, outputs):
        right(self, inputs, outputs)
        if len(self.model.outputs) == 1 and len(count) < 40:
            count.append(1)
            outputs[0][...] += 1

    net = make(Small, sessions)
    monkeypatch.setattr(BoundSession, "__call__", call)
    found = mx.compare(net, mx.nd.array([[0.1, 0.2]]), train=False)
    assert not found.equal and found.first.operator


def replacing(monkeypatch, name, other, when=lambda node: True):
    """Let the NumPy engine compile an operator as another one."""
    from hybrid_lab.engines.numpy.engine import NumPyEngine

    right = NumPyEngine.prepare

    def prepare(self, graph, *options, **named):
        def rewrite(node, inputs):
            wrong = node.op.name == name and when(node)
            return node.replace(op=get(other).bind(), inputs=inputs).outputs if wrong else None

        return right(self, graph.map(rewrite), *options, **named)

    monkeypatch.setattr(NumPyEngine, "prepare", prepare)


def test_an_engine_that_takes_another_operator_is_found_in_resnet_18(monkeypatch):
    net, x = resnet("numpy"), images(2, 32)
    replacing(monkeypatch, "relu", "softsign", lambda node: node.scope == "resnet.stages.3")
    for train in (False, True):
        found = mx.compare(net, x, train=train)
        assert found.first.layer == "kernel" and found.first.operator == "relu"
        assert found.first.block == "resnet.stages.3" and "hybrid_forward" in found.first.place
        assert "the engine numpy compiles it into something" in found.first.text


# -- passes and code ---------------------------------------------------------------------------------------------------


def test_a_pass_that_changes_the_numbers_is_named(monkeypatch):
    from hybrid_lab.graph import specialize as room

    right = room.simplify

    def simplify(graph):
        wrong = lambda node, inputs: (  # noqa: E731
            node.replace(op=get("sigmoid").bind(), inputs=inputs).outputs if node.op.name == "tanh" else None
        )
        return right(graph).map(wrong)

    monkeypatch.setattr(room, "simplify", simplify)
    found = mx.compare(make(Small), mx.nd.array([[0.1, 0.2]]))
    assert found.first.layer == "pass" and "simplify" in found.first.text
    assert found.first.operator == "sigmoid" and "y = F.tanh(y)" in found.first.excerpt
    assert not found.equal


def test_a_random_number_of_python_is_found():
    class Noisy(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = F.tanh(x)
            y = y * random.random()
            return F.exp(y)

    found = mx.compare(make(Noisy), images(), train=False)
    assert found.first.layer == "code" and "y * random.random()" in found.first.excerpt
    assert "the graph holds the number" in found.first.text
    assert all(row.agrees for row in found.calls[0].nodes)  # the engine did what the graph says


def test_an_attribute_that_changed_after_the_trace_is_found():
    class Scaled(gluon.HybridBlock):
        scale = 2.0

        def hybrid_forward(self, F, x):
            return F.relu(x * self.scale)

    net, x = make(Scaled), images()
    net(x)
    assert mx.compare(net, x).equal
    Scaled.scale = 3.0  # noticed when the cell has ended
    found = mx.compare(net, x)
    assert found.first.layer == "code" and "x * self.scale" in found.first.excerpt
    assert found.first.text == "the graph holds the number 2 from its trace; the code now computes with 3"


def test_a_branch_that_went_the_other_way_is_found():
    class Switched(gluon.HybridBlock):
        squared = False

        def hybrid_forward(self, F, x):
            y = F.exp(x)
            if self.squared:
                y = F.square(y)
            return F.tanh(y)

    net, x = make(Switched), images()
    net(x)
    Switched.squared = True
    found = mx.compare(net, x)
    assert found.first.operator == "tanh" and "calls square" in found.first.text


def test_a_frozen_mode_is_no_difference_where_the_graph_is_guarded():
    class Moded(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2 if autograd.is_training() else F.exp(x)

    assert mx.compare(make(Moded), images()).equal


def test_what_is_around_the_graphs_is_compared_too(monkeypatch):
    from hybrid_lab.hybridize.calls import GraphCalls

    right = GraphCalls.__call__
    monkeypatch.setattr(GraphCalls, "__call__", lambda self, args: right(self, args) * 1.01)
    found = mx.compare(make(Small), mx.nd.array([[0.1, 0.2]]), train=False)
    assert found.first.layer == "call" and "output 0 differs by 1.0e-02" in found.first.text


def test_a_profiler_at_work_is_left_alone():
    import cProfile

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        assert mx.compare(make(), images()).equal
    finally:
        profiler.disable()
    assert profiler.getstats()


# -- the object --------------------------------------------------------------------------------------------------------


def test_data_is_plain():
    found = mx.compare(make(), images())
    data = json.loads(json.dumps(found.data(), allow_nan=False))
    assert data["equal"] is True and set(data) == {"equal", "name", "calls"}
    assert {"part", "operator", "block", "line", "difference", "own"} <= set(data["calls"][1]["nodes"][0])


class Tags(HTMLParser):
    def __init__(self, source):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.add(tag)
        assert not any(name.startswith("on") or name in ("href", "src", "class", "id") for name, _ in attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html_is_escaped_and_has_no_scripts():
    class Evil(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.exp(x)

    net = make(lambda: Evil(prefix="<script>x_"))
    page = Tags(mx.compare(net, images())._repr_html_())
    assert page.seen <= {"div", "b", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "pre", "span"}
    assert "<script>" in page.text


def test_what_cannot_be_compared_is_said():
    with pytest.raises(HybridLabError, match="a Block is needed"):
        mx.compare(3, images())
    with pytest.raises(HybridLabError, match="give inputs"):
        mx.compare(make())
    with pytest.raises(HybridLabError, match="has no HybridBlock"):
        mx.compare(nn.Sequential(), images())

    class Bad(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x.reshape((x.shape[0], -1))

    net = Bad()
    net.initialize()
    with pytest.raises(mx.HybridizeError, match="HL101"):
        mx.compare(net, images())


def test_the_search_for_the_first_wrong_part():
    assert checking._first_true(lambda count: count >= 3, 10) == 3
    assert checking._first_true(lambda count: False, 10) is None
    assert checking._first_true(lambda count: True, 1) == 1


def test_nan_is_told_in_words_and_layers_of_the_package_by_their_block(monkeypatch, sessions):
    """The line that calls the model says nothing of a layer in it."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=3), nn.Activation("tanh"))
    net.initialize(mx.init.One())
    net.hybridize(engine=sessions)
    monkeypatch.setattr(get("Activation"), "onnx", lambda self, g, x: g.cast(g.Equal(x, x), "float32"))
    x = mx.nd.array([[1.0, np.nan, 2.0], [10.0, 20.0, 30.0]])
    found = mx.compare(net, x, train=False)
    text = str(found)
    assert not found.equal and "inf" not in text
    assert "NaN in eager at 3 places, a number in hybrid" in found.first.text
    assert "output 0: NaN in eager at 3 places, a number in hybrid" in text
    assert f"made in block {net.name}.1 (Activation)" in text
    assert found.first.place.startswith("called at") and not found.first.excerpt


def test_infinite_differences_in_words():
    nan, inf = np.float32("nan"), np.float32("inf")
    number = np.array([1, 2], "float32")
    assert unlike(np.array([nan, 2], "float32"), number) == "NaN in hybrid at 1 place, a number in eager"
    assert unlike(number, np.array([nan, nan], "float32")) == "NaN in eager at 2 places, a number in hybrid"
    assert unlike(np.array([inf, 2], "float32"), number) == "infinite in one of them at 1 place"
    assert unlike(number.astype("float64"), number) == "float64[2] in hybrid, float32[2] in eager"
    assert unlike(number, number) == ""


def test_running_statistics_of_every_context_stay():
    net = nn.BatchNorm(in_channels=3)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    net.hybridize(engine="numpy")
    inputs = mx.nd.array(np.arange(12).reshape(4, 3), ctx=mx.cpu(1))
    before = [array.asnumpy() for array in net.running_mean.list_data()]
    with unchanged(net), autograd.train_mode():
        net(inputs)
        assert not np.array_equal(before[1], net.running_mean.data(mx.cpu(1)).asnumpy())
    assert all(map(np.array_equal, before, [array.asnumpy() for array in net.running_mean.list_data()]))


def test_what_compare_compiled_is_no_stale_graph_of_the_model(monkeypatch):
    monkeypatch.setattr(graphs, "alive", weakref.WeakSet())
    net = make(Small)
    compiled = compile_call(outer_calls(net, [images(1, 3)])[0], False, False)
    compiled.calls.code = ()
    assert not net._graphs.graphs() and drop_stale() == []


def test_a_sum_in_parts_has_what_one_kernel_leaves_for_the_next(monkeypatch):
    use_triton(monkeypatch)
    net = gluon.nn.HybridLambda(lambda F, x: F.sum(F.tanh(x)))
    net.hybridize(engine="triton")
    x = mx.nd.array(np.random.RandomState(0).randn(2000, 5))
    net(x)
    assert "tanh_sum_parts and k_sum" in str(mx.explain(net))
    assert mx.compare(net, x).equal
