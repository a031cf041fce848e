"""mx.onnx.export: what stands in the files, open sizes, names, refusals, and that nothing half written is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.cli import main
from hybrid_lab.diagnostics.errors import (
    HybridLabError,
    MissingGraphError,
    SettingError,
    UninitializedError,
    Unmappable,
)
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.onnx import opsets
from hybrid_lab.onnx.writing import exporting, file
from hybrid_lab.ops.framework.onnx_emit import OPSET

from .networks import Mixed, SeveralOutputs, assert_equal, call, flat, floats, run


def hybrid(function, *children):
    """A HybridBlock of a function of (block, F, *inputs)."""

    class Made(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            for number, child in enumerate(children):
                setattr(self, f"child{number}", child)

        def hybrid_forward(self, F, *inputs):
            return function(self, F, *inputs)

    return ready(Made())


def ready(net):
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


@pytest.fixture
def mixed():
    net = ready(Mixed())
    net(nd.ones((2, 4)))
    return net


# -- what stands in the file -----------------------------------------------------------------------------------------


def test_one_function_for_each_hybrid_block_callees_first(mixed, tmp_path):
    report = mx.onnx.export(mixed, tmp_path / "net.onnx")
    model = onnx.load(report.path)
    onnx.checker.check_model(model, full_check=True)
    names = [function.name for function in model.functions]
    assert names == ["features.0", "features.1", "features.2", "features", "output"]
    assert [node.op_type for node in model.graph.node] == ["features", "output", "output"]  # one function, two calls
    (features,) = [function for function in model.functions if function.name == "features"]
    assert [node.op_type for node in features.node] == ["features.0", "features.1", "features.2"]
    assert list(features.input) == [
        "data", "0.weight", "0.bias", "1.gamma", "1.beta", "1.running_mean", "1.running_var"
    ]  # fmt: skip


def test_initializers_have_the_paths_of_parameters(mixed, tmp_path):
    model = onnx.load(mx.onnx.export(mixed, tmp_path / "net.onnx").path)
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    assert arrays.keys() == mixed._collect_params_with_prefix().keys()
    np.testing.assert_array_equal(arrays["features.0.weight"], mixed.features[0].weight.data().asnumpy())


def test_nodes_say_where_they_come_from(mixed, tmp_path):
    model = onnx.load(mx.onnx.export(mixed, tmp_path / "net.onnx").path)
    (norm,) = [function for function in model.functions if function.name == "features.1"]
    (node,) = norm.node
    said = {item.key: item.value for item in node.metadata_props}
    assert said["namespace"].startswith(f": {Mixed.__module__}.Mixed/features: hybrid_lab.gluon.nn.")
    assert said["namespace"].endswith(".BatchNorm/BatchNormalization")
    assert eval(said["name_scopes"]) == ["", "features", "features.1", "BatchNormalization"]
    assert [name.rpartition(".")[2] for name in eval(said["class_hierarchy"])] == [
        "Mixed", "HybridSequential", "BatchNorm", "BatchNormalization"
    ]  # fmt: skip


def test_flat_has_no_functions(mixed, tmp_path):
    report = mx.onnx.export(mixed, tmp_path / "net.onnx", flat=True)
    model = onnx.load(report.path)
    assert not model.functions and {node.domain for node in model.graph.node} == {""}
    assert_equal(report.path, mixed, [floats(3, 4)])


def test_a_block_that_computes_otherwise_in_its_second_call_has_two_functions(tmp_path):
    """One layer on vectors of two lengths: Dense of (n, 2, 2), then of (n, 4)."""
    net = hybrid(lambda self, F, x: self.child0(self.child0(x)), nn.Dense(4))
    x = floats(3, 2, 2)
    call(net, [x])
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert report.exported[0].functions == ("child0", "child0@2")
    assert_equal(report.path, net, [x])


def test_the_structure_of_arguments_and_results_is_kept(tmp_path):
    net = ready(SeveralOutputs())
    call(net, [floats(2, 3), floats(2, 5)])
    model = onnx.load(mx.onnx.export(net, tmp_path / "net.onnx").path)
    kept = json.loads({item.key: item.value for item in model.metadata_props}[exporting.METADATA])
    assert kept["in"] == {"tuple": ["tensor", "tensor"]} and kept["inputs"] == ["data0", "data1"]
    assert kept["outputs"] == ["p", "pair.0", "pair.1.0", "again"]
    pair = {"tuple": ["tensor", {"list": ["tensor", {"value": None}]}]}
    assert kept["out"] == {"dict": [["p", "tensor"], ["pair", pair], ["again", "tensor"]]}


def test_shared_parameters_are_there_once(tmp_path):
    first = nn.Dense(4, in_units=4)
    net = hybrid(lambda self, F, x: self.child1(self.child0(x)), first, nn.Dense(4, in_units=4, params=first.params))
    net(nd.ones((2, 4)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert [item.name for item in onnx.load(report.path).graph.initializer] == ["child0.weight", "child0.bias"]
    assert_equal(report.path, net, [floats(3, 4)])


def test_two_instances_of_a_class_give_the_same_bytes(tmp_path):
    written = []
    for number in range(2):
        net = Mixed()
        net.initialize(mx.init.One())
        net.hybridize()
        net(nd.ones((2, 4)))
        written.append(Path(mx.onnx.export(net, tmp_path / f"{number}.onnx").path).read_bytes())
    assert written[0] == written[1]


def test_outputs_that_are_inputs_parameters_or_each_other(tmp_path):
    net = hybrid(lambda self, F, x: [x, self.child0(x), x, F.zeros((2,))], nn.Dense(4))
    net(nd.ones((2, 4)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert_equal(report.path, net, [floats(3, 4)])


# -- opsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(13, opsets.newest() + 1))
def test_every_opset(mixed, tmp_path, opset):
    report = mx.onnx.export(mixed, tmp_path / "net.onnx", opset=opset)
    model = onnx.load(report.path)
    assert {item.domain: item.version for item in model.opset_import}[""] == opset == report.exported[0].opset
    assert_equal(report.path, mixed, [floats(3, 4)])


@pytest.mark.parametrize(("opset", "error"), [(12, HybridLabError), (999, HybridLabError), ("17", SettingError)])
def test_other_opsets_are_refused(mixed, tmp_path, opset, error):
    with pytest.raises(error, match="13 to"):
        mx.onnx.export(mixed, tmp_path / "net.onnx", opset=opset)
    assert not list(tmp_path.iterdir())


def test_an_operator_that_the_opset_lacks_is_named_with_the_lowest_that_has_it(tmp_path):
    net = hybrid(lambda self, F, x, grid: F.BilinearSampler(x, grid))
    arrays = [floats(2, 3, 4, 4), floats(2, 2, 4, 4)]
    call(net, arrays)
    with pytest.raises(Unmappable, match="BilinearSampler: not in opset 13, the lowest that has it is 16") as refused:
        mx.onnx.export(net, tmp_path / "net.onnx", opset=13)
    assert "test_export.py, line" in str(refused.value)
    assert_equal(mx.onnx.export(net, tmp_path / "net.onnx", opset=16).path, net, arrays)


def test_layer_normalization_is_written_out_where_the_opset_has_none(tmp_path):
    net = ready(nn.LayerNorm(in_channels=4))
    net(nd.ones((2, 4)))
    for opset, expected in ((16, False), (OPSET, True)):
        report = mx.onnx.export(net, tmp_path / "net.onnx", opset=opset)
        operators = [node.op_type for node in onnx.load(report.path).graph.node]
        assert ("LayerNormalization" in operators) is expected
        assert_equal(report.path, net, [floats(3, 4)])


def test_the_default_opset_is_one_that_onnx_runtime_can_run(tmp_path):
    net = hybrid(lambda self, F, x, rois: F.contrib.ROIAlign(x, rois, pooled_size=(2, 2), spatial_scale=1.0))
    arrays = [floats(1, 3, 8, 8), np.array([[0, 1, 1, 5, 5]], np.float32)]
    call(net, arrays)
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert report.exported[0].opset == opsets.newest_that_runs(["RoiAlign"])
    assert_equal(report.path, net, arrays)


# -- open sizes ------------------------------------------------------------------------------------------------------


def convolution():
    return ready(nn.Conv2D(4, 3, padding=1, in_channels=3))


def shapes(report):
    return report.exported[0].inputs


def test_the_batch_is_open_after_one_call(tmp_path):
    net = convolution()
    net(nd.ones((1, 3, 8, 8)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report) == {"data": ("batch", 3, 8, 8)}
    assert_equal(report.path, net, [floats(5, 3, 8, 8)])


def test_sizes_in_which_calls_differ_are_open(tmp_path):
    net = convolution()
    for size in (8, 12):
        net(nd.ones((2, 3, size, 8)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report) == {"data": ("batch", 3, "data_2", 8)}
    assert_equal(report.path, net, [floats(3, 3, 20, 8)])


@pytest.mark.parametrize("batch", [3, 1])
@pytest.mark.parametrize("cell", [rnn.LSTMCell, rnn.GRUCell, rnn.RNNCell])
def test_a_recurrent_cell_has_an_open_batch(cell, batch, tmp_path):
    """Its states are a list of arrays; inputs= may also be a plain list."""
    net = cell(6, input_size=4)
    net.initialize()
    net.hybridize()
    states = net.begin_state(batch_size=batch)
    net(nd.ones((batch, 4)), states)
    for inputs in (None, [("n", 4), *[("n", 6)] * len(states)]):
        report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=inputs)
        assert {shape[0] for shape in shapes(report).values()} == {"n" if inputs else "batch"}
        for size in (1, 2, 5):
            arrays = [floats(size, 4), *(floats(size, 6) for _ in states)]
            found = run(report.path, arrays)
            expected = flat(net(nd.array(arrays[0]), list(map(nd.array, arrays[1:]))))
            for one, two in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_a_widened_value_in_a_branch(tmp_path):
    """ONNX Runtime 1.32 loses the second of two Casts that give the first value again, where a branch reads it."""

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = F.cast(F.cast(x, "float64"), "float32")
            return F.contrib.cond(F.sum(y) > 0, lambda: y + 1, lambda: y * 2)

    net = Net()
    net.hybridize()
    net(nd.ones((2, 3)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    for x in (floats(2, 3), -floats(2, 3)):
        assert_equal(report.path, net, [x])


def test_names_make_sizes_open_and_numbers_beside_them_fix(tmp_path):
    net = convolution()
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=("n", 3, "height", "width"))
    assert shapes(report) == {"data": ("n", 3, "height", "width")}
    assert_equal(report.path, net, [floats(2, 3, 7, 9)])
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=[(4, 3, "side", "side")])
    assert shapes(report) == {"data": (4, 3, "side", "side")}


def test_an_example_array_or_a_shape_gives_the_arguments(tmp_path):
    net = ready(nn.Dense(3))
    for inputs in (nd.ones((2, 4)), np.ones((2, 4), np.float32), [nd.ones((2, 4))], (2, 4), [(2, 4)]):
        assert shapes(mx.onnx.export(net, tmp_path / "net.onnx", inputs)) == {"data": ("batch", 4)}


def test_sizes_that_must_be_equal_are_one(tmp_path):
    net = hybrid(lambda self, F, x, y: F.elemwise_add(x, y))
    call(net, [floats(2, 3), floats(2, 3)])
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report) == {"data0": ("batch", "data0_1"), "data1": ("batch", "data0_1")}


def test_a_batch_that_the_network_depends_on_is_fixed_and_noted(tmp_path):
    net = hybrid(lambda self, F, x: F.reshape(x, (6, 4)))
    net(nd.ones((2, 3, 4)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report)["data"][0] == 2
    assert report.notes == ("axis 0 of data is fixed at 2: the network holds for this size alone",)
    assert report.notes[0] in str(report)


def test_code_that_reads_shapes_has_no_open_sizes(tmp_path):
    class Reads(gluon.HybridBlock):
        def forward(self, x):
            return x.reshape((x.shape[0], -1))

    net = ready(Reads())
    net(nd.ones((2, 3, 4)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report) == {"data": (2, 3, 4)} and "the code reads shapes (" in report.notes[0]


def test_a_squeezed_batch_of_one_stays_as_it_was_called(tmp_path):
    net = hybrid(lambda self, F, x: F.squeeze(x))
    net(nd.ones((1, 3, 1)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert_equal(report.path, net, [floats(1, 3, 1)])
    assert "fixed at 1" in report.notes[0]


# -- BatchNorm over another axis than 1 ------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "shapes"), [
    (-1, [(2, 4, 5, 3), (3, 4, 5, 3), (1, 2, 5, 3)]),
    (2, [(2, 4, 3, 5), (3, 4, 3, 5), (1, 2, 3, 5)]),
    (2, [(2, 4, 3), (5, 1, 3)]),
    (0, [(3, 4, 5), (3, 6, 5)]),
    (0, [(3,)]),
])  # fmt: skip
def test_batch_norm_over_another_axis_is_batch_normalization_between_reshapes(axis, shapes, tmp_path):
    net = nn.BatchNorm(axis=axis)
    net.initialize()
    net.hybridize()
    net(nd.ones(shapes[0]))
    for parameter in net.collect_params().values():
        parameter.set_data(nd.array(floats(3) + 0.5))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    operators = [node.op_type for node in onnx.load(report.path).graph.node]
    assert operators.count("BatchNormalization") == 1 and operators.count("Reshape") == 2
    again = mx.onnx.imports(report.path)
    for shape in shapes:
        x = floats(*shape)
        assert_equal(report.path, net, [x])
        np.testing.assert_allclose(call(again, [x])[0], call(net, [x])[0], rtol=1e-5, atol=1e-6)


def test_channels_last_with_open_sizes(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, layout="NHWC", in_channels=3), nn.BatchNorm(axis=3), nn.Activation("relu"))
    net = ready(net)
    net(nd.ones((2, 6, 6, 3)))
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=("batch", "height", "width", 3))
    again = mx.onnx.imports(report.path)
    for shape in ((2, 6, 6, 3), (3, 9, 5, 3)):
        x = floats(*shape)
        assert_equal(report.path, net, [x])
        np.testing.assert_array_equal(call(again, [x])[0], call(net, [x])[0])


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("opset", [13, OPSET, opsets.newest()])
def test_batch_norm_of_half_precision_with_single_precision_statistics(opset, axis, tmp_path):
    net = nn.BatchNorm(axis=axis, in_channels=3)
    net.initialize()
    net.hybridize()
    x = floats(2, 3, 3).astype(np.float16)
    call(net, [x])
    report = mx.onnx.export(net, tmp_path / "net.onnx", opset=opset)
    assert_equal(report.path, net, [x], 1e-2)


# -- forms that random networks found wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["avg", "sum"])
def test_padding_as_wide_as_a_window(kind, tmp_path):
    net = hybrid(lambda self, F, x: F.Pooling(
        x, kernel=(1, 2), stride=(3, 3), pool_type=kind, pooling_convention="full"
    ))  # fmt: skip
    call(net, [floats(2, 3, 5, 5)])
    assert_equal(mx.onnx.export(net, tmp_path / "net.onnx").path, net, [floats(3, 3, 5, 5)])


@pytest.mark.parametrize("reduce", ["mean", "sum", "max", "prod"])
def test_a_reduction_of_a_number_has_one_axis(reduce, tmp_path):
    net = hybrid(lambda self, F, x: (getattr(F, reduce)(x), getattr(F, reduce)(x, keepdims=True)))
    x = np.array(2.0, np.float32)
    call(net, [x])
    assert_equal(mx.onnx.export(net, tmp_path / "net.onnx").path, net, [x])


def test_a_transposed_number(tmp_path):
    net = hybrid(lambda self, F, x: F.transpose(x) * 2)
    x = np.array(2.0, np.float32)
    call(net, [x])
    assert_equal(mx.onnx.export(net, tmp_path / "net.onnx").path, net, [x])


def test_arrays_without_elements_are_refused(tmp_path):
    net = hybrid(lambda self, F, x: F.contrib.index_array(x))
    call(net, [np.array(2.0, np.float32)])
    with pytest.raises(Unmappable, match="index_array: arrays without elements"):
        mx.onnx.export(net, tmp_path / "net.onnx")


def test_half_precision_with_statistics_of_single_precision_in_a_loop(tmp_path):
    """What no output of a loop's body needs is left out: hidden outputs of BatchNorm mixed two precisions."""
    net = hybrid(
        lambda self, F, x: F.contrib.while_loop(
            lambda i, s: i < 3, lambda i, s: (self.child0(s), (i + 1, s * 0.5)), (F.zeros((1,)), x), max_iterations=4
        ),
        nn.BatchNorm(axis=-1, in_channels=1),
    )
    x = floats(4, 1).astype(np.float16)
    call(net, [x])
    assert_equal(mx.onnx.export(net, tmp_path / "net.onnx").path, net, [x], 1e-2)


