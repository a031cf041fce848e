"""Run LSTMs with projected outputs in the real MXNet 1.9.1: writes projected.npz and projected-*.

Needs the oracle's environment:

    .oracle/bin/python tests/golden/rnn/make_projected.py

Outputs are those of gluon.rnn.LSTM(projection_size=...). MXNet has no gradient of it on a CPU, so gradients are
those of LSTMPCells with the same parameters, after a comparison of the outputs. Keys as in make_rnn.py; <case>/shapes
has the state shapes, <case>/names the parameters in the order of collect_params().
"""

import mxnet as mx
import numpy as np
from make_rnn import FOLDER, differentiate, fill, inputs_of
from mxnet import gluon
from mxnet.gluon import nn, rnn

H, P = 5, 3

#: case -> keyword arguments, shape of x
CASES = {
    "1TNC": ({"num_layers": 1}, (4, 3, 6)),
    "2bTNC": ({"num_layers": 2, "bidirectional": True}, (4, 3, 6)),
    "2NTC": ({"num_layers": 2, "layout": "NTC"}, (3, 4, 6)),
    "wide": ({"num_layers": 1, "bidirectional": True, "projection_size": 7}, (4, 3, 6)),
}


def cells(keywords):
    """The stack of cells that has the parameters of the layer, by the same paths."""
    stack = rnn.HybridSequentialRNNCell()
    for _ in range(keywords["num_layers"]):
        made = [gluon.contrib.rnn.LSTMPCell(H, keywords["projection_size"]) for _ in range(2)]
        stack.add(rnn.BidirectionalCell(*made) if keywords.get("bidirectional") else made[0])
    return stack


def run(case, keywords, shape, generator, answers):
    keywords = {"projection_size": P, "layout": "TNC", **keywords}
    net = rnn.LSTM(H, prefix="lstm_", **keywords)
    net.initialize()
    net(mx.nd.zeros(shape))
    values = {path.replace("_unfused.", ""): item for path, item in fill(net, generator, {}, case).items()}
    answers[f"{case}/names"] = np.array(list(net.collect_params()))
    batch = shape[keywords["layout"].index("N")]
    sizes = [info["shape"] for info in net.state_info(batch)]
    answers[f"{case}/shapes"] = np.array(sizes)
    inputs = inputs_of(generator, shape, list(enumerate(sizes)))
    x, *states = inputs.values()
    y, new = net(x, states)

    stack = cells(keywords)
    stack.initialize()
    stack.unroll(4, mx.nd.zeros(shape), layout=keywords["layout"])
    found = stack._collect_params_with_prefix()
    assert found.keys() == values.keys()
    for path, parameter in found.items():
        parameter.set_data(values[path].data())
        answers[f"{case}/_unfused.{path}"] = values[path].data().asnumpy()

    def call():
        pairs = zip(*(mx.nd.split(s, s.shape[0], axis=0, squeeze_axis=True) for s in states), strict=True)
        if states[0].shape[0] == 1:
            pairs = [[s[0] for s in states]]
        begin = [state for pair in pairs for state in pair]
        output, ends = stack.unroll(4, x, begin, layout=keywords["layout"], merge_outputs=True)
        return [output, *(mx.nd.stack(*ends[kind::2]) for kind in (0, 1))]

    found = {f"_unfused.{path}": parameter for path, parameter in found.items()}
    differentiate(stack, call, inputs, found, answers, case)
    for name, array in {"y": y, "new0": new[0], "new1": new[1]}.items():
        np.testing.assert_allclose(array.asnumpy(), answers[f"{case}/{name}"], atol=1e-6)
        answers[f"{case}/{name}"] = array.asnumpy()


def export(generator, answers):
    """A network whose LSTM begins with zeros of two widths, for a batch that the file leaves open."""
    net = nn.HybridSequential(prefix="projected_")
    with net.name_scope():
        net.add(rnn.LSTM(H, 2, bidirectional=True, projection_size=P, layout="NTC"), nn.Dense(2, flatten=False))
    net.initialize()
    net.hybridize()
    x = generator.uniform(-1, 1, (3, 4, 6)).astype(np.float32)
    net(mx.nd.array(x))
    fill(net, generator, {}, "network")
    answers["network/x"], answers["network/y"] = x, net(mx.nd.array(x)).asnumpy()
    net.export(str(FOLDER / "projected"))


def main():
    generator = np.random.RandomState(5)
    answers = {}
    for case, (keywords, shape) in CASES.items():
        run(case, keywords, shape, generator, answers)
    export(generator, answers)
    np.savez_compressed(FOLDER / "projected.npz", **answers)
    print(len(answers), "arrays")


if __name__ == "__main__":
    main()
