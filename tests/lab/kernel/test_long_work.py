"""Long work tells the panel: every public operation that may take long, its parts, its end, and what it costs."""

import contextlib
import inspect
import json
import threading
import time

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel.comm import Comms
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.system import progress


@pytest.fixture
def told(monkeypatch):
    """What listeners are told, with no patience."""
    found = []
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_BETWEEN", 0.0)

    class Timer(threading.Timer):
        """Tells at once, on the thread that works, so that nothing depends on time."""

        def start(self):
            self.function()

    monkeypatch.setattr(progress.threading, "Timer", Timer)
    listener = lambda works: found.append([(work.title, work.part, work.done, work.total) for work in works])  # noqa: E731
    progress.listeners.append(listener)
    yield found
    progress.listeners.remove(listener)


def mlp(hybridized=True):
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(5), nn.Dense(2))
    net.initialize()
    net.hybridize(hybridized)
    net(nd.ones((4, 3)))
    return net


def torch_import(folder, net):
    torch = pytest.importorskip("torch")
    mx.torch.imports(torch.nn.Linear(3, 2), torch.ones(4, 3))


def onnx_import(folder, net):
    mx.onnx.export(net, folder / "net.onnx", (4, 3))
    mx.onnx.imports(folder / "net.onnx")


def symbol_block(folder, net):
    files = net.export(str(folder / "net"))
    gluon.SymbolBlock.imports(files[0], ["data"], files[1])


def archive(folder, net):
    net.save(folder / "net.hlab")
    net.load(folder / "net.hlab")
    gluon.load(folder / "net.hlab")


def parameters(folder, net):
    net.save_parameters(folder / "net.params")
    net.load_parameters(folder / "net.params")


def arrays(folder, net):
    nd.save(str(folder / "a.params"), {"a": nd.ones((2,))})
    nd.load(str(folder / "a.params"))


def download(folder, net):
    (folder / "a.bin").write_bytes(b"a")
    gluon.utils.download((folder / "a.bin").as_uri(), str(folder / "b.bin"))


def tune(net):
    with contextlib.suppress(HybridLabError):  # the tests ask for one engine by name, so there is nothing to choose
        mx.tune(net, x)


x = nd.ones((4, 3))
#: What may take long -> a call of it, and the titles under which it tells of itself.
OPERATIONS = {
    "mx.torch.imports": (torch_import, ["importing Linear"]),
    "mx.onnx": (onnx_import, ["exporting net", "importing net.onnx"]),
    "SymbolBlock.imports, export": (symbol_block, ["exporting net", "importing net-symbol.json"]),
    "archives": (archive, ["saving net", "loading net", "loading net.hlab"]),
    "parameters": (parameters, ["saving the parameters of net", "loading the parameters of net"]),
    "arrays": (arrays, ["saving a.params", "loading a.params"]),
    "download": (download, ["downloading a.bin"]),
    "the first call after hybridize": (lambda folder, net: mlp(), ["compiling net"]),
    "mx.summary": (lambda folder, net: mx.summary(net, x), ["counting net"]),
    "mx.profile": (lambda folder, net: mx.profile(net, x, runs=1), ["profiling net"]),
    "mx.compare": (lambda folder, net: mx.compare(net, x), ["comparing net"]),
    "mx.explain": (lambda folder, net: mx.explain(net, x), ["explaining net"]),
    "mx.diff": (lambda folder, net: mx.diff(net, net), ["comparing net"]),
    "mx.tune": (lambda folder, net: tune(net), ["tuning net"]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_long_operation_tells_of_itself_and_of_its_end(name, told, tmp_path):
    call, titles = OPERATIONS[name]
    net = mlp()
    told.clear()
    call(tmp_path, net)
    seen = {title for works in told for title, *_ in works}
    assert seen >= set(titles)
    assert told[-1] == [], "nothing is left at the end"
    assert not progress._running and progress._current.work is None


def test_the_signatures_of_these_functions_are_their_own():
    for function in (mx.onnx.imports, mx.onnx.export, mx.summary, mx.profile, mx.compare, gluon.SymbolBlock.imports):
        assert "args" not in inspect.signature(function).parameters
        assert inspect.unwrap(function) is not function


def test_what_fails_is_no_longer_told_of(told, tmp_path):
    with pytest.raises(OSError):
        nd.load(str(tmp_path / "nothing.params"))
    assert told[-1] == [] and not progress._running


def test_work_inside_of_work_is_a_part_of_it(told):
    with progress.working("saving every model"):
        bar = progress.Progress("writing net.hlab", 3, "MB")
        bar.step(1, "conv0.weight")
        bar.close()
    assert ("saving every model", "writing net.hlab: conv0.weight", 1, 3) in [works[0] for works in told if works]


def test_without_a_listener_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(progress, "listeners", [])  # without those of labs that other tests have left open
    with progress.working("saving"):
        assert not progress._running


def test_work_of_some_milliseconds_says_nothing(monkeypatch):
    found = []
    monkeypatch.setattr(progress, "listeners", [found.append])
    monkeypatch.setattr(progress, "PATIENCE", 1000.0)  # so that this work is short on any machine
    with progress.working("saving"):
        time.sleep(0.01)
    assert found == []


class Page:
    comm_id = "page"

    def __init__(self):
        self.got = []

    def on_msg(self, callback):
        pass

    def on_close(self, callback):
        pass

    def close(self):
        pass

    def send(self, message):
        self.got.append(json.loads(json.dumps(message)))


def test_pages_get_rows_of_the_cells_work_and_an_empty_list_at_its_end(told):
    comms = Comms(Session(dict))
    page = Page()
    comms.opened(page, None)
    with progress.working("importing a\nname"):
        pass
    thread = threading.Thread(target=lambda: nd.waitall() or progress.shows_work("saving")(lambda: None)())
    thread.start()
    thread.join()
    comms.close()
    rows = [message["body"]["works"] for message in page.got if message["type"] == "work"]
    assert rows[0][0]["title"].startswith("importing a") and "\n" not in rows[0][0]["title"]
    assert rows[-1] == [] and not any(row["title"] == "saving" for each in rows for row in each)
    assert np.isfinite(rows[0][0]["seconds"])
    assert comms.push_work not in progress.listeners
