"""Messages about training runs."""

from __future__ import annotations

from typing import Literal, TypedDict

RunState = Literal["running", "done", "stopped", "interrupted", "failed"]


class Loop(TypedDict):
    """A `mx.lab.progress` loop of a training run."""

    title: str
    unit: str
    depth: int
    done: int
    total: int | None
    seconds: float
    rate: float | None
    left: float | None
    state: RunState
    text: str


class NotFinite(TypedDict):
    """Consecutive values that are NaN or infinite."""

    what: Literal["NaN", "inf", "-inf"]
    first: int
    last: int
    count: int


class Curve(TypedDict):
    """All values of one name over the steps of a run, in buckets."""

    name: str
    unit: str
    count: int
    starts: list[int]
    steps: list[int]
    counts: list[int]
    means: list[float]
    lows: list[float]
    highs: list[float]
    firsts: list[float]
    lasts: list[float]
    last: float | None
    last_step: int
    bad: list[NotFinite]
    bad_count: int
    bad_text: str
    latest: str
    note: str
    text: str


class TrainingRun(TypedDict):
    """What one cell trained."""

    number: int
    label: str
    state: RunState
    ended: str
    seconds: float
    overhead: float
    note: str
    earlier_loops: int
    loops: list[Loop]
    curves: list[Curve]


class CurvesReply(TypedDict):
    """The training runs, oldest first; as a push the current run alone."""

    runs: list[TrainingRun]


class KeptRunRow(TypedDict):
    """A kept run, as it is listed."""

    number: int
    label: str
    started: float
    place: str
    state: str
    model: str
    steps: int
    time: str
    last: str
    details: list[str]


class KeptCurves(TypedDict):
    """The curves of a kept run."""

    number: int
    curves: list[Curve]


class RunsRequest(TypedDict):
    """The kept runs, and the curves of the runs with these numbers."""

    numbers: list[int]


class RunsReply(TypedDict):
    """The kept runs of the folder, newest first; `problem` says why they cannot be read."""

    file: str
    problem: str
    runs: list[KeptRunRow]
    curves: list[KeptCurves]
