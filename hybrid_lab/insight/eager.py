"""Recording of an eager run: the operators that the code called, with Block, line and results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.location import Location, capture
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray.ndarray import NDArray


@dataclass
class Operation:
    """One operator that an eager run called.

    name : the operator's; scope : path of the Block; location : the user's line; numbers : the Python scalars among its
    inputs; results : its outputs
    """

    name: str
    attributes: dict[str, Any]
    scope: str
    location: Location | None
    numbers: tuple[Any, ...]
    results: tuple[np.ndarray, ...]


#: Gets each operator that an eager run called: its name, inputs and results, the path of the Block, the user's line.
Hear = Callable[[str, Sequence[object], Sequence[NDArray], str, Location | None], object]


@dataclass
class _Listener:
    """A profile function (sys.setprofile) that records the package's own calls, so that eager mode needs no hook.

    hear : gets each operator; None records it with a copy of its results in `found`
    """

    top: Block
    hear: Hear | None = None
    found: list[Operation] = field(default_factory=list)
    _scopes: list[tuple[Block, str]] = field(default_factory=list)
    _inside: int = 0

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        code = frame.f_code
        if code in _CALLS:
            self._block(frame, event)
        elif code in _OPERATORS:
            if event == "call":
                self._inside += 1
            elif event == "return":
                self._inside -= 1
                if not self._inside and result is not None:
                    self._operation(frame, result)

    def _block(self, frame: FrameType, event: str) -> None:
        block = frame.f_locals.get("self")
        if event == "return" and self._scopes:
            self._scopes.pop()
        elif event == "call" and isinstance(block, Block):
            self._scopes.append((block, self._path(block)))

    def _path(self, block: Block) -> str:
        """As a trace names it: the caller's path and the name under which it holds this Block."""
        if not self._scopes:
            return block.name
        caller, scope = self._scopes[-1]
        if caller is block:
            return scope
        name = next((name for name, child in access.children(caller).items() if child is block), block.name)
        return f"{scope}.{name}"

    def _operation(self, frame: FrameType, result: object) -> None:
        local = frame.f_locals
        op = local.get("op")
        inputs = local["inputs"] if "inputs" in local else (local.get("lhs"), local.get("rhs"))
        if op is None:
            return
        results = result if isinstance(result, (list, tuple)) else (result,)
        if not all(isinstance(item, NDArray) for item in results):
            return
        scope = self._scopes[-1][1] if self._scopes else ""
        if self.hear is not None:
            self.hear(op.name, inputs, results, scope, capture())
            return
        self.found.append(
            Operation(
                op.name,
                dict(getattr(op, "written", {})),
                scope,
                capture(),
                tuple(item for item in inputs if isinstance(item, (int, float))),
                tuple(item.asnumpy().copy() for item in results),
            )
        )


_OPERATORS = frozenset(
    item.__code__ for item in (getattr(invoking, name, None) for name in ("invoke", "invoke_pair")) if item is not None
)
_CALLS = frozenset((Block.__call__.__code__, HybridBlock.__call__.__code__))


def listen(block: Block, run: Callable[[], object], hear: Hear | None = None) -> tuple[Any, list[Operation]]:
    """The result of `run()`, and the operators that it called, in order; with `hear`, that gets them instead.

    If a profiler written in C is active (cProfile), it stays active, and no operator is recorded.
    """
    listener = _Listener(block, hear)
    before = sys.getprofile()
    if before is not None and not callable(before):
        return run(), []
    sys.setprofile(listener)
    try:
        result = run()
    finally:
        sys.setprofile(before)
    return result, listener.found
