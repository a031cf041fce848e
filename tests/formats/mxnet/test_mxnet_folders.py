"""Folders of MXNet's files, one pair for each HybridBlock: written, and read again with and without the code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd, symbol
from hybrid_lab import sym as F_sym
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.gluon import nn

ORACLE = Path(__file__).parents[3] / ".oracle" / "bin" / "python"


class Branch(gluon.HybridBlock):
    """Two inputs in a list, a dict as the result, an array in the graph, and a constant."""

    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.dense, self.norm = nn.Dense(3), nn.BatchNorm()
            self.shift = self.params.get_constant("shift", nd.array([1.0, 2.0, 3.0]))

    def hybrid_forward(self, F, pair, shift):
        left, right = pair
        hidden = self.norm(self.dense(left)) + F.broadcast_add(self.dense(right), shift)
        return {"sum": hidden * F.array([1.0, 2.0, 4.0]), "all": [hidden, left]}


class Model(gluon.Block):
    """A plain Block with HybridBlocks below it, one behind another plain Block."""

    def __init__(self):
        super().__init__()
        self.branch = Branch()
        self.inner = nn.Sequential()
        self.inner.add(nn.HybridSequential())
        self.inner[0].add(nn.Dense(4, activation="relu"), nn.Dropout(0.5), nn.Dense(2))

    def forward(self, x):
        return self.inner(self.branch([x, x * 2])["sum"])


X = nd.array(np.random.RandomState(0).uniform(-1, 1, (5, 3)))
STEMS = {
    *("branch", "branch.dense", "branch.dense@2", "branch.norm", "inner.0", "inner.0.0", "inner.0.1", "inner.0.2"),
    *("inner.0.0.act",),
}


def called(make=Model, hybridized=True):
    mx.random.seed(3)
    net = make()
    net.initialize(mx.init.Uniform(1))
    if hybridized:
        net.hybridize()
    return net, net(X).asnumpy()


@pytest.fixture
def folder(tmp_path):
    net, wanted = called()
    return net, wanted, Path(mx.save_cached_graphs(net, tmp_path / "model", format="mxnet"))


@pytest.mark.parametrize("graphs", ["code", "file"])
@pytest.mark.parametrize("fresh", ["uninitialized", "initialized", "called"])
def test_load_into_a_live_model(folder, graphs, fresh):
    net, wanted, path = folder
    again = Model()
    if fresh != "uninitialized":
        again.initialize()
    if fresh == "called":
        again.hybridize()
        again(X)
    report = again.load(path, graphs=graphs)
    assert not report.differences and not report.notes and report.parameters == 11
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    assert (report.graphs > 0) and mx.load_cached_graphs(again, f"{path}/").parameters == 11
    again.hybridize()
    np.testing.assert_allclose(again(X).asnumpy(), wanted, rtol=1e-6)


def test_open_without_code(folder):
    net, wanted, path = folder
    opened = gluon.load(path)
    assert repr(opened).startswith("Model [code missing]")
    assert isinstance(opened.branch, gluon.SymbolBlock) and isinstance(opened.branch.dense, gluon.SymbolBlock)
    result = opened.branch([X, X * 2])
    assert set(result) == {"sum", "all"} and isinstance(result["all"], list)
    inner = opened.inner  # a registered layer, which needs no code of the user's
    assert type(inner) is nn.Sequential
    np.testing.assert_array_equal(inner(result["sum"]).asnumpy(), wanted)
    assert {name for name, each in opened.collect_params().items() if each.grad_req == "null"} == {
        name for name, each in net.collect_params().items() if each.grad_req == "null"
    }
    opened.hybridize()
    trained = gluon.Trainer(opened.collect_params(), "sgd", {"learning_rate": 0.1})
    with mx.autograd.record():
        loss = inner(opened.branch([X, X * 2])["sum"]).sum()
    loss.backward()
    trained.step(1)
    runnable = gluon.load(path, classes={"Model": Model})
    assert type(runnable) is Model
    np.testing.assert_array_equal(runnable(X).asnumpy(), wanted)


def test_other_code_is_told(folder):
    class Other(Model):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential()
            self.inner.add(nn.HybridSequential())
            self.inner[0].add(nn.Dense(4, activation="tanh"), nn.Dropout(0.5), nn.Dense(3))

    net, _, path = folder
    other = Other()
    before = dict(other.collect_params().items())
    with pytest.raises(LoadMismatchError) as caught:
        other.load(path)
    text = "\n".join(caught.value.differences)
    assert "is a Model in the file, a Other in the model" in text and "inner.0.2" in text
    assert all(each._data is None for each in before.values())


def test_what_the_folder_does_not_hold_is_said(tmp_path, caplog):
    class More(Model):
        def __init__(self):
            super().__init__()
            self.scale = self.params.get("scale", shape=(2,))
            self.unused = nn.Dense(3, in_units=2)

        def forward(self, x):
            return super().forward(x) * self.scale.data()

    net, _ = called(More)
    caplog.clear()
    path = mx.save_cached_graphs(net, tmp_path / "model", format="mxnet")
    assert "and not scale, unused.weight, unused.bias; net.save(path) saves all" in caplog.text
    report = More().load(path)
    names = "scale, unused.weight, unused.bias"
    assert report.notes == [f"no graph in the folder reads {names}, which keeps the model's values"]


def test_a_hybrid_top_and_a_part_of_the_model(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    wanted = net(X).asnumpy()
    path = Path(mx.save_cached_graphs(net, tmp_path / "model", format="mxnet"))
    assert (path / "__root__-symbol.json").exists()
    np.testing.assert_array_equal(gluon.load(path)(X).asnumpy(), wanted)
    part = nn.Dense(2)
    part.load(path, subtree="1")
    np.testing.assert_array_equal(part.weight.data().asnumpy(), net[1].weight.data().asnumpy())
    for file in path.glob("__root__*"):
        file.unlink()  # single pairs serve, too
    again = nn.HybridSequential()
    again.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    again.load(path)
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)


def test_shared_blocks_and_parameters(tmp_path):
    class Shared(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.one = nn.Dense(3, in_units=3)
            self.two = nn.Dense(3, in_units=3, params=self.one.params)
            self.same = self.one

        def hybrid_forward(self, F, x):
            return self.same(self.two(self.one(x)))

    net, wanted = called(Shared)
    path = mx.save_cached_graphs(net, tmp_path / "model", format="mxnet")
    again = Shared()
    again.load(path)
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    assert len(gluon.load(path).collect_params()) == 2
    np.testing.assert_array_equal(gluon.load(path)(X).asnumpy(), wanted)


def test_damaged_folders(folder, tmp_path):
    _, _, path = folder
    params = path / "inner.0.0-0000.params"
    nd.save(str(params), {name: value + 1 for name, value in nd.load(str(params)).items()})
    with pytest.raises(LoadMismatchError, match=r"values: inner.0.0.weight has other values in inner.0.0 than"):
        Model().load(path)
    symbol_file = path / "branch-symbol.json"
    document = json.loads(symbol_file.read_text())
    for value in ("{", "[]", '{"block": 3, "above": [], "fixed": []}', '{"block": {}, "above": 1, "fixed": []}'):
        document["attrs"]["hybrid_lab_block"] = ["str", value]
        symbol_file.write_text(json.dumps(document))
        for load in (Model().load, gluon.load):
            with pytest.raises(ArchiveError):
                load(path)
    with pytest.raises(OSError, match="folder|directory"):
        gluon.load(tmp_path)  # a folder without symbol files


def test_damaged_bytes_are_typed_errors(folder):
    """Whatever byte of whatever file is another one: it is refused by a typed error, or read."""
    _, _, path = folder
    rng = np.random.RandomState(0)
    answers = set()
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for place in rng.randint(0, len(content), 12):
            damaged = bytearray(content)
            damaged[place] ^= 1 << rng.randint(8)
            file.write_bytes(damaged)
            for load in (gluon.load, Model().load):
                try:
                    load(path)
                    answers.add("read")
                except HybridLabError as error:
                    answers.add(type(error).__name__)
        file.write_bytes(content)
    assert {"ArchiveError", "read"} <= answers


def test_an_archive_of_the_same_name_comes_first(folder):
    net, wanted, path = folder
    net.save(path)
    assert type(gluon.load(path).inner) is nn.Sequential  # the archive knows registered layers
    assert type(gluon.load(f"{path}/").inner[0]).__name__ == "ArchivedBlock"


# -- folders that MXNet wrote, and the RFC's names ---------------------------------------------------------------------


def without_our_attributes(path):
    for file in Path(path).glob("*-symbol.json"):
        document = json.loads(file.read_text())
        for key in [key for key in document["attrs"] if key.startswith("hybrid_lab")]:
            del document["attrs"][key]
        file.write_text(json.dumps(document))


class Plain(gluon.Block):
    def __init__(self):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Dense(2))
        self.head = nn.Dense(3)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("graphs", ["code", "file"])
def test_files_with_names_only(graphs, tmp_path):
    net, wanted = called(Plain)
    path = mx.save_cached_graphs(net, tmp_path / "model", format="mxnet")
    without_our_attributes(path)
    again = Plain()  # its layers have other numbers
    assert not again.load(path, graphs=graphs).differences
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    opened = gluon.load(path)
    np.testing.assert_array_equal(opened.head(opened.body(X)).asnumpy(), wanted)
    shutil.copy(f"{path}/head-symbol.json", f"{path}/nowhere-symbol.json")
    with pytest.raises(LoadMismatchError, match="nowhere-symbol.json belongs to no Block of the model"):
        Plain().load(path)


@pytest.mark.skipif(not ORACLE.exists(), reason="needs the real MXNet in .oracle")
def test_the_real_mxnet_reads_the_folder(folder):
    net, wanted, path = folder
    code = (
        "import sys, numpy as np\nfrom mxnet import nd, gluon\n"
        "f = sys.argv[1] + '/inner.0'\n"
        "net = gluon.SymbolBlock.imports(f + '-symbol.json', ['data'], f + '-0000.params')\n"
        "np.save(sys.argv[1] + '/y.npy', net(nd.array(np.load(sys.argv[1] + '/x.npy'))).asnumpy())\n"
    )
    hidden = net.branch([X, X * 2])["sum"].asnumpy()
    np.save(path / "x.npy", hidden)
    subprocess.run([ORACLE, "-c", code, str(path)], check=True, capture_output=True)
    np.testing.assert_allclose(np.load(path / "y.npy"), wanted, rtol=1e-5, atol=1e-6)


# -- the RFC's sketch (apache/mxnet#19535), as it stands there ---------------------------------------------------------


def save_cached_graphs(block):
    def _save_cached_graphs(blk, index):
        if isinstance(blk, mx.gluon.nn.HybridBlock):
            blk.export(blk.name + str(index[0]))
        for child in blk._children.values():
            index[0] += 1
            _save_cached_graphs(child, index)

    # save top-level block
    index = [0]
    _save_cached_graphs(block, index)


def load_cached_graphs(block, form):
    def _load_cached_graphs(blk, index):
        if isinstance(blk, mx.gluon.nn.HybridBlock):
            sym = symbol.load(blk.name + str(index[0]) + "-symbol.json")
            blk._cached_graph = form(sym)
        for child in blk._children.values():
            index[0] += 1
            _load_cached_graphs(child, index)

    # load top-level block
    index = [0]
    _load_cached_graphs(block, index)


FORMS = {
    "a Symbol": lambda sym: sym,
    "a tuple": lambda sym: ([symbol.var("data")], sym),
    "a tuple with one input": lambda sym: (symbol.var("data"), sym),
}


class Counting(Plain):
    """Counts the calls of its layers' code."""

    calls = 0

    def __init__(self):
        gluon.Block.__init__(self, prefix="model_")
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(nn.Dense(4, activation="relu"), Counted(), nn.Dense(2))
            self.head = nn.Dense(3)