# -- loops, branches, random numbers ---------------------------------------------------------------------------------


def foreach(self, F, x, h):
    return F.contrib.foreach(lambda a, states: (F.tanh(self.child0(a) + states[0]), [states[0] + a]), x, [h])


def while_loop(self, F, x):
    return F.contrib.while_loop(
        lambda i, a: F.sum(a) < 50, lambda i, a: (a * 2, [i + 1, a * 2]), [F.zeros((1,)), x], max_iterations=9
    )


LOOPS = {
    "foreach": (foreach, lambda: [nn.Dense(4, flatten=False, in_units=4)], [floats(5, 2, 4), floats(2, 4)], "Scan"),
    "numbers": (
        lambda self, F, x, h: F.contrib.foreach(lambda a, b: (a * 2 + b, b + a), x, h),
        list, [floats(5), floats(1)], "Scan",
    ),
    "while_loop": (while_loop, list, [floats(2, 3)], "Loop"),
    "no step": (while_loop, list, [floats(2, 3) + 100], "Loop"),
    "then": (
        lambda self, F, x: F.contrib.cond(F.sum(x) > 3, lambda: self.child0(x), lambda: x),
        lambda: [nn.Dense(3, in_units=3)], [floats(2, 3) + 4], "If",
    ),
    "else": (
        lambda self, F, x: F.contrib.cond(F.sum(x) > 3, lambda: self.child0(x), lambda: x),
        lambda: [nn.Dense(3, in_units=3)], [floats(2, 3) - 4], "If",
    ),
}  # fmt: skip


