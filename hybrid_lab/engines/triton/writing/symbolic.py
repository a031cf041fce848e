"""Numbers that know what was looked at of them, so that what was written for some sizes holds for others for certain.

A writer of kernels is a function of the sizes of its arrays and of the numbers in its graph. Run once with `Number`s in
their place, it cannot learn a value but by an operation of that class: they are no ints (C code that wants one has to
ask `__index__`), and every way to ask is one of these:

- arithmetic gives a Number again, a formula;
- a comparison gives the truth for the values at hand, and is noted with its outcome;
- whatever else needs the value - printing it into the text, counting to it, hashing it - notes that it is this value.

A writer has no other inputs and no memory of what it has written. So for other values of which all notes hold it goes
through the same steps: the same text, and the same formulas for the numbers that are handed over beside it. Nothing is
assumed about which size is a batch, and no note is left out because it is thought not to matter.

Numbers of which it is known that they vary need not be printed: `shown` gives the name of an argument instead, and
nothing is noted. A kernel with arguments for all sizes would be slower than one with their numbers, so that this is for
graphs that were already written for other sizes (see recipes.py).

A function that is a `choice` decides what is as right one way as another, how large tiles are or whether sums are
split: what it compares is noted apart. What it prints is not.

Two things are read in another way than by a value. isinstance(x, int) is true, as it is for the number it stands for;
and what is for people, in comments only, is printed as f"{x:,}" or f"{x:d}": these give marks that `filled` replaces.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import copysign, frexp
from typing import Any, TypeVar

#: A step of a formula: ("symbol", number of the symbol, 0), ("constant", value, 0), or an operation on earlier steps.
Step = tuple[str, Any, Any]

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "abs": lambda a, _: abs(a),
    "int": lambda a, _: int(a),
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    "is": lambda a, b: same(a, b),
    "power of two": lambda a, _: is_power_of_two(a),
}
#: A formula without its trace: nested (operation, formula, formula), equal for equal formulas.
Formula = tuple[Any, ...]
_MARK = re.compile("\x00(\\d+)([,d])\x00")


def same(a: Any, b: Any) -> bool:
    """Whether two numbers are printed alike: of one type, zeros of one sign, NaN like NaN."""
    if type(a) is not type(b):
        return False
    return a == b and (a != 0 or type(a) is int or copysign(1, a) == copysign(1, b)) or (a != a and b != b)


def is_power_of_two(number: Any) -> bool:
    """Whether it is 2 to some whole power, negative ones too. Of a Number this alone is noted."""
    if type(number) is Number:
        return bool(number.trace.note("power of two", number, 0))
    return number > 0 and frexp(number)[0] == 0.5


def whole(number: Any) -> Any:
    """The number as an int that fits into 32 bits, 2 or more; None where it is another one."""
    if not 1 < number < 1 << 31 or number % 1:
        return None
    return number.trace.made("int", number, 0) if type(number) is Number else int(number)


_now = threading.local()


class Trace:
    """Formulas and notes of one run of a writer.

    varying : the formulas that `shown` gives names to
    steps : as they came; notes : (comparison, a, b) -> its outcome; preferences : the same of choices
    arguments : name -> what it stands for, and of how many a binary should know that this is a multiple
    """

    def __init__(self, varying: Collection[Formula] = ()) -> None:
        self.varying = frozenset(varying)
        self.arguments: dict[str, tuple[Number, int]] = {}
        self.steps: list[Step] = []
        self.notes: dict[tuple[str, int, int], bool] = {}
        self.preferences: dict[tuple[str, int, int], bool] = {}
        self.open = True
        self.thread = threading.get_ident()
        self.choosing = 0
        self._known: dict[Any, Number] = {}
        self._symbols = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While the writer runs, in this thread; afterwards nothing is noted any more."""
        _now.trace = self
        try:
            yield
        finally:
            self.open, _now.trace = False, None

    def symbol(self, value: Any) -> Number:
        """A new one, with a value for the time being."""
        self._symbols += 1
        return self._step(("symbol", self._symbols - 1, 0), value)

    def constant(self, value: Any) -> Number:
        key = ("constant", type(value), repr(value))
        if key not in self._known:
            self._known[key] = self._step(("constant", value, 0), value)
        return self._known[key]

    def _step(self, step: Step, value: Any) -> Number:
        self.steps.append(step)
        return Number(self, len(self.steps) - 1, value)

    def of(self, item: Any) -> Number:
        """A number of this trace for a number."""
        if type(item) is Number:
            if item.trace is not self:
                raise TypeError("a number of another trace")
            return item
        if type(item) not in (int, float, bool):
            raise TypeError(f"{type(item).__name__} is no number that can be traced")
        return self.constant(item)

    def made(self, name: str, a: Any, b: Any) -> Number:
        """The result of an operation."""
        one, other = self.of(a), self.of(b)
        key = (name, one.at, other.at)
        if key not in self._known:
            self._known[key] = self._step(key, OPERATIONS[name](one.value, other.value))
        return self._known[key]

    def note(self, name: str, a: Any, b: Any) -> bool:
        """The outcome of a comparison."""
        one, other = self.of(a), self.of(b)
        if one.at == other.at and name in ("==", "<=", "is"):
            if one.value == one.value:
                return True
        key = (name, one.at, other.at)
        notes = self.preferences if self.choosing and name != "is" else self.notes
        if key not in notes:
            notes[key] = bool(COMPARISONS[name](one.value, other.value))
        return notes[key]

    def varies(self, number: Number) -> bool:
        """See `varies`."""
        return bool(self.varying) and formula_of(self.steps, number.at) in self.varying

    def shown(self, number: Number, together: int) -> str:
        """See `shown`."""
        name = next((name for name, (other, _) in self.arguments.items() if other.at == number.at), "")
        if not name:
            if not self.varies(number):
                return str(number)
            name = f"size{len(self.arguments) + 1}"
        _, before = self.arguments.get(name, (number, 1))
        self.arguments[name] = number, max(before, together)
        return name


