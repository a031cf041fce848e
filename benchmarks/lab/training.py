"""What `mx.lab.progress`, `mx.log` and the curves of a Trainer add to a training, in a real kernel.

    python benchmarks/lab/training.py [--rounds 5] [--seconds 3] [--calls]

In each round, blocks of some dozens of milliseconds alternate: steps with the curves, then steps without. The medians
of two neighbouring blocks are compared, since another load of the machine changes from second to second. All steps of
each kind are added up, so that rare work, such as a drawing, counts in full; it is due later by the time of the steps
without the curves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import autograd, gluon  # noqa: E402
from hybrid_lab.gluon import nn  # noqa: E402
from hybrid_lab.lab.messages.connection import PROTOCOL  # noqa: E402

if TYPE_CHECKING:
    from hybrid_lab.lab.training.run import Run

CHUNK, SECONDS = 0.04, 3.0
"""Seconds of steps of one kind in a row, and in a round."""
KINDS = {"log": "mx.log alone", "trainer": "a Trainer alone", "progress": "mx.lab.progress, mx.log, a Trainer"}


class Pause:
    """Makes a run wait with its drawings and norms for as long as the steps without it took."""

    def __init__(self) -> None:
        self._begun = 0.0

    def begin(self) -> None:
        """Steps without the run follow."""
        self._begun = time.perf_counter()

    def end(self, run: Run) -> None:
        """Steps with the run follow."""
        seconds = time.perf_counter() - self._begun
        run._draw.due += seconds
        run._norm.due += seconds
        run.due += seconds


def mlp() -> tuple[gluon.Block, tuple[int, ...]]:
    """A step of about a millisecond."""
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(256, activation="relu"), nn.Dense(10))
    return net, (128, 64)


def lenet() -> tuple[gluon.Block, tuple[int, ...]]:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(20, 5, activation="tanh"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(50, 5, activation="tanh"),
        nn.MaxPool2D(2, 2),
        nn.Dense(500, activation="tanh"),
        nn.Dense(10),
    )
    return net, (64, 1, 28, 28)


MODELS = {"MLP": mlp, "LeNet": lenet}


def training(name: str) -> Callable[[], mx.nd.NDArray]:
    """A function that trains a network for one step and returns the loss."""
    net, shape = MODELS[name]()
    net.initialize()
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()
    random = np.random.RandomState(0)
    data, label = mx.nd.array(random.rand(*shape)), mx.nd.array(random.randint(0, 10, shape[0]))
    net(data)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-3, "momentum": 0.9})

    def step() -> mx.nd.NDArray:
        with autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        trainer.step(shape[0])
        return loss

    for _ in range(20):
        step()
    return step


class Spent:
    """Seconds that the calls of the lab took within the steps, drawings included."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., object]) -> Callable[..., object]:
        """The same call, its time added up."""
        now = time.perf_counter

        def body(*arguments: object, **values: object) -> object:
            start = now()
            try:
                return call(*arguments, **values)
            finally:
                self.seconds += now() - start

        return body


def steps_of(kind: str, step: Callable[[], mx.nd.NDArray], spent: Spent) -> Callable[[], None]:
    """One step of a training of this kind. spent : takes the time of the lab's calls"""
    if kind == "trainer":
        return lambda: (step(), None)[1]
    log = spent.timed(mx.log)

    def logged() -> None:
        loss = step()  # the name keeps the loss for longer than the call, as in a notebook's loop
        log(loss=loss)

    if kind == "log":
        return logged
    bar: Iterator[int] = iter(mx.lab.progress(range(10**9), unit="batch"))
    advance = spent.timed(lambda: next(bar))

    def shown() -> None:
        advance()
        logged()

    return shown


