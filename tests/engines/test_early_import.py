"""torch's import begins with the first training that may need it, changes no number, and disturbs neither forks nor the
end of a process.
"""

import functools
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

BEGIN = """
import os, sys, threading, time
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines import early_import, libraries, registry
from hybrid_lab.gluon import nn

def made(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    return net

def trainer(net):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

def convolutions():
    mx.random.seed(0)
    return made(nn.Conv2D(16, 5), nn.Conv2D(32, 5, activation="relu"), nn.Dense(10))
"""
TRAIN = """
net = convolutions()
net.hybridize()
step = trainer(net)
mx.random.seed(1)
x, losses = nd.random.uniform(shape=(64, 1, 28, 28)), []
for _ in range(3):
    with autograd.record():
        loss = (net(x) ** 2).mean()
    loss.backward()
    step.step(1)
    losses.append(float(loss.asscalar()).hex())
engine = net._graph_calls.compilations[-1].engine
print(losses, engine, libraries.is_begun("torch"), sys.modules["torch"].get_num_threads())
"""


def run(code, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "HYBRID_LAB_CPU"} | variables
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def printed(code, **variables):
    result = run(code, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@functools.cache
def trained():
    """What TRAIN prints in a process of its own."""
    return printed(TRAIN)


NEEDED = {
    "a net with convolutions": "net = convolutions(); net.hybridize(); trainer(net)",
    "in the other order": "net = convolutions(); trainer(net); net.hybridize()",
    "many parameters": "net = made(nn.Dense(1000, in_units=500)); net.hybridize(); trainer(net)",
    "many parameters of sizes to come": "net = made(nn.Dense(4000)); net.hybridize(); trainer(net)",
}
NOT_NEEDED = {
    "a small perceptron": "net = made(nn.Dense(100), nn.Dense(10)); net.hybridize(); trainer(net)",
    "eager training": "trainer(convolutions())",
    "no training": "convolutions().hybridize()",
    "an engine is named": "net = convolutions(); net.hybridize(engine='numpy'); trainer(net)",
    "switched off again": "net = convolutions(); net.hybridize(False); trainer(net)",
}


def test_only_a_training_that_torch_may_run_begins_the_import():
    """All cases in one process, in which nothing is imported."""
    each = """
for code in {codes!r}:
    early_import._hybridized = early_import._trains = False
    begun = []
    libraries.begin_import = lambda name, load: begun.append(name)
    exec(code)
    print(begun, 'torch' in sys.modules)
"""
    lines = printed(each.format(codes=[*NEEDED.values(), *NOT_NEEDED.values()])).splitlines()
    assert lines == ["['torch'] False"] * len(NEEDED) + ["[] False"] * len(NOT_NEEDED)


@pytest.mark.parametrize("variables", [{"HYBRID_LAB_CPU": "numpy"}, {"HYBRID_LAB_CPU": "onnxruntime"}])
def test_a_variable_that_names_an_engine_is_obeyed(variables):
    code = NEEDED["a net with convolutions"] + "\nprint(libraries.is_begun('torch'))"
    assert printed(code, **variables) == "False"


def test_numbers_engine_and_threads_are_those_without_it():
    early = trained()
    late = printed("early_import.trains = lambda shapes: None\n" + TRAIN)
    assert "torch True" in early
    assert early == late.replace("torch False", "torch True")


@pytest.mark.parametrize("seconds", [0, 0.5, 2])
def test_a_process_that_ends_does_not_wait_for_it(seconds):
    result = run(NEEDED["a net with convolutions"] + f"\ntime.sleep({seconds})")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_users_own_threads_stay():
    begin, train = TRAIN.split("mx.random.seed(1)")
    assert printed(f"{begin}import torch; torch.set_num_threads(1){train}").endswith("torch True 1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("seconds", [0, 0.5])
def test_a_child_that_is_forked_meanwhile_trains_as_without_it(seconds):
    fork = f"""
net = convolutions()
net.hybridize()
trainer(net)
time.sleep({seconds})
child = os.fork()
if not child:
    try:
        exec(TRAIN)
        print(registry.left_behind, flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
"""
    lines = printed(f"TRAIN = {TRAIN!r}\n" + fork).splitlines()
    assert lines == [trained(), "set()"]


def test_an_import_that_fails_is_told_where_torch_is_needed(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('a library is missing')")
    code = (
        NEEDED["a net with convolutions"]
        + "\nlibraries.outcome_of('torch').exception()\nlibraries.import_library('torch')"
    )
    result = run(code, PYTHONPATH=os.pathsep.join([str(tmp_path), os.getcwd()]))
    assert "OSError: a library is missing" in result.stderr
