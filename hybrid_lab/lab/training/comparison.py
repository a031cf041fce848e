"""`mx.lab.runs()`: the kept runs of the notebook's folder, as a table and as charts that compare them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import InputError
from hybrid_lab.diagnostics.formatting import count, visible
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.table import Column, Row, Table, folded, wrapped
from hybrid_lab.lab.messages.training import Curve, KeptRunRow, RunsReply
from hybrid_lab.lab.training import export
from hybrid_lab.lab.training.chart import comparison
from hybrid_lab.lab.training.curves import TRAINER_CURVES
from hybrid_lab.lab.training.keeper import setting
from hybrid_lab.lab.training.kept_runs import KeptRun, RunsFile, RunsFileError
from hybrid_lab.lab.training.words import clock, short

LISTED = 200
"""Most runs that the panel lists, the newest ones."""
SHOWN = 8
"""Most runs that a chart draws unless they were chosen."""
_PARAMETERS, _VALUES = 4, 2
"""Most columns of parameters and of curves."""


def runs_reply(numbers: Sequence[int]) -> RunsReply:
    """The protocol's reply to `runs`: all kept runs, newest first, and the curves of the runs with these numbers."""
    file = RunsFile()
    path = file.path
    try:
        found = RunList(path, file.read(with_curves=False))
        chosen = file.read(numbers) if numbers else []
    except RunsFileError as error:
        return {"file": path.name, "problem": str(error), "runs": [], "curves": []}
    return {
        "file": path.name,
        "problem": "",
        "runs": [_row(found, run) for run in found.runs[::-1][:LISTED]],
        "curves": [{"number": run.number, "curves": run.curves} for run in chosen],
    }


def _next_step() -> str:
    """What to do so that a run is kept."""
    if setting.is_on:
        return "a cell with mx.log is one"
    return "runs are not kept here until mx.lab.keep_runs(True)"


def _row(found: RunList, run: KeptRun) -> KeptRunRow:
    return {
        "number": run.number,
        "label": found.label(run),
        "started": run.started,
        "place": _place(run),
        "state": state_text(run),
        "model": visible(run.model),
        "steps": run.steps,
        "time": clock(run.seconds),
        "last": run.last,
        "details": [f"{name}: {text}" for name, text in details(run).items()],
    }


