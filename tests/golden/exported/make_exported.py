"""Models that the real MXNet 1.9.1 exported, with inputs and outputs. Run by MXNet's own Python: `make golden`.

As users have them: checkpoints of Module with labels and losses, exports of Gluon, detectors, a quantized model.
Names of files: NAME-symbol.json, NAME-0003.params, and NAME.npz with `in_NAME` and `out_0`, `out_1` ...
"""

import os
import sys
from pathlib import Path

os.environ["MXNET_MKLDNN_ENABLED"] = "1"  # the fused RNN operator runs only so; nothing here is a gradient

import numpy as np  # noqa: E402

np.bool = bool  # MXNet 1.9.1 asks for it
import mxnet as mx  # noqa: E402
from mxnet import gluon, nd  # noqa: E402
from mxnet.contrib import quantization  # noqa: E402
from mxnet.gluon import nn, rnn  # noqa: E402

sym = mx.sym
EPOCH = 3
random = np.random.RandomState(0)


def checkpoint(name, net, shapes, whole=()):
    """A Module's checkpoint. whole : inputs that are indices"""
    arguments, _, states = net.infer_shape(**shapes)
    weights, aux = {}, {}
    for key, shape in zip(net.list_arguments(), arguments):
        if key not in shapes:
            values = random.randn(*shape) / np.sqrt(max(1, np.prod(shape[1:])))
            weights[key] = nd.array(random.rand(*shape) + 0.5 if key.endswith("gamma") else values)
    for key, shape in zip(net.list_auxiliary_states(), states):
        aux[key] = nd.array(random.randn(*shape) * 0.1 if "mean" in key else random.rand(*shape) + 0.5)
    mx.model.save_checkpoint(name, EPOCH, net, weights, aux)
    data = {key: random.randint(0, 9, shape) if key in whole else random.randn(*shape) for key, shape in shapes.items()}
    if "im_info" in data:
        data["im_info"] = np.array([[*shapes["data"][2:], 1.0]])
    data = {key: array.astype(np.float32) for key, array in data.items()}
    every = {**weights, **{key: nd.array(array) for key, array in data.items()}}
    bound = net.bind(mx.cpu(), every, aux_states=aux, grad_req="null")
    keep(name, data, bound.forward(is_train=False))


def exported(name, net, data):
    """An export of a hybridized Block."""
    net.initialize(mx.init.Xavier())
    net.hybridize()
    result = net(nd.array(data))
    net.export(name, EPOCH)
    keep(name, {"data": data}, result if isinstance(result, (list, tuple)) else [result])


def keep(name, data, outputs):
    arrays = {f"in_{key}": array for key, array in data.items()}
    np.savez_compressed(name, **arrays, **{f"out_{index}": array.asnumpy() for index, array in enumerate(outputs)})


def mlp():
    x = sym.Activation(sym.FullyConnected(sym.Variable("data"), name="fc1", num_hidden=16), act_type="relu")
    return sym.SoftmaxOutput(sym.FullyConnected(x, name="fc2", num_hidden=10), name="softmax")


def lenet():
    x = sym.Variable("data")
    for index, filters in enumerate((6, 8)):
        x = sym.Convolution(x, kernel=(5, 5), num_filter=filters, name=f"conv{index + 1}")
        x = sym.Pooling(sym.Activation(x, act_type="tanh"), pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = sym.Activation(sym.FullyConnected(sym.Flatten(x), num_hidden=20, name="fc1"), act_type="relu")
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=10, name="fc2"), name="softmax")


