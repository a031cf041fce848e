"""Names of outputs are those of MXNet 1.9.1. `tests/golden/ops/output_names.json` has them for every operator that has
others than one `output`.
"""

import json
from pathlib import Path

import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import rnn
from hybrid_lab.ops import get, records
from hybrid_lab.symbol.symbol import compose

GOLDEN = Path(__file__).parents[2] / "golden/ops/output_names.json"
NAMES = {get(name).bind(**attributes): outputs for name, attributes, outputs in json.loads(GOLDEN.read_text())}


def symbols():
    """Operator -> a Symbol named "op", for each sample of each record that MXNet has."""
    found = {}
    for record in records():
        for sample in record.samples if record.mxnet is not None else ():
            op = record.bind(**sample.attributes)
            found[op] = compose(op, [mx.sym.var(f"in{index}") for index in range(len(sample.inputs))], "op")
    return found


def test_every_operator_names_its_outputs_as_mxnet_does():
    found = symbols()
    assert NAMES.keys() <= found.keys()
    for op, symbol in found.items():
        if op.name.endswith("_update") and op not in NAMES:
            continue  # MXNet's files cannot hold these samples, whose learning rate is an input
        wanted = [f"op_{output}" for output in NAMES.get(op, ["output"])]
        assert symbol.list_outputs() == wanted, op
        internals = symbol.get_internals()
        for index, output in enumerate(wanted):
            assert internals[output].outputs == symbol.outputs[index : index + 1], (op, output)


def while_loop(data, state):
    return mx.sym.contrib.while_loop(lambda s: s < 3, lambda s: ([s], [s + 1]), [state], max_iterations=4)[1][0]


@pytest.mark.parametrize(
    ("loop", "names"),
    [
        (lambda d, s: mx.sym.contrib.foreach(lambda x, y: (x + y, y), d, s)[0], ["_foreach0_output0"]),
        (
            lambda d, s: mx.sym.contrib.while_loop(lambda a: a < 3, lambda a: ([a], [a + 1]), [s], max_iterations=4)[1][
                0
            ],
            ["_while_loop0_output1"],
        ),
        (lambda d, s: mx.sym.contrib.cond(s < 3, lambda: d + 1, lambda: d * 2), ["_cond0_output"]),
    ],
    ids=["foreach", "while_loop", "cond"],
)
def test_control_flow(loop, names):
    with mx.name.NameManager():
        assert loop(mx.sym.var("d"), mx.sym.var("s")).list_outputs() == names


def test_states_of_an_lstm_are_found_by_name():
    layer = rnn.LSTM(3, prefix="lstm_")
    layer.initialize()
    layer.hybridize(engine="numpy")
    x = nd.ones((2, 1, 4))
    output, states = layer(x, layer.begin_state(1))
    data, begin = mx.sym.var("data"), [mx.sym.var("h"), mx.sym.var("c")]
    internals = layer(data, begin)[0].get_internals()
    names = [name for name in internals.list_outputs() if name.endswith("_state_output")]
    assert len(names) == 1
    arrays = {name: value.data() for name, value in layer.collect_params().items()}
    zeros = nd.zeros((1, 1, 3))
    (state,) = internals[names[0]].eval(data=x, h=zeros, c=zeros, **arrays)
    assert (state == states[0]).asnumpy().all()
