"""What is known of a save beside its archive: step and loss of the training, and a note. Small JSON files in the
history's folder, named by the archive's root digest, so that the facts follow the file through the history.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.archive import Container
from hybrid_lab.formats.atomic import atomic_write
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.lab.training.run import Run

LONGEST_NOTE = 200
"""Characters of a note."""
_LARGEST = 4096
"""Bytes of a file of facts."""


@dataclass(frozen=True)
class SaveFacts:
    """step : of the training, or None if none is known; loss, loss_name : the value logged last; note : one line"""

    step: int | None = None
    loss: float | None = None
    loss_name: str = ""
    note: str = ""


NOTHING = SaveFacts()


def read(folder: Path, archive: Path | Container) -> SaveFacts:
    """The facts of an archive; what is no such file, or has other fields, says nothing."""
    with contextlib.suppress(OSError, HybridLabError, ValueError, RecursionError):
        path = _place(folder, archive)
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            return NOTHING
        return _checked(json.loads(path.read_text(encoding="utf-8")))
    return NOTHING


def write(folder: Path, archive: Path, facts: SaveFacts) -> None:
    """Note facts about an archive. Raises OSError, FileError."""
    path = _place(folder, archive)
    if facts == NOTHING:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path) as file:
        file.write(json.dumps(asdict(facts)).encode())


def forget(folder: Path, archive: Path) -> None:
    """Remove the facts of an archive that is about to go."""
    with contextlib.suppress(OSError, HybridLabError):
        _place(folder, archive).unlink(missing_ok=True)


def one_line(note: str) -> str:
    """A note as it is kept: one line of visible characters, without the end of a long one."""
    return "".join(each if each.isprintable() else " " for each in note).strip()[:LONGEST_NOTE]


def of_training(net: Block) -> SaveFacts:
    """Step and last logged loss of the run that trains this model, or that trained it last."""
    if "hybrid_lab.lab.training.current" not in sys.modules:
        return NOTHING
    from hybrid_lab.lab.training.current import runs

    for run in reversed(runs.all()):
        if trains(run, net):
            try:
                run.take(wait=True)
            except Exception as error:  # a logged value that is no number, which the training itself reports
                logger.debug("the logged values could not be read", exc_info=error)
            return _facts_of(run)
    return NOTHING


def _place(folder: Path, archive: Path | Container) -> Path:
    opened = archive if isinstance(archive, Container) else Container.open(archive)
    return folder / f"{opened.digest[:40]}.json"


def _checked(data: object) -> SaveFacts:
    """The facts in a file, field by field."""
    found = data if isinstance(data, dict) else {}
    step, loss, name, note = (found.get(key) for key in ("step", "loss", "loss_name", "note"))
    return SaveFacts(
        step if type(step) is int and 0 <= step < 2**53 else None,
        float(loss) if type(loss) in (int, float) and math.isfinite(loss) else None,  # type: ignore[arg-type]
        one_line(name)[:60] if isinstance(name, str) else "",
        one_line(note) if isinstance(note, str) else "",
    )


def trains(run: Run, net: Block) -> bool:
    """Whether the run's Trainer trains a parameter of this model. A run without a Trainer may be of any model."""
    trainer = run.trainer()
    if trainer is None:
        return run.steps == 0 and bool(run.series)
    own = set(map(id, net.collect_params().values()))
    return any(id(each) in own for each in access.trainer_parameters(trainer))


def _facts_of(run: Run) -> SaveFacts:
    """The first logged name with `loss` in it; else the step alone."""
    names = [name for name in run.series if "loss" in name.lower()]
    series = run.series[names[0]] if names else None
    step = run.steps or (series.last_step if series is not None else 0)
    loss = series.last if series is not None and math.isfinite(series.last) else None
    return SaveFacts(step or None, loss, names[0][:60] if loss is not None else "")
