"""Kernels that several batches share: the writers' tile choices are repeated, and sizes that vary are arguments.

Every batch has its kernels written anew. Compiled binaries are kept by text, so a batch compiles nothing as long as its
texts are those of an earlier one. Two things decide about that here:

- A `choice` is a function of a writer of which every outcome is right for every size and all arguments: how large tiles
  are, whether sums are split. Its outcomes are recorded, and repeated for sizes that are near: another tile is worth
  less than the seconds that it takes to compile. What must hold of an outcome is asked behind it (`source.covering`).
- A size in the text is a number, which makes the faster kernel. `shown` prints an argument instead for a size that
  differed in the earlier texts of the same group (see fusing/plans.py).
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hybrid_lab.ops.sizes import Binding, BoundSize

#: (name of a choice, its outcome), in the order in which they are made.
Outcomes = tuple[tuple[str, Any], ...]

_current = threading.local()


@dataclass
class Writing:
    """One run of a writer.

    repeated : outcomes of the choices of an earlier run; from the first one that does not fit on they are made anew
    earlier : bindings of earlier texts: sizes that have another value there are arguments
    outcomes : of the choices of this run; arguments : name -> the size, and of how many a binary should know that it
        is a multiple
    """

    repeated: Outcomes = ()
    earlier: Sequence[Binding] = ()
    outcomes: list[tuple[str, Any]] = field(default_factory=list)
    arguments: dict[str, tuple[BoundSize, int]] = field(default_factory=dict)
    choosing: bool = False

    def choose(self, name: str, make: Callable[[], Any]) -> Any:
        """The outcome of a choice: the repeated one, or what `make` gives."""
        place = len(self.outcomes)
        if place < len(self.repeated) and self.repeated[place][0] == name:
            outcome = self.repeated[place][1]
        else:
            self.repeated = self.repeated[:place]
            self.choosing = True  # choices within a choice are a part of it
            try:
                outcome = make()
            finally:
                self.choosing = False
        self.outcomes.append((name, outcome))
        return copy.copy(outcome)  # whoever changes it does not change what is kept

    def varies(self, size: BoundSize) -> bool:
        return any(binding.size(size.size) != size for binding in self.earlier)

    def argument(self, size: BoundSize, together: int) -> str:
        """The name of the argument for a size."""
        name = next((name for name, (other, _) in self.arguments.items() if other.size.terms == size.size.terms), "")
        name = name or f"size{len(self.arguments) + 1}"
        _, before = self.arguments.get(name, (size, 1))
        self.arguments[name] = size, max(before, together)
        return name


@contextmanager
def writing(repeated: Outcomes = (), earlier: Sequence[Binding] = ()) -> Iterator[Writing]:
    """While a group is written, in this thread."""
    made = _current.writing = Writing(repeated, earlier)
    try:
        yield made
    finally:
        _current.writing = None


def _now() -> Writing | None:
    return getattr(_current, "writing", None)


def varies(size: Any) -> bool:
    """Whether `shown` prints an argument for a size."""
    now = _now()
    return now is not None and type(size) is BoundSize and now.varies(size)


def shown(size: int, together: int = 1) -> str:
    """A size as a kernel's text has it: a number, or the name of an argument.

    together : of how many a binary should know that the argument is a multiple
    """
    now = _now()
    if now is None or type(size) is not BoundSize or not now.varies(size):
        return str(size)
    return now.argument(size, together)


def arguments() -> Sequence[str]:
    """The names of the arguments for sizes so far."""
    now = _now()
    return () if now is None else tuple(now.arguments)


Chooses = TypeVar("Chooses", bound=Callable[..., Any])


def choice(function: Chooses) -> Chooses:
    """Mark a function of which every outcome is right for every size and all arguments."""

    @functools.wraps(function)
    def chosen(*arguments: Any, **keywords: Any) -> Any:
        now = _now()
        if now is None or now.choosing:
            return function(*arguments, **keywords)
        return now.choose(function.__qualname__, lambda: function(*arguments, **keywords))

    return chosen  # type: ignore[return-value]