class Counted(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        Counting.calls += 1
        return F.tanh(x)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_sketch_of_the_rfc(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net, wanted = called(Counting)
    save_cached_graphs(net)
    net.save_parameters("net.params")
    assert f"{net.body.name}1-symbol.json" in os.listdir()

    again = Counting()
    again.load_parameters("net.params")
    load_cached_graphs(again, form)
    Counting.calls = 0
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    again.hybridize()
    np.testing.assert_allclose(again(X).asnumpy(), wanted, rtol=1e-6)
    assert Counting.calls == 0  # the graphs ran, and not the code
    np.testing.assert_array_equal(Counting().load(tmp_path).parameters, 6)


@pytest.mark.parametrize("hybridized", [True, False])
def test_the_sketch_on_one_model_keeps_structures(hybridized, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Pair(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3)

        def hybrid_forward(self, F, x, y):
            return {"sum": self.dense(x) + y, "both": (x, y)}

    class Top(gluon.Block):
        def __init__(self):
            super().__init__()
            self.pair, self.head = Pair(), nn.Dense(2)

        def forward(self, x):
            return self.head(self.pair(x, x)["sum"])

    net, wanted = called(Top, hybridized)
    save_cached_graphs(net)
    load_cached_graphs(net, FORMS["a Symbol"])
    np.testing.assert_allclose(net(X).asnumpy(), wanted, rtol=1e-6)
    assert set(net.pair(X, X)) == {"sum", "both"} and isinstance(net.pair(X, X)["both"], tuple)
    net.save("top.hlab")
    assert not Top().load("top.hlab").differences


def test_what_the_cached_graph_is(tmp_path):
    net, wanted = called(Plain)
    inputs, output = net.body._cached_graph
    assert [each.name for each in inputs] == ["data"] and isinstance(output, F_sym.Symbol)
    assert output.list_inputs()[0] == "data"
    assert nn.Dense(2)._cached_graph == ()
    again = Plain()
    again.initialize()
    again.body._cached_graph = net.body._cached_graph  # a tuple as it was read
    again.body.load_parameters(_saved(net.body, tmp_path))
    np.testing.assert_array_equal(again.body(X).asnumpy(), net.body(X).asnumpy())
    again.body._cached_graph = ()
    assert not again.body._graphs.pinned


def _saved(block, folder):
    block.save_parameters(str(folder / "block.params"))
    return str(folder / "block.params")


def test_two_inputs_and_two_outputs():
    class Two(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="two_")
            with self.name_scope():
                self.dense = nn.Dense(2, in_units=3)

        def hybrid_forward(self, F, a, b):
            return self.dense(a) - b, a

    net = Two()
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    y = nd.ones((5, 2))
    wanted = [each.asnumpy() for each in net(X, y)]
    inputs, output = net._cached_graph
    assert [each.name for each in inputs] == ["data0", "data1"] and len(output.list_outputs()) == 2
    for assigned in (output, (inputs, output), [inputs, output], (inputs, [output[0], output[1]])):
        net._cached_graph = assigned
        for mine, other in zip(net(X, y), wanted, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), other, rtol=1e-6)


@pytest.mark.parametrize(
    ("assigned", "error", "text"),
    [
        ("net-symbol.json", SettingError, "takes a Symbol, or .input Symbols, Symbol., not a str"),
        ((1, 2, 3), SettingError, "not a tuple"),
        (symbol.FullyConnected(symbol.var("data"), num_hidden=3, name="strange"), HybridLabError, "strange_weight"),
        ((["data"], symbol.var("data") * 2), SettingError, "Symbols of variables"),
    ],
)
def test_wrong_graphs(assigned, error, text):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    with pytest.raises(error, match=text):
        net._cached_graph = assigned
    net(X)


# -- export of a plain Block -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridized", [True, False])
def test_export_of_a_plain_block(hybridized, tmp_path, caplog):
    net, wanted = called(Plain, hybridized)
    with caplog.at_level("INFO"):
        files = net.export(str(tmp_path / "model"), epoch=3)
    names = [[Path(name).name for name in pair] for pair in files]
    assert names == [
        ["model-body-symbol.json", "model-body-0003.params"],
        ["model-head-symbol.json", "model-head-0003.params"],
    ]
    assert "is a plain Block; exported its 2 outermost HybridBlocks" in caplog.text
    body, head = (gluon.SymbolBlock.imports(pair[0], "data", pair[1]) for pair in files)
    np.testing.assert_allclose(head(body(X)).asnumpy(), wanted, rtol=1e-5)


def test_export_leaves_out_what_was_never_called(tmp_path, caplog):
    class More(Plain):
        def __init__(self):
            super().__init__()
            self.unused = nn.Dense(1)

    net, _ = called(More)
    assert len(net.export(str(tmp_path / "model"))) == 2
    assert "not exported, because they were never called: unused" in caplog.text
    with pytest.raises(HybridLabError, match="body, head, unused has no graph: call the model once"):
        More().export(str(tmp_path / "other"))
    with pytest.raises(HybridLabError, match="it has none"):
        nn.Sequential().export(str(tmp_path / "other"))
    assert not list(tmp_path.glob("other*"))
