"""A save of the lab: what it replaces is kept, step and loss of the training are noted; whose a file is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.formats import archive
from hybrid_lab.formats.archive import ledger
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.states import class_name
from hybrid_lab.lab.saving import history, save_facts
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.gluon import Trainer


def write(
    net: Block, path: Path, note: str = "", trainer: Trainer | None = None, fewer_graphs: bool = False
) -> Path | None:
    """Save a model to an archive; returns the earlier save with the replaced file, None if there was no file.

    fewer_graphs : also replace an archive that has more graphs. Raises as `save_cached_graphs`, and FileError if the
    replaced file cannot be kept; nothing has changed then.
    """
    with history.replacing(path) as kept:
        archive.save_cached_graphs(
            net, os.fspath(path), trainer=trainer, overwrite=archive.FEWER_GRAPHS if fewer_graphs else None
        )
    facts = save_facts.of_training(net)
    if note or facts != save_facts.NOTHING:
        try:
            set_facts(path, replace(facts, note=save_facts.one_line(note) or facts_of(path).note))
        except (OSError, HybridLabError) as error:  # the archive is there: what is known beside it is no part of it
            logger.debug("step and loss of a save could not be noted", exc_info=error)
    return kept


def set_facts(path: Path, facts: save_facts.SaveFacts) -> None:
    """Note facts about a save, which may be an earlier one. Raises OSError, FileError."""
    path = Path(os.path.realpath(path))
    folder = history.folder_of(path)
    history.make_folder(folder)
    save_facts.write(folder, path, facts)


def facts_of(path: Path) -> save_facts.SaveFacts:
    """The facts noted about a save, which may be an earlier one."""
    path = Path(os.path.realpath(path))
    return save_facts.read(history.folder_of(path), path)


def whose(net: Block, path: Path, is_in_use: Callable[[Block], bool]) -> str:
    """Why a file may be somebody else's, in words; "" if there is no file, or if its content was last written or loaded
    by this model or by an earlier model of the same class that this model has replaced.

    is_in_use : tells whether a Block belongs to a model of the notebook
    """
    now, noted = ledger.version(path), ledger.noted(net, path)
    if now in ("", noted):
        return ""
    others = [block for block in ledger.owners(path) if block is not net and is_in_use(block)]
    if others:
        return f"holds another model of this kernel: {called(others[0])} ({class_name(others[0])})"
    kind = str(archive.inspect(path)["class"])
    if kind != class_name(net):
        return f"holds another model: {kind or 'of an unknown class'}, not {class_name(net)}"
    if ledger.is_of_this_process(path):
        return ""
    if noted:
        return "was changed by somebody else after this model was saved to it"
    return "was saved by another kernel: by another notebook, or before this one was restarted"
