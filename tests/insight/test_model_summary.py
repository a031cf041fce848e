"""mx.summary: counted by inference, equal to known figures of networks and to what is counted by hand."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError, ShapeError
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.model_zoo import vision
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.insight.work import peak_bytes, work_in
from hybrid_lab.ops.framework.operator import Operator, registered_names

#: Multiply-adds in 1e9 and parameters in 1e6 of one image, as papers and other frameworks' tables give them. The
#: ResNet of version 1 has its strides in the first convolution of a block, and so 3.86 instead of 4.1.
KNOWN = {
    "alexnet": (0.71, 61.1),
    "vgg16": (15.5, 138.4),
    "resnet18_v1": (1.82, 11.7),
    "resnet50_v1": (3.86, 25.6),
    "resnet50_v2": (4.1, 25.6),
    "squeezenet1_0": (0.82, 1.25),
    "mobilenet1_0": (0.569, 4.25),
    "mobilenet_v2_1_0": (0.315, 3.5),
    "densenet121": (2.85, 8.0),
    "inception_v3": (5.72, 23.8),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_figures(name):
    size = 299 if name == "inception_v3" else 224
    net = getattr(vision, name)()
    total = mx.summary(net, (1, 3, size, size)).total
    products, parameters = KNOWN[name]
    assert total.multiply_adds == pytest.approx(products * 1e9, rel=0.01)
    assert total.parameters == pytest.approx(parameters * 1e6, rel=0.02)
    assert 2 * total.multiply_adds < total.flop < 2.2 * total.multiply_adds


def test_every_operator_of_products_has_a_rule():
    mx.nd.ones((1,))
    families = {"conv", "deconv", "linalg", "linalg_products", "numpy_products", "attention", "rnn"}
    names = {"_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution", "_sg_mkldnn_conv"}
    none = {"_triangle", "khatri_rao", "_np_det", "_rnn_param_concat"}
    records = {record for record in registered_names().values() if record.family in families or record.name in names}
    without = {record.name for record in records if record.multiply_adds is Operator.multiply_adds}
    assert without == none


def dense(units: int = 4) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(units, in_units=3), nn.Activation("relu"), nn.Dense(2))
    return net


def test_rows_of_a_small_network():
    summary = mx.summary(dense(), (8, 3))
    first, activation, last = summary["0"], summary["1"], summary["2"]
    assert (first.multiply_adds, first.flop, first.parameters) == (8 * 3 * 4, 2 * 8 * 3 * 4 + 8 * 4, 16)
    assert (activation.multiply_adds, activation.flop, activation.activations) == (0, 8 * 4, 8 * 4 * 4)
    assert (last.parameters, last.outputs) == (10, ["f32[8,2]"])
    assert summary.total.flop == first.flop + activation.flop + last.flop
    assert (summary.total.parameters, summary.parameter_bytes) == (26, 104)
    assert str(summary).splitlines()[0] == summary.headline
    assert "26 parameters (104 B), 160 MAC" in summary.headline
    assert "<table" in summary._repr_html_() and "<script" not in summary._repr_html_()
    assert summary.data()["blocks"][1]["path"] == "0"
    with pytest.raises(KeyError):
        summary["nosuch"]


def test_inputs_may_be_arrays_shapes_lists_dicts_and_have_dtypes():
    class Two(gluon.HybridBlock):
        def hybrid_forward(self, F, data, label):
            return F.dot(data, label)

    net = Two()
    wanted = mx.summary(net, (2, 3), (3, 4)).total.multiply_adds
    assert wanted == 24
    for given in ([(2, 3), (3, 4)], {"label": (3, 4), "data": (2, 3)}, [nd.ones((2, 3)), np.ones((3, 4), "float32")]):
        assert mx.summary(net, given).total.multiply_adds == wanted
    net_of_layers = dense()
    assert mx.summary(net_of_layers, nd.ones((8, 3))).data() == mx.summary(net_of_layers, (8, 3)).data()
    embedding = nn.Embedding(10, 4)
    assert mx.summary(embedding, ((8, 5), "int32")).inputs == ["i32[8,5]"]
    with pytest.raises(HybridLabError, match="no argument 'nosuch'; its arguments are data, label"):
        mx.summary(net, {"nosuch": (1, 2)})
    with pytest.raises(HybridLabError):
        mx.summary(net, "shape")
    with pytest.raises(HybridLabError, match="needs a Block"):
        mx.summary(3, (1, 2))


def test_what_if_the_batch_or_the_dtype_were_another():
    net = vision.resnet18_v1()
    one, many = mx.summary(net, (1, 3, 64, 64)), mx.summary(net, (32, 3, 64, 64))
    assert many.total.multiply_adds == 32 * one.total.multiply_adds
    assert many.total.parameters == one.total.parameters and many.parameter_bytes == one.parameter_bytes
    half = mx.summary(net, (32, 3, 64, 64), dtype="float16")
    assert half.total.activations == many.total.activations // 2
    # Statistics, gamma and beta of BatchNorm stay float32, as after net.cast("float16").
    net.cast("float16")
    net.initialize()
    values = net.collect_params().values()
    shapes = {row.path: row for row in half.blocks}
    assert shapes[""].parameters == one.total.parameters
    net.infer_shape(nd.ones((1, 3, 64, 64), dtype="float16"))
    assert half.parameter_bytes == sum(prod(each.shape) * np.dtype(each.dtype).itemsize for each in values)


def test_training_counts_the_backward_and_what_is_kept():
    net = vision.resnet18_v1()
    forward, training = mx.summary(net, (4, 3, 64, 64)), mx.summary(net, (4, 3, 64, 64), training=True)
    # The gradient of the input is not computed: the first convolution has one product less.
    first = forward["features.0"].multiply_adds
    assert training.total.multiply_adds == 3 * forward.total.multiply_adds - first
    assert training["features.4"].multiply_adds == 3 * forward["features.4"].multiply_adds
    assert 0 < training.kept_bytes <= forward.total.activations
    assert training.gradient_bytes == 4 * training.total.trainable
    assert training.peak_bytes is None and forward.kept_bytes is None
    net.collect_params().setattr("grad_req", "null")
    frozen = mx.summary(net, (4, 3, 64, 64), training=True)
    assert frozen.gradient_bytes == 0 and frozen.total.multiply_adds == forward.total.multiply_adds


def test_a_recurrent_layer_counts_as_its_cell_unrolled():
    class Unrolled(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell = rnn.LSTMCell(5)

        def hybrid_forward(self, F, x):
            outputs, _ = self.cell.unroll(7, x, layout="NTC", merge_outputs=True)
            return outputs

    unrolled = mx.summary(Unrolled(), (2, 7, 3))
    fused = mx.summary(rnn.LSTM(5, layout="NTC"), (2, 7, 3))
    assert fused.total.multiply_adds == unrolled.total.multiply_adds == 2 * 7 * 4 * 5 * (3 + 5)
    assert fused.total.parameters == unrolled.total.parameters == 4 * 5 * (3 + 5 + 2)
    assert unrolled["cell"].calls == 7


@pytest.mark.parametrize(("mode", "gates"), [("GRU", 3), ("RNN", 1), ("LSTM", 4)])
def test_recurrent_layers_in_two_directions(mode, gates):
    layer = getattr(rnn, mode)(6, num_layers=2, bidirectional=True)
    weights = gates * 6 * 2 * ((4 + 6) + (12 + 6))
    assert mx.summary(layer, (9, 2, 4)).total.multiply_adds == 9 * 2 * weights


class Shared(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(3, in_units=3, flatten=False)
        self.again = self.first
        self.tied = nn.Dense(3, in_units=3, flatten=False, params=self.first.params)

    def hybrid_forward(self, F, x):
        return self.tied(self.again(self.first(x)))


def test_shared_and_repeated_blocks_count_their_parameters_once():
    summary = mx.summary(Shared(), (2, 3))
    assert summary.total.parameters == 12
    assert summary.total.multiply_adds == 3 * 2 * 9
    assert summary["again"].same_as == "first" and summary["again"].parameters == 0
    # A Block that shares a parameter with another one says how many it has, as in the tree; the whole counts it once.
    assert summary["first"].calls == 2 and summary["tied"].parameters == 12


def test_loops_count_every_step_and_choices_the_branch_that_does_most():
    class Loop(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(4, 4))

        def hybrid_forward(self, F, x, weight):
            outputs, _ = F.contrib.foreach(lambda step, state: (F.dot(step, weight), state), x, [])
            return F.contrib.cond(F.sum(x) > 0, lambda: F.dot(outputs, weight), lambda: outputs)

    assert mx.summary(Loop(), (5, 3, 4)).total.multiply_adds == 2 * 5 * 3 * 4 * 4


def test_products_of_numpy_and_attention():
    class Products(gluon.HybridBlock):
        def forward(self, a, b):
            return mx.np.einsum("bij,bjk->bik", a, b), mx.np.matmul(a, b), mx.np.tensordot(a, b, axes=([2], [1]))

    a, b = mx.np.ones((2, 3, 4)), mx.np.ones((2, 4, 5))
    assert mx.summary(Products(), a, b).total.multiply_adds == 2 * (2 * 3 * 4 * 5) + (2 * 3 * 4 * 2 * 5)

    class Attention(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            scores = F.contrib.interleaved_matmul_selfatt_qk(x, heads=2)
            return F.contrib.interleaved_matmul_selfatt_valatt(x, scores, heads=2)

    steps, batch, heads, size = 7, 3, 2, 4
    summary = mx.summary(Attention(), (steps, batch, heads * 3 * size))
    assert summary.total.multiply_adds == 2 * batch * heads * steps * steps * size


@pytest.mark.parametrize(
    ("call", "shapes", "wanted"),
    [
        (lambda F, a, b: F.dot(a, b, transpose_a=True), [(4, 3), (4, 5)], 60),
        (lambda F, a, b: F.batch_dot(a, b, transpose_b=True), [(2, 3, 4), (2, 5, 4)], 120),
        (lambda F, a, b: F.linalg.gemm2(a, b), [(2, 3, 4), (2, 4, 5)], 120),
        (lambda F, a, b: F.linalg.gemm2(a, b, axis=1), [(2, 3, 6, 4), (2, 4, 6, 5)], 720),
        (lambda F, a, b: F.linalg.gemm(a, b, F.dot(a, b)), [(3, 4), (4, 5)], 120),
        (lambda F, a, b: F.linalg.syrk(a) + F.sum(b), [(3, 4), (1,)], 36),
        (lambda F, a, b: F.Convolution(a, b, kernel=(3, 3), num_filter=6, num_group=2, no_bias=True),
         [(1, 4, 8, 8), (6, 2, 3, 3)], 6 * 36 * 18),
        (lambda F, a, b: F.Convolution(a, b, kernel=(3, 3), num_filter=6, no_bias=True, layout="NHWC"),
         [(1, 8, 8, 4), (6, 3, 3, 4)], 6 * 36 * 36),
        (lambda F, a, b: F.Deconvolution(a, b, kernel=(2, 2), stride=(2, 2), num_filter=6),
         [(1, 4, 8, 8), (4, 6, 2, 2)], 4 * 64 * 24),
    ],
)  # fmt: skip
def test_products(call, shapes, wanted):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, a, b):
            return call(F, a, b)

    assert mx.summary(Net(), *shapes).total.multiply_adds == wanted


def test_pooling_reads_its_window_and_moving_numbers_is_no_operation():
    pool = nn.MaxPool2D(2)
    assert mx.summary(pool, (1, 2, 8, 8)).total.flop == 2 * 16 * 4

    class Moves(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.concat(F.transpose(x), F.transpose(x), dim=0).reshape((-1,))

    summary = mx.summary(Moves(), (2, 3))
    assert summary.total.flop == 0 and summary.total.activations == 48  # transposes are views


def test_a_plain_block_is_counted_with_its_children():
    class Top(gluon.Block):
        def __init__(self):
            super().__init__()
            self.encoder = dense()
            self.rest = nn.Sequential()
            self.rest.add(nn.Dense(3))

        def forward(self, x):
            hidden = self.encoder(x)
            return self.rest(hidden) + nd.relu(self.rest(hidden))

    summary = mx.summary(Top(), (8, 3))
    assert summary["encoder"].multiply_adds == 160 and summary["encoder.0"].parameters == 16
    assert summary["rest.0"].multiply_adds == 2 * 8 * 2 * 3 and summary["rest.0"].calls == 2
    assert summary.total.parameters == 26 + 9


def test_code_that_cannot_become_a_graph_still_has_its_parameters():
    class Reads(gluon.Block):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, in_units=3)

        def forward(self, x):
            return self.dense(x) if x.asnumpy().sum() > 0 else x

    summary = mx.summary(Reads(), (8, 3))
    assert summary.total.parameters == 8 and "HL111" not in summary.headline
    assert "cannot become a graph" in summary.missing and "cannot become a graph" in str(summary)

    class Raises(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.inner = nn.Dense(2)

        def hybrid_forward(self, F, x):
            raise RuntimeError("not today")

    summary = mx.summary(Raises(), (8, 3))
    assert summary.total.parameters is None and "RuntimeError: not today" in summary.missing
    assert "?" in str(summary)


def test_shapes_that_do_not_fit_are_a_clear_error():
    with pytest.raises(ShapeError, match="FullyConnected"):
        mx.summary(dense(), (8, 4))


def test_nothing_of_the_model_changes():
    net = vision.resnet18_v1()
    mx.random.seed(3)
    expected = nd.random.uniform(shape=(2,)).asnumpy()
    mx.random.seed(3)
    mx.summary(net, (1, 3, 64, 64), training=True)
    assert net.features[0].weight.shape == (64, 0, 7, 7)
    assert np.array_equal(nd.random.uniform(shape=(2,)).asnumpy(), expected)
    net.initialize()
    net.hybridize()
    x = nd.ones((1, 3, 32, 32))
    before = net(x).asnumpy()
    mx.summary(net, (4, 3, 64, 64), dtype="float16", training=True)
    assert np.allclose(net(x).asnumpy(), before, atol=1e-5) and len(net._graph_calls.programs) == 1


def test_a_graph_from_a_file(tmp_path):
    net = dense()
    net.initialize()
    net.hybridize()
    net(nd.ones((8, 3)))
    wanted = mx.summary(net, (8, 3)).total
    net.export(str(tmp_path / "net"))
    block = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    found = mx.summary(block, (8, 3)).total
    assert (found.multiply_adds, found.flop, found.parameters) == (wanted.multiply_adds, wanted.flop, wanted.parameters)


def test_the_text_fits_a_screen_and_leaves_out_deep_blocks():
    net = vision.densenet121()
    lines = str(mx.summary(net, (1, 3, 224, 224))).splitlines()
    assert max(map(len, lines[1:])) <= 120 and len(lines) < 70
    assert "deeper Blocks not shown" in lines[-2]


def test_peak_memory_is_what_is_alive_at_one_time():
    x = mx.sym.var("x")
    y = mx.sym.exp(mx.sym.exp(mx.sym.exp(x)))
    graph: Graph = y.graph()
    typed = infer(graph, {graph.inputs[0]: (10,)}, {graph.inputs[0]: np.dtype("float32")})
    assert (peak_bytes(typed), work_in(typed).bytes) == (80, 120)


def test_summary_of_a_block_prints_the_table_of_mxnet_for_arrays_and_this_one_for_shapes(capsys):
    net = dense()
    net.initialize()
    net.summary(nd.ones((8, 3)))
    assert "Layer (type)" in capsys.readouterr().out
    net.summary((8, 3))
    assert "160 MAC" in capsys.readouterr().out
    net.summary(nd.ones((8, 3)), training=True)
    assert "kept for the backward" in capsys.readouterr().out
    assert not autograd.is_training()
