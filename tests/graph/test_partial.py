"""Shapes and dtypes that follow from outputs and siblings. The values are those of MXNet 1.9.1."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd, sym
from hybrid_lab.diagnostics import AttributeSpecError, BindError, HybridLabError, ShapeError

var = sym.var
FLOAT, HALF = np.float32, np.float16


def shapes(symbol, **known):
    arguments, outputs, _ = symbol.infer_shape(**known)
    return dict(zip(symbol.list_arguments(), arguments, strict=True)), outputs[0]


def test_operands_complete_each_other():
    known, output = shapes(var("a", shape=(0, 10)) + var("b", shape=(12, 0)))
    assert known == {"a": (12, 10), "b": (12, 10)} and output == (12, 10)


def test_a_layer_learns_the_batch_from_its_output():
    layer = sym.FullyConnected(var("a", shape=(0, 10)), num_hidden=21, name="fc")
    assert shapes(layer + var("c", shape=(5, 0)))[0] == {
        "a": (5, 10), "fc_weight": (21, 10), "fc_bias": (21,), "c": (5, 21),
    }  # fmt: skip


def test_one_of_several_outputs_is_enough():
    parts = sym.SliceChannel(var("a", shape=(0, 10)), num_outputs=10, axis=1, squeeze_axis=True)
    assert shapes(parts[1] + var("c", shape=(5,)))[0]["a"] == (5, 10)
    parts = sym.SliceChannel(var("a", shape=(0, 15, 0)), num_outputs=3)
    assert shapes(parts[1] + var("c", shape=(3, 5, 2)))[0]["a"] == (3, 15, 2)


def test_convolutions_of_stride_1_learn_the_size_of_the_picture():
    layer = sym.Convolution(var("a", shape=(0, 10, 0, 0)), num_filter=21, kernel=(3, 3), pad=(1, 1))
    assert shapes(layer + var("c", shape=(5, 21, 32, 32)))[0]["a"] == (5, 10, 32, 32)
    wide = sym.Convolution(var("a", shape=(0, 10, 0, 0)), num_filter=21, kernel=(3, 3), stride=(2, 2))
    arguments = (wide + var("c", shape=(5, 21, 15, 15))).infer_shape_partial()[0]
    assert arguments[0] == (5, 10, 0, 0), "31 and 32 rows both give 15"


def test_joined_inputs_learn_their_common_sizes():
    joined = sym.Concat(var("a", shape=(0, 10)), var("b", shape=(0, 5)), dim=1)
    assert shapes(joined + var("d", shape=(2, 0)))[0] == {"a": (2, 10), "b": (2, 5), "d": (2, 15)}
    joined = sym.Concat(var("a", shape=(2, 10)), var("b", shape=(2, 0)), dim=1)
    assert shapes(joined + var("d", shape=(2, 15)))[0]["b"] == (2, 5)


@pytest.mark.parametrize(
    ("change", "inner", "outer"),
    [
        (lambda x: x.transpose((1, 0, 2)), (2, 0, 4), (3, 2, 4)),
        (lambda x: x.reshape((0, -1)), (2, 0, 4), (2, 12)),
        (lambda x: x.reshape((-1, 6)), (2, 0, 4), (4, 6)),
        (lambda x: x.expand_dims(1), (2, 0, 4), (2, 1, 3, 4)),
        (lambda x: sym.slice_axis(x, axis=1, begin=1, end=None), (2, 0, 4), (2, 2, 4)),
        (lambda x: sym.Activation(x, act_type="relu"), None, (2, 3, 4)),
        (lambda x: x * 2 + 1, None, (2, 3, 4)),
    ],
)
def test_what_changes_a_shape_is_undone(change, inner, outer):
    known, output = shapes(sym.elemwise_add(change(var("x", shape=inner)), var("y", shape=outer)))
    assert known["x"] == (2, 3, 4) and output == outer


def test_unknown_sizes_stay_unknown():
    assert sym.sin(var("x")).infer_shape_partial() == ([()], [()], [])
    assert sym.dot(var("x"), var("y")).infer_shape_partial(x=(0, 3, 4), y=(4, 5))[1] == [(0, 3, 5)]
    assert sym.batch_dot(var("x"), var("y")).infer_shape_partial(x=(0, 3, 4), y=(0, 4, 5))[1] == [(0, 3, 5)]
    assert sym.pick(var("x"), var("i"), axis=1).infer_shape_partial(x=(0, 3, 3), i=(0, 3))[1] == [(0, 3)]
    picked = sym.slice(var("x"), begin=(None, 3), end=(5, 10))
    assert picked.infer_shape_partial(x=(0, 20))[1] == [(0, 7)], "5 rows, or fewer"
    embedded = sym.Embedding(var("x"), var("w"), input_dim=100, output_dim=10)
    assert embedded.infer_shape_partial(x=(0, 5))[:2] == ([(0, 5), (100, 10)], [(0, 5, 10)])


def test_with_numpys_shapes_unknown_is_minus_one_and_none():
    with mx.np_shape():
        assert sym.sin(var("x")).infer_shape_partial() == ([None], [None], [])
        assert sym.dot(var("x"), var("y")).infer_shape_partial(x=(-1, 3), y=(3, 5))[1] == [(-1, 5)]
        assert sym.dot(var("x"), var("y")).infer_shape(x=(0, 3), y=(3, 5))[1] == [(0, 5)]
        text = sym.FullyConnected(var("x"), var("w", shape=(3, -1)), num_hidden=3).tojson()
        assert '"is_np_shape": ["int", 1]' in text and '"(3, -1)"' in text
    assert "is_np_shape" not in var("x").tojson()


def test_what_does_not_follow_is_a_warning():
    state = sym.FullyConnected(var("state"), num_hidden=8, name="h")
    both = sym.elemwise_add(sym.FullyConnected(var("x"), num_hidden=8, name="i"), state)
    with pytest.warns(UserWarning, match="the shapes of state, h_weight cannot be inferred"):
        assert both.infer_shape(x=(4, 5)) == (None, None, None)
    assert both.infer_shape_partial(x=(4, 5))[0] == [(4, 5), (8, 5), (8,), (), (8, 0), (8,)]
    with pytest.raises(BindError, match="state, h_weight do not follow"):
        both.simple_bind(mx.cpu(), x=(4, 5))


def test_contradictions_are_errors():
    layer = sym.FullyConnected(var("x"), num_hidden=8, name="fc")
    with pytest.raises(ShapeError):
        layer.infer_shape(x=(4, 5), fc_weight=(1, 5))
    v = var("v")
    with pytest.raises(ShapeError):
        (sym.transpose(v) + (var("x") + v)).infer_shape(x=(2, 3))
    with pytest.raises(HybridLabError, match="no input 'z'"):
        layer.infer_shape(z=(4, 5))


def test_open_arrays_take_their_sizes_from_their_readers():
    added = sym.ones((2, -1)) + sym.transpose(sym.ones((3, -1)))
    assert added.bind(mx.cpu(), {}).forward()[0].shape == (2, 3)
    begin = sym.FullyConnected(sym.zeros((0, 10)), num_hidden=8, name="h")
    step = sym.FullyConnected(var("x"), num_hidden=8, name="i") + begin
    assert step.simple_bind(mx.cpu(), x=(4, 5)).forward()[0].shape == (4, 8)


@pytest.mark.parametrize("name, settings", [
    ("take", {}), ("pick", {}), ("batch_take", {}), ("gather_nd", {}), ("slice_like", {}), ("reshape_like", {}),
    ("broadcast_like", {}), ("SequenceMask", {"use_sequence_length": True}),
    ("ROIPooling", {"pooled_size": (1, 1), "spatial_scale": 1.0}),
])  # fmt: skip
def test_the_dtype_of_the_result_is_that_of_the_data_and_not_of_what_places_or_shapes_it(name, settings):
    y = getattr(sym, name)(var("a"), var("b"), **settings)
    first, second = y.list_arguments()
    assert y.infer_type_partial(**{second: "int32"})[1] == [None]
    assert y.infer_type_partial(**{first: "float16"})[1] == [HALF]


def test_dtypes():
    layer = sym.FullyConnected(sym.Cast(var("x"), dtype="float32"), num_hidden=8, name="fc")
    net = sym.SoftmaxOutput(layer, name="softmax")
    assert net.infer_type(x="float16") == ([HALF, FLOAT, FLOAT, FLOAT], [FLOAT], [])
    assert net.infer_type_partial() == ([None, FLOAT, FLOAT, FLOAT], [FLOAT], [])
    plain = sym.FullyConnected(var("x"), num_hidden=8, name="fc")
    assert plain.infer_type(fc_weight="float16") == ([HALF] * 3, [HALF], [])
    assert sym.where(var("c"), var("x"), var("y")).infer_type_partial(y="float16") == ([None, HALF, HALF], [HALF], [])
    with pytest.warns(UserWarning, match="the dtypes of x, fc_weight, fc_bias"):
        assert plain.infer_type() == (None, None, None)
    assert plain.simple_bind(mx.cpu(), x=(2, 3)).arg_dict["x"].dtype == np.float32


def test_a_composed_symbol_reads_others():
    net = sym.Activation(var("a"), act_type="relu", name="act")
    made = net(a=sym.exp(var("b"), name="e"), name="made")
    assert (made.name, made.list_outputs(), made.list_arguments()) == ("made", ["made_output"], ["b"])
    assert net.list_arguments() == ["a"], "the Symbol itself stays as it is"
    assert made.eval(b=nd.array([0.0]))[0].asnumpy().tolist() == [1.0]
    for mistake in ({"z": net}, {"a": 3}, {"a": sym.Group([net, var("b")])}, {"name": net}):
        with pytest.raises(AttributeSpecError):
            net(**mistake)


def test_children_are_listed_once():
    parts = sym.SliceChannel(var("x"), num_outputs=3, name="slice")
    assert parts.get_children().list_outputs() == ["x"]
    assert sym.Concat(*parts).get_children().list_outputs() == ["slice_output0", "slice_output1", "slice_output2"]
    assert var("x").get_children() is None


def test_shapes_of_operators_that_take_no_float32():
    parts = sym.contrib.quantize_v2(var("x"), out_type="int8", min_calib_range=-1.0, max_calib_range=1.0)
    whole = sym.contrib.dequantize(parts[0], parts[1], parts[2])
    assert shapes(whole, x=(4, 3)) == ({"x": (4, 3)}, (4, 3))
    executor = whole.simple_bind(mx.cpu(), grad_req="null", x=(4, 3))
    executor.arg_dict["x"][:] = 0.5
    assert executor.arg_dict["x"].dtype == FLOAT
    assert np.allclose(executor.forward()[0].asnumpy(), 64 / 127.5)  # as in the real MXNet
