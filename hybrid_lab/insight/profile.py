"""profile: where the time of a compiled call goes, step by step, beside what eager spends on the same operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.calls import OutermostCall, compile_call, outer_calls, run_eager, run_hybrid
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.silent import silent
from hybrid_lab.insight.table import (
    Column,
    Row,
    Table,
    code,
    count,
    folded,
    heaviest,
    milliseconds,
    short_line,
    wrapped,
)
from hybrid_lab.insight.timing import StepRow, alternately, eager_times, measure_steps
from hybrid_lab.system.progress import shows_work

_SHOWN = 40
"""Rows that are printed at most; `data()` has all of them."""


@dataclass
class CallProfile:
    """One call of an outermost HybridBlock.

    hybrid_seconds, eager_seconds : medians of whole calls, backward included where `mode` is recorded
    outside_seconds : time of a hybrid call outside of the steps: the call itself, the tape, handing over gradients
    removed_seconds, removed : eager time and number of the operators that no step computes any more
    prologue_seconds : of the values computed when a parameter changes, not in every call
    """

    name: str
    types: str
    mode: str
    engine: str
    where: str
    runs: int
    hybrid_seconds: float
    eager_seconds: float
    outside_seconds: float
    prologue_seconds: float
    removed: int
    removed_seconds: float
    steps: list[StepRow] = field(default_factory=list)

    @property
    def headline(self) -> str:
        """One line: how long a call takes, hybrid and eager."""
        ratio = self.eager_seconds / max(self.hybrid_seconds, 1e-9)
        words = f"{ratio:.1f} times as fast" if ratio >= 1 else f"{1 / ratio:.1f} times as slow"
        times = f"{milliseconds(self.hybrid_seconds)} a call, eager {milliseconds(self.eager_seconds)}"
        return f"{self.mode}, {self.where}: {times}: {words}; medians of {self.runs} runs"

    @property
    def notes(self) -> list[str]:
        """The remarks below the table of steps."""
        lines = [f"around the steps (the call itself, tape, outputs): {milliseconds(self.outside_seconds)}"]
        if self.prologue_seconds:
            lines.append(f"once per change of the parameters, not per call: {milliseconds(self.prologue_seconds)}")
        if self.removed:
            gone = "1 is" if self.removed == 1 else f"{self.removed} are"
            spent = milliseconds(self.removed_seconds)
            lines.append(f"of eager's operators {gone} gone or merged into others here: {spent} in eager")
        return lines


@dataclass(repr=False)
class Profile(InsightReport):
    """Where the time goes."""

    name: str
    calls: list[CallProfile]

    @property
    def headline(self) -> str:
        """One line: how long a call takes, hybrid and eager."""
        total, eager = (sum(values) for values in zip(*((c.hybrid_seconds, c.eager_seconds) for c in self.calls)))
        return f"{self.name}: hybrid {milliseconds(total)}, eager {milliseconds(eager)}"

    def slowest(self, number: int = 5) -> list[StepRow]:
        """The steps that take longest, operators inside regions instead of the regions."""
        rows = [row for call in self.calls for row in call.steps]
        opened = {(row.part, row.region) for row in rows if row.inside}
        leaves = [row for row in rows if row.inside or (row.part, row.region) not in opened]
        return sorted(leaves, key=lambda row: -row.seconds)[:number]

    def _lines(self) -> list[str]:
        lines: list[str] = []
        for call in self.calls:
            lines += wrapped(f"{call.name}({call.types}), {call.headline}", "  ")
            rows, hidden = heaviest(call.steps, lambda step: step.seconds, _SHOWN)
            lines += ["", *_table(rows).lines("    ")]
            if hidden:
                lines.append(f"    ... and {count(hidden, 'step')} more, the quick ones ...")
            lines += ["", *(f"    {line}" for line in call.notes)]
        return lines

    def _parts(self) -> list[str]:
        parts = []
        for call in self.calls:
            inner = _table(call.steps).html() + code(call.notes)
            parts.append(folded(f"{call.name}({call.types}), {call.headline}", inner, True))
        return parts


@shows_work("profiling")
def profile(net: Block, *inputs: object, train: bool = False, runs: int = 20) -> Profile:
    """Measure where a hybrid call of `net` on the inputs spends its time, beside an eager call.

        net = nn.Dense(2, in_units=3)
        net.initialize()
        net.hybridize()
        result = mx.profile(net, nd.ones((4, 3)))
        type(result).__name__

    train : measure a recorded call in training mode and its backward; False measures prediction
    runs : how often each is run; long ones make do with fewer, at least three

    The net need not be hybridized, and nothing of it changes: neither parameters, states and gradients nor the random
    numbers to come. Output of its code is shown once, not at every run. Raises HybridLabError for anything but a Block,
    without a HybridBlock or inputs; HybridizeError if the code cannot become a graph.
    """
    check_switches("profile", train=train)
    if not isinstance(net, Block):
        raise HybridLabError(f"profile needs a Block, not {type(net).__name__}")
    return Profile(called(net), [_profile_call(call, train, runs) for call in outer_calls(net, inputs)])


def _profile_call(call: OutermostCall, train: bool, runs: int) -> CallProfile:
    compiled = compile_call(call, train, train)
    heads = compiled.heads() if train else None
    sides: tuple[Callable[[], object], ...] = (lambda: run_hybrid(compiled, heads), lambda: run_eager(compiled, heads))
    with silent():
        for side in sides:
            side()
            side()
        hybrid, eager = alternately(sides, runs)
    nodes = eager_times(compiled, heads, runs)
    measured, counted, once, matched = measure_steps(compiled, heads, nodes, runs)
    steps = [step.row for step in measured]
    known = sum(row.seconds for row in steps if not row.inside and row.part != "prologue")
    gone = [spent for key, spent in nodes.items() if key not in matched]
    return CallProfile(
        call.name,
        call.types,
        compiled.mode,
        compiled.program.engine,
        compiled.program.where,
        counted,
        hybrid,
        eager,
        max(hybrid - known, 0.0),
        once,
        len(gone),
        float(sum(gone)),
        steps,
    )


# -- printing --------------------------------------------------------------------------------------------------------

_COLUMNS = (
    Column("time", right=True),
    Column("share", right=True),
    Column("eager", right=True),
    Column("moved", right=True),
    Column("step", flexible=True),
    Column("type"),
    Column("block", flexible=True),
    Column("line", flexible=True),
)


def _table(steps: Sequence[StepRow]) -> Table:
    rows, part = [], ""
    for step in steps:
        if step.part != part:
            part = step.part
            rows.append(Row(["", "", "", "", part, "", "", ""], strong=True))
        cells = [
            ("~" if step.estimated else "") + milliseconds(step.seconds),
            f"{step.share:.1%}" if step.part != "prologue" else "",
            milliseconds(step.eager_seconds) if step.eager_seconds is not None else "",
            format_bytes(step.bytes_moved) if step.bytes_moved else "",
            f"{step.runs_on}: {step.operator}" if step.region is not None and not step.inside else step.operator,
            step.type,
            step.block,
            short_line(step.line),
        ]
        strong = not step.inside and step.region is not None
        rows.append(Row(cells, depth=int(step.inside), strong=strong, share=step.share))
    return Table(_COLUMNS, rows)