def resnet():
    def unit(x, filters, stride, same, name):
        y = sym.BatchNorm(x, fix_gamma=False, eps=2e-5, name=f"{name}_bn1")
        first = sym.Activation(y, act_type="relu", name=f"{name}_relu1")
        y = sym.Convolution(first, num_filter=filters, kernel=(3, 3), stride=stride, pad=(1, 1), no_bias=True,
                            name=f"{name}_conv1")  # fmt: skip
        y = sym.Activation(sym.BatchNorm(y, fix_gamma=False, name=f"{name}_bn2"), act_type="relu", name=f"{name}_relu2")
        y = sym.Convolution(y, num_filter=filters, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"{name}_conv2")
        side = x if same else sym.Convolution(first, num_filter=filters, kernel=(1, 1), stride=stride, no_bias=True,
                                              name=f"{name}_sc")  # fmt: skip
        return y + side

    x = sym.BatchNorm(sym.Variable("data"), fix_gamma=True, name="bn_data")
    x = sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), no_bias=True, name="conv0")
    for stage, (filters, stride) in enumerate(((4, (1, 1)), (8, (2, 2)))):
        x = unit(x, filters, stride, False, f"stage{stage + 1}_unit1")
        x = unit(x, filters, (1, 1), True, f"stage{stage + 1}_unit2")
    x = sym.Activation(sym.BatchNorm(x, fix_gamma=False, name="bn1"), act_type="relu")
    x = sym.Flatten(sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg"))
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=10, name="fc1"), name="softmax")


def language_model(cell, steps):
    embedded = sym.Embedding(sym.Variable("data"), input_dim=20, output_dim=6, name="embed")
    outputs, _ = cell.unroll(steps, inputs=embedded, merge_outputs=True, layout="NTC")
    scores = sym.FullyConnected(sym.Reshape(outputs, shape=(-3, -2)), num_hidden=20, name="pred")
    return sym.SoftmaxOutput(scores, sym.Reshape(sym.Variable("softmax_label"), shape=(-1,)), name="softmax")


def cells():
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(8, prefix="lstm_l0_"))
    stack.add(mx.rnn.GRUCell(8, prefix="gru_l1_"))
    return stack


def regression():
    x = sym.LeakyReLU(sym.FullyConnected(sym.Variable("data"), num_hidden=8, name="fc1"), act_type="leaky", slope=0.1)
    return sym.LinearRegressionOutput(
        sym.FullyConnected(x, num_hidden=1, name="fc2"), sym.Variable("lin_label"), name="lin"
    )


def ssd(training):
    x = sym.Activation(sym.Convolution(sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=6, name="c1"),
                       act_type="relu")  # fmt: skip
    classes, moves, anchors = [], [], []
    for index in range(2):
        x = sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
        x = sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"c{index + 2}")
        x = sym.Activation(x, act_type="relu")
        for name, found in (("cls", classes), ("loc", moves)):
            y = sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=16, name=f"{name}{index}")
            found.append(sym.Flatten(sym.transpose(y, axes=(0, 2, 3, 1))))
        anchors.append(sym.Flatten(sym.contrib.MultiBoxPrior(
            x, sizes=(0.2 + 0.3 * index, 0.3 + 0.3 * index), ratios=(1, 2, 0.5), name=f"anchors{index}")))  # fmt: skip
    scores = sym.transpose(sym.Reshape(sym.Concat(*classes, dim=1), shape=(0, -1, 4)), axes=(0, 2, 1))
    move, anchor = sym.Concat(*moves, dim=1), sym.Reshape(sym.Concat(*anchors, dim=1), shape=(0, -1, 4))
    settings = {"nms_threshold": 0.5, "force_suppress": False, "nms_topk": 40, "name": "detection"}
    if not training:
        return sym.contrib.MultiBoxDetection(sym.SoftmaxActivation(scores, mode="channel"), move, anchor, **settings)
    target = sym.contrib.MultiBoxTarget(anchor, sym.Variable("label"), scores, negative_mining_ratio=3, name="target")
    likely = sym.SoftmaxOutput(scores, target[2], ignore_label=-1, use_ignore=True, multi_output=True,
                               normalization="valid", name="cls_prob")  # fmt: skip
    loss = sym.MakeLoss(sym.smooth_l1(target[1] * (move - target[0]), scalar=1.0), name="loc_loss")
    found = sym.contrib.MultiBoxDetection(likely, move, anchor, **settings)
    return sym.Group([likely, loss, sym.MakeLoss(found, grad_scale=0, name="det_out")])


