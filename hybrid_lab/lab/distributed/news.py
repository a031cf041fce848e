"""What a worker tells the notebook of its training: its step, loss, speed and memory, and its curves."""

from __future__ import annotations

import sys
import time
from typing import Any, TypedDict

from hybrid_lab.distributed.worker_group import joined_workers
from hybrid_lab.gluon import access
from hybrid_lab.lab.messages.training import Curve
from hybrid_lab.lab.training.curves import TRAINER_CURVES, run_data
from hybrid_lab.lab.training.run import Run

KEY = "hybrid_lab"
"""Under which ipyparallel publishes the news."""


class News(TypedDict):
    """The facts of a `WorkerRow` that change in a training, and the curves. number : of the run in the worker"""

    number: int
    step: int
    loss: str
    samples: float
    memory: str
    device: str
    curves: list[Curve]


class Reporter:
    """Publishes the news of the current run whenever it is drawn, as a view of it."""

    def __init__(self) -> None:
        self._number = 0
        self._mark = (0.0, 0)
        self._samples = 0.0

    def __call__(self, run: Run) -> None:
        """Publish the news of a run."""
        from ipyparallel.engine.datapub import publish_data

        publish_data({KEY: self.news(run)})

    def news(self, run: Run) -> News:
        """The news of a run."""
        data = run_data(run)
        return {
            "number": run.number,
            "step": run.steps,
            "loss": _loss(data["curves"]),
            "samples": self._samples_of(run),
            "memory": memory(),
            "device": _device(run),
            "curves": data["curves"],
        }

    def _samples_of(self, run: Run) -> float:
        """Samples of this worker in a second, of late; 0.0 while that is not known."""
        now = time.perf_counter()
        if run.number != self._number:
            self._number, self._mark, self._samples = run.number, (run.started, 0), 0.0
        then, step = self._mark
        batch = 0 if run.trainer_facts is None else run.trainer_facts.settings.get("batch_size", 0)
        if isinstance(batch, int) and run.steps > step and now > then:
            self._samples = batch / joined_workers()[1] * (run.steps - step) / (now - then)
            self._mark = (now, run.steps)
        return self._samples


def _loss(curves: list[Curve]) -> str:
    """The last value of the first curve that is called a loss, else of the first that the user logged: `0.31` of a
    curve `loss`, `val_loss 0.31` of another one.
    """
    own = [curve for curve in curves if curve["name"] not in TRAINER_CURVES]
    losses = [curve for curve in own if "loss" in curve["name"].lower()]
    named = (losses or own)[:1]
    return "".join(
        curve["latest"] if curve["name"] == "loss" else f"{curve['name']} {curve['latest']}" for curve in named
    )


def _device(run: Run) -> str:
    """The device of the parameters of the run's Trainer."""
    trainer = run.trainer()
    parameters = [] if trainer is None else access.trainer_parameters(trainer)
    arrays = access.arrays(parameters[0]) if parameters else None
    return device() if not arrays else ", ".join(str(array.ctx) for array in arrays)


def device() -> str:
    """The device that a worker is meant to use: `gpu(0)` if it has one."""
    from hybrid_lab.ndarray.context import num_gpus

    return "gpu(0)" if num_gpus() else "cpu(0)"


def memory() -> str:
    """The memory of this process, `312 MiB`, and torch's memory on a GPU."""
    import psutil

    texts = [_bytes(psutil.Process().memory_info().rss)]
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        texts.append(f"GPU {_bytes(torch.cuda.memory_reserved())}")
    return ", ".join(texts)


def _bytes(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB" if count < 2**33 else f"{count / 2**30:,.1f} GiB"
