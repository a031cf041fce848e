"""mx.diff: models, archives and graphs, Block by Block; text, HTML and data."""

import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.cli import main
from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.formats.archive import Container
from hybrid_lab.formats.archive.archive import Archive
from hybrid_lab.gluon import nn
from hybrid_lab.insight.difference import diff_tensors


class Net(gluon.HybridBlock):
    """A body of two layers and a head; `act` and `units` vary."""

    def __init__(self, units=4, act="relu", **kwargs):
        super().__init__(**kwargs)
        self.act = act
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(units), nn.BatchNorm())
            self.head = nn.Dense(2)

    def hybrid_forward(self, F, x):
        return self.head(F.Activation(self.body(x), act_type=self.act))


def made(kind=Net, called=True, hybrid=True, **options):
    net = kind(**options)
    net.initialize(mx.init.Constant(0.5))
    if hybrid:
        net.hybridize(engine="numpy")
    if called:
        net(nd.ones((2, 3)))
    return net


@pytest.fixture
def files(tmp_path, monkeypatch):
    """a.hlab, and b.hlab of another instance with another activation and width."""
    monkeypatch.chdir(tmp_path)
    made().save("a")
    made(units=5, act="tanh").save("b")


def summary(difference):
    return {
        block.path: (block.kind, block.changes, [row.changes for row in block.operators if row.kind != "same"],
                     [tensor.name for tensor in block.tensors])
        for block in difference.blocks
    }  # fmt: skip


CHANGES = {
    "": ("same", [], [["act_type: 'relu' became 'tanh'", "result: f32[2,4] became f32[2,5]"]], []),
    "body.0": ("same", ["units: 4 became 5"], [["num_hidden: 4 became 5", "result: f32[2,4] became f32[2,5]"]],
               ["body.0.weight", "body.0.bias"]),
    "body.1": ("same", [], [["result: f32[2,4] became f32[2,5]"]],
               ["body.1.gamma", "body.1.beta", "body.1.running_mean", "body.1.running_var"]),
    "head": ("same", [], [], ["head.weight"]),
}  # fmt: skip


@pytest.mark.parametrize("first", ["file", "live", "container", "archive"])
@pytest.mark.parametrize("second", ["file", "live", "eager", "uncalled"])
def test_the_same_is_found_whatever_holds_the_models(files, first, second):
    """Two files, two models, one of each; a model without a graph is traced and keeps none."""
    one = {"file": "a", "container": Container.open("a.hlab"), "archive": Archive("a.hlab")}.get(first) or made()
    two = "b" if second == "file" else made(
        units=5, act="tanh", hybrid=second != "eager", called=second != "uncalled"
    )  # fmt: skip
    if second == "uncalled":  # its shapes are open: they are no differences, missing values are
        found = mx.diff(one, two)
        assert sorted(row.changes[0] for row in found.operators) == [
            "act_type: 'relu' became 'tanh'", "num_hidden: 4 became 5"
        ]  # fmt: skip
        assert {tensor.second.endswith("without values") for tensor in found.tensors} == {True, False}
    else:
        assert summary(mx.diff(one, two)) == CHANGES
    if second == "eager":
        assert not two._graphs.graphs()


def test_equal_models_have_no_difference_whatever_they_are_called(files):
    net = made()
    for one, two in [("a", "a"), ("a", net), (net, "a"), (net, made()), (net, net)]:
        found = mx.diff(one, two)
        assert not found and len(found) == 0 and found.summary == "no differences"
    assert "prefix" in mx.diff("a", net).notes[0]
    assert mx.diff("a", "a").notes == []
    one, two = nn.Dense(2, in_units=2, prefix="a_"), nn.Dense(2, in_units=2, prefix="b_")
    for each in (one, two):
        each.initialize()
        each.hybridize()
        each(mx.nd.ones((1, 2)))
    assert mx.diff(one, two).notes == ["1 prefix of names differs, as a_ and b_"]


def test_tensors_have_the_size_of_their_change(files):
    net = made()
    weight = net.head.weight.data().asnumpy()
    weight[0, 0] += 0.25
    net.head.weight.set_data(nd.array(weight))
    (tensor,) = mx.diff("a", net).tensors
    assert (tensor.name, tensor.changed, tensor.values) == ("head.weight", 1, 8)
    assert tensor.largest == pytest.approx(0.25) and tensor.text.startswith("differs by up to 0.25 (largest value ")
    assert tensor.text.endswith("1 of 8 values") and mx.diff("a", net).same_graphs


