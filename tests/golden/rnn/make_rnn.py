"""Run recurrent layers and cells in the real MXNet 1.9.1: writes rnn.npz, lstm.params and words-*.

Needs the oracle's environment. The fused operator runs with oneDNN only, so it is on here:

    .oracle/bin/python tests/golden/rnn/make_rnn.py

Keys: <case>/x, <case>/state<i> inputs; <case>/<parameter> values; <case>/y, <case>/new<i> outputs; <case>/dx,
<case>/dstate<i>, <case>/d<parameter> gradients for the head gradients of `heads`.
"""

import os
from pathlib import Path

os.environ["MXNET_MKLDNN_ENABLED"] = "1"

import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402
from mxnet import gluon  # noqa: E402
from mxnet.gluon import nn, rnn  # noqa: E402

FOLDER = Path(__file__).resolve().parent

#: case -> (class, keyword arguments, shape of x)
LAYERS = {
    f"{name}{layers}{'b' if both else ''}{layout}": (
        name,
        {"hidden_size": 4, "num_layers": layers, "bidirectional": both, "layout": layout, **extra},
        (5, 3, 6),
    )
    for name, extra in (("RNN", {"activation": "tanh"}), ("LSTM", {}), ("GRU", {}))
    for layers, both, layout in ((1, False, "TNC"), (2, False, "NTC"), (2, True, "TNC"))
} | {"relu": ("RNN", {"hidden_size": 4, "num_layers": 2, "activation": "relu"}, (5, 3, 6))}

CELLS = {
    "RNNCell": lambda: rnn.RNNCell(4),
    "LSTMCell": lambda: rnn.LSTMCell(4),
    "GRUCell": lambda: rnn.GRUCell(4),
    "LSTMP": lambda: gluon.contrib.rnn.LSTMPCell(5, 3),
    "Residual": lambda: rnn.ResidualCell(rnn.GRUCell(6)),
    "Bidirectional": lambda: rnn.BidirectionalCell(rnn.LSTMCell(4), rnn.LSTMCell(3)),
}

#: Outputs only: with oneDNN the gradients of convolutions are wrong.
CONVOLVED = {
    f"Conv{rank}D{kind}Cell": (getattr(gluon.contrib.rnn, f"Conv{rank}D{kind}Cell"), rank)
    for rank in (1, 2, 3)
    for kind in ("RNN", "LSTM", "GRU")
}


def unroll_convolved(generator, answers):
    for case, (kind, rank) in CONVOLVED.items():
        shape = (2, 5, 4, 6)[: rank + 1]
        net = kind(shape, 3, i2h_kernel=3, h2h_kernel=3, i2h_pad=1, h2h_dilate=2)
        net.initialize()
        fill(net, generator, answers, case)
        x = generator.uniform(-1, 1, (2, 3, *shape)).astype(np.float32)
        y, states = net.unroll(3, mx.nd.array(x), layout="NTC" + "DHW"[3 - rank :], merge_outputs=True)
        answers[f"{case}/x"], answers[f"{case}/y"] = x, y.asnumpy()
        answers.update({f"{case}/new{index}": state.asnumpy() for index, state in enumerate(states)})


def heads(shape):
    """Head gradients: the same numbers for the same shape, everywhere."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 7919) % 41 - 20) / 16.0).reshape(shape).astype(np.float32)


class Words(gluon.HybridBlock):
    """A language model whose recurrent layer begins with zeros: their batch size is unknown in the exported file."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        with self.name_scope():
            self.embedding = nn.Embedding(7, 5)
            self.lstm = rnn.LSTM(4, 2, layout="NTC")
            self.head = nn.Dense(7, flatten=False)

    def hybrid_forward(self, F, x):
        return self.head(self.lstm(self.embedding(x)))


def export_words(generator, answers):
    net = Words(prefix="words_")
    net.initialize()
    net.hybridize()
    x = generator.randint(0, 7, (3, 6)).astype(np.float32)
    net(mx.nd.array(x))
    fill(net, generator, answers, "words")
    answers["words/x"], answers["words/y"] = x, net(mx.nd.array(x)).asnumpy()
    net.export(str(FOLDER / "words"))


def fill(net, generator, answers, case):
    """Random parameters, once their shapes are known; paths as save_parameters writes them."""
    found = net._collect_params_with_prefix()
    for path, parameter in found.items():
        values = generator.uniform(-0.6, 0.6, parameter.shape).astype(np.float32)
        parameter.set_data(mx.nd.array(values))
        answers[f"{case}/{path}"] = values
    return found


def differentiate(net, call, inputs, found, answers, case):
    with mx.autograd.record():
        outputs = call()
    mx.autograd.backward(outputs, [mx.nd.array(heads(y.shape)) for y in outputs])
    for index, y in enumerate(outputs):
        answers[f"{case}/{'y' if index == 0 else f'new{index - 1}'}"] = y.asnumpy()
    for name, array in inputs.items():
        answers[f"{case}/{name}"] = array.asnumpy()
        answers[f"{case}/d{name}"] = array.grad.asnumpy()
    for path, parameter in found.items():
        answers[f"{case}/d{path}"] = parameter.grad().asnumpy()


def inputs_of(generator, shape, states):
    made = {"x": generator.uniform(-1, 1, shape), **{f"state{i}": generator.uniform(-1, 1, s) for i, s in states}}
    made = {name: mx.nd.array(values.astype(np.float32)) for name, values in made.items()}
    for array in made.values():
        array.attach_grad()
    return made


def main():
    generator = np.random.RandomState(11)
    answers = {}
    for case, (name, keywords, shape) in LAYERS.items():
        net = getattr(rnn, name)(**keywords)
        net.initialize()
        net(mx.nd.zeros(shape))
        found = fill(net, generator, answers, case)
        batch = shape[1] if keywords.get("layout", "TNC") == "TNC" else shape[0]
        inputs = inputs_of(generator, shape, [(i, info["shape"]) for i, info in enumerate(net.state_info(batch))])
        states = [array for key, array in inputs.items() if key != "x"]

        def call(net=net, x=inputs["x"], states=states):
            y, new = net(x, states)
            return [y, *new]

        differentiate(net, call, inputs, found, answers, case)
        if case == "LSTM2bTNC":
            net.save_parameters(str(FOLDER / "lstm.params"))
    for case, make in CELLS.items():
        for lengths in (None, [5.0, 2.0, 3.0]):
            label = case if lengths is None else f"{case}+lengths"
            net = make()
            net.initialize()
            net.unroll(5, mx.nd.zeros((3, 5, 6)))
            found = fill(net, generator, answers, label)
            inputs = inputs_of(generator, (3, 5, 6), [(i, s["shape"]) for i, s in enumerate(net.state_info(3))])
            states = [array for key, array in inputs.items() if key != "x"]
            valid = None if lengths is None else mx.nd.array(lengths)

            def call(net=net, x=inputs["x"], states=states, valid=valid):
                y, new = net.unroll(5, x, states, merge_outputs=True, valid_length=valid)
                return [y, *new]

            differentiate(net, call, inputs, found, answers, label)
    unroll_convolved(generator, answers)
    export_words(generator, answers)
    np.savez_compressed(FOLDER / "rnn.npz", **answers)
    print(len(answers), "arrays")


if __name__ == "__main__":
    main()