def formula_of(steps: Sequence[Step], at: int) -> Formula:
    """A step as a formula of symbols and constants."""
    name, a, b = steps[at]
    if name in ("symbol", "constant"):
        return name, type(a).__name__, a
    return name, formula_of(steps, a), formula_of(steps, b)


def shown(number: Any, together: int = 1) -> str:
    """A whole number as a kernel's text has it: as it is, or, where it is known to vary, as an argument.

    together : of how many a binary should know that the argument is a multiple
    """
    return number.trace.shown(number, together) if type(number) is Number else str(number)


def varies(number: Any) -> bool:
    """Whether `shown` gives it a name. Nothing is noted."""
    return type(number) is Number and number.trace.varies(number)


def arguments() -> Mapping[str, Any]:
    """The arguments of the trace that is running, by name."""
    trace = getattr(_now, "trace", None)
    return {} if trace is None else trace.arguments


Chooses = TypeVar("Chooses", bound=Callable[..., Any])


def choice(function: Chooses) -> Chooses:
    """Mark a function that chooses among what is equally right."""

    @functools.wraps(function)
    def chosen(*arguments: Any, **keywords: Any) -> Any:
        trace = getattr(_now, "trace", None)
        if trace is None:
            return function(*arguments, **keywords)
        trace.choosing += 1
        try:
            return function(*arguments, **keywords)
        finally:
            trace.choosing -= 1

    return chosen  # type: ignore[return-value]


