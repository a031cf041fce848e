"""Files of workers: rank 0 writes what a training writes by itself; a call of the user's own writes in every worker."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import hybrid_lab as mx

pytest.importorskip("torch")

from tests.distributed.workers import results

WRITERS = {
    "formats/checkpoint/manager.py": "Manager.save and restore: rank 0 for all",
    "cli/compile.py": "a command",
    "cli/lint.py": "a command",
    "cli/migrate.py": "a command",
    "engines/store.py": "the cache of kernels, shared by all processes",
    "formats/archive/compiled.py": "net.save",
    "formats/archive/container.py": "net.save",
    "formats/archive/save.py": "net.save, autosave",
    "formats/atomic.py": "the replacing itself",
    "formats/mxnet/model.py": "net.export",
    "formats/mxnet/params.py": "nd.save, save_parameters, checkpoints of Modules and of an Estimator",
    "formats/mxnet/symbol_json.py": "symbol.save, checkpoints of Modules and of an Estimator",
    "formats/safetensors.py": "save_parameters",
    "formats/singa.py": "save_states of SINGA",
    "gluon/files/downloading.py": "downloads",
    "distributed/kvstore/kvstore.py": "save_optimizer_states, Trainer.save_states",
    "lab/saving/history.py": "before a save of the lab",
    "lab/training/kept_runs.py": "runs",
    "lab/training/export.py": "mx.lab.runs",
    "lab/saving/save_facts.py": "notes of saves",
    "lab/views/shared_page.py": "mx.lab.share",
    "ndarray/stubs.py": "type stubs of the checkout",
    "onnx/writing/file.py": "net.export",
    "mxnet/profiler/__init__.py": "profiler.dump",
    "data/recordio.py": "MXRecordIO",
    "system/temporary.py": "the replacing itself",
    "torch/source/write.py": "mx.torch.write_source",
    "mxnet/test_utils/running.py": "the null device",
    "gluon/utils.py": "replace_file",
    "data/image_files.py": "into memory",
}
"""Modules that write files -> for whom. Those that a training calls by itself are tried below."""
_CALLS = {"atomic_write", "replacement", "write_early", "write_text", "write_bytes"}
#: Modules without these words have no call that writes.
_WORDS = re.compile("|".join([*_CALLS, r"\bopen\(", r"\bos\.replace\b", r"\bsqlite3\.connect\b"]))


def _writes(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name == "open" and len(call.args) > 1:
        mode = call.args[1]
        return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set(mode.value) & set("wax+"))
    of = getattr(getattr(call.func, "value", None), "id", "")
    return name in _CALLS or (of, name) in (("os", "replace"), ("sqlite3", "connect"))


def test_every_module_that_writes_is_known():
    root, found = Path(mx.__file__).parent, set()
    for file in root.rglob("*.py"):
        source = file.read_text("utf-8")
        nodes = ast.walk(ast.parse(source)) if _WORDS.search(source) else ()
        if any(isinstance(node, ast.Call) and _writes(node) for node in nodes):
            found.add(file.relative_to(root).as_posix())
    assert sorted(found - WRITERS.keys()) == []


BODY = """
import glob, logging, os
os.environ["HYBRID_LAB_RUNS"] = "1"
folder = os.path.join({folder!r}, f"rank{{rank}}")
os.makedirs(folder)
os.chdir(folder)
logging.disable(logging.CRITICAL)
x = nd.array(np.random.RandomState(rank).randn(16, 3))
y = nd.array(np.arange(16) % 2)

def new():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    return net, gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.1}}, kvstore="dist_sync")

def names(part):
    return sorted(name for name in os.listdir(folder) if name.startswith(part))

from hybrid_lab.gluon.contrib.estimator import CheckpointHandler, Estimator
net, trainer = new()
estimator = Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
handler = CheckpointHandler(
    folder, "fit", estimator.train_metrics[0], save_best=True, batch_period=1, max_checkpoints=2
)
loader = gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), 4)
estimator.fit(loader, epochs=2, event_handlers=[handler])
found = {{"estimator": names("fit-")}}

def refused(*arguments):
    raise PermissionError("refused")

net.save_parameters = refused
try:
    estimator.fit(loader, epochs=1, event_handlers=[CheckpointHandler(folder, "not")])
except Exception as error:
    found["refused"] = type(error).__name__, str(error)

data = mx.sym.Variable("data")
mod = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2), name="softmax"))
train = mx.io.NDArrayIter(x, y, 4)
mod.fit(
    train,
    num_epoch=2,
    kvstore="dist_sync",
    epoch_end_callback=[
        mx.callback.do_checkpoint("own" if rank == 0 else f"own-{{rank}}"), mx.callback.module_checkpoint(mod, "module")
    ],
)
found["callbacks"] = names("own") + names("module")

net, trainer = new()
saver = mx.lab.autosave(net, "auto.hlab", every=1)
manager = mx.checkpoint.Manager("points", net, trainer)
for step in range(3):
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(16 * size)
    mx.log(loss=loss)
    manager.save(step)
found["autosave"] = names("auto"), saver.saves, saver.problem
saver.stop()
from hybrid_lab.lab.training.current import runs
runs.finish()
found["runs"] = names(".hybrid_lab_runs")
found["points"] = sorted(os.listdir("points")) if os.path.isdir("points") else []

found["first"] = mx.distributed.on_first(lambda: open("first", "w").write("x")), names("first")
net.save("mine.hlab")
trainer.save_states("mine.states")
net.save_parameters("mine.params")
net.export("mine")
found["mine"] = names("mine")
return found
"""


@pytest.mark.long
def test_rank_0_writes_what_a_training_writes_by_itself(tmp_path):
    first, second = results(2, BODY.format(folder=str(tmp_path)), tmp_path, timeout=300)
    kept = [f"fit-epoch1batch7.{ending}" for ending in ("params", "states")]
    assert set(kept) < set(first["estimator"]), first["estimator"]
    assert {"fit-best.params", "fit-best.states", "fit-symbol.json"} < set(first["estimator"])
    assert second["estimator"] == []
    assert first["refused"] == ("PermissionError", "refused")
    assert second["refused"][0] == "HybridLabError"
    assert "rank 0 could not do it for all workers: PermissionError: refused" in second["refused"][1]
    assert first["callbacks"] == [
        *("own-0001.params", "own-0002.params", "own-symbol.json"),
        *("module-0001.params", "module-0002.params", "module-symbol.json"),
    ]
    assert second["callbacks"] == []
    assert first["autosave"] == (["auto.hlab"], 3, "")
    assert second["autosave"] == ([], 0, "")
    assert ".hybrid_lab_runs.sqlite" in first["runs"]
    assert second["runs"] == []
    assert len(first["points"]) == 3
    assert second["points"] == []
    assert (first["first"], second["first"]) == ((1, ["first"]), (1, []))
    assert first["mine"] == second["mine"]
    assert len(first["mine"]) == 5
