"""Failure: why the last trace of a Block's code, or the compile of its graph, failed, and in which Block."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.diagnostics.location import Location, is_own
from hybrid_lab.hybridize.neutral import NeutralGraph, run_traced

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid, Tree


@dataclass(eq=False)
class Failure:
    """Why a trace or compile failed. It holds neither the exception nor the arrays of its frames.

    text : the exception in one line; code : of the broken rule, else the name of the exception's class
    finding : of the broken rule, else None; location : the user's line; partial : the NeutralGraph of what the trace
        had computed before, else None
    paths : the Blocks whose code was running -> their paths in the trace; the first began the trace, the last failed
    """

    text: str
    code: str
    message: str
    finding: Finding | None
    location: Location | None
    partial: NeutralGraph | None
    paths: list[tuple[weakref.ref[Hybrid], str]]

    @property
    def blocks(self) -> list[Hybrid]:
        return [block for reference, _ in self.paths if (block := reference()) is not None]

    @property
    def top(self) -> Hybrid | None:
        """The Block that began the trace."""
        return self.paths[0][0]()

    def path_below(self, block: Tree) -> str:
        """The path from this Block to the one whose code failed; "" where that is the same."""
        start = next((path for reference, path in self.paths if reference() is block), "")
        return self.paths[-1][1].removeprefix(start).removeprefix(".")


def failure_of(error: Exception, block: Hybrid) -> Failure:
    """Describe the exception of a trace or compile of this Block, while it is handled."""
    name = type(error).__name__
    text = next(iter(str(error).splitlines()), "")
    paths = _running(error.__traceback__) or [(weakref.ref(block), block.name)]
    if isinstance(error, HybridizeError):
        return Failure(text, error.code, error.message, error.finding, error.location, error.partial, paths)
    where = _user_location(error.__traceback__)
    return Failure(f"{name}: {text}" if text else name, name, text, None, where, None, paths)


def _running(traceback: TracebackType | None) -> list[tuple[Any, str]]:
    """The Blocks whose code the exception left, outermost first, and their paths in the trace."""
    found = []
    while traceback is not None:
        if traceback.tb_frame.f_code is run_traced.__code__:
            variables = traceback.tb_frame.f_locals
            found.append((weakref.ref(variables["block"]), variables["path"]))
        traceback = traceback.tb_next
    return found


def _user_location(traceback: TracebackType | None) -> Location | None:
    """The innermost line outside this package; None without one."""
    found = None
    while traceback is not None:
        if not is_own(traceback.tb_frame.f_code.co_filename):
            found = Location(traceback.tb_frame.f_code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found