@pytest.mark.parametrize("opset", [13, None])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches(name, opset, tmp_path):
    function, children, arrays, operator = LOOPS[name]
    net = hybrid(function, *children())
    call(net, arrays)
    report = mx.onnx.export(net, tmp_path / "net.onnx", opset=opset)
    assert operator in [node.op_type for node in onnx.load(report.path).graph.node]
    assert_equal(report.path, net, arrays)


def test_dropout_is_the_identity(tmp_path):
    net = ready(nn.Dropout(0.5))
    net(nd.ones((2, 4)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    x = floats(3, 4)
    np.testing.assert_array_equal(run(report.path, [x])[0], x)


@pytest.mark.parametrize(
    ("draw", "low", "high"),
    [
        (lambda F, x: F.random.uniform(2, 3, shape=(1000,)), 2, 3),
        (lambda F, x: F.random.normal(0, 1e-3, shape=(1000,)), -1, 1),
        (lambda F, x: F.random.randint(4, 6, shape=(1000,)), 4, 5),
    ],
)
def test_samplers_draw_from_the_same_range(draw, low, high, tmp_path):
    net = hybrid(lambda self, F, x: (draw(F, x), x * 2))
    expected = call(net, [floats(2)])[0]
    found = run(mx.onnx.export(net, tmp_path / "net.onnx").path, [floats(2)])[0]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.min() >= low and found.max() <= high and len(np.unique(found)) > 1


def test_a_distribution_that_onnx_lacks_is_refused(tmp_path):
    net = hybrid(lambda self, F, x: F.random.gamma(2, 3, shape=(5,)) + F.sum(x))
    call(net, [floats(2)])
    with pytest.raises(Unmappable, match="^random_gamma: ONNX has no operator for these random numbers"):
        mx.onnx.export(net, tmp_path / "net.onnx")


@mx.operator.register("python_for_export")
class _PythonProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        class Copies(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0])

        return Copies()


@pytest.mark.parametrize(("function", "text"), [
    (lambda self, F, x: F.linalg.gelqf(x), "^_linalg_gelqf: it has no ONNX form"),
    (
        lambda self, F, x: F.Custom(x, op_type="python_for_export"),
        "^Custom: 'python_for_export' is an operator in Python, which has no ONNX form",
    ),
    (
        lambda self, F, x: F.contrib.cond(F.sum(x) > 0, lambda: F.Custom(x, op_type="python_for_export"), lambda: x),
        "^_cond: .*'python_for_export' is an operator in Python",
    ),
])  # fmt: skip
def test_an_operator_without_a_form_is_named_once(function, text, tmp_path):
    net = hybrid(function)
    call(net, [floats(2, 3)])
    with pytest.raises(Unmappable, match=text):
        mx.onnx.export(net, tmp_path / "net.onnx")


# -- models that are not one HybridBlock -----------------------------------------------------------------------------


class Plain(gluon.Block):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.unused = Mixed(), nn.Dense(2), nn.Dense(3)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("hybridize", [True, False])
def test_a_plain_block_gives_a_file_for_each_outermost_hybrid_block(hybridize, tmp_path):
    net = Plain()
    net.initialize()
    if hybridize:
        net.hybridize()
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=nd.ones((2, 4)))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net-body.onnx", "net-head.onnx"]
    assert report.left_out == ("unused",) and "never called" in str(report)
    for part, each in zip((net.body, net.head), report.exported, strict=True):
        assert_equal(each.path, part, [floats(3, 4)])


