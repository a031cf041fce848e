"""Messages about the workers that train for a notebook."""

from __future__ import annotations

from typing import Literal, TypedDict

from .training import Curve

WorkerState = Literal["idle", "busy", "interrupted", "failed", "lost"]


class WorkerRow(TypedDict):
    """One worker. Texts are "" if nothing is known.

    device : `cpu(0)`; step : of its Trainer in the last cell that trained; loss : `0.31`, or `val_loss 0.31`
    rate : the samples of this worker alone in a second, `1,240`; memory : `312 MiB`
    problem : what its last cell raised
    """

    rank: int
    host: str
    process: int
    device: str
    state: WorkerState
    step: int
    loss: str
    rate: str
    memory: str
    problem: str


class WorkerCurves(TypedDict):
    """The curves of one worker in the last cell that trained."""

    rank: int
    curves: list[Curve]


class WorkersReply(TypedDict):
    """The workers, an empty list if there are none; also a push. `note`: which workers have no curves here, or ""."""

    headline: str
    note: str
    workers: list[WorkerRow]
    curves: list[WorkerCurves]
