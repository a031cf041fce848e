"""Another batch: the graphs that are bound from symbolic ones are those of the passes, node for node."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd
from hybrid_lab.engines import registry
from hybrid_lab.gluon import loss, nn, rnn
from hybrid_lab.gluon.model_zoo import vision
from hybrid_lab.graph import specialize as specializations
from hybrid_lab.graph.equal import equal
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, input_node
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.specialize import Specializations, specialize, specialize_call
from hybrid_lab.graph.symbolic import derived
from hybrid_lab.hybridize.deferred_shapes import set_shapes
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.ndarray import tape
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.operator import Operator
from tests import quick
from tests.engines.random_graphs import random_case
from tests.engines.test_samples import graph_of as sample_graph
from tests.graph.building import graph_of
from tests.ops.cases import each_sample

F32 = np.dtype("float32")
MODES = {"train": (True, True), "predict": (False, True), "infer": (False, False)}


def difference(one, two):
    """What two Specialized differ in, or ""."""
    for part in ("forward", "backward", "prologue"):
        a, b = getattr(one, part), getattr(two, part)
        if (a is None) != (b is None) or (a is not None and not equal(a, b)):
            return f"{part}:\n{a}\n{b}"
        if a is not None and [value.node.name for value in a.inputs] != [value.node.name for value in b.inputs]:
            return f"names of the inputs of {part}"
        if a is not None and [str(node.location) + node.scope for node in a.nodes] != [
            str(node.location) + node.scope for node in b.nodes
        ]:
            return f"origins in {part}"
    for part in ("sources", "wrt", "forward_sources", "prologue_sources"):
        if getattr(one, part) != getattr(two, part):
            return part
    types = [[(value.shape, value.dtype) for value in each.inputs] for each in (one, two)]
    return "" if types[0] == types[1] else "inputs"


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return error


class Call:
    """A kind of call, to be specialized for several shapes both ways."""

    def __init__(self, graph, shapes, dtypes, train, wrt, num_data):
        self.graph, self.shapes, self.num_data = graph, shapes, num_data
        self.rest = (dtypes, train, wrt, num_data)
        self.specializations: Specializations = {}
        self.seen: Counter[str] = Counter()

    def check(self, shapes):
        """Both ways agree, in errors too. Returns the second."""
        one = outcome(specialize, self.graph, shapes, *self.rest)
        two = outcome(specialize_call, self.specializations, self.graph, shapes, *self.rest)
        if isinstance(one, Exception):
            assert (type(one), str(one)) == (type(two), str(two)), shapes
            self.seen["errors"] += 1
            return None
        if isinstance(two, Exception):
            raise two
        assert difference(one, two) == "", shapes
        self.seen["numbers" if two.forward.symbolic is None else "symbolic"] += 1
        return two


def call_of(net, shapes, mode):
    """What a hybridized net asks for when it is called on data of these shapes."""
    train, recorded = MODES[mode]
    leaves = [mx.nd.zeros(shape) for shape in shapes]
    leaves, spec = flatten(tuple(leaves), "the input")
    with tape.Mode(recorded, train):
        neutral = net._graph_calls.twin(traces=True).neutral(spec, leaves)
    set_shapes(net, neutral, leaves)
    parameters = neutral.parameters
    wrt = [len(leaves) + i for i, item in enumerate(parameters) if item.grad_req != "null"] if recorded else []
    dtypes = [F32] * (len(leaves) + len(parameters))
    return Call(neutral.graph, [*shapes, *(item.shape for item in parameters)], dtypes, train, wrt, len(leaves))


def lenet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(), nn.Conv2D(50, 5, activation="relu"), nn.MaxPool2D())
    net.add(nn.Flatten(), nn.Dense(500, activation="relu"), nn.Dropout(0.5), nn.Dense(10))
    return net, lambda n: [(n, 1, 28, 28)]


def resnet():
    return vision.resnet18_v1(classes=10), lambda n: [(n, 3, 32, 32)]


def mobilenet():
    return vision.mobilenet_v2_0_25(classes=10), lambda n: [(n, 3, 32, 32)]


class WordModel(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(50, 16)
            self.lstm = rnn.LSTM(16, 2, layout="NTC")
            self.decoder = nn.Dense(50, flatten=False)

    def hybrid_forward(self, F, x):
        return self.decoder(self.lstm(self.embedding(x)))


def lstm():
    return WordModel(), lambda n: [(n, 7)]


class EncoderBlock(mx.gluon.HybridBlock):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        with self.name_scope():
            self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
            self.qkv = nn.Dense(3 * width, flatten=False)
            self.out = nn.Dense(width, flatten=False)
            self.dropout = nn.Dropout(0.1)
            self.feed = nn.HybridSequential()
            self.feed.add(nn.Dense(4 * width, flatten=False), nn.GELU(), nn.Dense(width, flatten=False))

    def hybrid_forward(self, F, x):
        q, k, v = F.split(self.qkv(self.norm1(x)), num_outputs=3, axis=2)
        split = lambda y: F.reshape(F.transpose(F.reshape(y, (0, 0, self.heads, -1)), (0, 2, 1, 3)), (-3, -2))  # noqa: E731
        weights = F.softmax(F.batch_dot(split(q), split(k), transpose_b=True) * 0.5)
        mixed = F.reshape(F.batch_dot(self.dropout(weights), split(v)), (-4, -1, self.heads, 0, 0))
        x = x + self.out(F.reshape(F.transpose(mixed, (0, 2, 1, 3)), (0, 0, -3)))
        return x + self.feed(self.norm2(x))


def encoder():
    net = nn.HybridSequential()
    net.add(EncoderBlock(), EncoderBlock())
    return net, lambda n: [(n, 6, 16)]


NETS = {"LeNet": lenet, "ResNet-18": resnet, "MobileNet v2": mobilenet, "LSTM": lstm, "encoder": encoder}


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETS)
def test_another_batch_of_a_network_runs_no_passes(name, mode, monkeypatch):
    net, shapes = NETS[name]()
    net.initialize()
    call = call_of(net, shapes(8), mode)
    sizes = call.shapes[call.num_data :]
    runs = []
    monkeypatch.setattr(specializations, "specialize", lambda *a, **k: runs.append(a) or specialize(*a, **k))
    graphs = {call.check([*shapes(8), *sizes]).forward.symbolic}
    assert len(runs) <= 2, "once, and once more where a rule needs the time as a number"
    runs.clear()
    for batch in (5, 13):
        graphs.add(call.check([*shapes(batch), *sizes]).forward.symbolic)
    assert not runs
    assert len(graphs) <= 2  # the minimum cut may differ between batches
    for batch in (1, 2, 10, 16, 50):  # what broadcasts, and what is equal to other sizes
        call.check([*shapes(batch), *sizes])
    assert call.seen["numbers"] == 0


@pytest.mark.parametrize("first", range(0, 60 if quick.ALL else 24, 6))
def test_random_graphs_at_other_sizes(first, record_property):
    seen: Counter[str] = Counter()
    for seed in range(first, first + 6):
        case = random_case(seed)
        order = sorted(range(len(case.arrays)), key=lambda i: case.graph.inputs[i].node.op.role != "data")
        graph = case.graph
        graph = Graph([graph.inputs[i] for i in order], graph.outputs, graph.effects, graph.draws, graph.name)
        arrays = [case.arrays[i] for i in order]
        roles = [value.node.op.role for value in graph.inputs]
        data, shapes = roles.count("data"), [array.shape for array in arrays]
        mode = list(MODES)[seed % 3]
        train, recorded = MODES[mode]
        wrt = [i for i, array in enumerate(arrays) if array.dtype.kind == "f" and roles[i] != "aux"] if recorded else []
        call = Call(graph, shapes, [array.dtype for array in arrays], train, wrt, data)
        for other in others(shapes, data, np.random.RandomState(seed)):
            call.check(other)
        seen += call.seen
    record_property("specializations", str(dict(seen)))
    assert seen["symbolic"] > 3 * seen["numbers"]


def others(shapes, data, random):
    """The shapes, then some with other leading sizes of the data: one size wherever it stands, or in one place only."""
    yield shapes
    for size in sorted({size for shape in shapes[:data] for size in shape[:2]}):
        for other in (1, 2, 8):
            yield [
                tuple(other if index < data and axis < 2 and each == size else each for axis, each in enumerate(shape))
                for index, shape in enumerate(shapes)
            ]
    for index in range(data):
        for axis in range(min(2, len(shapes[index]))):
            changed = list(shapes[index])
            changed[axis] = int(random.randint(1, 9))
            yield [tuple(changed) if place == index else shape for place, shape in enumerate(shapes)]


# Decisions that hang on sizes, one by one: the graphs are those of the passes, which run again where they must.


def checked(function, shapes, batches, num_data=1, train=True, recorded=True):
    """How many sets of guards there are after calls with these batches in the place of None."""
    first = [tuple(batches[0] if size is None else size for size in shape) for shape in shapes]
    roles = " ".join(["data"] * num_data + ["param"] * (len(shapes) - num_data))
    graph = graph_of(function, *([None] * len(shapes)), roles=roles)
    call = Call(graph, first, [F32] * len(shapes), train, list(range(len(shapes))) if recorded else [], num_data)
    for batch in batches:
        call.check([tuple(batch if size is None else size for size in shape) for shape in shapes])
    assert not call.seen["numbers"]
    return sum([len(known) for known, _ in call.specializations.values()])


def test_a_batch_of_one_is_a_broadcast():
    assert checked(lambda F, x, y: F.broadcast_add(x, y), [(None, 3), (4, 3)], [1, 4, 1], train=False) == 2


def test_a_batch_that_is_a_batch_does_not_care():
    assert checked(lambda F, x, w: F.relu(F.dot(x, w)), [(None, 3), (3, 4)], [8, 1, 2, 4, 100]) == 1
    # (n, 4) and (3, 4) are shapes of which one stand-in may do for both
    assert checked(lambda F, x, w: F.relu(F.dot(x, w)), [(None, 3), (3, 4)], [8, 3, 5, 3]) == 2


def test_a_batch_equal_to_another_axis_is_only_this_one():
    assert checked(lambda F, x, w: F.broadcast_mul(x, w), [(None, 3), (8, 3)], [8, 8]) == 1
    assert checked(lambda F, x: F.batch_dot(x, F.transpose(x, axes=(0, 2, 1))), [(None, 8, 8)], [8, 4]) == 1


def test_a_mean_over_the_batch_is_divided_by_the_batch():
    assert checked(lambda F, x: F.mean(x), [(None, 3)], [8, 5, 7, 64]) <= 2
    assert checked(lambda F, x: F.mean(x * x, axis=0), [(None, 3)], [6, 5, 7, 12]) == 1


def test_constants_made_of_shapes_are_made_again():
    function = lambda F, x: x * F.broadcast_like(F._size_ratio(x, F.sum(x)), x) + F.ones_like(x)  # noqa: E731
    assert checked(function, [(None, 3)], [6, 5, 7, 12], recorded=False) == 1


def test_the_minimum_cut_is_that_of_the_new_bytes():
    """What is cheaper to keep for large batches is cheaper to compute again for small ones."""
    function = lambda F, x, w: F.sum(F.exp(F.broadcast_add(F.FullyConnected(x, w, no_bias=True, num_hidden=4), w)))  # noqa: E731
    assert checked(function, [(None, 4), (4, 4)], [4, 4]) == 1


def test_numbers_in_a_reshape_tie_the_graph_to_them():
    function = lambda F, x: F.Reshape(F.Reshape(x, shape=(-3, 0)), shape=(-1, 2, 3))  # noqa: E731
    assert checked(function, [(None, 5, 6)], [4, 8, 3]) <= 2


def test_a_wrong_call_is_the_error_of_the_passes():
    graph = graph_of(lambda F, x, w: F.dot(x, w), None, None, roles="data param")
    call = Call(graph, [(4, 3), (3, 2)], [F32, F32], True, [1], 1)
    call.check([(4, 3), (3, 2)])
    call.check([(4, 5), (3, 2)])
    call.check([(6, 3), (3, 2)])
    assert call.seen == {"symbolic": 2, "errors": 1}


def test_where_a_rule_needs_numbers_the_passes_run_for_each_size(monkeypatch):
    from hybrid_lab.ops import get

    monkeypatch.setattr(get("relu"), "infer_shape", lambda self, data: {data: data}[data])
    graph = graph_of(lambda F, x: F.relu(x), None)
    call = Call(graph, [(4, 3)], [F32], False, [], 1)
    for batch in (4, 5, 4):
        assert call.check([(batch, 3)]).forward.symbolic is None
    assert call.seen == {"numbers": 3}


def test_bound_graphs_share_their_symbolic_graph_and_own_passes_run_once():
    net, shapes = lenet()
    net.initialize()
    call = call_of(net, shapes(8), "train")
    runs = []

    def passes(graph):
        runs.append(graph)
        return simplify(graph.map(lambda node, inputs: None))

    graphs = [call.check([*shapes(batch), *call.shapes[1:]]).forward for batch in (8, 5, 9)]
    assert len({graph.symbolic for graph in graphs}) == 1
    for graph in graphs:
        assert equal(derived(graph, "mine", passes), simplify(graph))
        assert [node.op for node in graph.nodes if node.inputs] == [
            node.op for node in graph.symbolic.nodes if node.inputs
        ]
    assert len(runs) == 1
    plain = Graph(graphs[0].inputs, graphs[0].outputs)
    assert derived(plain, "mine", lambda graph: graph) is plain


def test_own_passes_run_again_where_their_guards_fail():
    graph = graph_of(lambda F, x: F.relu(x), None)
    call = Call(graph, [(8, 3)], [F32], False, [], 1)
    marks = []

    def passes(graph):
        marks.append(graph.inputs[0].shape[0] > 6)
        return graph

    for batch in (8, 9, 5, 100):
        derived(call.check([(batch, 3)]).forward, "large", passes)
    assert marks == [True, False]


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_numbers_of_the_last_smaller_batch(engine):
    if registry.find(engine).missing():
        pytest.skip("not installed")
    net, shapes = encoder()
    net.initialize()
    objective = loss.L2Loss()
    random = np.random.RandomState(1)
    data = [mx.nd.array(random.rand(*shapes(batch)[0]).astype("float32")) for batch in (8, 3, 1, 8, 6)]
    found: list[list[np.ndarray]] = []
    for hybrid in (False, True):
        net.hybridize(hybrid, engine=engine)
        for number, x in enumerate(data):
            mx.random.seed(number)
            with autograd.record():
                value = objective(net(x), x)
            value.backward()
            found.append([value.asnumpy(), *(p.grad().asnumpy() for p in net.collect_params().values())])
    for eager, compiled in zip(found[: len(data)], found[len(data) :], strict=True):
        for one, two in zip(eager, compiled, strict=True):
            np.testing.assert_allclose(two, one, rtol=0, atol=1e-4 * max(1.0, float(np.abs(one).max())))
    programs = net._graph_calls.programs.values()
    assert len(programs) == 4 and len({program.special.forward.symbolic for program in programs}) <= 2


@pytest.mark.parametrize("name", ["LeNet", "encoder"])
def test_what_the_triton_engine_lowers_is_what_it_would_lower_anew(name):
    pytest.importorskip("triton")
    from hybrid_lab.engines.triton.support import lowered

    net, shapes = NETS[name]()
    net.initialize()
    call = call_of(net, shapes(8), "train")
    for batch in (8, 5, 1):
        found = call.check([*shapes(batch), *call.shapes[call.num_data :]])
        for graph in (found.forward, found.backward):
            assert equal(derived(graph, "lowered", lowered), lowered(graph)), batch
            assert graph.symbolic.cache["derived", "lowered"] is not None


@each_sample()
def test_every_rule_takes_symbols_or_asks_for_numbers(case):
    """Any other exception would reach the user: the first call of each sample, and calls with other leading sizes."""
    graph, arrays = sample_graph(case)
    differentiable = case.record.differentiable and case.sample.gradient
    wrt = [index for index, array in enumerate(arrays) if differentiable and is_floating(array.dtype)]
    shapes = [array.shape for array in arrays]
    call = Call(graph, shapes, [array.dtype for array in arrays], True, wrt, len(arrays))
    for batch in (None, 1, 7):
        call.check([(shape[0] if batch is None else batch, *shape[1:]) if shape else shape for shape in shapes])


def test_operators_of_others_get_numbers():
    class Theirs(Operator):
        name = "theirs"

        def infer_shape(self, data):
            assert all(isinstance(size, int) for size in data)
            return data

    op = object.__new__(Theirs)
    for name in ("attributes", "inferred"):
        object.__setattr__(op, name, {})
    x = input_node("x")
    call = Call(Graph([x], Node(op, [x]).outputs), [(4, 3)], [F32], False, [], 1)
    found = [call.check([(batch, 3)]) for batch in (4, 5)]
    assert call.seen == {"numbers": 2}
    assert found[1].needs_numbers == (
        "theirs: its rule needs the size as a number (axis 0 of input 0); each value of it compiles anew",
        "theirs: its rule needs the size as a number (axis 1 of input 0); each value of it compiles anew",
    )
