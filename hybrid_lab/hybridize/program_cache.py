"""ProgramCache: the programs of one Block, why each was compiled, and what they share, such as the Prologue."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections import Counter, OrderedDict
from collections.abc import Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import engines
from hybrid_lab.diagnostics.formatting import Named, called
from hybrid_lab.diagnostics.location import Location, capture
from hybrid_lab.graph.equal import equal
from hybrid_lab.graph.specialize import Specializations
from hybrid_lab.hybridize.structure import Spec, describe
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.system import forks
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.engines.engine import Engine, Executable
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.hybridize.compiled_call import CompiledCall
    from hybrid_lab.hybridize.neutral import NeutralGraph
    from hybrid_lab.ndarray.context import Context
    from hybrid_lab.ops.framework.types import Shape

MANY = 8
"""Recompiles of one Block after which a warning says why, and what helps; again each time they have doubled."""
KEPT = 64
"""Compilations of a Block that are remembered."""

#: What tells calls apart: the structure of the arguments; of each array (shape, dtype); training mode; whether the call
#: is recorded; of each array, whether its gradient is wanted; the context.
Call = tuple[Spec, "tuple[tuple[Shape, np.dtype], ...]", bool, bool, tuple[bool, ...], "Context | None"]
#: Of each parameter (name, whether its gradient is wanted), for recorded calls.
Requests = tuple[tuple[str, bool], ...]
#: What a program is compiled for.
Signature = tuple[Call, Requests]


class Compilation:
    """The record of one compile: its reason, graphs and reports. It has no arrays, so that it may outlive its program.

    kind : "first", "shape", "dtype", "mode", "recording", "gradient", "grad_req", "context", "structure", "parameter",
    "value", "evicted", "second" or "heads"; reason : the same in words
    seconds : wall time; place : the user's line that called
    number : of the compile among those of its Block, from 0
    signature : None for gradients of gradients, and for a backward from other outputs
    forward, backward : the reports of the executables
    neutral, special, precision, training, engine : as of the program
    """

    def __init__(
        self,
        program: CompiledCall,
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
        self.training, self.engine = program.training, program.engine
        self.forward = program.forward.report
        self.backward = None if program.backward is None else program.backward.report

    @property
    def program(self) -> CompiledCall | None:
        """The program; None once nobody calls it any more and it is gone."""
        return self._program()

    @property
    def where(self) -> str:
        """Engine and device of the forward, as `CompiledCall.where`."""
        return engines.find(self.runs_on).where()

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

_serial = itertools.count()
_NO_DRAWS = (0, 0)

#: How many programs of one Block are kept; the least recently called one is dropped first.
MAX_PROGRAMS = 64


class ProgramCache:
    """The programs of one Block, and what they have in common.

    programs : by Signature, the one called last at the end; latest : the program of the last call
    compilations : the first compile and the latest ones, in order; kinds : how many there were of each kind
    specializations : the specialized graphs of earlier calls, which serve calls of other sizes
    heads : per neutral graph, the outputs that recent backward passes started from
    packed : the few programs whose engine keeps copies of the parameters; lock : held to change them and the prologues
    compiling : held while one of the programs is compiled: the lock of the Graphs
    used : whether a compilation has begun for it; announced : whether the log has the line about the first one
    """

    def __init__(self, compiling: Any) -> None:
        self.compiling = compiling
        self.used = self.announced = False
        self.programs: OrderedDict[Signature, CompiledCall] = OrderedDict()
        self.latest: CompiledCall | None = None
        self.compilations: list[Compilation] = []
        self.kinds: Counter[str] = Counter()
        self._warn_at = MANY
        self.changed_values = ""  # that the code reads and whose changes ended the earlier programs, in words
        # The signature that calls of one kind had last. It differs from the call by the parameters' requests.
        self._current: dict[Call, Signature] = {}
        self._outdated: set[Signature] = set()  # of programs that were dropped because parameters got other arrays
        self.specializations: Specializations = {}
        self.heads: weakref.WeakKeyDictionary[NeutralGraph, frozenset[int]] = weakref.WeakKeyDictionary()
        self.serial = next(_serial)
        self.lock = forks.rlock()
        self._prologues: weakref.WeakSet[Prologue] = weakref.WeakSet()
        self.packed: list[CompiledCall] = []

    # -- programs --------------------------------------------------------------------------------------------

    def find(self, call: Call) -> CompiledCall | None:
        """Find the program for this call and for the gradients that the parameters ask for now. None if there is none.

        The program that served an equal call last is tried first.
        """
        signature = self._current.get(call)
        program = None if signature is None else self.programs.get(signature)
        if signature is None or program is None:
            return None
        if not program.state.still_valid():
            signature = call, program.state.requests_now()
            program = self.programs.get(signature)
            if program is None or not program.state.still_valid():
                return None
            self._current[call] = signature
        if program is not self.latest:
            with self.compiling:
                if self.programs.get(signature) is program:
                    self.programs.move_to_end(signature)
                    self.latest = program
        return program

    def add(self, call: Call, program: CompiledCall, seconds: float, place: Location | None) -> None:
        """Keep a new program for calls equal to this one; drop the least recently called one if there are too many."""
        signature = call, program.state.requests
        stale = signature in self.programs or signature in self._outdated
        kind, reason = reason_for(signature, self.compilations, stale)
        if kind == "evicted" and self.changed_values:
            kind, reason = "value", f"another value of {self.changed_values}"
        self._outdated.discard(signature)
        if signature in self.programs:  # parameters got other arrays: drop the programs of the old ones
            outdated = {other for other, item in self.programs.items() if not item.state.holds_current()}
            self._outdated = outdated - {signature}
            for other in (signature, *self._outdated):
                self._retire(other)
        self.programs[signature] = self.latest = program
        self._current[call] = signature
        if len(self.programs) > MAX_PROGRAMS:
            self._retire(next(iter(self.programs)))
        self._note(Compilation(program, kind, reason, seconds, place, signature))

    def _retire(self, signature: Signature) -> None:
        """Drop a program. Its Compilation stays for `mx.explain`."""
        self.programs.pop(signature).retire()
        if self._current.get(signature[0]) == signature:
            del self._current[signature[0]]

    def switch(self, old: CompiledCall, new: CompiledCall) -> None:
        """Replace a program by another one of the same signature."""
        with self.compiling:
            for signature in [signature for signature, program in self.programs.items() if program is old]:
                self.programs[signature] = new
            if self.latest is old:
                self.latest = new

    # -- why they were compiled ------------------------------------------------------------------------------

    def follow(self, before: ProgramCache, changed: str) -> None:
        """Continue the record of the programs before, whose graphs were dropped because of a changed value.

        changed : what changed, in words
        """
        self.compilations, self.kinds, self._warn_at = before.compilations, before.kinds, before._warn_at
        self.changed_values, self.announced = changed, before.announced

    def announce(self, program: CompiledCall, seconds: float, block: Named) -> None:
        """Log the first compile of this Block; later compiles only at the level DEBUG."""
        if not self.announced:
            self.announced = True
            logger.info(program.headline(seconds, called(block)))
        elif logger.isEnabledFor(logging.DEBUG):
            logger.debug(f"{program.block_name}: recompiled in {seconds:.2f} s: {self.compilations[-1]}")

    def note_further(self, program: CompiledCall, seconds: float, kind: str, reason: str) -> None:
        """Count a program that another program compiled."""
        self._note(Compilation(program, kind, reason, seconds, capture()))

    def _note(self, item: Compilation) -> None:
        """Keep the record of a compile, and warn if there have been many. Compiles for other modes or recording do not
        count.
        """
        item.number = self.kinds.total()
        self.compilations.append(item)
        if len(self.compilations) > KEPT:
            del self.compilations[1]  # the first and the latest say most
        self.kinds[item.kind] += 1
        avoidable = sum(self.kinds[kind] for kind in REMEDIES)
        if avoidable >= self._warn_at:
            self._warn_at *= 2
            kind = max(REMEDIES, key=lambda kind: self.kinds[kind])
            name = item.block_name
            logger.warning(f"{name} was compiled again {avoidable} times, now because of {item}. {REMEDIES[kind]}")

    @property
    def recompiles(self) -> int:
        """How often the Block was compiled again."""
        return self.kinds.total() - self.kinds["first"]

    # -- what they have in common ----------------------------------------------------------------------------

    def prologue(self, graph: Graph, arrays: list[NDArray], engine: Engine, options: dict[str, bool]) -> Prologue:
        """The prologue of another program if it computes the same, else a new one."""
        with self.lock:
            for known in self._prologues:
                if known.serves(graph, arrays):
                    return known
            prologue = Prologue(graph, arrays, engine.compile(graph, **options))
            self._prologues.add(prologue)
            return prologue


class Prologue:
    """The values that a Block computes from its parameters alone, in prediction; kept until a parameter is written to.

    arrays : the parameters it reads
    """

    def __init__(self, graph: Graph, arrays: list[NDArray], executable: Executable):
        self.graph, self.arrays, self.executable = graph, arrays, executable
        self.serial = next(_serial)
        self._held: tuple[list[int], list[np.ndarray]] | None = None

    def serves(self, graph: Graph, arrays: list[NDArray]) -> bool:
        """Whether it gives the values of this graph for these arrays."""
        same = len(arrays) == len(self.arrays) and not any(map(is_not, arrays, self.arrays))
        return same and equal(graph, self.graph)

    def values(self) -> list[np.ndarray]:
        """The outputs for the parameters as they are now."""
        versions = [array.buffer.version for array in self.arrays]
        held = self._held
        if held is None or held[0] != versions or any(array.buffer.exported for array in self.arrays):
            device = self.executable.device
            results = self.executable.run([array.raw(device) for array in self.arrays], _NO_DRAWS)
            held = self._held = versions, results
        return held[1]
