"""Autosave: saves a model after every few training steps, or each epoch, in the thread that trains."""

from __future__ import annotations

import errno
import os
import time
import weakref
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.file_errors import write_error
from hybrid_lab.diagnostics.formatting import count, first_line
from hybrid_lab.distributed.worker_group import joined_workers
from hybrid_lab.formats.archive import layout, ledger, why_no_archive
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.messages.models import AutosaveState
from hybrid_lab.lab.saving import file_names, one_save
from hybrid_lab.lab.saving.quiet import quiet

if TYPE_CHECKING:
    from hybrid_lab.gluon import Trainer


class Autosave:
    """The autosave of one model, which is held weakly. `stop()` ends it.

    path : absolute; every : number of steps between saves, None: at the end of each epoch
    saves : how many there were; last : when, seconds since 1970; seconds : how long it took
    problem : why the last one failed, or ""
    """

    def __init__(self, net: Block, path: str, every: int | None, trainer: Trainer | None = None):
        self._net = weakref.ref(net)
        self._trainer = trainer
        self.path, self.every = path, every
        self.saves, self.last, self.seconds, self.problem = 0, 0.0, 0.0, ""
        self._steps = 0
        #: of the file after the last save: what another notebook wrote since is not replaced
        self._version = ""
        self._trains: weakref.WeakKeyDictionary[Trainer, bool] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        when = "each epoch" if self.every is None else f"every {count(self.every, 'step')}"
        if self not in running:
            return f"<autosave to {self.path}: stopped after {count(self.saves, 'save')}>"
        problem = f"; the last one failed: {self.problem}" if self.problem else ""
        return f"<autosave {when} to {self.path}: {count(self.saves, 'save')}{problem}>"

    def stop(self) -> None:
        """Save no more."""
        if self in running:
            running.remove(self)
            _listen()

    @property
    def is_gone(self) -> bool:
        """Whether its model was deleted."""
        return self._net() is None

    def is_of(self, net: Block) -> bool:
        """Whether it is of this model."""
        return self._net() is net

    def stepped(self, trainer: Trainer) -> None:
        """A Trainer made a step: save if it is time, and if the Trainer trains this model."""
        net = self._net()
        if net is None:
            return
        if trainer not in self._trains:
            trained, own = access.trainer_parameters(trainer), set(map(id, net.collect_params().values()))
            self._trains[trainer] = any(id(item) in own for item in trained)
        if not self._trains[trainer]:
            return
        self._steps += 1
        if self.every is not None and self._steps >= self.every:
            self._save(net)

    def epoch_ended(self) -> None:
        """A DataLoader gave its last batch: save, if there was a step since the last save."""
        net = self._net()
        if net is not None and self.every is None and self._steps:
            self._save(net)

    def _save(self, net: Block) -> None:
        """Save, and keep what went wrong for the panel: a training never ends because of its autosave."""
        start, self._steps = time.perf_counter(), 0
        if joined_workers()[0]:
            return  # rank 0 saves the model of all workers
        try:
            reason = why_no_archive(self.path) if os.path.lexists(self.path) else None
            if reason is not None:
                raise HybridLabError(f"{self.path} is not an archive any more ({reason})")
            if self._version and (now := ledger.version(self.path)) and now != self._version:
                raise HybridLabError(f"{self.path} was changed by somebody else, another notebook perhaps")
            with boundary.lock, boundary.interrupts, quiet():
                one_save.write(net, Path(self.path), trainer=self._trainer)
            self._version = ledger.version(self.path)
        except Exception as error:  # whatever a Block's own code may raise while it is traced
            self.problem = first_line(error)
        else:
            self.problem = ""
            self.saves += 1
            self.last = time.time()
        self.seconds = time.perf_counter() - start


running: list[Autosave] = []
"""One for each model that has an autosave. No dictionary: the class of a Block may define __eq__ and no __hash__."""


def autosave(
    net: Block, path: str | PathLike[str] | None = None, every: int | str = 100, trainer: Trainer | None = None
) -> Autosave:
    """Save `net` while it trains: after every `every` steps of its Trainer, or with `every="epoch"` each time that a
    DataLoader gave its last batch after a step. A second call for the same model replaces the first; `.stop()` ends it.

    path : by default `<name>.autosave.hlab` in the current folder. A file there is replaced if it is an archive, and
        its last five versions are kept in `.hybrid_lab_history` beside it
    trainer : also save its states and the random state, to resume exactly with `mx.load_cached_graphs(..., trainer=)`

    A save happens in the training thread, right after the step, and writes nothing into the cell's output. If workers
    train together, rank 0 saves. A failed save does not stop the training; the panel and the returned object give the
    reason. Raises HybridLabError for a bad argument, or if `path` is anything but an archive, FileError if its folder
    is missing.
    """
    if not isinstance(net, Block):
        raise HybridLabError(f"autosave needs a Block, not {type(net).__name__}")
    if every != "epoch" and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
        raise HybridLabError(f"every must be a number of steps, 1 or more, or 'epoch', not {every!r}")
    file = os.path.abspath(layout.archive_path(path, "") if path is not None else f"{net.name}.autosave.hlab")
    if not os.path.isdir(os.path.dirname(file)):
        raise write_error(errno.ENOENT, file)
    reason = why_no_archive(file) if os.path.lexists(file) else None
    if reason is not None:
        raise HybridLabError(f"{file} exists and is not an intact archive ({reason}); give another path")
    saver = Autosave(net, file, every if isinstance(every, int) else None, trainer)
    running[:] = [each for each in running if not (each.is_of(net) or each.is_gone)] + [saver]
    _listen()
    return saver


def _listen() -> None:
    """Be told of steps and epochs while there is an autosave."""
    boundary.listen(_stepped, bool(running))
    boundary.epoch_listeners = [_epoch_ended] if running else []


def _stepped(trainer: Trainer) -> None:
    for saver in list(running):
        saver.stepped(trainer)


def _epoch_ended() -> None:
    for saver in list(running):
        saver.epoch_ended()


def autosave_of(net: Block) -> Autosave | None:
    """The autosave of a model."""
    return next((saver for saver in running if saver.is_of(net)), None)


def _shown(path: str) -> str:
    try:
        return file_names.shown(Path(path))
    except OSError:  # the kernel's folder is gone
        return path


def autosave_data(net: Block) -> AutosaveState | None:
    """The protocol's data of a model's autosave."""
    saver = autosave_of(net)
    if saver is None:
        return None
    return {
        "every": saver.every or 0,
        "file": _shown(saver.path),
        "saves": saver.saves,
        "last": saver.last,
        "seconds": round(saver.seconds, 4),
        "problem": saver.problem,
    }
