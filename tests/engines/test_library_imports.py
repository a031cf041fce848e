"""Imports of libraries: an interrupt comes through and leaves none half imported."""

import _thread
import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import hybrid_lab as mx
from hybrid_lab.engines import libraries
from hybrid_lab.engines.libraries import import_library

LIBRARY = """
import slow_library_events as events
events.begun.set()
assert events.go_on.wait(60)
import slow_library.part
value = 3
"""

TORCH = """
import _thread, sys, threading
import hybrid_lab as mx

class Interrupt:
    asked = False

    def find_spec(self, name, path=None, target=None):
        if name == "torch.fx" and not self.asked:
            self.asked = True
            _thread.interrupt_main()

sys.meta_path.insert(0, Interrupt())
net = mx.gluon.nn.Dense(2, in_units=3)
net.initialize("ones")
net.hybridize(engine="torch")
try:
    net(mx.nd.ones((4, 3)))
except KeyboardInterrupt:
    print("interrupted")
print(net(mx.nd.ones((4, 3))).asnumpy().sum())
"""


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """slow_library waits in its import: `begun` is set then, and setting `go_on` ends it."""
    folder = tmp_path / "slow_library"
    folder.mkdir()
    (folder / "__init__.py").write_text(LIBRARY)
    (folder / "part.py").write_text("")
    module = type(sys)("slow_library_events")
    module.begun, module.go_on = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "slow_library_events", module)
    monkeypatch.syspath_prepend(tmp_path)
    yield module
    module.go_on.set()
    for name in [name for name in sys.modules if name.partition(".")[0] == "slow_library"]:
        del sys.modules[name]


def test_an_interrupted_import_goes_on(events):
    threading.Thread(target=lambda: events.begun.wait(60) and _thread.interrupt_main()).start()
    with pytest.raises(KeyboardInterrupt):
        import_library("slow_library")
    events.go_on.set()
    assert import_library("slow_library").value == 3


def test_an_error_of_an_import_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_library.py").write_text("raise OSError('no such driver')")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        with pytest.raises(OSError, match="no such driver"):
            import_library("broken_library")


def test_torch_works_after_an_interrupt_of_its_import():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", TORCH], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout.split() == ["interrupted", "24.0"]


def test_the_caller_says_that_torch_is_imported(monkeypatch, caplog):
    """Not the thread of the import: in a notebook only the cell's own thread can write into the cell's output."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(libraries, "_load_torch", lambda: SimpleNamespace(__name__="torch"))
    monkeypatch.setattr(libraries.logger, "propagate", True)
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        assert import_library("torch").__name__ == "torch"
    assert {(record.thread, record.getMessage()[:15]) for record in caplog.records} == {
        (threading.get_ident(), "importing torch")
    }


@pytest.mark.parametrize(("version", "told"), [("1.26.3", True), ("1.27.0", False), ("2.0.dev1", False)])
def test_an_old_onnxruntime_is_named(monkeypatch, caplog, version, told):
    monkeypatch.setattr(libraries.importlib, "import_module", lambda name: SimpleNamespace(__version__=version))
    monkeypatch.setattr(libraries.logger, "propagate", True)
    libraries._load_onnxruntime()
    assert ("LayerNorm" in caplog.text) is told


def test_explain_tells_of_an_old_onnxruntime(monkeypatch):
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(__version__="1.20.1"))
    assert "onnxruntime 1.20.1 gives other numbers than eager calls" in " ".join(str(mx.explain(net)).split())
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(__version__="1.27.0"))
    assert "onnxruntime" not in str(mx.explain(net))


def test_the_oldest_onnxruntime_is_the_one_of_the_package():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"onnxruntime>={".".join(map(str, libraries.OLDEST_ONNXRUNTIME))}"' in text
