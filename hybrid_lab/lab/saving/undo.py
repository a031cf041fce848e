"""What undoes a save or a reload of a model."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.formats.archive import Container, ledger
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.saved import forget_file, state_with
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.saving import history
from hybrid_lab.lab.saving.snapshot import Snapshot

if TYPE_CHECKING:
    from hybrid_lab.lab.models.registry import LiveModel


@dataclass(frozen=True)
class Undo:
    """A save or a reload of a model that can be undone.

    token : names it in requests; kind : "save" or "reload"; what : in words; act : undoes it and says what it did
    changed : in words, what is no longer as the save or reload left it, and would be replaced; "" for nothing
    """

    token: str
    kind: str
    what: str
    act: Callable[[], str]
    changed: Callable[[], str] = lambda: ""


def undo_of_save(
    entry: LiveModel | None, net: Block, path: Path, kept: Path | None, was_own: bool, before: Path | None
) -> Undo:
    """What undoes a save that has just ended.

    entry : of the panel, if it lists the model
    kept : the earlier save with the replaced file; was_own : the replaced file was this model's; before : the model's
    file then
    """
    saved = _digest(path)
    reference = weakref.ref(net)  # an undo that is never taken keeps no model alive

    def act() -> str:
        block = reference()
        if kept is None:
            if path.exists():
                history.take_away(path)
            text = f"{path.name} is gone, as it was before the save; its contents are among the earlier saves"
        elif not kept.exists():
            raise RequestError("nothing-to-undo", f"the file that {path.name} was before is no longer kept")
        else:
            history.put_back(path, kept)
            text = f"{path.name} is as it was before the save; what was saved is among the earlier saves"
            if block is not None:
                (ledger.note if was_own else ledger.forget)(block, path)
        if block is not None:
            forget_file(block)
        if entry is not None and entry.file == path:
            entry.file = before
        return text

    def changed() -> str:
        return "" if _digest(path) == saved else f"{path.name} was changed or removed since this save"

    return Undo(secrets.token_hex(8), "save", f"the save to {path.name}", act, changed)


def undo_of_reload(entry: LiveModel | None, net: Block, path: Path, snapshot: Snapshot, before: Path | None) -> Undo:
    """What undoes a reload that has just ended.

    entry : of the panel, if it lists the model; snapshot : of the model before; before : the model's file then
    """
    loaded, reference = state_with(net, str(path), "loaded"), weakref.ref(net)

    def act() -> str:
        text = snapshot.restore()
        if entry is not None and entry.file == path:
            entry.file = before
        return text

    def changed() -> str:
        block = reference()
        if block is None:
            return "the model is gone"
        change = loaded.change(block)
        if change.structure:
            return "Blocks or parameters of the model were added or removed since this reload"
        if not change.changed:
            return ""
        return f"{change.changed} of {count(change.total, 'parameter')} of the model changed since this reload"

    return Undo(secrets.token_hex(8), "reload", f"the reload of {path.name}", act, changed)


def _digest(path: Path) -> str:
    """The root digest of an archive, "" if there is none."""
    try:
        return Container.open(path).digest
    except (HybridLabError, OSError):
        return ""


def restored(entry: LiveModel, net: Block, path: Path, kept: Path) -> Undo | None:
    """Put an earlier save back as the file; gives what undoes that, None if it is the file already."""
    now, before = ledger.version(path), entry.file
    was_own = now in ("", ledger.noted(net, path))
    replaced = history.put_back(path, kept)
    if replaced is None and now == ledger.version(path):
        return None
    if was_own:
        ledger.note(net, path)
    undo = undo_of_save(entry, net, path, replaced, was_own, before)
    return replace(undo, what=f"the return of {path.name} to an earlier save")