def test_a_model_opened_without_its_code(mixed, tmp_path):
    mixed.save(tmp_path / "net.hlab")
    opened = gluon.load(tmp_path / "net.hlab")
    report = mx.onnx.export(opened, tmp_path / "opened.onnx")
    assert report.exported[0].functions == mx.onnx.export(mixed, tmp_path / "net.onnx").exported[0].functions
    assert_equal(report.path, mixed, [floats(3, 4)])


def test_a_model_of_mxnets_files_after_an_eager_call(mixed, tmp_path):
    symbol, params = mixed.export(str(tmp_path / "net"))
    block = gluon.SymbolBlock.imports(symbol, "data", params)
    block(nd.ones((2, 4)))
    assert_equal(mx.onnx.export(block, tmp_path / "net.onnx").path, mixed, [floats(3, 4)])


def test_the_command(mixed, tmp_path, capsys):
    mixed.save(tmp_path / "net.hlab")
    assert main(["convert", str(tmp_path / "net.hlab"), str(tmp_path / "net.onnx"), "--opset", "15", "--flat"]) == 0
    assert "net.onnx: opset 15, data (batch, 4) -> output (batch, 4), 0 functions" in capsys.readouterr().out
    assert_equal(str(tmp_path / "net.onnx"), mixed, [floats(3, 4)])


