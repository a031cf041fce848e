"""Python in a browser (Pyodide, as JupyterLite runs it): no threads, no processes, modules of the library missing.

Simulated in a process of its own: `sys.platform` is "emscripten", missing modules cannot be imported, modules that the
kernel of JupyterLite replaces are empty, and threads and processes do not start. NumPy is the machine's.
"""

import os
import subprocess
import sys
import textwrap

import pytest

SIMULATED = """
import importlib.abc, os, signal, subprocess, sys, sysconfig, tempfile, threading, types
import numpy as np
sysconfig.get_config_vars()
MISSING = {"ctypes", "_ctypes", "mmap", "_multiprocessing", "ssl", "_ssl", "sqlite3",
           "onnx", "onnxruntime", "torch", "triton", "psutil", "nh3"}
for name in [name for name in sys.modules if name.partition(".")[0] in MISSING]:
    del sys.modules[name]
for name in ("fcntl", "pexpect", "resource", "termios"):
    sys.modules[name] = types.ModuleType(name)

class Without(importlib.abc.MetaPathFinder):
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in MISSING else self.finder.find_spec(name, path, target)

    def find_distributions(self, *context):
        find = getattr(self.finder, "find_distributions", None)
        return find(*context) if find else ()

def start(self):
    raise RuntimeError("can't start new thread")

class Popen:
    def __init__(self, *arguments, **keywords):
        raise OSError(138, "Not supported")

sys.meta_path[:] = map(Without, sys.meta_path)
threading.Thread.start, subprocess.Popen, sys.platform = start, Popen, "emscripten"
for name in ("geteuid", "getxattr", "link", "posix_fallocate", "preadv", "sched_getaffinity", "setxattr"):
    delattr(os, name) if hasattr(os, name) else None
del signal.pthread_kill, threading.get_native_id

def fork():
    raise OSError(52, "Function not implemented")

os.fork = fork
os.chdir(tempfile.mkdtemp())

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

net = nn.HybridSequential()
net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Flatten(), nn.Dense(10))
net.initialize()
x = nd.random.normal(shape=(8, 1, 12, 12))
y = net(x)
net.hybridize()
"""

WORK = {
    "predicting": "assert abs(net(x) - y).max() < 1e-5",
    "training": """
        trainer, loss = gluon.Trainer(net.collect_params(), "adam"), gluon.loss.SoftmaxCrossEntropyLoss()
        losses = []
        for step in mx.lab.progress(range(20)):
            with autograd.record():
                value = loss(net(x), nd.array(range(8))).mean()
            value.backward()
            trainer.step(1)
            losses.append(float(value))
            mx.log(loss=losses[-1])
        assert losses[-1] < losses[0] / 2""",
    "loading": """
        data = gluon.data.ArrayDataset(np.arange(20.0), np.arange(20))
        loader = gluon.data.DataLoader(data, batch_size=4, num_workers=2)
        assert sum(len(item) for item, _ in loader) == 20""",
    "looking": """
        net(x)
        assert "numpy" in str(mx.explain(net, x)).lower()
        str(mx.summary(net, (8, 1, 12, 12))), str(mx.profile(net, x)), str(mx.compare(net, x)), net._repr_html_()
        with mx.watch_nan(net), mx.capture(net, "0"):
            net(x)""",
    "saving": """
        wanted = net(x)
        net.save("m")
        assert abs(gluon.load("m.hlab")(x) - wanted).max() < 1e-5
        net.save_parameters("p.params")
        net.load_parameters("p.params")
        net.save_parameters("p.safetensors")
        str(mx.diff("m.hlab", net))""",
    "earlier saves": """
        from pathlib import Path
        from hybrid_lab.lab.saving import history
        file = Path("m.hlab")
        for scale in (1.0, 2.0):
            net[3].bias.set_data(nd.ones(10) * scale)
            with history.replacing(file):
                net.save("m")
        (earlier,) = history.entries(file)
        assert gluon.load(str(earlier))[3].bias.data().asnumpy()[0] == 1
        history.put_back(file, earlier)
        assert gluon.load("m.hlab")[3].bias.data().asnumpy()[0] == 1""",
    "measurements": """
        from pathlib import Path
        from hybrid_lab.engines.store import why_untrusted
        Path("cache").mkdir(mode=0o700)
        assert why_untrusted(Path("cache"), may_be_link=True) is None
        str(mx.tune(net, x)), net(x)""",
    "reading ahead": """
        source = mx.io.NDArrayIter(np.arange(40.0).reshape(20, 2), np.arange(20), batch_size=5)
        assert sum(1 for batch in mx.io.PrefetchingIter(source)) == 4""",
    "large files": """
        from hybrid_lab.formats import background
        from hybrid_lab.formats.archive import container
        background.WORTH_THREADS = container.WORTH_THREADS = background.WORTH_A_TASK = 0
        wanted = net(x)
        net.save("m")
        assert abs(gluon.load("m.hlab")(x) - wanted).max() < 1e-5""",
    "recurrent": """
        from hybrid_lab.gluon import rnn
        layer = rnn.LSTM(4)
        layer.initialize()
        layer.hybridize()
        assert layer(nd.ones((3, 2, 5))).shape == (3, 2, 4)""",
    "with a panel that listens": """
        from hybrid_lab.system import progress
        progress.listeners.append(lambda shown: None)
        str(mx.explain(net, x)), mx.profile(net, x), mx.compare(net, x), net.save("m"), gluon.load("m.hlab")(x)""",
    "panel": """
        from hybrid_lab.lab.kernel import comm, hooks, session
        from hybrid_lab.lab.views import shared_page""",
    "view": """
        import importlib.util
        if importlib.util.find_spec("anywidget"):
            view = mx.view(net)
            view.svg = "<svg><path d='M0 0'/></svg>"
            assert view.svg == ""
            assert "Conv2D" in view.static_html()""",
}


def run(work):
    program = SIMULATED + textwrap.dedent(work)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HYBRID_LAB_CPU")}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.parametrize("name", WORK)
def test_what_a_notebook_does(name):
    done = run(WORK[name])
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ("mx.lab.workers(2)", "Python in a browser starts no processes"),
        ("net.hybridize(engine='torch'); net(x)", "torch"),
        ("net.hybridize(engine='onnxruntime'); net(x)", "onnxruntime"),
    ],
)
def test_what_is_missing_is_a_typed_error(work, message):
    done = run(work)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("hybrid_lab.") and message in last, done.stderr[-2000:]
