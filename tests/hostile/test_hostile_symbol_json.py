"""Symbol JSON made to break readers: every one is a typed error with the node's name, and quick."""

import copy
import json

import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.mxnet import load_symbol, symbol_json

GOOD = {
    "nodes": [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "null", "name": "w", "inputs": []},
        {
            "op": "FullyConnected",
            "name": "fc",
            "attrs": {"num_hidden": "2", "no_bias": "True"},
            "inputs": [[0, 0, 0], [1, 0, 0]],
        },
    ],
    "arg_nodes": [0, 1],
    "heads": [[2, 0, 0]],
}


def change(edit):
    document = copy.deepcopy(GOOD)
    edit(document)
    return json.dumps(document)


def node(index, **fields):
    return change(lambda document: document["nodes"][index].update(fields))


def attrs(**fields):
    return change(lambda document: document["nodes"][2]["attrs"].update(fields))


HOSTILE = {
    "empty": "",
    "not json": "{",
    "a list": "[]",
    "no nodes": "{}",
    "nodes of another kind": '{"nodes": 3}',
    "empty nodes": change(lambda d: d["nodes"].clear()),
    "no heads": change(lambda d: d.pop("heads")),
    "empty heads": change(lambda d: d["heads"].clear()),
    "cycle": node(2, inputs=[[2, 0, 0], [1, 0, 0]]),
    "later node": node(2, inputs=[[0, 0, 0], [3, 0, 0]]),
    "negative id": node(2, inputs=[[-1, 0, 0], [1, 0, 0]]),
    "huge id": node(2, inputs=[[2**63, 0, 0], [1, 0, 0]]),
    "id of another kind": node(2, inputs=[["0", 0, 0], [1, 0, 0]]),
    "bool id": node(2, inputs=[[False, 0, 0], [1, 0, 0]]),
    "entry too short": node(2, inputs=[[0], [1, 0, 0]]),
    "entry no list": node(2, inputs=[0, 1]),
    "output index": node(2, inputs=[[0, 7, 0], [1, 0, 0]]),
    "negative output": node(2, inputs=[[0, -1, 0], [1, 0, 0]]),
    "head of a variable": change(lambda d: d.update(heads=[[0, 7, 0]])),
    "head out of range": change(lambda d: d.update(heads=[[3, 0, 0]])),
    "unknown operator": node(2, op="FullyConnectd"),
    "operator of another kind": node(2, op=3),
    "python": node(2, op="__import__('os').system('x')"),
    "too few inputs": node(2, inputs=[[0, 0, 0]]),
    "too many inputs": node(2, inputs=[[0, 0, 0]] * 4),
    "no inputs": node(2, op="Concat", attrs={}, inputs=[]),
    "variable with inputs": node(1, inputs=[[0, 0, 0]]),
    "variable without a name": node(1, name=""),
    "duplicate variable": node(1, name="data"),
    "confusable variable": node(1, name="dat\uff41"),
    "name of another kind": node(1, name=None),
    "subgraphs": node(2, subgraphs=[GOOD]),
    "attrs of another kind": node(2, attrs=["num_hidden"]),
    "attribute no text": node(2, attrs={"num_hidden": 2}),
    "bogus attribute": attrs(colour="red"),
    "missing attribute": node(2, attrs={"no_bias": "True"}),
    "negative num_hidden": attrs(num_hidden="-2"),
    "zero num_hidden": attrs(num_hidden="0"),
    "huge num_hidden": attrs(num_hidden=str(2**40)),
    "many digits": attrs(num_hidden="9" * 5000),
    "python attribute": attrs(num_hidden="__import__('os').system('x')"),
    "power attribute": attrs(num_hidden="9**9**9"),
    "deep attribute": attrs(num_hidden="(" * 4000),
    "minus attribute": attrs(num_hidden="-" * 4000 + "1"),
    "long attribute": attrs(num_hidden=" " * 100_000 + "1"),
    "huge shape": node(2, op="Reshape", attrs={"shape": f"({2**70},)"}, inputs=[[0, 0, 0]]),
    "shape hint": node(1, attrs={"__shape__": "(2, -7)"}),
    "shape hint no tuple": node(1, attrs={"__shape__": "os.system"}),
    "shape hint huge": node(1, attrs={"__shape__": f"({2**70},)"}),
    "scalar": node(2, op="_plus_scalar", attrs={"scalar": "x"}, inputs=[[0, 0, 0]]),
    "scalar missing": node(2, op="_plus_scalar", attrs={}, inputs=[[0, 0, 0]]),
    "scalar digits": node(2, op="_plus_scalar", attrs={"scalar": "9" * 5000}, inputs=[[0, 0, 0]]),
    "scalar inputs": node(2, op="_plus_scalar", attrs={"scalar": "1"}),
    "draw": node(2, op="Dropout", attrs={"__draw__": "-1"}, inputs=[[0, 0, 0]]),
    "immediates": node(2, op="where", attrs={"__immediates__": "[1]"}, inputs=[[0, 0, 0]]),
    "constant without value": node(1, attrs={"__constant__": "1", "__init__": '["constant", {}]'}),
    "constant of another shape": node(
        1,
        attrs={"__constant__": "1", "__shape__": "(3,)", "__dtype__": "0", "__init__": '["constant", {"value": [1]}]'},
    ),
    "nan": json.dumps(GOOD).replace("[2, 0, 0]", "[NaN, 0, 0]"),
    "infinity": json.dumps(GOOD).replace("[2, 0, 0]", "[Infinity, 0, 0]"),
    "huge int": json.dumps(GOOD).replace("[2, 0, 0]", f"[{'9' * 10000}, 0, 0]"),
    "float id": json.dumps(GOOD).replace("[2, 0, 0]", "[2.0, 0, 0]"),
    "duplicate key": json.dumps(GOOD).replace('"name": "fc"', '"name": "fc", "name": "fd"'),
    "surrogate": json.dumps(GOOD).replace('"fc"', '"\\ud800"'),
    "deep": "[" * 100_000 + "]" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_refused(text, tmp_path):
    path = tmp_path / "bad-symbol.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ArchiveError) as caught:
        load_symbol(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_a_deep_graph_is_fine():
    chain = [{"op": "null", "name": "data", "inputs": []}]
    chain += [{"op": "relu", "name": f"r{i}", "inputs": [[i, 0, 0]]} for i in range(20_000)]
    graph = symbol_json.loads(json.dumps({"nodes": chain, "heads": [[20_000, 0, 0]]}))
    assert len(graph.operators) == 20_000
    assert symbol_json.loads(symbol_json.dumps(graph)).operators[-1].name == "r19999"
