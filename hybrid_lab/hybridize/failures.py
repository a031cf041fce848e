"""Failures: why calls of one HybridBlock have no graph or no program, and what the user was told of them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.diagnostics.formatting import called, variable_of
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.diagnostics.location import Location, is_own
from hybrid_lab.hybridize import events
from hybrid_lab.hybridize.known_calls import KnownCall
from hybrid_lab.hybridize.neutral import NeutralGraph, Observation, run_traced
from hybrid_lab.hybridize.stale.trace_warnings import keeps_tensors, seen_to_keep
from hybrid_lab.hybridize.structure import Spec
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import state as _modes
from hybrid_lab.system.logger import logger

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
        """The path from this Block to the one whose code failed; "" if the Block's own code failed."""
        start = next((path for reference, path in self.paths if reference() is block), "")
        return self.paths[-1][1].removeprefix(start).removeprefix(".")


#: How many kinds of calls that run eagerly are remembered of one Block.
MAX_EAGER = 64
#: What the code asked for -> the rule that a warning names.
_RULES = {"mode": "HL174", "recording": "HL174", "shape": "HL101", "dtype": "HL103"}


class Failures:
    """Of the calls of one Block.

    last : why the last trace or compile failed; None if it succeeded
    stateful : why all calls run eagerly: the code keeps tensors from one call to the next
    eager : (arguments, training, recording) of calls that run eagerly -> why
    refuses : whether any calls run eagerly
    told : the warnings given so far, each once
    """

    def __init__(self, block: Hybrid) -> None:
        self.block = block
        self.last: Failure | None = None
        self.stateful: HybridizeError | None = None
        self.told: set[Any] = set()
        self.eager: dict[tuple[Spec, bool, bool], HybridizeError] = {}
        self.refuses = False

    def clear(self) -> None:
        """The graphs were dropped: calls may have one now."""
        self.eager.clear()
        self.refuses = self.stateful is not None
        if self.stateful is None:
            self.forget()

    def forget(self) -> None:
        """Forget why the last trace or compile failed; where it began here, in the Blocks below too."""
        failure, self.last = self.last, None
        if failure is None:
            return
        for listener in events.changed:
            listener(self.block)
        if failure.top is self.block:
            for block in failure.blocks:
                if block._graph_calls.failures.last is failure:
                    block._graph_calls.failures.forget()

    # -- calls that run eagerly ------------------------------------------------------------------------------

    def run_eagerly(self, spec: Spec) -> bool:
        """Whether calls with such arguments, in the mode of now, have no graph."""
        return self.stateful is not None or (spec, bool(_modes.training), bool(_modes.recording)) in self.eager

    def keeps(self, error: HybridizeError) -> bool:
        """Whether the Block has no graph because its code keeps tensors on it."""
        return error.keeps_tensors or (error.code == "HL164" and keeps_tensors(self.block))

    def take_refusal(self, spec: Spec, error: HybridizeError) -> bool:
        """Let calls with such arguments run eagerly from now on, if the error allows that, and warn once."""
        keeps = self.keeps(error)
        if not (keeps or error.runs_eagerly):
            return False
        self.refuses = True
        if keeps:
            self.stateful = error.with_traceback(None)
            seen_to_keep.add(type(self.block))
        else:
            self.eager[spec, bool(_modes.training), bool(_modes.recording)] = error.with_traceback(None)
            if len(self.eager) > MAX_EAGER:  # as of a list that grows with every call
                del self.eager[next(iter(self.eager))]
        self.warn_once(
            (error.code, error.location),
            f"{error.code}: {error.message} Its calls run eagerly; Blocks below it are compiled",
        )
        return True

    @property
    def refusal(self) -> HybridizeError | None:
        """Why the last kind of call that has no graph runs eagerly; None if there is no such call."""
        return self.stateful or next(reversed(self.eager.values()), None)

    def refusal_of(self, call: KnownCall) -> HybridizeError | None:
        """The reason why calls of this kind run eagerly, if known."""
        return self.stateful or self.eager.get((call.spec, call.training, call.recording))

    # -- warnings --------------------------------------------------------------------------------------------

    def warn_once(self, key: object, said: str) -> None:
        """Warn of something about the Block, if it was not told before."""
        if key not in self.told:
            self.told.add(key)
            logger.warning(f"{called(self.block)}: {said}")

    def tell_of_observed(self, observation: Observation) -> None:
        """Warn of what the code asked for while it was traced: the graph is valid only for the same answers."""
        for what, location in observation.places:
            if what == "layout":
                continue
            where = f" ({location.describe()})" if location is not None else ""
            said = f"the {what} is read{where}; the graph is valid only for this {what}"
            if what == "recording":
                said = f"the code asks whether calls are recorded{where}; the graph is valid only for this answer"
            self.warn_once((what, location), f"{_RULES[what]}: {said}")

    def tell_of_sparse(self, leaves: Sequence[NDArray]) -> None:
        """Warn if an argument is a sparse array."""
        if "sparse" not in self.told:
            stypes = [leaf.stype for leaf in leaves if isinstance(leaf, NDArray) and leaf.buffer.stored]
            if stypes:
                self.warn_once("sparse", f"it is hybridized, and its graph reads a dense copy of a {stypes[0]} array")


def failure_of(error: Exception, block: Hybrid) -> Failure:
    """Describe the exception of a trace or compile of this Block, while it is handled."""
    name = type(error).__name__
    text = next(iter(str(error).splitlines()), "")
    paths = _running(error.__traceback__) or [(weakref.ref(block), block.name)]
    if isinstance(error, HybridizeError):
        innermost, path = paths[-1][0](), paths[-1][1]
        if innermost is not None and error.block == path:
            error.known_as = variable_of(innermost)
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