def test_the_command_the_other_way(mixed, tmp_path):
    """An ONNX file as an archive that opens without the package onnx, and its weights alone."""
    x = floats(3, 4)
    expected = mixed(nd.array(x)).asnumpy()
    source = mx.onnx.export(mixed, tmp_path / "net.onnx").path
    for name in ("net.hlab", "net.safetensors", "net.params"):
        assert main(["convert", source, str(tmp_path / name)]) == 0
    code = "import sys; sys.modules['onnx'] = None; import numpy as np; from hybrid_lab import gluon, nd; " \
        f"print(gluon.load({str(tmp_path / 'net.hlab')!r})(nd.array(np.load({str(tmp_path / 'x.npy')!r}))).asnumpy()" \
        ".tobytes().hex())"  # fmt: skip
    np.save(tmp_path / "x.npy", x)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    y = np.frombuffer(bytes.fromhex(found), np.float32).reshape(expected.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    for name in ("net.safetensors", "net.params"):
        other = ready(Mixed())
        other.load_parameters(str(tmp_path / name))
        np.testing.assert_array_equal(other(nd.array(x)).asnumpy(), expected)


def test_a_block_inside_another(mixed, tmp_path):
    report = mx.onnx.export(mixed.features, tmp_path / "part.onnx", inputs=("batch", 4))
    assert_equal(report.path, mixed.features, [floats(3, 4)])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ready(nn.Dense(3)), MissingGraphError, "was never called"),
        (Plain, MissingGraphError, "no HybridBlock below it was called"),
        (lambda: 3, HybridLabError, "needs a Block"),
    ],
)
def test_what_cannot_be_exported(make, error, text, tmp_path):
    with pytest.raises(error, match=text):
        mx.onnx.export(make(), tmp_path / "net.onnx")


