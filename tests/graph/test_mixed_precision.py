"""The pass of mixed precision, and the table that it asks."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.diagnostics import DTypeError, SettingError
from hybrid_lab.graph.loops.control_flow import Foreach
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.passes.mixed_precision import mixed_precision
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.precision import HALF, SINGLE, Precision
from hybrid_lab.symbol import contrib, var
from tests.graph.building import graph_of, names, program

DOUBLE, WHOLE = np.dtype("float64"), np.dtype("int32")


def mixed(graph, precision=None, **options):
    dtypes = {value: value.dtype for value in graph.inputs}
    return mixed_precision(graph, dtypes, precision or Precision(), **options)


def dense(F, x, w, b):
    return F.softmax(F.broadcast_add(F.relu(F.FullyConnected(x, w, b, num_hidden=3)), b))


def test_before_and_after():
    graph = graph_of(dense, (4, 5), (3, 5), (3,), roles="data param param")
    assert str(graph) == program("""
        graph net(%x0: f32[4,5], %x1: f32[3,5], %x2: f32[3]):
          %0: f32[4,3] = FullyConnected(%x0, %x1, %x2, num_hidden=3)
          %1: f32[4,3] = relu(%0)
          %2: f32[4,3] = broadcast_add(%1, %x2)
          %3: f32[4,3] = softmax(%2)
          return %3
    """)
    # The product in float16, relu in what comes, the sum of both kinds and softmax in float32.
    assert str(mixed(graph)) == program("""
        graph net(%x0: f32[4,5], %x1: f32[3,5], %x2: f32[3]):
          %0: f16[4,5] = Cast(%x0, dtype='float16')
          %1: f16[3,5] = Cast(%x1, dtype='float16')
          %2: f16[3] = Cast(%x2, dtype='float16')
          %3: f16[4,3] = FullyConnected(%0, %1, %2, num_hidden=3)
          %4: f16[4,3] = relu(%3)
          %5: f32[4,3] = Cast(%4, dtype='float32')
          %6: f32[4,3] = broadcast_add(%5, %x2)
          %7: f32[4,3] = softmax(%6)
          return %7
    """)


def test_a_neutral_graph_needs_no_shapes():
    graph = graph_of(dense, None, None, None)
    found = mixed_precision(graph, dict.fromkeys(graph.inputs, SINGLE), Precision())
    assert names(found) == names(mixed(graph_of(dense, (4, 5), (3, 5), (3,))))
    assert all(node.dtypes is None for node in found.operators)


def test_a_parameter_is_converted_once_in_a_call_and_its_gradient_adds_up_in_float32():
    graph = graph_of(lambda F, x, w: F.dot(F.dot(x, w), w), (4, 4), (4, 4), roles="data param")
    parts = specialize(graph, [(4, 4)] * 2, [SINGLE] * 2, True, [0, 1], precision=Precision())
    casts = [node for node in parts.forward.operators if node.op.name == "Cast"]
    assert [node.inputs[0].node.name for node in casts] == ["x0", "x1"]
    assert [value.dtype for value in parts.backward.outputs] == [SINGLE, SINGLE]
    (last,) = [node for node in parts.backward.operators if node.op.name in ("broadcast_add", "add_n")]
    assert last.outputs[0].dtype == SINGLE


def test_a_gradient_goes_back_through_the_conversions():
    graph = graph_of(lambda F, x, w: F.dot(x, w), (2, 3), (3, 2), roles="data param")
    parts = specialize(graph, [(2, 3), (3, 2)], [SINGLE] * 2, True, [1], precision=Precision())
    assert str(parts.backward) == program("""
        graph net backward(%saved0: f16[2,3], %head_grad0: f16[2,2]):
          %0: f16[3,2] = _dot_rhs_grad(%head_grad0, %saved0, shape(3, 2))
          %1: f32[3,2] = _cast_like(%0, shape(3, 2))
          return %1
    """)


def test_prediction_converts_parameters_once_for_all_calls():
    graph = graph_of(lambda F, x, w: F.dot(x, w), (2, 3), (3, 2), roles="data param")
    parts = specialize(graph, [(2, 3), (3, 2)], [SINGLE] * 2, False, precision=Precision())
    assert names(parts.prologue) == ["Cast"] and names(parts.forward) == ["Cast", "dot"]


def test_the_stage_is_printed():
    graph = graph_of(lambda F, x, w: F.dot(x, w), (2, 3), (3, 2))
    parts = specialize(graph, [(2, 3), (3, 2)], [SINGLE] * 2, False, precision=Precision(), keep=True)
    first = parts.stages[0]
    assert first.name == "mixed_precision" and "+  %0: f16[2,3] = Cast(%x0, dtype='float16')" in first.diff()
    plain = specialize(graph, [(2, 3), (3, 2)], [SINGLE] * 2, False, keep=True)
    assert plain.stages[0].name == "infer"


def test_nodes_that_are_left_out_take_their_inputs_as_they_come():
    x, w = var("x"), var("w")
    graph = (x.dot(w, name="first") + x.dot(w, name="second")).graph()
    found = mixed_precision(graph, dict.fromkeys(graph.inputs, SINGLE), Precision(), excluded=["second"])
    kinds = {node.name: node.inputs[0].node.op.name for node in found.operators if node.op.name == "dot"}
    assert kinds == {"first": "Cast", "second": "null"}


def test_the_states_of_a_loop_keep_their_dtype():
    x, w = var("x"), var("w")
    outputs, state = contrib.foreach(lambda entry, state: (state * 2, entry.dot(w) + 0), x, var("h"))
    graph = outputs.graph()
    found = mixed_precision(graph, dict.fromkeys(graph.inputs, SINGLE), Precision())
    (node,) = [node for node in found.operators if isinstance(node.op, Foreach)]
    (body,) = [graph for _, graph in node.op.subgraphs]
    assert names(body).count("Cast") == 3 and body.outputs[1].node.op == get("Cast").bind(dtype="float32")
    shapes = {value: {"x": (5, 2, 3), "w": (3, 3), "h": (2, 3)}[value.node.name] for value in found.inputs}
    assert infer(found, shapes, dict.fromkeys(found.inputs, SINGLE)).outputs[0].dtype == SINGLE


def test_an_operator_that_takes_no_such_dtypes_is_named():
    graph = graph_of(lambda F, x, y: F.dot(x, y), None, None)
    with pytest.raises(DTypeError, match="dot: inputs have different dtypes"):
        mixed_precision(graph, dict(zip(graph.inputs, [SINGLE, DOUBLE])), Precision())


def test_a_conversion_that_is_none_goes():
    graph = graph_of(lambda F, x: F.amp_cast(F.amp_cast(x, dtype="float32"), dtype="float16"), (3,))
    assert names(simplify(graph)) == ["Cast"]


# -- the table -------------------------------------------------------------------------------------------------------


WANTED = [
    ("FullyConnected", {"num_hidden": 2}, [SINGLE] * 3, [HALF] * 3),
    ("FullyConnected", {"num_hidden": 2}, [HALF, SINGLE, SINGLE], [HALF] * 3),
    ("FullyConnected", {"num_hidden": 2}, [DOUBLE] * 3, [DOUBLE] * 3),
    ("softmax", {}, [HALF], [SINGLE]),
    ("relu", {}, [HALF], [HALF]),
    ("broadcast_add", {}, [HALF, SINGLE], [SINGLE] * 2),
    ("broadcast_add", {}, [HALF, HALF], [HALF] * 2),
    ("broadcast_add", {}, [HALF, None], [HALF, None]),
    ("broadcast_power", {}, [HALF, None], [SINGLE, None]),
    ("broadcast_div", {}, [HALF, None], [HALF, None]),
    ("broadcast_div", {}, [None, HALF], [None, SINGLE]),
    ("Activation", {"act_type": "relu"}, [HALF], [HALF]),
    ("Activation", {"act_type": "softrelu"}, [HALF], [SINGLE]),
    ("LeakyReLU", {"act_type": "prelu"}, [HALF, SINGLE], [SINGLE] * 2),
    # float16 data beside float32 parameters and statistics is what its record is written for.
    ("BatchNorm", {}, [HALF] + [SINGLE] * 4, [HALF] + [SINGLE] * 4),
    ("Embedding", {"input_dim": 4, "output_dim": 2}, [SINGLE, HALF], [SINGLE, HALF]),
    ("where", {}, [SINGLE, HALF, HALF], [SINGLE, HALF, HALF]),
    ("Cast", {"dtype": "float32"}, [HALF], [HALF]),
    ("take", {}, [HALF, WHOLE], [HALF, WHOLE]),
]


@pytest.mark.parametrize("name,attributes,given,wanted", WANTED)
def test_what_operators_compute_in(name, attributes, given, wanted):
    assert Precision().of(get(name).bind(**attributes), tuple(given)) == tuple(wanted)


def test_lists_of_the_user_replace_those_of_the_table():
    own = Precision(low=["dot"], float32=["relu"], conditional=[("LeakyReLU", "act_type", ["gelu"])])
    assert own.of(get("dot").bind(), (SINGLE, SINGLE)) == (HALF, HALF)
    assert own.of(get("FullyConnected").bind(num_hidden=1), (SINGLE,) * 3) == (SINGLE,) * 3
    assert own.of(get("relu").bind(), (HALF,)) == (SINGLE,)
    assert own.of(get("softmax").bind(), (HALF,)) == (HALF,)
    assert own.of(get("LeakyReLU").bind(act_type="gelu"), (HALF,)) == (SINGLE,)
    assert own != Precision() and Precision() == Precision() and hash(Precision()) == hash(Precision())


def test_lists_that_contradict_each_other_or_name_no_operator_are_refused():
    with pytest.raises(SettingError, match="softmax cannot compute in float16 and in float32"):
        Precision(low=["softmax"], float32=["softmax"])
    with pytest.raises(SettingError, match="no operator 'FullyConected'; did you mean FullyConnected?"):
        Precision(low=["FullyConected"])
    assert "exp" not in Precision(low=["exp"]).float32
