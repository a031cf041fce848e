"""The rooms of the package load at their first use, which may be in several threads at once."""

import _imp
import subprocess
import sys

import pytest

from hybrid_lab.system import imports

#: Each job is the first use of some rooms; all start at once.
USES = """
import logging, sys, tempfile, threading, time
import hybrid_lab as mx

logging.disable(logging.CRITICAL)
folder = tempfile.mkdtemp()


def dense():
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((2, 3)))
    return net


def trained():
    net = dense()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam")
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 3))).sum()
    loss.backward()
    trainer.step(2)


def module():
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3), name="softmax")
    made = mx.mod.Module(symbol)
    made.bind([("data", (2, 3))], [("softmax_label", (2,))])
    made.init_params()


def arrays():
    mx.nd.save(folder + "/arrays", {"a": mx.nd.ones((2,))})
    mx.nd.load(folder + "/arrays")


JOBS = [
    trained,
    module,
    arrays,
    lambda: dense().save(folder + "/net"),
    lambda: str(mx.explain(dense(), mx.nd.ones((2, 3)))),
    lambda: str(mx.summary(dense(), mx.nd.ones((2, 3)))),
    lambda: mx.sym.Variable("x") + 1,
    lambda: mx.metric.Accuracy().update([mx.nd.ones((2,))], [mx.nd.ones((2, 2))]),
    lambda: (mx.np.ones((3,)) + mx.np.ones((3,))).sum(),
    lambda: mx.npx.relu(mx.np.ones((3,))),
    lambda: mx.image.imresize(mx.nd.ones((8, 8, 3)).astype("uint8"), 4, 4),
    lambda: mx.gluon.model_zoo.vision.get_model("squeezenet1.0"),
    lambda: list(mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(mx.nd.ones((4, 2))), 2)),
    lambda: mx.random.uniform(shape=(3,)),
    lambda: mx.kv.create("local"),
    lambda: mx.onnx.export,
]
errors, start = [], threading.Barrier(len(JOBS))


def run(job):
    start.wait()
    try:
        job()
    except BaseException as error:
        errors.append(error)


threads = [threading.Thread(target=run, args=(job,)) for job in JOBS]
"""
RUN = "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\nassert not errors, errors\n"


def passes(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("run", range(3))
def test_rooms_are_used_first_in_many_threads_at_once(run):
    passes(USES + RUN)


def test_a_room_does_not_wait_for_the_import_of_another_package(tmp_path):
    """Another thread imports something that takes long, as torch does."""
    (tmp_path / "slow_package.py").write_text("import threading\nthreading.inside.set()\nthreading.loaded.wait(60)\n")
    passes(f"""
import sys, threading, time
import hybrid_lab as mx

sys.path.insert(0, {str(tmp_path)!r})
threading.inside, threading.loaded = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: __import__("slow_package"))
other.start()
threading.inside.wait()
mx.nd.ones((2,))
assert not threading.loaded.is_set() and other.is_alive()
threading.loaded.set()
other.join()
""")


def test_a_module_that_uses_a_room_while_it_is_imported_does_not_wait_for_itself(tmp_path):
    """Two threads: one is in the middle of an import and reads `mx.gluon`, the other one loads a room meanwhile."""
    (tmp_path / "users_package.py").write_text(
        "import threading, time\nimport hybrid_lab as mx\nthreading.inside.set()\ntime.sleep(0.5)\n"
        "mx.gluon.nn.Dense(1)\n"
    )
    passes(f"""
import sys, threading
import hybrid_lab as mx

sys.path.insert(0, {str(tmp_path)!r})
threading.inside = threading.Event()
other = threading.Thread(target=lambda: __import__("users_package"))
other.start()
threading.inside.wait()
mx.sym.Variable("x")
other.join(60)
assert not other.is_alive() and "users_package" in sys.modules
""")


def test_a_ctrl_c_while_imports_are_looked_at_leaves_no_lock(monkeypatch):
    def interrupted(by):
        raise KeyboardInterrupt

    assert not _imp.lock_held()
    monkeypatch.setattr(imports, "_importing", interrupted)
    with pytest.raises(KeyboardInterrupt), imports.alone():
        pass
    assert not _imp.lock_held()
