"""The request `summary`: what the columns of the tree say of each Block, for the last call or for typed shapes."""

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.models.block_work import parsed


def ask(variables, name, busy=False, **asked):
    session = Session(lambda: variables, busy=lambda: busy)
    model = next(model for model in session.ask("models", {})["models"] if model["name"] == name)
    reply = session.ask("summary", {"model": model["id"], "inputs": "", "batch": 0, "dtype": ""} | asked)
    return reply, {block["path"]: block for block in reply["blocks"]}


def mlp(**arguments):
    net = nn.HybridSequential()
    net.add(nn.Dense(5, **arguments), nn.Dense(2, **arguments))
    net.initialize()
    return net


def test_shapes_are_unknown_until_the_model_is_called_or_a_shape_is_typed():
    net = mlp()
    reply, blocks = ask({"net": net}, "net")
    assert not blocks and "unknown until the model is called" in reply["missing"]
    reply, blocks = ask({"net": net}, "net", inputs="8 x 3")
    assert reply["inputs"] == "f32[8,3]" and reply["what_if"] and blocks["0"]["multiply_adds"] == 8 * 3 * 5
    assert net[0].weight.shape == (5, 0), "nothing of the model changes"


@pytest.mark.parametrize("hybridized", [True, False])
def test_the_numbers_are_those_of_the_summary_for_the_last_call(hybridized):
    net = mlp()
    net.hybridize(hybridized)
    net(nd.ones((4, 3)))
    reply, blocks = ask({"net": net}, "net")
    summary = mx.summary(net, (4, 3))
    assert reply["inputs"] == "f32[4,3]" and not reply["what_if"] and reply["headline"] == summary.headline
    for row in summary.blocks:
        block = blocks[row.path]
        for name in ("parameters", "multiply_adds", "flop", "activations", "calls"):
            assert block[name] == getattr(row, name)
        assert [tuple(each["shape"]) for each in block["outputs"]] == [shape for shape, _ in row.shapes]


def test_the_tree_and_the_summary_count_parameters_alike_also_where_they_are_shared():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.first = nn.Dense(3, in_units=3, flatten=False)
            self.again = self.first
            self.tied = nn.Dense(3, in_units=3, flatten=False, params=self.first.params)
            self.part = nn.HybridSequential()
            self.part.add(self.first, nn.Dense(3, in_units=3))

        def hybrid_forward(self, F, x):
            return self.part(self.tied(self.again(self.first(x))))

    net = Net()
    net.initialize()
    net(nd.ones((2, 3)))
    _, blocks = ask({"net": net}, "net")
    session = Session(lambda: {"net": net})
    root = session.ask("tree", {"model": session.ask("models", {})["models"][0]["id"]})["root"]
    pending = [root]
    while pending:
        node = pending.pop()
        pending += node["children"]
        block = blocks[node["path"]]
        assert block["counted_at"] == node["shared_with"]
        if node["shared_with"] is None:
            assert block["parameters"] == node["parameter_count"], node["path"]
    assert blocks["again"]["flop"] is None and blocks["first"]["calls"] == 2 and blocks["part.0"]["calls"] == 1


def test_what_if_for_another_batch_and_dtype():
    net = mlp()
    net(nd.ones((4, 3)))
    reply, blocks = ask({"net": net}, "net", batch=64, dtype="float16")
    assert reply["inputs"] == "f16[64,3]" and reply["what_if"]
    assert blocks["0"]["multiply_adds"] == 64 * 3 * 5 and blocks["0"]["activations"] == 64 * 5 * 2
    assert ask({"net": net}, "net", batch=4)[0]["what_if"] is False, "the batch of the last call"


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("8 x 3", "f32[8,3]"),
        ("batch 8 x 3", "f32[8,3]"),
        ("8×3", "f32[8,3]"),
        ("8,3", "f32[8,3]"),
        ("(8, 3)", "f32[8,3]"),
        ("[8, 3] float16", "f16[8,3]"),
        ("f32[8,3]", "f32[8,3]"),
        ("(8, 3) float64", "f64[8,3]"),
    ],
)
def test_ways_to_write_a_shape(text, types):
    assert parsed(text, mlp()).text == types


