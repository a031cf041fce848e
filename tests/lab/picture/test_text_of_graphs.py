"""The printed graph and the picture have the same operators in the same order: a line leads to its node by that."""

import re

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd
from hybrid_lab.gluon.model_zoo import vision
from hybrid_lab.lab.picture.graph_view import graph_view
from tests.lab.conftest import Net, inputs, make_net

STATEMENT = re.compile(r"^ {2}%\S+: .* = (\w+)\(")


def networks():
    yield make_net(Net), inputs()
    net = vision.get_model("mobilenet0.25", classes=10)
    net.initialize()
    yield net, mx.nd.ones((1, 3, 64, 64))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("recorded", [False, True])
def test_lines_and_nodes_are_in_one_order(number, recorded):
    net, x = list(networks())[number]
    net.hybridize()
    with autograd.record(recorded):
        result = net(x)
    if recorded:
        result.backward()
    for program in graph_view(net, "")["programs"]:
        reply = graph_view(net, "", program["id"])
        printed = [match[1] for line in reply["text"].splitlines() if (match := STATEMENT.match(line))]
        drawn = [node["op"] for node in reply["nodes"] if node["kind"] == "operator"]
        assert printed == drawn, program["label"]