def test_uninitialized_parameters_are_refused(tmp_path):
    net = nn.Dense(3)
    with pytest.raises(UninitializedError):
        mx.onnx.export(net, tmp_path / "net.onnx", inputs=(2, 4))


def test_exporting_changes_nothing_in_the_model(tmp_path):
    net = Mixed()
    net.initialize()
    net(nd.ones((2, 4)))
    mx.onnx.export(net, tmp_path / "net.onnx")
    assert not net._active and not net._graphs.graphs() and not net.features._graphs.graphs()


# -- files -----------------------------------------------------------------------------------------------------------


def test_arrays_in_a_file_beside_it(tmp_path):
    net = ready(nn.Dense(300, in_units=300))
    net(nd.ones((2, 300)))
    report = mx.onnx.export(net, tmp_path / "net.onnx", external_data=True)
    model, data = report.files
    assert os.path.getsize(model) < 10_000 and os.path.getsize(data) >= 360_000
    onnx.checker.check_model(model, full_check=True)
    assert_equal(model, net, [floats(3, 300)])
    net.weight.set_data(nd.ones((300, 300)))
    again = mx.onnx.export(net, tmp_path / "net.onnx", external_data=True)
    assert sorted(str(entry) for entry in tmp_path.iterdir()) == sorted(again.files)  # the old arrays are gone
    assert_equal(again.path, net, [floats(3, 300)])


