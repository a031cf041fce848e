"""A Trainer's step - the update alone, gradients at hand - beside MXNet's and torch's fused optimizers."""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from functools import partial
from pathlib import Path

from harness import HERE, Peer, interleaved, oracle, write_table

from hybrid_lab import gluon, nd

sys.path.insert(0, str(HERE / "peers"))
from update_sizes import OPTIMIZERS, SIZES  # noqa: E402


def trainer_of(size: str, optimizer: str, fused: bool):
    """A function that makes one step."""
    params = []
    for number, shape in enumerate(SIZES[size]):
        each = gluon.Parameter(f"p{number}", shape=shape)
        each.initialize()
        each.grad()[:] = nd.full(shape, 0.01)
        params.append(each)
    trainer = gluon.Trainer(params, optimizer, dict(OPTIMIZERS[optimizer]))
    if not fused:
        trainer._updaters[0].fused = lambda *_: False
    arrays = [each.data() for each in params]

    def step() -> float:
        for array in arrays:
            array._fresh_grad = True
        start = time.perf_counter()
        trainer.step(8)
        return (time.perf_counter() - start) * 1e3

    return step


def median_of(step, repeats: int) -> float:
    return statistics.median(step() for _ in range(repeats))


def main(rounds: int = 11) -> None:
    peers = {}
    if oracle() is not None:
        peers["MXNet 1.9.1"] = Peer(oracle(), "mxnet_update.py")
    if importlib.util.find_spec("torch") is not None:
        peers["torch, fused"] = Peer(Path(sys.executable), "torch_update.py")
    rows = []
    for size, shapes in SIZES.items():
        for optimizer in OPTIMIZERS:
            repeats = 20 if len(shapes) < 10 else 5
            cases = {}
            for name, fused in (("one program", True), ("a loop over weights", False)):
                cases[name] = partial(median_of, trainer_of(size, optimizer, fused), repeats)
            for name, peer in peers.items():
                cases[name] = partial(peer.median_ms, f"{size}/{optimizer}", repeats)
            for measure in cases.values():
                measure()
            found = interleaved(cases, rounds)
            rows.append([f"{size}, {optimizer}", *(f"{found[name]:.3f} ms" for name in cases)])
    for peer in peers.values():
        peer.close()
    write_table("update", "Trainer.step, gradients at hand", ["what", *cases], rows)


if __name__ == "__main__":
    main()