def segmenter():
    x = sym.Convolution(sym.Variable("data"), kernel=(3, 3), pad=(1, 1), stride=(2, 2), num_filter=8, name="c1")
    x = sym.LeakyReLU(x, act_type="prelu", name="slope")
    x = sym.Deconvolution(x, kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=4, no_bias=True, name="up")
    return sym.SoftmaxOutput(x, multi_output=True, name="softmax")


def rcnn():
    x = sym.Convolution(sym.Variable("data"), kernel=(3, 3), pad=(1, 1), stride=(4, 4), num_filter=8, name="c1")
    x = sym.Activation(x, act_type="relu")
    scores = sym.Convolution(x, kernel=(1, 1), num_filter=18, name="rpn_cls")
    likely = sym.SoftmaxActivation(sym.Reshape(scores, shape=(0, 2, -1, 0)), mode="channel")
    rois = sym.contrib.Proposal(
        cls_prob=sym.Reshape(likely, shape=(0, 18, -1, 0)),
        bbox_pred=sym.Convolution(x, kernel=(1, 1), num_filter=36, name="rpn_box"),
        im_info=sym.Variable("im_info"), feature_stride=4, scales=(2, 4, 8), ratios=(0.5, 1, 2), rpn_pre_nms_top_n=100,
        rpn_post_nms_top_n=12, rpn_min_size=4, name="rois",
    )  # fmt: skip
    pooled = sym.Flatten(sym.ROIPooling(x, rois, pooled_size=(3, 3), spatial_scale=0.25, name="pool"))
    return sym.Group([rois, sym.SoftmaxActivation(sym.FullyConnected(pooled, num_hidden=4, name="cls"))])


class Reader(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.words = nn.Embedding(20, 6)
            self.both = rnn.LSTM(5, 2, layout="NTC", bidirectional=True)
            self.last = rnn.GRU(6, layout="NTC")
            self.scores = nn.Dense(4, flatten=False)

    def hybrid_forward(self, F, x):
        return self.scores(self.last(self.both(self.words(x))))


class Attention(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.query, self.key, self.value = (nn.Dense(8, flatten=False) for _ in range(3))
            self.norm, self.act = nn.LayerNorm(), nn.GELU()

    def hybrid_forward(self, F, x):
        weights = F.softmax(F.batch_dot(self.query(x), self.key(x), transpose_b=True) / 4.0)
        return self.act(self.norm(x + F.batch_dot(weights, self.value(x)))), weights.mean(axis=1)


def main():
    os.chdir(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
    mx.random.seed(0)
    checkpoint("mlp", mlp(), {"data": (4, 1, 6, 6), "softmax_label": (4,)})
    checkpoint("lenet", lenet(), {"data": (2, 1, 28, 28), "softmax_label": (2,)})
    checkpoint("resnet", resnet(), {"data": (2, 3, 16, 16), "softmax_label": (2,)})
    shapes = {"data": (3, 5), "softmax_label": (3, 5)}
    checkpoint(
        "lstm", language_model(mx.rnn.FusedRNNCell(8, num_layers=2, mode="lstm", prefix="lstm_"), 5), shapes, ["data"]
    )
    checkpoint("cells", language_model(cells(), 5), shapes, ["data"])
    checkpoint("regression", regression(), {"data": (4, 6), "lin_label": (4, 1)})
    checkpoint("ssd", ssd(False), {"data": (2, 3, 16, 16)})
    checkpoint("ssd_training", ssd(True), {"data": (2, 3, 16, 16), "label": (2, 3, 5)})
    checkpoint("segmenter", segmenter(), {"data": (2, 3, 8, 8), "softmax_label": (2, 8, 8)})
    checkpoint("rcnn", rcnn(), {"data": (1, 3, 32, 32), "im_info": (1, 3)})
    exported("reader", Reader(), random.randint(0, 20, (2, 7)).astype(np.float32))
    exported("attention", Attention(), random.randn(2, 6, 8).astype(np.float32))
    net, weights, aux = mx.model.load_checkpoint("lenet", EPOCH)
    quantized, weights, aux = quantization.quantize_model(net, weights, aux, ctx=mx.cpu(), calib_mode="none")
    mx.model.save_checkpoint("quantized", EPOCH, quantized, weights, aux)


main()