def test_several_inputs():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, 4)

        def hybrid_forward(self, F, x, weight):
            return F.dot(self.words(x), weight)

    net = Net()
    for text in ("(8,) int32, (4, 2)", "i32[8], f32[4,2]", "8 int32; 4 x 2"):
        reply, blocks = ask({"net": net}, "net", inputs=text)
        assert reply["inputs"] == "i32[8], f32[4,2]" and blocks[""]["multiply_adds"] == 8 * 4 * 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"inputs": "big"}, "is no shape"),
        ({"inputs": "8 x 3 quux"}, "is no dtype"),
        ({"inputs": "8 x -3"}, "is no"),
        ({"inputs": "(8, 4)"}, "does not fit"),
        ({"inputs": "8 x 3; 8 x 3"}, "Operations and outputs are not known|does not fit"),
        ({"inputs": "8 x 3", "dtype": "quux"}, "quux"),
        ({"inputs": "99999999999999999999 x 3"}, "large|fit"),
    ],
)
def test_what_is_no_input_is_a_clear_error(asked, message):
    with pytest.raises(RequestError, match=message):
        reply, _ = ask({"net": mlp(in_units=3)}, "net", **asked)
        raise RequestError("failed", reply["missing"])


def test_a_plain_model_that_cannot_become_a_graph_is_the_sum_of_its_blocks():
    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.unused = mlp(), nn.Dense(2), nn.Dense(7)

        def forward(self, x):
            return self.head(self.body(x)) if x.asnumpy().sum() > 0 else x

    net = Net()
    net.initialize()
    net(nd.ones((4, 3)))
    reply, blocks = ask({"net": net}, "net")
    assert blocks["body.0"]["multiply_adds"] == 4 * 3 * 5
    assert blocks[""]["multiply_adds"] == sum(blocks[path]["multiply_adds"] for path in ("body", "head"))
    assert "1 HybridBlock without" in reply["missing"] and "unused" not in blocks
    reply, blocks = ask({"net": net}, "net", batch=8)
    assert reply["what_if"] and blocks["body.0"]["multiply_adds"] == 8 * 3 * 5


def test_a_plain_model_and_models_in_a_list():
    net = nn.Sequential()
    net.add(mlp(), nn.Dense(3))
    net.initialize()
    net(nd.ones((4, 3)))
    reply, blocks = ask({"net": net}, "net")
    assert reply["inputs"] == "f32[4,3]" and blocks["0.0"]["multiply_adds"] == 4 * 3 * 5
    nets = [mlp(), mlp()]
    nets[0](nd.ones((4, 3)))
    _, blocks = ask({"nets": nets}, "nets")
    assert sorted(path for path in blocks if path.count(".") == 1)[0].endswith(".0") and blocks[""]["flop"] > 0


def test_an_imported_graph(tmp_path):
    net = mlp()
    net.hybridize()
    net(nd.ones((4, 3)))
    net.export(str(tmp_path / "net"))
    block = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    assert ask({"net": block}, "net", inputs="4 x 3")[1][""]["multiply_adds"] == 4 * 3 * 5 + 4 * 5 * 2


def test_code_is_not_traced_while_a_cell_runs_and_a_graph_that_is_there_is_counted():
    net = mlp()
    net(nd.ones((4, 3)))
    with pytest.raises(RequestError, match="a cell is running") as caught:
        ask({"net": net}, "net", busy=True)
    assert caught.value.code == "busy"
    net.hybridize()
    net(nd.ones((4, 3)))
    assert ask({"net": net}, "net", busy=True)[1]["0"]["multiply_adds"] == 4 * 3 * 5


def test_counting_calls_nothing_and_leaves_no_trace_of_itself():
    class Counts(gluon.Block):
        def __init__(self):
            super().__init__()
            self.dense, self.calls = nn.Dense(2), 0

        def forward(self, x):
            self.calls += 1
            print("called")
            return self.dense(x)

    net = Counts()
    net.initialize()
    net(nd.ones((4, 3)))
    version = net.dense.weight.data().version
    assert ask({"net": net}, "net")[1]["dense"]["multiply_adds"] == 4 * 3 * 2
    assert net.calls == 1 and net.dense.weight.data().version == version