def measure(name: str, kind: str, rounds: int, seconds: float) -> dict[str, float]:
    """Medians over the rounds, account of all of them.

    ms : of a step without; calls : time inside of the lab's calls; step : difference of neighbouring blocks' median
    steps; account : what the run says that reading, measuring and drawing took; all : difference of the sums of all
    steps; processor : that of the processor time of all threads. All but the first are shares of the time of a step.
    """
    from hybrid_lab.gluon.step import boundary
    from hybrid_lab.lab.training.current import runs

    pause = Pause()
    step = training(name)
    if kind == "trainer" and not boundary.listeners:
        return {}  # nobody sees the panel: nothing is done
    inside = Spent()
    shown = steps_of(kind, step, inside)
    shown()
    pause.begin()
    now = time.perf_counter
    listeners: list[Any] = [] if kind == "log" else [inside.timed(each) for each in boundary.listeners]
    found: dict[str, list[float]] = {"ms": [], "calls": [], "step": [], "all": [], "processor": []}
    spent: list[tuple[float, float]] = []
    for _ in range(1 + rounds):
        assert runs.current is not None
        times: dict[bool, list[float]] = {False: [], True: []}
        medians: dict[bool, list[float]] = {False: [], True: []}
        before, processor = runs.current.overhead, {False: 0.0, True: 0.0}
        inside.seconds = 0.0
        while min(map(sum, times.values())) < seconds:
            for with_lab in (False, True):
                body, taken, before_block = shown if with_lab else step, times[with_lab], len(times[with_lab])
                boundary.listeners = listeners if with_lab else []
                if with_lab:
                    pause.end(runs.current)
                processor[with_lab] -= time.process_time()
                start = last = now()
                while last - start < CHUNK:
                    body()
                    end = now()
                    taken.append(end - last)
                    last = end
                processor[with_lab] += time.process_time()
                if with_lab:
                    pause.begin()
                medians[with_lab].append(statistics.median(taken[before_block:]))
        plain = sum(times[False]) / len(times[False])
        found["ms"].append(1e3 * plain)
        found["calls"].append(inside.seconds / len(times[True]) / plain)
        ratios = [with_lab / without for without, with_lab in zip(medians[False], medians[True], strict=True)]
        found["step"].append(statistics.median(ratios) - 1)
        spent.append((runs.current.overhead - before, sum(times[True])))
        found["all"].append(sum(times[True]) / len(times[True]) / plain - 1)
        found["processor"].append(processor[True] / len(times[True]) * len(times[False]) / processor[False] - 1)
    result = {key: statistics.median(item[1:]) for key, item in found.items()}  # the first round imports and allocates
    overhead, total = map(sum, zip(*spent[1:]))
    return result | {"account": overhead / total}


def calls() -> dict[str, float]:
    """Microseconds that each call of a step takes, its share of the work that is done for many values at once included:
    the shortest of many runs of 256 calls, which another load of the machine does not change.
    """
    from hybrid_lab.gluon.step import boundary
    from hybrid_lab.lab.training import current, run

    run.NORM_SHARE = 10**12  # the norm has a pace of its own, see `account`
    seen: list[gluon.Trainer] = []
    step = training("MLP")
    boundary.listeners = [seen.append]
    loss = step()
    boundary.listeners = []
    bar = iter(mx.lab.progress(range(10**9)))
    kinds: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "mx.log of an array": lambda: mx.log(loss=loss),
        "mx.log of a number": lambda: mx.log(loss=0.5),
        "Trainer": lambda: current._stepped(seen[0]),
        "mx.lab.progress": lambda: next(bar),
    }
    found = {}
    for name, body in kinds.items():
        times = []
        for _ in range(400):
            begun = time.perf_counter()
            for _ in range(256):
                body()
            times.append((time.perf_counter() - begun) / 256)
        found[name] = 1e6 * min(times)
    return {name: taken - found["nothing"] for name, taken in found.items() if name != "nothing"}


HEADER = [
    *("training", "with", "panel", "a step without", "in its calls", "in each step", "now and then", "all together"),
    "processor",
]
NOTE = (
    "Steps with and without take turns in one kernel. In its calls: the time inside of mx.log, of the iterator and of"
    " what a Trainer's step calls, drawings included. In each step: the difference of the median steps of neighbouring"
    " blocks, their median, which has an error of about 1% of a step of 1 ms on a busy machine. Now and then:"
    " what the run counts of reading, measuring and drawing. All together: the difference of all steps' sums, which on"
    " a busy machine is mostly noise. Processor: the same difference of the time of the processors."
)


def rows(rounds: int, seconds: float, only: str | None = None) -> list[list[str]]:
    """A row for each network, or for one, with the panel open and closed; each in a kernel of its own."""
    from tests.lab.kernel_process import Kernel

    found = []
    for name in MODELS if only is None else (only,):
        for panel in ("open", "closed"):
            for kind, words in KINDS.items():
                with tempfile.TemporaryDirectory() as folder:
                    kernel = Kernel(Path(folder))
                    try:
                        kernel.run(f"import sys; sys.path[:0] = {sys.path!r}\nimport hybrid_lab as mx")
                        if panel == "open":
                            kernel.page().ok("hello", front_end="0", protocol=PROTOCOL, notebook="")
                        cell = "import json; from lab import training\n"
                        cell += f"print(json.dumps(training.measure({name!r}, {kind!r}, {rounds}, {seconds})))"
                        result = json.loads(kernel.run(cell))
                    finally:
                        kernel.stop()
                if result:
                    shares = [f"{result[key]:+.2%}" for key in ("calls", "step", "account", "all", "processor")]
                    found.append([name, words, panel, f"{result['ms']:.2f} ms", *shares])
                    print(" | ".join(found[-1]), flush=True)
    return found


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of steps of each kind in a round")
    parser.add_argument("--only", help="one network of " + ", ".join(MODELS))
    parser.add_argument("--calls", action="store_true", help="print only what each call takes")
    options = parser.parse_args()
    if options.calls:
        print(", ".join(f"{name} {taken:.2f} us" for name, taken in calls().items()))
        return
    rows(options.rounds, options.seconds, options.only)


if __name__ == "__main__":
    main()
