"""Short tracebacks: an error of this package in a notebook shows the user's own lines, with the whole folded below.

Only for a HybridLabError that a kernel shows: terminals and other exceptions are as ever, and `%tb` prints the whole.
"""

from __future__ import annotations

import contextlib
import html
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import about
from hybrid_lab.diagnostics.location import Location, is_cell, is_own
from hybrid_lab.lab.messages.common import Location as LocationData
from hybrid_lab.lab.messages.errors import ERROR, CellError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from hybrid_lab.gluon.block import Block
    from hybrid_lab.lab.models.registry import Registry

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 100_000
"""Characters of the whole traceback that go into the notebook; `%tb` has all."""
_PLACES = 8

_is_short = True


def short_tracebacks(on: bool = True) -> None:
    """Whether an error of this package in a notebook's cell shows your own lines alone, as it does unless told
    otherwise, or the whole traceback.
    """
    global _is_short
    _is_short = bool(on)


class ShortTracebacks:
    """Shows the errors of one shell, between `install` and `remove`. `registry` tells which models there are."""

    def __init__(self, shell: InteractiveShell, registry: Callable[[], Registry]):
        self._shell, self._registry = shell, registry
        self._installed: object = None

    def install(self) -> None:
        """Start, unless other code handles exceptions in this shell."""
        if not self._shell.custom_exceptions:
            self._shell.set_custom_exc((HybridLabError,), self._show)
            self._installed = self._shell.CustomTB

    def remove(self) -> None:
        """End, unless other code has taken the place."""
        if self._installed is not None and self._shell.CustomTB == self._installed:
            self._shell.set_custom_exc((), None)
        self._installed = None

    def _show(
        self,
        shell: InteractiveShell,
        kind: type[HybridLabError],
        error: HybridLabError,
        traceback: TracebackType | None,
        tb_offset: int | None = None,
    ) -> list[str]:
        """IPython's handler of these exceptions; it must not raise."""
        mode = getattr(shell.InteractiveTB, "mode", "")
        lines, hidden = own_lines(traceback)
        if not _is_short or mode == "Verbose" or shell.call_pdb or not lines or hidden < 2:
            shell.showtraceback((kind, error, traceback), running_compiled_code=True)
            return []
        shell._get_exc_info((kind, error, traceback))  # noqa: SLF001 - what %tb and %debug read
        text = _formatted(shell, error, traceback, None)
        with _without_cause(error) as words:
            short = [*_formatted(shell, error, _chain(lines), 0), *words]
        shell._showtraceback(kind, error, short)  # noqa: SLF001 - as IPython's own handler does
        data = error_data(error, lines, hidden, self._registry())
        shell.display_pub.publish({ERROR: data, "text/html": folded("\n".join(text), hidden), "text/plain": _PLAIN})
        return []


_PLAIN = "%tb prints the whole traceback"


def own_lines(traceback: TracebackType | None) -> tuple[list[TracebackType], int]:
    """The entries of a traceback that are the user's code, outermost first, and how many others there are."""
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    own: list[TracebackType] = []
    others = 0
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_cell(file) or not (is_own(file) or file.startswith((*libraries, "<")) or "site-packages" in file):
            own.append(traceback)
        else:
            others += 1
        traceback = traceback.tb_next
    return own, others


def _chain(entries: list[TracebackType]) -> TracebackType | None:
    """A traceback of these entries alone."""
    chained: TracebackType | None = None
    for entry in reversed(entries):
        chained = TracebackType(chained, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return chained


def _formatted(
    shell: InteractiveShell, error: BaseException, traceback: TracebackType | None, tb_offset: int | None
) -> list[str]:
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, traceback, tb_offset=tb_offset)
    return lines


@contextlib.contextmanager
def _without_cause(error: BaseException) -> Iterator[list[str]]:
    """Without the exception that caused it, whose traceback would be printed too; gives a line about the cause."""
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    error.__cause__ = error.__context__ = None
    origin = cause if cause is not None or suppressed else context
    try:
        yield [] if origin is None else [f"{'caused by' if cause else 'while handling'} {_in_a_line(origin)}"]
    finally:
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppressed


def _in_a_line(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}{': ' if first else ''}{first}"


def folded(text: str, hidden: int) -> str:
    """The whole traceback as HTML without scripts, folded."""
    plain = _COLORS.sub("", text)
    cut = "\n…" if len(plain) > _LONGEST else ""
    summary = f"Whole traceback: {hidden} more lines of code"
    style = "overflow:auto;max-height:30em"
    return (
        f'<details><summary style="cursor:pointer">{summary}</summary>'
        f'<pre style="{style}">{html.escape(plain[:_LONGEST])}{cut}</pre></details>'
    )


def error_data(error: HybridLabError, lines: list[TracebackType], hidden: int, registry: Registry | None) -> CellError:
    """What the front end makes links of."""
    from hybrid_lab.lab.places import located

    model, block, name = _block_of(error, registry)
    known = getattr(error, "location", None)
    spots = [known] if isinstance(known, Location) else []
    spots += [Location(entry.tb_frame.f_code, entry.tb_lasti) for entry in reversed(lines)]
    places: dict[tuple[str, int], LocationData] = {}
    for spot in spots:
        if is_cell(spot.file):
            location = located(spot)
            places.setdefault((location["file"], location["line"]), location)
    return {
        "error": type(error).__name__,
        "model": model,
        "block": block,
        "name": name,
        "places": list(places.values())[:_PLACES],
        "hidden": hidden,
    }


def _block_of(error: HybridLabError, registry: Registry | None) -> tuple[str, str | None, str]:
    """(model's id, path, name) of the Block whose code raised; the id is "" if no model has it."""
    if registry is None or "hybrid_lab.gluon" not in sys.modules:
        return "", None, ""
    from hybrid_lab.hybridize.block_notes import called_blocks
    from hybrid_lab.insight import last_nan
    from hybrid_lab.insight.states import block_at, blocks_below

    running: list[Block] = [*called_blocks(error.__traceback__)]
    culprit, outer = (running[-1], running[0]) if running else (None, None)
    for found in last_nan.all_found():
        if found.block is not None and found.text == str(error).partition("\n")[0] and (net := found.net()) is not None:
            with contextlib.suppress(KeyError):
                culprit, outer = block_at(net, found.block), net
    if culprit is None or outer is None:
        return "", None, ""
    with about(outer):
        name = registry.called(culprit) or culprit.name
    places: list[tuple[bool, str, str]] = []  # (whether the model is the one that was called, its id, path)
    for entry in registry.refresh(look=False):
        top = entry.reference()
        blocks = {id(block): path for path, block in blocks_below(top)} if top is not None else {}
        if id(culprit) in blocks:
            places.append((id(outer) in blocks, entry.id, blocks[id(culprit)]))
    _, model, path = max(places, key=lambda place: place[0], default=(False, "", None))
    return model, path, name
