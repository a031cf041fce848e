"""Kept runs as CSV, PNG and SVG files, and by their own packages in TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import csv
import importlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import MissingPackageError
from hybrid_lab.formats.atomic import atomic_write
from hybrid_lab.lab.messages.training import Curve
from hybrid_lab.lab.training.chart import MANY_COLORS
from hybrid_lab.lab.training.kept_runs import KeptRun
from hybrid_lab.system.logger import logger

_BUCKETS = ("starts", "steps", "counts", "means", "lows", "highs", "firsts", "lasts")


def package(name: str, use: str, *others: str) -> Any:  # noqa: ANN401 - a package without types
    """Import a package, or one of `others`, which do the same. Raises MissingPackageError."""
    for each in (name, *others):
        try:
            return importlib.import_module(each)
        except ModuleNotFoundError:
            continue
    raise MissingPackageError(f"{use} needs the package {name.partition('.')[0]}: pip install {name.partition('.')[0]}")


# -- files ------------------------------------------------------------------------------------------------------------


def write_csv(path: str | PathLike[str], runs: Sequence[KeptRun]) -> list[str]:
    """`runs.csv` and `runs_curves.csv`."""
    target = Path(path)
    names = list(dict.fromkeys(name for run in runs for name in run.parameters))
    curves = list(dict.fromkeys(curve["name"] for run in runs for curve in run.curves))
    fields = ("number", "title", "notebook", "cell", "model", "state", "reason", "started", "seconds", "steps", "code")
    heads = [*fields, "notes", "archives", *(f"parameter {name}" for name in names)]
    heads += [f"{name} {what}" for name in curves for what in ("last", "smallest", "largest", "not finite")]
    rows: list[Sequence[object]] = [heads]
    for run in runs:
        row: list[object] = [getattr(run, name) for name in fields]
        row += ["; ".join(run.notes), "; ".join(each.path for each in run.archives)]
        row += [run.parameters.get(name, "") for name in names]
        for name in curves:
            curve = run.curve(name)
            row += ["", "", "", ""] if curve is None else [_last(curve), *_extremes(curve), curve["bad_count"]]
        rows.append(row)
    beside = target.with_name(f"{target.stem}_curves{target.suffix}")
    heads = [
        "run",
        "curve",
        "unit",
        "first step",
        "last step",
        "values",
        "mean",
        "smallest",
        "largest",
        "first",
        "last",
    ]
    lines: list[Sequence[object]] = [heads]
    for run in runs:
        for curve in run.curves:
            start: list[object] = [run.number, curve["name"], curve["unit"]]
            lines += [[*start, *bucket] for bucket in zip(*_columns(curve), strict=True)]
            lines += [
                [*start, each["first"], each["last"], each["count"], *[each["what"]] * 5] for each in curve["bad"]
            ]
    return [_write_rows(target, rows), _write_rows(beside, lines)]


def _columns(curve: Curve) -> list[list[Any]]:
    data: Mapping[str, Any] = curve
    return [data[name] for name in _BUCKETS]


def _last(curve: Curve) -> object:
    return curve["latest"] if curve["last"] is None else curve["last"]


def _extremes(curve: Curve) -> list[object]:
    return [min(curve["lows"]), max(curve["highs"])] if curve["lows"] else ["", ""]


def _write_rows(path: Path, rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return _write(path, text.getvalue().encode("utf-8", errors="replace"))


def write_svg(path: str | PathLike[str], svg: str) -> str:
    """The chart as a file of its own, black on white."""
    return _write(Path(path), svg.replace('style="max-width:100%"', 'style="color:#222;background:#fff"', 1).encode())


def _write(path: Path, data: bytes) -> str:
    with atomic_write(path) as file:
        file.write(data)
    return os.path.abspath(path)


def write_png(path: str | PathLike[str], name: str, lines: Sequence[tuple[str, Curve]], svg: str) -> str:
    """The curves of one name by matplotlib; without it `svg` is written beside the path."""
    try:
        package("matplotlib", "a PNG of runs")
    except MissingPackageError as error:
        logger.warning(f"{error}; an SVG was written instead")
        return write_svg(Path(path).with_suffix(".svg"), svg)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for place, (label, curve) in enumerate(lines):
        color, dashed = MANY_COLORS[place % len(MANY_COLORS)], "--" if place >= len(MANY_COLORS) else "-"
        axes.fill_between(curve["steps"], curve["lows"], curve["highs"], color=color, alpha=0.15, linewidth=0)
        axes.plot(curve["steps"], curve["means"], dashed, color=color, label=label.replace("$", r"\$"), linewidth=1.4)
        for span in curve["bad"]:
            axes.axvline(span["first"], color=color, linestyle=":", linewidth=1)
    axes.set_title(name.replace("$", r"\$"))
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=120)
    return os.path.abspath(path)


# -- packages ---------------------------------------------------------------------------------------------------------


def values_by_step(curves: Sequence[Curve]) -> list[tuple[int, dict[str, float]]]:
    """(step, values by name) in the order of the steps: of each bucket the mean and, if it holds several values, the
    smallest and the largest as `loss/min` and `loss/max`; NaN and infinities at their steps.
    """
    found: dict[int, dict[str, float]] = {}
    for curve in curves:
        for _, step, values, mean, low, high, _, _ in zip(*_columns(curve), strict=True):
            row = found.setdefault(step, {})
            row[curve["name"]] = mean
            if values > 1:
                row |= {f"{curve['name']}/min": low, f"{curve['name']}/max": high}
        for span in curve["bad"]:
            for step in {span["first"], span["last"]}:
                found.setdefault(step, {})[curve["name"]] = float(span["what"])
    return sorted(found.items())


def _at(run: KeptRun, step: int) -> float:
    """About when a step was, in seconds since 1970."""
    return run.started + run.seconds * step / max(1, run.steps)


def _name(run: KeptRun) -> str:
    return f"run {run.number} {run.title}".strip()


def to_tensorboard(folder: str | PathLike[str], runs: Sequence[KeptRun]) -> list[str]:
    """Event files, a folder for each run."""
    module = _writer_module()
    folders = []
    for run in runs:
        own = os.path.join(os.fspath(folder), f"run{run.number}")
        writer = module.SummaryWriter(own)
        for step, row in values_by_step(run.curves):
            for name, value in row.items():
                writer.add_scalar(name, value, step, walltime=_at(run, step))
        rows = "\n".join(f"| {name} | {value} |" for name, value in _facts(run).items())
        writer.add_text("run", f"| | |\n|---|---|\n{rows}", 0, walltime=run.started)
        writer.close()
        folders.append(os.path.abspath(own))
    return folders


def _writer_module() -> Any:  # noqa: ANN401 - of a package without types
    for name, needed in (("torch.utils.tensorboard", "tensorboard"), ("tensorboardX", "tensorboardX")):
        try:
            importlib.import_module(needed)
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingPackageError(
        "event files need torch with the package tensorboard, or tensorboardX: pip install tensorboardX"
    )


def _facts(run: KeptRun) -> dict[str, object]:
    facts: dict[str, object] = {"title": run.title, "notebook": run.notebook, "cell": run.cell, "model": run.model}
    facts |= {"state": f"{run.state} {run.reason}".strip(), "code": run.code, "notes": "; ".join(run.notes)}
    facts |= {f"version {name}": version for name, version in run.versions.items()}
    facts["archives"] = "; ".join(each.path for each in run.archives)
    return {name: value for name, value in {**facts, **run.parameters}.items() if value != ""}


def to_wandb(project: str, runs: Sequence[KeptRun], settings: Mapping[str, object]) -> list[str]:
    """Runs of Weights & Biases."""
    wandb = package("wandb", "Weights & Biases")
    identities = []
    for run in runs:
        options = {"mode": "offline", "name": _name(run), "reinit": True, **settings}
        made = wandb.init(project=project, config=_facts(run), **options)
        for step, row in values_by_step(run.curves):
            made.log(row, step=step)
        made.finish(exit_code=1 if run.state in ("failed", "lost") else 0)
        identities.append(str(made.id))
    return identities


_ENDS = {"running": "RUNNING", "failed": "FAILED", "lost": "FAILED", "interrupted": "KILLED"}
_METRICS, _PARAMETERS, _LONGEST = 1000, 100, 500
"""What MLflow takes at once, and characters of a parameter."""


def to_mlflow(experiment: str, runs: Sequence[KeptRun], tracking_uri: str | None) -> list[str]:
    """Runs of an experiment of MLflow."""
    package("mlflow", "MLflow")
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=tracking_uri)
    known = client.get_experiment_by_name(experiment)
    place = client.create_experiment(experiment) if known is None else known.experiment_id
    identities = []
    for run in runs:
        made = client.create_run(place, start_time=int(1e3 * run.started), run_name=_name(run)).info.run_id
        metrics = [
            Metric(_allowed(name), value, int(1e3 * _at(run, step)), step)
            for step, row in values_by_step(run.curves)
            for name, value in row.items()
        ]
        facts = [Param(_allowed(name), str(value)[:_LONGEST]) for name, value in _facts(run).items()]
        for part in _parts(facts, _PARAMETERS):
            client.log_batch(made, params=part)
        for part in _parts(metrics, _METRICS):
            client.log_batch(made, metrics=part)
        end = _ENDS.get(run.state, "FINISHED")
        if end != "RUNNING":
            client.set_terminated(made, end, int(1e3 * (run.started + run.seconds)))
        identities.append(str(made))
    return identities


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _allowed(name: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w.\- /:]", "_", name)[:250] or "_"