def test_the_tensors_that_changed_most_come_first(files):
    """In what is printed and in HTML; `tensors` and `data()` are in the order of the tree."""
    net = made()
    changes = {"body.0.weight": 0.25, "body.1.gamma": 2.0, "body.1.running_var": np.nan, "head.weight": 0.5}
    parameters = net._collect_params_with_prefix()
    for name, change in changes.items():
        value = parameters[name].data().asnumpy()
        value.flat[0] += change
        parameters[name].set_data(nd.array(value))
    parameters["body.1.running_var"].set_data(nd.full((4,), np.nan))
    found = mx.diff("a", net)
    expected = ["body.1.running_var", "body.1.gamma", "head.weight", "body.0.weight"]
    assert [tensor.name for tensor in found.largest_changes] == expected
    assert [tensor.name for tensor in found.tensors] == list(changes)
    for text in (str(found), found._repr_html_()):
        assert "4 tensors, largest change first" in text
        places = [text.index(f"{name}: differs") for name in expected]
        assert places == sorted(places)
    assert [tensor["name"] for block in found.data()["blocks"] for tensor in block["tensors"]] == list(changes)
    kinds = [tensor.kind for tensor in mx.diff("a", made(units=5, act="tanh")).largest_changes]
    assert kinds == ["changed"] * len(kinds)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool", "bfloat16"])
