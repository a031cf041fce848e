"""Sessions of the ONNX Runtime engine: shared by shapes, packed with weights, written without the onnx package."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.onnx_emit import OnnxNode
from tests.engines.test_onnxruntime import LENET, close, lenet
from tests.graph.building import evaluate, graph_of, uniform

pytest.importorskip("onnxruntime")
from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine, messages, session  # noqa: E402

ALWAYS = OnnxRuntimeEngine(worth=lambda region: None)


@pytest.fixture
def created(monkeypatch):
    """The models of which sessions were made."""
    made = []
    create = session.create_session
    monkeypatch.setattr(session, "create_session", lambda *given: made.append(given) or create(*given))
    session._shared.clear()
    return made


def network(batch):
    """LeNet with a loss, forward and backward, for a batch; and arrays to run it on."""
    shapes = [(batch, *LENET[0][1:]), *LENET[1:]]

    def loss(F, *inputs):
        return F.mean(lenet(F, *inputs), axis=0, exclude=True)

    parts = specialize(graph_of(loss, *shapes), shapes, ["float32"] * 7, True, range(1, 7))
    return parts, uniform(*shapes)


def run(parts, arrays):
    forward, backward = ALWAYS.compile(parts.forward), ALWAYS.compile(parts.backward)
    results = forward(arrays)
    given = {"input": arrays, "output": results, "saved": results[1:], "head": uniform((len(arrays[0]),), seed=3)}
    operands = [given[kind][index] for kind, index in parts.sources]
    for got, wanted in zip(results, evaluate(parts.forward, arrays), strict=True):
        assert close(got, wanted)
    for got, wanted in zip(backward(operands), evaluate(parts.backward, operands), strict=True):
        assert close(got, wanted, 1e-4)
    return forward, backward


def test_another_batch_makes_no_new_session(created):
    kept = [run(*network(8))]
    assert len(created) == 2
    kept.append(run(*network(3)))
    # The backward writes one shape down: its second session takes it as an input, and serves all others.
    assert len(created) <= 3
    before = len(created)
    kept += [run(*network(1)), run(*network(5)), run(*network(8))]
    assert len(created) == before


def test_other_attributes_make_a_session_of_their_own(created):
    kept = [ALWAYS.compile(graph_of(lambda F, x, a=axis: F.softmax(x, axis=a), (4, 5))) for axis in (0, 1)]
    assert len(created) == 2 and len(kept) == 2


def test_numbers_that_differ_become_inputs(created):
    kept = []
    for number, factor in enumerate((2.0, 3.0, 4.0, 5.0)):
        kept.append(ALWAYS.compile(graph_of(lambda F, x, factor=factor: F.exp(x) * factor, (3, 4))))
        (x,) = uniform((3, 4))
        assert close(kept[-1]([x])[0], np.exp(x) * factor)
        assert len(created) == min(number + 1, 2)


def test_sessions_go_when_nobody_runs_them(created):
    executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x), (4,)))
    assert len(session._shared) == 1
    del executable
    gc.collect()
    assert not any(made() for sessions in session._shared.values() for made in sessions)


# -- packed weights ------------------------------------------------------------------------------------------------


def dense(rows):
    shapes = [(rows, 30), (20, 30), (20,)]
    graph = graph_of(
        lambda F, x, w, b: F.relu(F.FullyConnected(x, w, b, num_hidden=20)), *shapes, roles="data param param"
    )
    return ALWAYS.compile(graph), uniform(*shapes), graph


def test_packed_weights_count_until_unpack():
    executable, arrays, graph = dense(4)
    executable.pack(arrays)
    assert close(executable(arrays)[0], evaluate(graph, arrays)[0])
    x, w, b = arrays
    other = [x, w * 2, b]
    assert close(executable(other)[0], evaluate(graph, arrays)[0])  # the promise: w stays as it was
    executable.unpack()
    assert close(executable(other)[0], evaluate(graph, other)[0])
    executable.pack(other)
    assert close(executable(other)[0], evaluate(graph, other)[0])


def test_packed_weights_live_as_long_as_the_session():
    executable, arrays, graph = dense(4)
    wanted = evaluate(graph, arrays)[0]
    executable.pack([arrays[0], arrays[1].copy(), arrays[2].copy()])
    gc.collect()
    junk = [np.full((20, 30), 7, np.float32) for _ in range(50)]
    assert close(executable(arrays)[0], wanted) and junk


def test_one_packed_session_for_all_batches_with_the_same_token(created):
    (one, arrays, graph), (two, more, _) = dense(4), dense(9)
    weights = arrays[1:]
    one.pack(arrays, token=("v", 1))
    two.pack([more[0], *weights], token=("v", 1))
    assert len(created) == 2
    assert close(two([more[0], *weights])[0][:4], evaluate(graph, [more[0][:4], *weights])[0])
    two.pack([more[0], *weights], token=("v", 2))
    assert len(created) == 3
    one.pack(arrays), two.pack([more[0], *weights])
    assert len(created) == 5


def test_a_weight_that_no_node_reads_is_not_packed():
    """Seed 193 of the random graphs, shrunk: fix_gamma leaves the scale unread."""

    def net(F, x, *states):
        return F.BatchNorm(x, *states, eps=0.1)

    graph = graph_of(net, (6, 2), (2,), (2,), (2,), (2,), roles="data param param aux aux")
    executable, arrays = ALWAYS.compile(graph), uniform((6, 2), (2,), (2,), (2,), (2,))
    arrays[4] = np.abs(arrays[4])
    wanted = executable(arrays)[0]
    executable.pack(arrays)
    assert close(executable(arrays)[0], wanted)


@pytest.mark.parametrize("role", ["data", "saved", "head_grad"])
def test_what_changes_from_call_to_call_is_never_packed(role):
    executable = ALWAYS.compile(graph_of(lambda F, w: F.exp(w), (30, 4), roles=role))
    executable.pack([np.zeros((30, 4), np.float32)])
    assert close(executable([np.ones((30, 4), np.float32)])[0], np.full((30, 4), np.e, np.float32))


# -- files ---------------------------------------------------------------------------------------------------------


def test_messages_are_what_the_onnx_package_reads():
    onnx = pytest.importorskip("onnx")
    attributes = {"i": -3, "f": 0.5, "s": "text", "ints": [1, -2], "floats": [0.5, 2.0], "t": np.eye(2), "none": None}
    node = messages.node(OnnxNode("Op", ("a", ""), ("b",), attributes, "name"))
    weight = messages.tensor("w", np.arange(6, dtype=np.int64).reshape(2, 3))
    outside = messages.external_tensor("v", (300, 2), np.float32)
    data = messages.model(
        [node], [weight, outside], [messages.value_info("a", 2, np.float32)], [messages.value_info("b", 0, bool)], "g"
    )
    model = onnx.load_from_string(data)
    graph = model.graph
    assert [opset.version for opset in model.opset_import] == [17]
    (read,) = graph.node
    assert (read.op_type, list(read.input), list(read.output)) == ("Op", ["a", ""], ["b"])
    got = {item.name: onnx.helper.get_attribute_value(item) for item in read.attribute}
    assert got["i"] == -3 and got["f"] == 0.5 and got["s"] == b"text"
    assert list(got["ints"]) == [1, -2] and list(got["floats"]) == [0.5, 2.0]
    assert np.array_equal(onnx.numpy_helper.to_array(got["t"]), np.eye(2))
    assert np.array_equal(onnx.numpy_helper.to_array(graph.initializer[0]), np.arange(6).reshape(2, 3))
    assert list(graph.initializer[1].dims) == [300, 2] and graph.initializer[1].data_location == 1
    assert [len(info.type.tensor_type.shape.dim) for info in (*graph.input, *graph.output)] == [2, 0]
    assert not any(dim.HasField("dim_value") for dim in graph.input[0].type.tensor_type.shape.dim)


def test_compiling_does_not_import_onnx():
    code = (
        "import sys; from tests.graph.building import graph_of\n"
        "from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine\n"
        "import numpy as np\n"
        "run = OnnxRuntimeEngine(worth=lambda region: None).compile(graph_of(lambda F, x: F.exp(x), (3,)))\n"
        "run([np.zeros(3, np.float32)]); assert 'onnx' not in sys.modules and 'onnxruntime' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
