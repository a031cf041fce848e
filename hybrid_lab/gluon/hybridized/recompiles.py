"""Recompiles: why each program of a Block was compiled, which call asked for it, and what helps against many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.engines.engine import Executable
from hybrid_lab.gluon.hybridized.structure import Spec, describe
from hybrid_lab.ops.framework.precision import Precision

if TYPE_CHECKING:
    from hybrid_lab.gluon.hybridized.neutral import NeutralGraph
    from hybrid_lab.gluon.hybridized.program import Program
    from hybrid_lab.graph.specialized import Specialized

MANY = 8
"""Recompiles of one Block after which a warning says why, and what helps; again each time they have doubled."""
KEPT = 64
"""Compilations of a Block that are remembered."""


class Signature(NamedTuple):
    """What a program was compiled for.

    types : (shape, dtype) of each input array; tracked : of each, whether its gradient is wanted
    requests : (name, whether its gradient is wanted) of each parameter, where calls are recorded
    """

    spec: Spec
    types: tuple[tuple[Any, Any], ...]
    training: bool
    recording: bool
    tracked: tuple[bool, ...]
    context: Any
    requests: tuple[tuple[str, bool], ...] = ()

    def changes(self, other: Signature) -> list[tuple[str, str]]:
        """(kind, words) for everything that is different from `other`."""
        if self.spec != other.spec:
            return [("structure", f"the arguments {describe(self.spec)} instead of {describe(other.spec)}")]
        differences = []
        for number, ((shape, dtype), (shape_before, dtype_before)) in enumerate(
            zip(self.types, other.types, strict=True)
        ):
            which = "input" if len(self.types) == 1 else f"input {number}"
            if shape != shape_before:
                differences.append(("shape", f"{which} shape {shape} instead of {shape_before}"))
            if dtype != dtype_before:
                differences.append(("dtype", f"{which} dtype {dtype.name} instead of {dtype_before.name}"))
        if self.training != other.training:
            differences.append(("mode", "training mode" if self.training else "prediction mode"))
        if self.recording != other.recording:
            differences.append(("recording", "recording for the backward" if self.recording else "no recording"))
        elif self.tracked != other.tracked:
            differences.append(("gradient", self._gradients(other)))
        if self.recording == other.recording and self.requests != other.requests:
            differences.append(("grad_req", self._requests(other)))
        if self.context != other.context:
            differences.append(("context", f"input on {self.context} instead of {other.context}"))
        return differences

    def _requests(self, other: Signature) -> str:
        changed = [item for item in self.requests if item not in other.requests]
        if not changed:
            return "other parameters"
        name, wanted = changed[0]
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"the parameter {name} needs {'a' if wanted else 'no'} gradient{more}"

    def _gradients(self, other: Signature) -> str:
        if len(self.tracked) == 1:
            return "the input needs a gradient" if self.tracked[0] else "the input needs no gradient"
        number = next(index for index, wanted in enumerate(self.tracked) if wanted != other.tracked[index])
        return f"input {number} needs {'a' if self.tracked[number] else 'no'} gradient"


@dataclass
class Retired:
    """The summary of a dropped program: graphs and reports, but no arrays and no memory.

    forward, backward : executables that cannot run
    """

    block_name: str
    neutral: NeutralGraph
    special: Specialized
    training: bool
    recording: bool
    precision: Precision | None
    engine: str
    where: str
    num_operators: int
    output_types: tuple[tuple[Any, Any], ...]
    forward: Executable
    backward: Executable | None

    @classmethod
    def of(cls, program: Program) -> Retired:
        """Without the program itself."""
        values = {each.name: getattr(program, each.name) for each in fields(cls)}
        backward = program.backward
        values["forward"] = Executable(program.forward.graph, _gone, program.forward.report)
        values["backward"] = None if backward is None else Executable(backward.graph, _gone, backward.report)
        return cls(**values)


def _gone(inputs: object, rng: tuple[int, int] | None) -> Any:
    raise EngineError("this program was removed to make room for another one")


@dataclass
class Compilation:
    """What one compile did, for explain and the lab.

    key : the Signature; None for gradients of gradients, and for a backward from other outputs
    kind : "first", "shape", "dtype", "mode", "recording", "gradient", "grad_req", "context", "structure", "parameter",
    "evicted", "second" or "heads"; reason : the same in words;
    seconds : wall time; place : the user's line that called; program : Retired once it is called no more
    """

    key: Any
    reason: str
    seconds: float
    program: Program | Retired
    place: Location | None = None
    kind: str = "first"

    def __str__(self) -> str:
        return self.reason + (f", called at {self.place.describe()}" if self.place is not None else "")


def reason_for(key: Signature, before: Sequence[Compilation], stale: bool) -> tuple[str, str]:
    """(kind, words) of why a compile is needed: the difference to the nearest signature compiled before.

    stale : there was a program for this very signature, but not for the parameters as they are now
    """
    if stale:
        return "parameter", "a parameter got another array, by initialize(), cast() or reset_ctx()"
    if not before:
        return "first", "first call"
    nearest: list[tuple[str, str]] | None = None
    for item in reversed([item for item in before if item.key is not None]):
        differences = key.changes(item.key)
        if not differences:
            return "evicted", "its program had been removed to make room for others"
        if nearest is None or len(differences) < len(nearest):
            nearest = differences
    assert nearest is not None
    return nearest[0][0], ", ".join(words for _, words in nearest)


REMEDIES = {
    "shape": "Each shape needs its own program: use few shapes, by padding or cutting (bucketing), or a DataLoader "
    "with last_batch='discard'",
    "dtype": "Cast the inputs to one dtype before the call",
    "structure": "Pass arguments of one structure. Numbers are a part of it: pass a number that changes as an array",
    "parameter": "Call initialize(), cast() or reset_ctx() once, before the training loop",
    "grad_req": "Each set of parameters that need a gradient has its own program: use only a few such sets",
    "evicted": "There are more signatures than the cache keeps programs: use fewer shapes",
}