class Number:
    """A whole or floating number of a trace. value : for the time being; at : its step"""

    __slots__ = ("at", "trace", "value")

    def __init__(self, trace: Trace, at: int, value: Any):
        self.trace, self.at, self.value = trace, at, value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # what isinstance asks
        return type(self.value)

    def known(self) -> Any:
        """The value, from now on a condition."""
        self.trace.note("is", self, self.value)
        return self.value

    def __add__(self, other: Any) -> Any:
        return self if type(other) is int and other == 0 else self._made("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self if type(other) is int and other == 0 else self._made("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._made("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._made("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self if type(other) is int and other == 1 else self._made("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self if type(other) is int and other == 1 else self._made("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._made("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._made("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._made("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._made("%", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._made("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._made("/", other, self)

    def __neg__(self) -> Any:
        return self._made("*", self, -1) if type(self.value) is int else self._made("*", self, -1.0)

    def __abs__(self) -> Any:
        return self._made("abs", self, 0)

    def _made(self, name: str, a: Any, b: Any) -> Any:
        for item in (a, b):
            if type(item) not in (Number, int, float, bool):
                return NotImplemented
        return self.trace.made(name, a, b)

    def _noted(self, name: str, a: Any, b: Any) -> Any:
        # As a key in somebody's cache it is equal to nothing of others: of another thread, or after its trace.
        if not self.trace.open or self.trace.thread != threading.get_ident():
            return NotImplemented
        for item in (a, b):
            if type(item) not in (Number, int, float, bool) or (type(item) is Number and item.trace is not self.trace):
                return NotImplemented
        return self.trace.note(name, a, b)

    def __eq__(self, other: object) -> Any:
        return self._noted("==", self, other)

    def __ne__(self, other: object) -> Any:
        found = self._noted("==", self, other)
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> Any:
        return self._noted("<", self, other)

    def __le__(self, other: Any) -> Any:
        return self._noted("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._noted("<", other, self)

    def __ge__(self, other: Any) -> Any:
        return self._noted("<=", other, self)

    def __bool__(self) -> bool:
        return not self.trace.note("==", self, 0)

    def __hash__(self) -> int:
        return hash(self.known())

    def __index__(self) -> int:
        return operator.index(self.known())

    def __int__(self) -> int:
        return int(self.known())

    def __float__(self) -> float:
        return float(self.known())

    def __repr__(self) -> str:
        return repr(self.known())

    def __str__(self) -> str:
        return str(self.known())

    def __format__(self, form: str) -> str:
        return f"\x00{self.at}{form}\x00" if form in (",", "d") else format(self.known(), form)


class Formulas:
    """Steps, ready to be computed for many symbols."""

    def __init__(self, steps: Sequence[Step]):
        self._constants = [a if name == "constant" else None for name, a, _ in steps]
        self._symbols = [(at, a) for at, (name, a, _) in enumerate(steps) if name == "symbol"]
        self._operations = [
            (at, OPERATIONS[name], a, b)
            for at, (name, a, b) in enumerate(steps)
            if name not in ("symbol", "constant")
        ]

    def values(self, symbols: Mapping[int, Any], before: list[Any] | None = None) -> list[Any]:
        """The value of every step. Raises ZeroDivisionError, OverflowError.

        before : the values of the steps that are not among these formulas, see `after`
        """
        values = (self._constants if before is None else before).copy()
        for at, symbol in self._symbols:
            values[at] = symbols[symbol]
        for at, operation, a, b in self._operations:
            values[at] = operation(values[a], values[b])
        return values

    def after(self, changed: Collection[int]) -> tuple[Formulas, set[int]]:
        """Those that depend on some symbols - `values` then wants the others' values - and which steps these are."""
        moving = {at for at, symbol in self._symbols if symbol in changed}
        found = Formulas(())
        found._symbols = [item for item in self._symbols if item[0] in moving]
        for item in self._operations:
            if item[2] in moving or item[3] in moving:
                moving.add(item[0])
                found._operations.append(item)
        return found, moving


class Conditions:
    """Notes, ready to be looked at for many values."""

    def __init__(self, notes: Sequence[tuple[str, int, int, bool]]):
        self._notes = [(COMPARISONS[name], a, b, outcome) for name, a, b, outcome in notes]

    def hold(self, values: Sequence[Any]) -> bool:
        """Whether all comparisons come out as noted. values : of the steps"""
        for comparison, a, b, outcome in self._notes:  # a loop: `all` of a generator takes twice as long
            if comparison(values[a], values[b]) is not outcome:
                return False
        return True

    def after(self, moving: Collection[int]) -> Conditions:
        """Those alone that look at some of these steps."""
        found = Conditions(())
        found._notes = [item for item in self._notes if item[1] in moving or item[2] in moving]
        return found


def filled(text: str, values: Sequence[Any]) -> str:
    """The text with numbers in the place of marks."""
    return _MARK.sub(lambda mark: format(values[int(mark[1])], mark[2]), text) if "\x00" in text else text


def marks(text: str) -> list[int]:
    """The steps that stand in a text as marks."""
    return [int(found) for found, _ in _MARK.findall(text)] if "\x00" in text else []


def renumbered(text: str, new: dict[int, int]) -> str:
    """The text with other numbers of steps in its marks."""
    return _MARK.sub(lambda mark: f"\x00{new[int(mark[1])]}{mark[2]}\x00", text) if "\x00" in text else text
