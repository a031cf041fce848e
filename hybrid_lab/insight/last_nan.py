"""The NaN or infinity that `watch_nan` found last in each model, until a watched call of the model is finite again, or
other values are in its parameters.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.location import Location, is_cell
from hybrid_lab.gluon import access
from hybrid_lab.gluon.files.saved import Versions

if TYPE_CHECKING:
    from types import FrameType

    from hybrid_lab.diagnostics.errors import NonFiniteError
    from hybrid_lab.gluon.block import Block


@dataclass(frozen=True)
class LastNan:
    """The text of a NonFiniteError, without the error, whose traceback would keep arrays alive.

    net : the watched model; block, operator, part, location, parameter : as the error has them
    text : the first line of the error
    file : of the notebook's cell that was running, "" outside of one
    versions : of the trained parameters then. Other values, of a load or of a new initialization, may be without NaN
    """

    net: weakref.ref[Block]
    block: str | None
    operator: str
    part: str
    location: Location | None
    text: str
    file: str
    parameter: str
    versions: dict[str, Versions]


_found: list[LastNan] = []


def note(nets: Iterable[Block], error: NonFiniteError) -> NonFiniteError:
    """Note the error of a watch of these models; returns it."""
    file = _running_cell()
    text = str(error).partition("\n")[0]
    for net in nets:
        _found[:] = [item for item in _found if item.net() is not net]
        reference = weakref.ref(net)
        place = (error.block, error.operator, error.part, error.location)
        _found.append(LastNan(reference, *place, text, file, error.parameter, _versions(net)))
    return error


def all_found() -> list[LastNan]:
    """The NaNs, the latest last. A model that is gone, or has other values in its parameters by now, has none."""
    _found[:] = [item for item in _found if (net := item.net()) is not None and _versions(net) == item.versions]
    return list(_found)


def _versions(net: Block) -> dict[str, Versions]:
    """The versions of the parameters that a Trainer or a load writes; running statistics change in calls too."""
    found = access.parameters_by_path(net)
    return {path: Versions.of(item) for path, item in found.items() if item.grad_req != "null"}


def is_finite(net: Block) -> None:
    """A watched call of the model returned finite values; a NaN in its backward may come again."""
    if _found:
        _found[:] = [item for item in _found if item.part != "forward" or item.net() is not net]


def forget_cell(file: str) -> None:
    """The cell that had failed ran to its end."""
    _found[:] = [item for item in _found if item.file != file]


def _running_cell() -> str:
    """The file name of the outermost cell that is running, or ""."""
    frame: FrameType | None = sys._getframe(1)
    found = ""
    while frame is not None:
        if is_cell(frame.f_code.co_filename):
            found = frame.f_code.co_filename
        frame = frame.f_back
    return found
