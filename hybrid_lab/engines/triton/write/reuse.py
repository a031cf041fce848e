"""Reuse of binaries by other batches: tile choices are repeated, and sizes that vary become arguments.

The kernels of every batch are written anew. A binary is found by the text of its kernel. If a batch has the same
texts as an earlier batch, nothing is compiled for it. Two mechanisms keep the texts equal; `plan/other_batches.py`
drives both:

- A `choice` is a function of a writer whose every possible result is correct for all arguments: how large tiles are,
  whether sums are split. Its results (`Outcomes`) are recorded, and repeated when the sizes are near: a better tile
  saves less time than its compilation takes. If a result must satisfy a condition, the caller checks it afterwards:
  `source.covering` takes a larger tile if the repeated one does not hold the whole row.
- A size in the text is a number, because that gives the faster kernel. `shown` prints the name of an argument instead
  if the size had another value in an earlier text of the same group.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hybrid_lab.graph.node import Value
from hybrid_lab.ops.framework.sizes import Binding, BoundSize

#: Pairs (name of a choice, its result), in the order in which a writer asked for them.
Outcomes = tuple[tuple[str, Any], ...]

_current = threading.local()


@dataclass
class Writing:
    """One run of a writer, over one group.

    repeated : results of an earlier run, which are used as long as this run asks for the same choices in the same order
    earlier : bindings of earlier texts; a size with another value in one of these bindings becomes an argument
    outputs : the values that the kernels of the group store
    outcomes : results of the choices of this run
    arguments : name -> (the size, `together` as in `shown`)
    choosing : whether a choice is being computed; choices that it calls are a part of it
    """

    repeated: Outcomes = ()
    earlier: Sequence[Binding] = ()
    outputs: Sequence[Value] = ()
    outcomes: list[tuple[str, object]] = field(default_factory=list)
    arguments: dict[str, tuple[BoundSize, int]] = field(default_factory=dict)
    choosing: bool = False

    def choose(self, name: str, make: Callable[[], object]) -> Any:
        """The result of a choice: the repeated one, else the result of `make`."""
        place = len(self.outcomes)
        if place < len(self.repeated) and self.repeated[place][0] == name:
            outcome = self.repeated[place][1]
        else:
            self.repeated = self.repeated[:place]
            self.choosing = True
            try:
                outcome = make()
            finally:
                self.choosing = False
        self.outcomes.append((name, outcome))
        return copy.copy(outcome)  # the caller may change its copy, not the recorded one

    def varies(self, size: BoundSize) -> bool:
        """Whether the size has another value in an earlier text."""
        return any(binding.size(size.size) != size for binding in self.earlier)

    def argument(self, size: BoundSize, together: int) -> str:
        """The name of the argument for a size: a known one for an equal formula, else a new one."""
        name = next((name for name, (other, _) in self.arguments.items() if other.size.terms == size.size.terms), "")
        name = name or f"size{len(self.arguments) + 1}"
        _, before = self.arguments.get(name, (size, 1))
        self.arguments[name] = size, max(before, together)
        return name


@contextmanager
def writing(run: Writing) -> Iterator[Writing]:
    """Choices and sizes of this thread go to `run` while the block runs."""
    _current.writing = run
    try:
        yield run
    finally:
        _current.writing = None


def _now() -> Writing | None:
    return getattr(_current, "writing", None)


def stored() -> Sequence[Value]:
    """The values that the kernels of this run store."""
    now = _now()
    return () if now is None else now.outputs


def varies(size: object) -> bool:
    """Whether `shown` prints an argument for a size."""
    now = _now()
    return now is not None and type(size) is BoundSize and now.varies(size)


def shown(size: int, together: int = 1) -> str:
    """A size in the text of a kernel: a number, or the name of an argument.

    together : if the argument is a multiple of this number, the binary is compiled for multiples, so that one
        instruction can load `together` elements
    """
    now = _now()
    if now is None or type(size) is not BoundSize or not now.varies(size):
        return str(size)
    return now.argument(size, together)


def arguments() -> Sequence[str]:
    """The names of the arguments that sizes have become in this run."""
    now = _now()
    return () if now is None else tuple(now.arguments)


Chooses = TypeVar("Chooses", bound=Callable[..., Any])


def choice(function: Chooses) -> Chooses:
    """Mark a function whose every possible result is correct for all arguments, so that results can be repeated."""

    @functools.wraps(function)
    def chosen(*arguments: object, **keywords: object) -> Any:
        now = _now()
        if now is None or now.choosing:
            return function(*arguments, **keywords)
        return now.choose(function.__qualname__, lambda: function(*arguments, **keywords))

    return chosen  # type: ignore[return-value]
