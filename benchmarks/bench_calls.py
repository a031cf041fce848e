"""What a call costs before any work: a graph of three operators on a 4 x 4 array, here, in MXNet and in torch; one
eager operator; the import.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from harness import Peer, interleaved, oracle, write_table

import hybrid_lab as mx
from hybrid_lab import autograd, gluon


class Three(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x * 2 + 1)


def per_call_us(function, count: int = 1000) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count * 1e6


def import_ms(statement: str) -> float:
    code = f"import time; s = time.perf_counter(); {statement}; print((time.perf_counter() - s) * 1e3)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    return statistics.median(runs)


def main(rounds: int = 15) -> None:
    x = mx.nd.ones((4, 4))
    held = mx.nd.ones((4, 4))
    held.attach_grad()
    nets = {}
    for engine in ("numpy", "onnxruntime"):
        nets[engine] = Three()
        nets[engine].hybridize(engine=engine)

    def with_backward(net):
        with autograd.record():
            y = net(held)
        y.backward()

    cases = {
        "eager x * y": lambda: per_call_us(lambda: x * held),
        "NumPy's own x * y": lambda: per_call_us(lambda: x._data * held._data),
    }
    for engine, net in nets.items():
        cases[f"hybrid call, {engine}"] = lambda net=net: per_call_us(lambda: net(x))
        cases[f"hybrid call with backward, {engine}"] = lambda net=net: per_call_us(lambda: with_backward(net), 1000)
    peers = {}
    if oracle() is not None:
        peers["MXNet 1.9.1, hybrid static"] = Peer(oracle(), "mxnet_calls.py")
    if importlib.util.find_spec("torch") is not None:
        peers["torch, eager"] = Peer(Path(sys.executable), "torch_calls.py")
    for name, peer in peers.items():
        cases[f"{name}: call"] = partial(peer.median_ms, "call", 1000)
        cases[f"{name}: call with backward"] = partial(peer.median_ms, "backward", 1000)
    for measure in cases.values():
        measure()
    found = interleaved(cases, rounds)
    for peer in peers.values():
        peer.close()
    rows = [[name, f"{microseconds:.2f} us"] for name, microseconds in found.items()]
    rows.append(["import numpy", f"{import_ms('import numpy'):.0f} ms"])
    rows.append(["import hybrid_lab", f"{import_ms('import hybrid_lab'):.0f} ms"])
    rows.append(
        [
            "import hybrid_lab and all rooms of a model",
            f"{import_ms('import hybrid_lab as mx; mx.nd, mx.gluon, mx.sym')} ms".split(".")[0] + " ms",
        ]
    )
    write_table("calls", "Cost of a call", ["what", "median"], rows)


if __name__ == "__main__":
    main()