def test_a_model_over_the_limit_gets_a_file_beside_it(tmp_path, monkeypatch):
    net = ready(nn.Dense(300, in_units=300))
    net(nd.ones((2, 300)))
    assert len(mx.onnx.export(net, tmp_path / "net.onnx").files) == 1
    monkeypatch.setattr(file, "LARGEST", 300_000)
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert len(report.files) == 2
    assert_equal(report.path, net, [floats(3, 300)])


@pytest.mark.parametrize("external", [False, True])
def test_a_write_that_fails_leaves_the_old_model_whole(external, tmp_path, monkeypatch):
    net = ready(nn.Dense(300, in_units=300))
    net(nd.ones((2, 300)))
    x = floats(3, 300)
    path = mx.onnx.export(net, tmp_path / "net.onnx", external_data=external).path
    before = run(path, [x])[0]
    net.weight.set_data(nd.ones((300, 300)))

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(file, "_write_model", fail)
    with pytest.raises(OSError, match="the disk is full"):
        mx.onnx.export(net, tmp_path / "net.onnx", external_data=external)
    np.testing.assert_array_equal(run(path, [x])[0], before)


def test_the_bytes_are_those_of_protobuf(mixed, tmp_path):
    path = Path(mx.onnx.export(mixed, tmp_path / "net.onnx").path)
    assert onnx.load(path).SerializeToString(deterministic=True) == path.read_bytes()


def test_multibox_target_is_refused_with_what_to_export(tmp_path):
    class Targets(gluon.HybridBlock):
        def hybrid_forward(self, F, anchors, labels, scores):
            return F.contrib.MultiBoxTarget(anchors, labels, scores)

    net = Targets()
    net.hybridize()
    net(nd.zeros((1, 4, 4)), nd.zeros((1, 1, 5)), nd.zeros((1, 2, 4)))
    with pytest.raises(Unmappable, match="from labels, which prediction does not have: export a Block that does not"):
        mx.onnx.export(net, tmp_path / "targets.onnx")