@dataclass(repr=False)
class RunList(InsightReport):
    """Kept runs, oldest first. `runs[3]`, `runs[3, 5]` and `runs[-2:]` choose some; iterate over it for each KeptRun.

    path : of the file; runs : the runs; chosen : they were chosen, not all of the file
    """

    path: Path
    runs: list[KeptRun]
    chosen: bool = False

    @property
    def headline(self) -> str:
        """How many there are, and where."""
        if not self.runs:
            return f"no runs are kept in {self.path.name} yet: {_next_step()}"
        return f"{count(len(self.runs), 'run')}, kept in {self.path.name}"

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[KeptRun]:
        return iter(self.runs)

    def __getitem__(self, key: int | slice | tuple[int, ...]) -> RunList:
        """The runs with these numbers; a negative number counts from the end, a slice is one of the list."""
        if isinstance(key, slice):
            return RunList(self.path, self.runs[key], chosen=True)
        return RunList(
            self.path, [self._run(each) for each in (key if isinstance(key, tuple) else (key,))], chosen=True
        )

    def _run(self, number: int) -> KeptRun:
        if isinstance(number, bool) or not isinstance(number, int):
            raise InputError(f"a run is chosen by its number, such as runs[3], not by {type(number).__name__}")
        if number < 0:
            if -number > len(self.runs):
                raise InputError(f"there are {count(len(self.runs), 'run')}, so there is no runs[{number}]")
            return self.runs[number]
        found = next((run for run in self.runs if run.number == number), None)
        if found is None:
            numbers = ", ".join(str(run.number) for run in self.runs[-20:])
            raise InputError(f"there is no run {number} in {self.path.name}; its last ones are {numbers or 'none'}")
        return found

    # -- what is shown -------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The names of the curves, ordered by the number of runs with the curve; the Trainer's curves come last."""
        found: dict[str, int] = {}
        for run in self.runs:
            for curve in run.curves:
                found[curve["name"]] = found.get(curve["name"], 0) + 1
        return sorted(found, key=lambda name: (name in TRAINER_CURVES, -found[name]))

    def differing(self) -> list[str]:
        """The names of the parameters by which these runs differ; of equal runs optimizer and learning rate."""
        names = list(dict.fromkeys(name for run in self.runs for name in run.parameters))
        differ = [name for name in names if len({str(run.parameters.get(name)) for run in self.runs}) > 1]
        return differ or [name for name in ("optimizer", "learning_rate") if name in names]

    def label(self, run: KeptRun) -> str:
        """`3 small step`, by which a chart tells a run from the others."""
        differing = [name for name in self.differing() if name in run.parameters][:3] if len(self.runs) > 1 else []
        text = run.title or ", ".join(f"{name}={_text(run.parameters[name])}" for name in differing)
        return visible(f"run {run.number} {text or run.notebook}".strip())

    def _table(self) -> Table:
        parameters = self.differing()[:_PARAMETERS]
        curves = [name for name in self.names if name not in TRAINER_CURVES][:_VALUES] or self.names[:1]
        columns = [Column("run", right=True), Column("started"), Column("from", flexible=True)]
        columns += [Column("state", flexible=True), Column("model", flexible=True)]
        columns += [Column(visible(name), flexible=True) for name in parameters]
        columns += [Column("steps", right=True), Column("time", right=True)]
        table = Table([*columns, *(Column(visible(name), right=True) for name in curves)])
        for run in self.runs:
            cells = [str(run.number), time.strftime("%m-%d %H:%M", time.localtime(run.started)), _place(run)]
            cells += [state_text(run), visible(run.model)]
            cells += [_text(run.parameters.get(name, "")) for name in parameters]
            cells += [f"{run.steps:,}", clock(run.seconds), *(_value(run.curve(name)) for name in curves)]
            table.rows.append(Row(cells))
        return table

    def _lines(self) -> list[str]:
        lines = super()._lines()
        for run in self.runs if len(self.runs) == 1 else ():
            for name, text in details(run).items():
                lines += wrapped(f"  {name}: {text}", "")
        return lines

    def _parts(self) -> list[str]:
        if not self.runs:
            return []
        drawn = self.runs if self.chosen else self.runs[-SHOWN:]
        charts = [self.chart(name) for name in self.names if any(run.curve(name) for run in drawn)]
        beside = f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(charts[1:])}</div>'
        more = folded("More curves", beside) if len(charts) > 1 else ""
        left = (
            f"<div>The chart has the last {SHOWN} runs; runs[2, 5] chooses.</div>"
            if len(drawn) < len(self.runs)
            else ""
        )
        facts = details(self.runs[0]) if len(self.runs) == 1 else {}
        rows = [Row([name, text]) for name, text in facts.items()]
        table = Table([Column("fact"), Column("value")], rows).html() if rows else ""
        return [*super()._parts(), *charts[:1], left, more, table and folded("Details", table)]

    def chart(self, name: str | None = None) -> str:
        """The curves of one name of all these runs as SVG; by default the name that most runs have."""
        name = self._name(name)
        drawn = self.runs if self.chosen else self.runs[-SHOWN:]
        return comparison(name, [(self.label(run), curve) for run in drawn if (curve := run.curve(name)) is not None])

    def _name(self, name: str | None) -> str:
        if not self.names:
            raise InputError(f"there is no run with a curve to draw: {_next_step()}")
        if name is not None and name not in self.names:
            raise InputError(f"no run has a curve {name!r}; there are {', '.join(self.names[:20])}")
        return self.names[0] if name is None else name

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers; times in seconds."""
        return {"path": str(self.path), "runs": [asdict(run) for run in self.runs]}

    # -- what leaves ---------------------------------------------------------------------------------------

    def export(self, path: str | PathLike[str]) -> list[str]:
        """Write `runs.csv`, a line for each run, and `runs_curves.csv`, a line for each bucket of each curve; or the
        chart, if the path ends with `.png` or `.svg`. Returns the paths of the files.
        """
        ending = Path(path).suffix.lower()
        if ending == ".png":
            return [self.png(path)]
        if ending == ".svg":
            return [export.write_svg(path, self.chart())]
        if ending != ".csv":
            raise InputError(f"runs are exported as .csv, .png or .svg, not as {ending or 'a file without an ending'}")
        return export.write_csv(path, self.runs)

    def png(self, path: str | PathLike[str], name: str | None = None) -> str:
        """Draw the curves of one name as a PNG by matplotlib. If matplotlib is not installed, an SVG is written beside
        it, and a warning says so. Returns the path of the file.
        """
        name = self._name(name)
        lines = [(self.label(run), curve) for run in self.runs if (curve := run.curve(name)) is not None]
        return export.write_png(path, name, lines, self.chart(name))

    def to_tensorboard(self, folder: str | PathLike[str]) -> list[str]:
        """Write event files for TensorBoard, a folder for each run, by the package tensorboard or tensorboardX. Returns
        the folders. Raises MissingPackageError if neither is installed.
        """
        return export.to_tensorboard(folder, self.runs)

    def to_wandb(self, project: str, **settings: object) -> list[str]:
        """Write the runs by the package wandb, by default with `mode="offline"`: `wandb sync` sends them where you want
        it. settings : passed to `wandb.init`. Returns the ids of the runs. Raises MissingPackageError.
        """
        return export.to_wandb(project, self.runs, settings)

    def to_mlflow(self, experiment: str, tracking_uri: str | None = None) -> list[str]:
        """Write the runs by the package mlflow. tracking_uri : a folder, database or server; by default the one that
        mlflow is set to. Returns the ids of the runs. Raises MissingPackageError.
        """
        return export.to_mlflow(experiment, self.runs, tracking_uri)

    def delete(self, *numbers: int) -> None:
        """Delete these runs from the file; without numbers, the runs of this list."""
        gone = list(numbers) or [run.number for run in self.runs]
        RunsFile(self.path).delete(gone)
        self.runs = [run for run in self.runs if run.number not in gone]


def runs(*numbers: int) -> RunList:
    """The kept training runs of the current folder, of all notebooks there; with numbers, only these runs.

    They are shown as a table and as charts that compare them. Each cell that logged a value is a run;
    `mx.lab.new_run` makes several of one cell. Raises RunsFileError if the file cannot be read.
    """
    file = RunsFile()
    found = RunList(file.path, file.read())
    return found[numbers] if numbers else found


def state_text(run: KeptRun) -> str:
    """`failed: ValueError`."""
    return f"{run.state}: {run.reason}" if run.reason else run.state


def _place(run: KeptRun) -> str:
    return visible(", ".join(filter(None, [run.notebook, run.cell])))


def _text(value: object) -> str:
    return short(value) if isinstance(value, float) else visible(str(value))


def _value(curve: Curve | None) -> str:
    if curve is None:
        return ""
    kinds = {span["what"] for span in curve["bad"]}
    bad = f" ({curve['bad_count']:,} {kinds.pop() if len(kinds) == 1 else 'not finite'})" if curve["bad_count"] else ""
    return curve["latest"] + bad


def details(run: KeptRun) -> dict[str, str]:
    """All that is kept of a run beside its curves, in words."""
    facts = {
        "title": run.title,
        "parameters": parameters_text(run.parameters),
        "model": run.model,
        "notes": "; ".join(run.notes),
        "archives": ", ".join(f"{each.path} at step {each.step:,}" for each in run.archives),
        "code": run.code and f"SHA-256 {run.code}",
        "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
        "curves": "; ".join(curve["text"] for curve in run.curves),
    }
    return {name: visible(text) for name, text in facts.items() if text}


def parameters_text(parameters: Mapping[str, object]) -> str:
    """`optimizer=SGD, learning_rate=0.1`."""
    return ", ".join(f"{name}={_text(value)}" for name, value in parameters.items())