def test_arrays_of_every_dtype(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    one = np.zeros((2, 3), dtype)
    two = one.copy()
    assert diff_tensors("w", one, two) is None and diff_tensors("w", None, None) is None
    two[1, 2] = 1
    found = diff_tensors("w", one, two)
    assert (found.changed, found.largest) == (1, 1.0)
    assert diff_tensors("w", one, two.T).text.endswith("[3, 2]")
    assert diff_tensors("w", None, two).kind == "added" and diff_tensors("w", one, None).kind == "removed"
    assert diff_tensors("w", one[:0], two[:0]) is None and diff_tensors("w", one[0, 0], two[1, 2]).changed == 1


def test_zeros_of_both_signs_and_what_is_not_finite():
    zero, nan, inf = (np.array([number], "float32") for number in (0.0, np.nan, np.inf))
    assert diff_tensors("w", zero, -zero).text == "differs by up to 0 (largest value 0), 1 of 1 value"
    assert diff_tensors("w", nan, nan.copy()) is None
    assert "not finite" in diff_tensors("w", zero, nan).text and "not finite" in diff_tensors("w", inf, zero).text


def test_blocks_and_parameters_on_one_side_only(files):
    class More(Net):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.extra = nn.HybridSequential()
                self.extra.add(nn.Dense(3, in_units=2), nn.Activation("relu"))
                self.bias = self.params.get("bias", shape=(2,), init="zeros")

        def hybrid_forward(self, F, x, bias):
            return self.extra(super().hybrid_forward(F, x) + bias)

    net = made(More)
    found = mx.diff("a", net)
    kinds = {block.path: block.kind for block in found.blocks}
    assert kinds == {"": "same", "extra": "added", "extra.0": "added", "extra.1": "added"}
    assert [row.kind for row in found.operators] == ["added"] * 3
    assert [(tensor.kind, tensor.name) for tensor in found.tensors] == [
        ("added", "bias"), ("added", "extra.0.weight"), ("added", "extra.0.bias")
    ]  # fmt: skip
    back = mx.diff(net, "a")
    assert {block.kind for block in back.blocks} == {"same", "removed"} and len(back) == len(found)
    assert "class: More became Net" in back.blocks[0].changes


def test_a_plain_block_and_code_that_cannot_be_traced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Top(gluon.Block):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return self.net(x) + 1

    made(Top).save("top")

    class Broken(Net):
        def hybrid_forward(self, F, x):
            raise ValueError("not this time")

    broken = Top()
    broken.net = Broken()
    broken.initialize()
    found = mx.diff("top", broken)
    texts = {block.path: block.changes for block in found.blocks}
    assert any("not this time" in text for text in texts["net"])
    assert not any(block._graphs.graphs() for _, block in mx.insight.states.hybrid_blocks(broken))


def test_text_html_and_data(files):
    found = mx.diff("a", "b")
    assert all(len(line) <= 120 for line in str(found).splitlines())
    assert str(found).splitlines()[0] == "a.hlab -> b.hlab: 3 operators changed, 7 tensors changed"
    page = found._repr_html_()
    assert "<script" not in page and "act_type" in page and page.count("<details") == 4
    data = json.loads(json.dumps(found.data()))
    assert data["equal"] is False and data["blocks"][1]["tensors"][0]["text"]
    assert {row["kind"] for block in data["blocks"] for row in block["operators"]} == {"changed"}


def test_names_from_files_are_text_in_html(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(1, in_units=1))
    net.initialize()
    net._children["<img src=x>"] = nn.Dense(1, in_units=1)
    other = nn.HybridSequential()
    other.add(nn.Dense(1, in_units=1))
    other.initialize()
    assert "<img" not in mx.diff(net, other)._repr_html_()


def test_training_state_of_two_files(tmp_path):
    net = made()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    mx.save_cached_graphs(net, tmp_path / "one", trainer=trainer, aux={"epoch": 1})
    trainer.set_learning_rate(0.5)
    mx.save_cached_graphs(net, tmp_path / "two", trainer=trainer, aux={"epoch": 2})
    others = mx.diff(tmp_path / "one.hlab", tmp_path / "two.hlab").others
    assert others == ["member train/trainer.json: the contents differ", "member train/aux.json: the contents differ"]


def test_nothing_changes_by_a_comparison(files):
    net = made()
    before = {key: value.data().asnumpy().copy() for key, value in net.collect_params().items()}
    programs, graphs = dict(net._graph_calls.programs), net._graphs.graphs()
    draw = mx.nd.random.uniform(shape=(2,)).asnumpy()
    mx.random.seed(3)
    mx.diff("b", net)
    drawn = mx.nd.random.uniform(shape=(2,)).asnumpy()
    mx.random.seed(3)
    assert np.array_equal(drawn, mx.nd.random.uniform(shape=(2,)).asnumpy()) and draw.shape == (2,)
    assert net._graph_calls.programs == programs and net._graphs.graphs() == graphs
    assert all(np.array_equal(before[key], value.data().asnumpy()) for key, value in net.collect_params().items())


def test_what_cannot_be_compared_is_a_sentence(files, tmp_path):
    with pytest.raises(HybridLabError, match="diff compares Blocks, archives and graphs, not int"):
        mx.diff("a", 3)
    (tmp_path / "bad.hlab").write_bytes(b"no archive")
    with pytest.raises(ArchiveError):
        mx.diff("a", "bad")
    with pytest.raises(OSError):
        mx.diff("a", "nothing")


def test_the_command(files, capsys):
    assert main(["diff", "a.hlab", "b.hlab"]) == 1
    out = capsys.readouterr().out
    assert "~ operator FullyConnected: num_hidden: 4 became 5" in out and "~ tensor head.weight:" in out
    assert main(["diff", "a.hlab", "b.hlab", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["summary"] == "3 operators changed, 7 tensors changed"
    made().save("again")
    assert main(["diff", "a.hlab", "again.hlab"]) == 0
    assert capsys.readouterr().out.startswith("no differences\nnote: ")


@pytest.mark.parametrize(
    ("number", "numbers", "same"),
    [
        (lambda: nn.Conv2D(4, 3), lambda: nn.Conv2D(4, (3, 3), strides=(1, 1), padding=(0, 0)), True),
        (lambda: nn.MaxPool1D(2), lambda: nn.MaxPool1D((2,)), True),
        (lambda: nn.Conv3DTranspose(4, 3), lambda: nn.Conv3DTranspose(4, (3, 3, 3)), True),
        (lambda: nn.ReflectionPad2D(1), lambda: nn.ReflectionPad2D((1,) * 8), False),
    ],
)
def test_a_number_is_a_list_of_it_for_each_axis_of_a_kernel_only(number, numbers, same):
    assert ("no differences" in str(mx.diff(number(), numbers()))) is same
