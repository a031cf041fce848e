"""What a trace freezes silently is named when the graph is made; errors of code that is no graph."""

import copy
import datetime
import inspect
import linecache
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd, sym
from hybrid_lab.diagnostics import HybridizeError, HybridLabError
from hybrid_lab.hybridize.stale import trace_warnings
from hybrid_lab.hybridize.stale.trace_warnings import any_sign


class Noisy(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * np.random.rand()


class TwoFaced(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2 if F is nd else x * 3


@pytest.mark.parametrize("kind, code", [(Noisy, "HL172"), (TwoFaced, "HL176")])
def test_frozen_code_is_named_once(kind, code, capsys):
    for _ in range(2):
        net = kind()
        net.hybridize(engine="numpy")
        net(nd.ones((2,)))
    lines = [line for line in capsys.readouterr().err.splitlines() if code in line]
    assert len(lines) == 1
    assert "test_trace_warnings.py" in lines[0]


COUNT = 0
SEEN = []


class Counting(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.count = 0
        self.history = []
        self.kept = {"a": 1}

    def hybrid_forward(self, F, x):
        global COUNT
        self.count += 1
        COUNT += 1
        return F.relu(x) * 2


class Sly(Counting):
    """Does the same where no rule looks: by a name that is a value, and in containers."""

    def hybrid_forward(self, F, x):
        note(self, "count")
        self.history.append(self.count)
        SEEN.append(1)
        return x * self.kept["a"]


def note(block, name):
    setattr(block, name, getattr(block, name) + 1)


def warned(kind, capsys):
    """The lines warned of a Block's first two graphs."""
    net = kind()
    net.hybridize(engine="numpy")
    net(nd.ones((2,)))
    net.hybridize(engine="numpy")
    net(nd.ones((2,)))
    return [line for line in capsys.readouterr().err.splitlines() if "HL17" in line]


def test_changed_attributes_and_globals_are_named_with_their_lines(capsys):
    attribute, name = sorted(warned(Counting, capsys), key=lambda line: "HL178" in line)
    assert "HL173 `self.count` is assigned only once, while the graph is made" in attribute
    assert "HL178 `global COUNT` is assigned once" in name
    source, first = inspect.getsourcelines(Counting)
    line = first + next(number for number, text in enumerate(source) if "self.count += 1" in text)
    assert f"test_trace_warnings.py:{line}:" in attribute


def test_changes_that_the_source_does_not_show_are_seen_after_the_trace(capsys):
    lines = {line.split("`")[1]: line for line in warned(Sly, capsys)}
    assert list(lines) == ["self.history", "SEEN", "self.count"]  # the source shows the first two
    for name in ("self.count", "self.history"):
        assert f"`{name}` is changed only once, while the graph is made" in lines[name]
        assert "it keeps the value of that one call." in lines[name]
    assert "`SEEN` is changed once, while the graph is made, and never again." in lines["SEEN"]


def test_a_model_that_changes_nothing_is_not_warned_of(capsys):
    class Quiet(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.sizes = [1, 2]
            self.net = gluon.nn.HybridSequential()
            self.net.add(gluon.nn.Dense(3), gluon.nn.BatchNorm(), gluon.nn.Dropout(0.5))

        def hybrid_forward(self, F, x):
            local = self.sizes + [len(SEEN)]
            return self.net(x) * sum(local)

    net = Quiet()
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 2)))
    assert "HL17" not in capsys.readouterr().err


class Nothing(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return None


def test_an_output_without_tensors_is_a_hybridize_error():
    net = Nothing()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match="HL192.*None") as caught:
        net(nd.ones((2,)))
    assert "in Nothing.hybrid_forward" in str(caught.value)


class Untaken(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.scale = self.params.get("scale", shape=(1,))

    def hybrid_forward(self, F, x):
        return x


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_parameter_missing_from_the_signature_is_named(hybrid):
    net = Untaken()
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match="HL165.*scale"):
        net(nd.ones((1,)))


def test_a_call_without_an_array_says_so():
    net = gluon.nn.Dense(3)
    net.initialize()
    with pytest.raises(HybridLabError, match="called without an array"):
        net(None)


class Keeping(gluon.HybridBlock):
    """Keeps tensors on itself, in an attribute and in containers, and counts its calls before."""

    def __init__(self):
        super().__init__()
        self.body = gluon.nn.Dense(3)
        self.calls, self.weights, self.pair = 0, None, None
        self.history, self.by_name = ["start"], {"start": 1}

    def hybrid_forward(self, F, x):
        self.calls += 1
        hidden = self.body(x)
        self.keep(F, hidden)
        return hidden * 2

    def keep(self, F, hidden):
        self.weights = F.softmax(hidden)


class KeepingPair(Keeping):
    def keep(self, F, hidden):
        self.pair = hidden, hidden + 1


class KeepingHistory(Keeping):
    def keep(self, F, hidden):
        self.history.append(hidden)
        self.by_name["hidden"] = hidden


def kept(net):
    values = [net.weights, *(net.pair or ()), *net.history[1:], *net.by_name.values()]
    return [value.asnumpy() if isinstance(value, nd.NDArray) else value for value in values]


@pytest.mark.parametrize("kind", [Keeping, KeepingPair, KeepingHistory])
def test_a_block_that_keeps_tensors_on_itself_runs_eagerly(kind, caplog):
    net, x = kind(), nd.ones((2, 4))
    net.initialize()
    wanted, twin = [], kind()
    twin.body = net.body
    for _ in range(2):
        wanted = [twin(x).asnumpy(), *kept(twin)]
    net.hybridize(engine="numpy")
    for _ in range(2):
        made = [net(x).asnumpy(), *kept(net)]
    assert len(made) == len(wanted) and net.calls == 2
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    said = [record.getMessage() for record in caplog.records if "HL173" in record.getMessage()]
    assert len(said) == 1 and "Its calls run eagerly; Blocks below it are compiled" in said[0]
    assert net.body._graphs.count == 1 and not net._graphs.count


@pytest.mark.parametrize("kind", [Keeping, KeepingPair, KeepingHistory])
def test_keeping_tensors_is_an_error_where_a_graph_is_asked_for(kind):
    net = kind()
    net.initialize()
    net.hybridize(engine="numpy", strict=True)
    with pytest.raises(HybridizeError, match=r"HL173: `self\.\w+` is (assigned|changed) only once"):
        net(nd.ones((2, 4)))
    assert kept(net) == [None, 1] and net.history == ["start"]


class KeepsWithShapesToInfer(gluon.HybridBlock):
    """A layer and a parameter of its own whose shapes follow from the input, and tensors that stay on the Block."""

    def __init__(self, adds=False):
        super().__init__()
        self.layer, self.last, self.all, self.adds = gluon.nn.Dense(3), None, [], adds
        self.scale = self.params.get("scale", shape=(1, 0), allow_deferred_init=True)

    def hybrid_forward(self, F, x, scale):
        self.last = F.relu(x) if self.last is None or not self.adds else x + self.last
        self.all.append(self.last)
        return self.layer(F.broadcast_mul(self.last, scale))


@pytest.mark.parametrize("hybrid", [False, True])
def test_shapes_are_inferred_for_code_that_keeps_tensors(hybrid):
    """MXNet infers them too; it leaves Symbols on the Block, where nothing is left here."""
    x = nd.ones((2, 5))
    net = KeepsWithShapesToInfer()
    net.hybridize(hybrid)
    net.infer_shape(x)
    assert [parameter.shape for parameter in net.collect_params().values()] == [(1, 5), (3, 5), (3,)]
    assert net.last is None and net.all == []
    net = KeepsWithShapesToInfer()
    net.initialize()
    net.hybridize(hybrid)
    assert net(x).shape == (2, 3) and isinstance(net.last, nd.NDArray)
    net.infer_shape(x)
    assert len(net.all) == 1


def test_shapes_that_need_an_array_on_the_block_are_a_clear_error():
    net = KeepsWithShapesToInfer(adds=True)
    net.last = nd.ones((2, 5))
    with pytest.raises(HybridLabError, match="cannot be inferred, because .*arrays"):
        net.infer_shape(nd.ones((2, 5)))
    net = KeepsWithShapesToInfer(adds=True)
    net.initialize()
    net(nd.ones((2, 5)))
    net.infer_shape(nd.ones((2, 5)))  # all shapes are known


def test_symbols_of_the_user_may_be_kept():
    net = Keeping()
    made = net(sym.var("x"))
    assert made.list_arguments()[0] == net.weights.list_arguments()[0] == "x"


class Long(Counting):
    def hybrid_forward(self, F, x):
        return x * len(self.history)


def test_a_long_list_that_stays_the_same_is_no_change(caplog):
    net = Long()
    net.history = list(range(300))
    net.hybridize(engine="numpy")
    net(nd.ones((2,)))
    assert not any("HL173" in record.getMessage() for record in caplog.records)


def test_a_class_that_a_function_makes_is_read_once(monkeypatch, capsys):
    def made():
        class Drawing(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x * np.random.rand()

        return Drawing()

    read, find = [], trace_warnings.findings_of
    monkeypatch.setattr(trace_warnings, "findings_of", lambda kind: read.append(kind) or find(kind))
    for _ in range(3):
        net = made()
        net.hybridize(engine="numpy")
        net(nd.ones((2,)))
    assert len(read) == 1
    assert capsys.readouterr().err.count("HL172") == 3


class Stateful(gluon.HybridBlock):
    """Keeps a tensor; what its code does with state is given."""

    def __init__(self, run):
        super().__init__()
        self.run, self.kept, self.count = run, None, 0
        self.nested = {"counts": {"calls": 0}, "tensors": []}

    def hybrid_forward(self, F, x):
        return self.run(self, F, x)


def counting_in_training(block, F, x):
    if autograd.is_training():
        block.count += 1
        block.kept = x * 2
    return x * block.count


def first_call(block, F, x):
    first = not hasattr(block, "ready")
    block.ready, block.kept = True, x
    return x * (10 if first else 1)


def nested_count(block, F, x):
    block.nested["counts"]["calls"] += 1
    block.kept = x
    return x * block.nested["counts"]["calls"]


def drawing(block, F, x):
    block.kept = x
    return x * np.random.rand()


def lazy(block, F, x):
    if block.kept is None:
        block.kept = F.ones_like(x)
    return x * block.kept


def recurrent(block, F, x):
    block.kept = [[x if block.kept is None else x + block.kept[0][0]]]
    return block.kept[0][0] * 1


def logging(block, F, x):
    block.nested["tensors"].append((x * 2, "tag"))
    return x * len(block.nested["tensors"])


def in_the_class(block, F, x):
    type(block).last = x
    return x * 3


STATEFUL = [counting_in_training, first_call, nested_count, drawing, lazy, recurrent, logging, in_the_class]


@pytest.mark.parametrize("run", STATEFUL, ids=lambda run: run.__name__)
@pytest.mark.parametrize("order", ["ppp", "ptptp", "tptp", "thpht"])
def test_state_on_self_is_that_of_eager_calls(run, order):
    """t : a recorded call, p : a prediction, h : hybridize() again"""
    x = nd.array([1.0, 2.0])

    def results(hybridized):
        net, made = Stateful(run), []
        net.hybridize(hybridized, engine="numpy")
        np.random.seed(0)
        for step in order:
            if step == "h":
                net.hybridize(hybridized, engine="numpy")
            elif step == "t":
                with autograd.record():
                    made.append(net(x).asnumpy())
            else:
                made.append(net(x).asnumpy())
        return made

    for one, other in zip(results(True), results(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert isinstance(getattr(Stateful, "last", x), nd.NDArray)


def test_a_copy_with_state_runs_eagerly():
    net, x = Stateful(lazy), nd.array([1.0, 2.0])
    net.hybridize(engine="numpy")
    net(x)
    twin = copy.deepcopy(net)
    assert twin(x).asnumpy().tolist() == [1.0, 2.0]


def test_findings_name_the_file_that_runs(capsys):
    source = "class S(B):\n    def hybrid_forward(self, F, x):\n        self.z = 3\n        return x * 2\n"
    for file in ("<cell 1 of frozen>", "<cell 2 of frozen>"):
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        space = {"B": gluon.HybridBlock, "__name__": "cells_of_frozen"}
        exec(compile(source, file, "exec"), space)
        net = space["S"]()
        net.hybridize(engine="numpy")
        net(nd.ones((2,)))
    said = capsys.readouterr().err
    assert "<cell 1 of frozen>:3" in said and "<cell 2 of frozen>:3" in said


SIGNS = {
    "random": "import random",
    "numpy": "np.random.rand()",
    "from numpy": "rand()",
    "clock": "time.time()",
    "imported clock": "perf_counter()",
    "date": "datetime.now()",
    "process": "os.getpid()",
    "isinstance": "isinstance(x, nd.NDArray)",
    "hasattr": "hasattr(x, 'asnumpy')",
    "is": "F is nd",
    "is not": "F is not nd",
    "equal": "F == nd",
    "name": "F.__name__ == 'mxnet.ndarray'",
    "part of the name": "'symbol' in F.__name__",
    "type": "type(x) is nd.NDArray",
    "equal types": "type(x) == nd.NDArray",
    "attribute": "self.last = 3",
    "augmented": "self.count += 1",
    "entry": "self.kept['a'] = 3",
    "append": "self.seen.append(3)",
    "setattr": "setattr(self, 'a', 3)",
    "global": "global COUNT; COUNT = 3",
    "inside": "[np.random.rand() for _ in range(2)]",
}
NO_SIGNS = {
    "operators": "F.relu(x) * 2",
    "shape": "x.reshape((0, -1))",
    "none": "x is None or x is not None",
    "branch": "if self.k > 3: x = x * 2",
    "local list": "found = []; found.append(x); found.extend([x])",
    "all of a generator": "all(n > 1 for n in (1, 2)), any(n > 1 for n in (1, 2)), tuple(n for n in (1, 2))",
    "local name": "y = x + 1; y += 1",
    "comparison": "x > 0",
    "name of the operators": "print(F.__name__)",
    "type": "print(type(x))",
}


def functions_with(statement):
    names = {"np": np, "nd": nd, "os": os, "time": time, "rand": np.random.rand, "perf_counter": time.perf_counter}
    names["datetime"] = datetime.datetime
    exec(f"def hybrid_forward(self, F, x):\n    {statement}\n    return x", names)
    return [names["hybrid_forward"]]


@pytest.mark.parametrize("statement", SIGNS.values(), ids=SIGNS)
def test_bytecode_shows_what_the_source_must_be_read_for(statement):
    assert any_sign(functions_with(statement))


@pytest.mark.parametrize("statement", NO_SIGNS.values(), ids=NO_SIGNS)
def test_usual_code_needs_no_reading(statement):
    assert not any_sign(functions_with(statement))


USUAL = {
    "two operators": """
class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x) * 2 if x is not None else x
inputs = [mx.nd.ones((2,))]
""",
    "LeNet": """
class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.convolution = nn.Conv2D(6, 5, activation="relu")
            self.pool = nn.MaxPool2D(2)
            self.hidden, self.output = nn.Dense(20), nn.Dense(10)
    def hybrid_forward(self, F, x):
        print(F.__name__, x)
        x = self.pool(self.convolution(x))
        return self.output(F.relu(self.hidden(F.flatten(x))))
inputs = [mx.nd.ones((2, 1, 12, 12))]
""",
    "encoder": """
class Attention(gluon.HybridBlock):
    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.scale = heads, (size // heads) ** -0.5
        with self.name_scope():
            self.both = nn.Dense(3 * size, flatten=False)
            self.output = nn.Dense(size, flatten=False)
    def split(self, F, x):
        x = F.reshape(x, shape=(0, 0, self.heads, -1))
        return F.reshape(F.transpose(x, axes=(0, 2, 1, 3)), shape=(-1, 0, 0), reverse=True)
    def hybrid_forward(self, F, x, mask=None):
        query, key, value = [self.split(F, each) for each in F.split(self.both(x), num_outputs=3, axis=2)]
        scores = F.batch_dot(query, key, transpose_b=True) * self.scale
        if mask is not None:
            scores = F.broadcast_add(scores, mask)
        mixed = F.batch_dot(F.softmax(scores, axis=-1), value)
        mixed = F.reshape(mixed, shape=(-1, self.heads, 0, 0), reverse=True)
        return self.output(F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -1)))
class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.layers = nn.HybridSequential()
            for _ in range(2):
                self.layers.add(Attention(8, 2), nn.LayerNorm(), nn.Dropout(0.1))
    def hybrid_forward(self, F, x):
        return self.layers(x) + x
inputs = [mx.nd.ones((2, 5, 8))]
""",
    "LSTM cell": """
class Cell(gluon.HybridBlock):
    def __init__(self, size):
        super().__init__()
        self.size = size
        with self.name_scope():
            self.inputs, self.states = nn.Dense(4 * size), nn.Dense(4 * size)
    def hybrid_forward(self, F, x, hidden, cell):
        gates = F.split(self.inputs(x) + self.states(hidden), num_outputs=4, axis=1)
        cell = F.sigmoid(gates[0]) * cell + F.sigmoid(gates[1]) * F.tanh(gates[2])
        return F.sigmoid(gates[3]) * F.tanh(cell), cell
class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.cell, self.other = Cell(4), gluon.rnn.LSTMCell(4)
    def hybrid_forward(self, F, x, hidden, cell):
        outputs = []
        for step in range(3):
            hidden, cell = self.cell(x, hidden, cell)
            outputs.append(self.other(hidden, [hidden, cell])[0])
        return F.stack(*outputs, axis=1)
inputs = [mx.nd.ones((2, 3)), mx.nd.ones((2, 4)), mx.nd.ones((2, 4))]
""",
}


@pytest.mark.parametrize("network", USUAL.values(), ids=USUAL)
def test_the_first_call_of_usual_code_does_not_load_the_linter(network, tmp_path):
    (tmp_path / "network.py").write_text(
        "import sys\nimport hybrid_lab as mx\nfrom hybrid_lab import gluon\nfrom hybrid_lab.gluon import nn\n"
        f"{network}net = Net()\nnet.initialize()\nnet.hybridize(engine='numpy')\nnet(*inputs)\n"
        "loaded = 'hybrid_lab.lint', 'hybrid_lab.engines.triton.engine'\n"
        "print([name for name in sys.modules if name.startswith(loaded)])\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "network.py"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
