"""Recompiles: why each program of a Block was compiled, which call asked for it, and what helps against many."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid_lab.gluon.hybridized.structure import Spec, describe

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.diagnostics.location import Location
    from hybrid_lab.gluon.hybridized.program import Program
    from hybrid_lab.ndarray.context import Context
    from hybrid_lab.ops.framework.types import Shape

MANY = 8
"""Recompiles of one Block after which a warning says why, and what helps; again each time they have doubled."""
KEPT = 64
"""Compilations of a Block that are remembered."""

#: What tells calls apart: the structure of the arguments; of each array (shape, dtype); training mode; whether the call
#: is recorded; of each array, whether its gradient is wanted; the context.
Call = tuple[Spec, "tuple[tuple[Shape, np.dtype], ...]", bool, bool, tuple[bool, ...], "Context | None"]
#: Of each parameter (name, whether its gradient is wanted), where calls are recorded.
Requests = tuple[tuple[str, bool], ...]
#: What a program is compiled for.
Signature = tuple[Call, Requests]


class Compilation:
    """The record of one compile: its reason, graphs and reports. It has no arrays, so that it may outlive its program.

    program : None once nobody calls it any more and it is gone
    kind : "first", "shape", "dtype", "mode", "recording", "gradient", "grad_req", "context", "structure", "parameter",
    "value", "evicted", "second" or "heads"; reason : the same in words
    seconds : wall time; place : the user's line that called
    number : of the compile among those of its Block, from 0
    signature : None for gradients of gradients, and for a backward from other outputs
    forward, backward : the reports of the executables
    """

    def __init__(
        self,
        program: Program,
        kind: str,
        reason: str,
        seconds: float,
        place: Location | None,
        signature: Signature | None = None,
    ):
        self.kind, self.reason, self.seconds, self.place, self.signature = kind, reason, seconds, place, signature
        self.number = 0
        self.block_name, self._program = program.block_name, weakref.ref(program)
        self.neutral, self.special, self.precision = program.neutral, program.special, program.precision
        self.training, self.engine, self.where = program.training, program.engine, program.where
        self.forward = program.forward.report
        self.backward = None if program.backward is None else program.backward.report

    @property
    def program(self) -> Program | None:
        return self._program()

    @property
    def runs_on(self) -> str:
        """The engine that runs the forward; `engine` is the one that compiled it."""
        return self.forward.runs_on

    def __str__(self) -> str:
        return self.reason + (f", called at {self.place.describe()}" if self.place is not None else "")


def reason_for(signature: Signature, before: Sequence[Compilation], stale: bool) -> tuple[str, str]:
    """(kind, words) of why a compile is needed: the difference to the nearest signature compiled before.

    stale : there was a program for this very signature, but not for the parameters as they are now
    """
    if stale:
        return "parameter", "a parameter got another array, by initialize(), cast() or reset_ctx()"
    if not before:
        return "first", "first call"
    known = [item.signature for item in reversed(before) if item.signature is not None]
    nearest = min((_differences(signature, other) for other in known), key=len)
    if not nearest:
        return "evicted", "its program had been removed to make room for others"
    return nearest[0][0], ", ".join(words for _, words in nearest)


def _differences(signature: Signature, before: Signature) -> list[tuple[str, str]]:
    """(kind, words) for everything in which a signature differs from an earlier one."""
    (spec, types, training, recording, tracked, context), requests = signature
    (old_spec, old_types, old_training, old_recording, old_tracked, old_context), old_requests = before
    if spec != old_spec:
        return [("structure", f"the arguments {describe(spec)} instead of {describe(old_spec)}")]
    differences = []
    for number, ((shape, dtype), (old_shape, old_dtype)) in enumerate(zip(types, old_types, strict=True)):
        which = "input" if len(types) == 1 else f"input {number}"
        if shape != old_shape:
            differences.append(("shape", f"{which} shape {shape} instead of {old_shape}"))
        if dtype != old_dtype:
            differences.append(("dtype", f"{which} dtype {dtype.name} instead of {old_dtype.name}"))
    if training != old_training:
        differences.append(("mode", "training mode" if training else "prediction mode"))
    if recording != old_recording:
        differences.append(("recording", "recording for the backward" if recording else "no recording"))
    else:
        if tracked != old_tracked:
            number = next(index for index, wanted in enumerate(tracked) if wanted != old_tracked[index])
            which = "the input" if len(tracked) == 1 else f"input {number}"
            differences.append(("gradient", f"{which} needs {'a' if tracked[number] else 'no'} gradient"))
        if requests != old_requests:
            differences.append(("grad_req", _changed_requests(requests, old_requests)))
    if context != old_context:
        differences.append(("context", f"input on {context} instead of {old_context}"))
    return differences


def _changed_requests(requests: Requests, before: Requests) -> str:
    changed = [item for item in requests if item not in before]
    if not changed:
        return "other parameters"
    name, wanted = changed[0]
    more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"the parameter {name} needs {'a' if wanted else 'no'} gradient{more}"


REMEDIES = {
    "shape": "Each shape needs its own program: use few shapes, by padding or cutting (bucketing), or a DataLoader "
    "with last_batch='discard'",
    "dtype": "Cast the inputs to one dtype before the call",
    "structure": "Pass arguments of one structure. Numbers are a part of it: pass a number that changes as an array",
    "parameter": "Call initialize(), cast() or reset_ctx() once, before the training loop",
    "value": "A value that the code reads is a constant of the graph, and another value needs another graph: pass what "
    "changes as an argument, a number as an array",
    "grad_req": "Each set of parameters that need a gradient has its own program: use only a few such sets",
    "evicted": "There are more signatures than the cache keeps programs: use fewer shapes",
}
