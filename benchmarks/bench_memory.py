"""The memory of a training step: what the plan takes, the most that is alive at once, and how much a process grows."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import write_table

STEPS = 3


def lenet() -> tuple[Any, tuple[int, ...]]:
    from hybrid_lab.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="tanh"), nn.MaxPool2D(), nn.Conv2D(50, 5, activation="tanh"), nn.MaxPool2D())
    net.add(nn.Dense(500, activation="tanh"), nn.Dense(10))
    return net, (64, 1, 28, 28)


def resnet18() -> tuple[Any, tuple[int, ...]]:
    from hybrid_lab.gluon.model_zoo import vision

    return vision.resnet18_v1(classes=10), (16, 3, 64, 64)


def lstm() -> tuple[Any, tuple[int, ...]]:
    from hybrid_lab import gluon

    class Unrolled(gluon.HybridBlock):
        """35 steps of two LSTM cells, written out."""

        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.cell = gluon.rnn.HybridSequentialRNNCell()
                self.cell.add(gluon.rnn.LSTMCell(200, input_size=200))
                self.cell.add(gluon.rnn.LSTMCell(200, input_size=200))
                self.head = gluon.nn.Dense(10)

        def hybrid_forward(self, F, x):
            zeros = [F.zeros_like(F.slice_axis(x, axis=1, begin=0, end=1)).reshape((0, -1)) for _ in range(4)]
            outputs, _ = self.cell.unroll(35, x, begin_state=zeros, layout="NTC", merge_outputs=False)
            return self.head(outputs[-1])

    return Unrolled(), (32, 35, 200)


WORKLOADS = {
    "LeNet, batch 64": lenet,
    "ResNet-18, 64 x 64, batch 16": resnet18,
    "LSTM 2 x 200, 35 steps, batch 32": lstm,
}


def measure(workload: str, engine: str) -> dict[str, Any]:
    """In a process of its own: MiB by which it grew at its peak during training steps, and the plan's figures."""
    import numpy as np

    from hybrid_lab import autograd, gluon, nd

    net, shape = WORKLOADS[workload]()
    net.initialize()
    random = np.random.RandomState(0)
    x, label = nd.array(random.rand(*shape)), nd.array(random.randint(0, 10, shape[0]))
    net(x[:1])
    if engine != "eager":
        net.hybridize(engine=engine)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    for _ in range(STEPS):
        with autograd.record():
            value = loss(net(x), label)
        value.backward()
        trainer.step(shape[0])
    value.asnumpy()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found: dict[str, Any] = {"grown": (peak - before) / 2**20}
    if engine != "eager":
        report = net._graph_calls.compilations[-1].program.forward.report
        found |= {"planned": report.arena_bytes / 2**20, "alive": report.ideal_bytes / 2**20}
    return found


def main() -> None:
    rows = []
    for workload in WORKLOADS:
        found = {}
        for engine in ("eager", "numpy", "onnxruntime"):
            command = [sys.executable, __file__, workload, engine]
            found[engine] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        plan = found["numpy"]
        ratio = plan["planned"] / plan["alive"]
        cells = [f"{plan['planned']:.1f}", f"{plan['alive']:.1f}", f"{ratio:.3f}"]
        rows.append([workload, *cells, *(f"{found[engine]['grown']:.0f}" for engine in found)])
    header = ["training step", "planned", "most alive at once", "ratio", "process: eager", "numpy", "onnxruntime"]
    notes = (
        "MiB. Planned: the one arena of forward and backward (numpy engine); outputs and gradients are not in it. "
        f"Process: by how much its peak exceeds what it held before the first of {STEPS} steps, compiling included; "
        "for onnxruntime that includes the library and its own arenas."
    )
    write_table("memory", "Memory of a training step", header, rows, notes)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
