"""HeadSets: the programs of one recorded call that differ in the outputs which their backward differentiates.

A backward is compiled for a set of outputs: `backward()` from the first of two outputs is another graph than one from
both. The first program of a call differentiates all outputs, or those that the Block's other calls were differentiated
from. If a backward comes from a different set, a program is compiled for this set: it runs the recorded call's forward
again. Later calls run this program, so that the next backward finds everything prepared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hybrid_lab.system.memory import without_collecting

if TYPE_CHECKING:
    from hybrid_lab.hybridize.compiled_call import CompiledCall

MAX_SETS = 8
"""Programs kept for one kind of call; the one compiled first goes first."""

Heads = frozenset[int]


class HeadSets:
    """The programs by the outputs, as numbers, that they differentiate.

    current : the program that calls run
    """

    def __init__(self, program: CompiledCall):
        self.programs: dict[Heads, CompiledCall] = {program.differentiated: program}
        self.current = program
        self._guessed = True  # no backward has come yet
        self._missed: Heads | None = None

    def program_for(self, program: CompiledCall, heads: Heads) -> CompiledCall:
        """The program that differentiates these outputs, for a call that `program` has recorded, compiled if there is
        none.

        Calls run it from now on if this is the first backward, or if the current program was not the right one for
        these outputs before: a loop that alternates between two sets keeps both programs, and one of them runs.
        """
        cache = program.cache
        with cache.compiling:
            right_program = self.programs.get(heads)
            if right_program is None:
                start = time.perf_counter()
                with without_collecting():
                    right_program = self.programs[heads] = program.differentiating(heads)
                cache.note_further(right_program, time.perf_counter() - start, "heads", _reason(heads, program))
            if program is self.current:
                if self._guessed or self._missed == heads:
                    self.current, self._guessed, self._missed = right_program, False, None
                    cache.heads[program.neutral] = heads
                    cache.switch(program, right_program)
                else:
                    self._missed = heads
            if len(self.programs) > MAX_SETS:
                oldest = next(
                    known for known, item in self.programs.items() if item not in (self.current, right_program)
                )
                del self.programs[oldest]
            return right_program


def _reason(heads: Heads, program: CompiledCall) -> str:
    numbers = ", ".join(map(str, sorted(heads)))
    outputs = "output" if len(heads) == 1 else "outputs"
    return f"backward() from {outputs} {numbers} of {len(program.output_types)}"
