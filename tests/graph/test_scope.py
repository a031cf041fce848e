"""Scopes tell the calls of a Block apart, in traces and in files."""

import pickle

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.mxnet.graph_reader import GraphReader
from hybrid_lab.gluon import nn
from hybrid_lab.graph.scope import MOST_BLOCKS, ReadScopes, Scope


class Repeating(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.cell = nn.HybridSequential()
        self.cell.add(nn.Dense(4), nn.Dense(4, activation="relu"))

    def hybrid_forward(self, F, x):
        for _ in range(3):
            x = self.cell(x) + x
        return x


def calls(scope):
    """(path below the top, number of the call) of a Scope and its callers, outermost first."""
    found = []
    while scope.caller is not None:
        found.insert(0, (scope.partition(".")[2], scope.call))
        scope = scope.caller
    return found


def test_each_call_has_a_scope_of_its_own(tmp_path):
    net = Repeating()
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 4)))
    net.save(tmp_path / "net.hlab")
    loaded = gluon.load(tmp_path / "net.hlab")
    for graph in (net._graphs.first().graph, loaded._graphs.first().graph):
        found = [calls(node.scope) for node in graph.operators if node.op.name == "FullyConnected"]
        assert found == [
            [("cell", call), (f"cell.{layer}", 1)] for call in (1, 2, 3) for layer in (0, 1)
        ]  # fmt: skip
        assert all(isinstance(node.scope, Scope) for node in graph.operators)


def test_a_scope_is_its_path_everywhere_else():
    outer = Scope("net")
    one, two = Scope("net.fc", outer), Scope("net.fc", outer)
    assert one == two == "net.fc" and (one.call, two.call) == (1, 2)
    assert type(pickle.loads(pickle.dumps(two))) is str


def test_paths_of_a_file():
    read = ReadScopes()
    first, again = read.scope("n.a.b"), read.scope("n.a.b")
    assert first is again and first.caller is read.scope("n.a") and first.numbers == ""
    second = read.scope("n.a.b", (2, 1))
    assert second == first and second is not first and second.numbers == "2.1" and second.caller.call == 2
    assert read.scope("n.a.c", (2, 1)).caller is second.caller
    assert read.scope("n.a", (3, 1, 2)).numbers == "2", "more numbers than Blocks"
    hostile = "." * (MOST_BLOCKS + 1)
    assert read.scope(hostile) is hostile and read.scope("") == ""
    for path in ("...", ".", "a..b", "a.", ".a"):
        assert read.scope(path) == path


@pytest.mark.parametrize("text", ["", "0", "x", "1.", "-1", "1.2.٣", "9" * 10, "1." * MOST_BLOCKS + "1"])
def test_a_file_with_other_numbers_is_refused(text):
    document = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "relu", "name": "y", "inputs": [[0, 0, 0]], "attrs": {"__scope__": "n.a", "__calls__": text}},
        ],
        "heads": [[1, 0, 0]],
        "arg_nodes": [0],
    }
    with pytest.raises(ArchiveError, match="node 'y': __calls__ is"):
        GraphReader(document).graph()
