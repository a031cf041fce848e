"""Sizes that stand for other sizes too: what passes made of one batch holds for every batch that answers alike.

A pass asks much of a shape: is this axis 1, are these two equal, is that value larger than this one. What it makes
depends on the answers, and on nothing else. A `Size` takes the place of a size of a call's data. It is computed with
as with a whole number, and each answer that it gives is noted in its `Answers`:

    n = Answers().size(8)
    n * 64 // 16              4 * n, which is 32 now                  nothing was asked
    n == 1                    False                                   noted: n is not 1
    range(n), float(n)        what 8 gives                            noted: n is 8

Passes and the records' rules are deterministic. With other sizes that give the same answers they take the same way,
step by step, and make the same graph, with other sizes in the same places: `At` says whether the answers are the same,
and what each Size is there. Where one differs the passes run again; that is never wrong, only slower.

Nothing gets past the notes. A Size is no int, so that Python's and NumPy's own code cannot read its number but by
`__index__` and the like, which note it; it cannot be hashed, so that no dict compares in silence. What a rule cannot do
with it is a TypeError, after which the passes run with plain numbers.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

#: A sum of products: pairs (numbers of the factors, sorted; coefficient), sorted. Equal forms are equal at all sizes.
Form = tuple[tuple[tuple[int, ...], int], ...]

_RELATIONS: dict[str, Callable[[int, int], bool]] = {"==": operator.eq, "<": operator.lt}


class Answers:
    """The Sizes of one run of the passes, and all that was asked of them.

    noted : (relation, form) -> whether the form and 0 are so related
    tests : (what to compute with other sizes, test, its outcome), for constants that sizes decide
    """

    def __init__(self) -> None:
        self.noted: dict[tuple[str, Form], bool] = {}
        self.tests: list[tuple[Any, Callable[[Any], Any], Any]] = []
        self.inferred: dict[Any, Any] = {}
        self._sizes: dict[Form, Size] = {}
        # Factors: a size of the data by its number, or (numerator, denominator) of a division that leaves a remainder.
        self.factors: list[int | tuple[Size | int, Size | int]] = []
        self._quotients: dict[Any, Size] = {}
        self._given: list[int] = []
        self._now: At | None = None

    def size(self, value: int) -> Size:
        """A size of the data that is `value` now; the first, second ... that `At` has numbers for."""
        self.factors.append(len(self._given))
        self._given.append(value)
        return self._single(value)

    @property
    def count(self) -> tuple[int, int]:
        """How many answers have been noted, and how many tests."""
        return len(self.noted), len(self.tests)

    @property
    def now(self) -> At:
        """The sizes that the passes ran for."""
        if self._now is None:
            self._now = At(self, self._given)
        return self._now

    def _single(self, value: int) -> Size:
        form = (((len(self.factors) - 1,), 1),)
        made = self._sizes[form] = Size(self, form, value)
        return made

    def sum(self, terms: dict[tuple[int, ...], int], value: int) -> Any:
        """The Size of these terms, the same object for the same ones; an int where nothing of the data is in it."""
        form = tuple(sorted([item for item in terms.items() if item[1]]))
        if not form or (len(form) == 1 and not form[0][0]):
            return value
        found = self._sizes.get(form)
        if found is None:
            found = self._sizes[form] = Size(self, form, value)
        return found

    def quotient(self, above: Any, below: Any) -> Any:
        """`above // below`."""
        if below == 0:  # a question, too
            raise ZeroDivisionError("a size divided by 0")
        value = _value(above) // _value(below)
        exact = _divided(above, below)
        if exact is not None:
            return self.sum(exact, value)
        key = (_form(above), _form(below))
        found = self._quotients.get(key)
        if found is None:
            self.factors.append((above, below))
            found = self._quotients[key] = self._single(value)
        return found

    def ask(self, relation: str, difference: Any) -> bool:
        """Whether `difference` and 0 are so related; noted."""
        if type(difference) is not Size:
            return _RELATIONS[relation](difference, 0)
        key = relation, difference.form
        found = self.noted.get(key)
        if found is None:
            found = self.noted[key] = _RELATIONS[relation](difference.value, 0)
        return found


class Size:
    """A whole number that depends on sizes of the data. form : how; value : what it is now"""

    __slots__ = ("answers", "form", "value")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, answers: Answers, form: Form, value: int):
        self.answers, self.form, self.value = answers, form, value

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if not _is_whole(other):
            return self._noted() + other
        terms = dict(self.form)
        for product, number in _form(other):
            terms[product] = terms.get(product, 0) + number
        return self.answers.sum(terms, self.value + _value(other))

    def __mul__(self, other: Any) -> Any:
        if not _is_whole(other):
            return self._noted() * other
        if type(other) is not Size:
            number = int(other)
            return self.answers.sum({product: each * number for product, each in self.form}, self.value * number)
        terms: dict[tuple[int, ...], int] = {}
        for product, number in self.form:
            for more, times in other.form:
                both = tuple(sorted(product + more))
                terms[both] = terms.get(both, 0) + number * times
        return self.answers.sum(terms, self.value * other.value)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __floordiv__(self, other: Any) -> Any:
        return self.answers.quotient(self, other) if _is_whole(other) else self._noted() // other

    def __rfloordiv__(self, other: Any) -> Any:
        return self.answers.quotient(int(other), self) if _is_whole(other) else other // self._noted()

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other if _is_whole(other) else self._noted() % other

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self if _is_whole(other) else other % self._noted()

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    # -- answers -------------------------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> Any:
        if other is self:
            return True
        if _is_whole(other):
            return self.answers.ask("==", self - other)
        return self._noted() == other if isinstance(other, (float, np.floating)) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.answers.ask("<", self - other)

    def __gt__(self, other: Any) -> Any:
        return self.answers.ask("<", other - self)

    def __le__(self, other: Any) -> Any:
        return not self > other

    def __ge__(self, other: Any) -> Any:
        return not self < other

    def __bool__(self) -> bool:
        return not self == 0

    def _noted(self, *_: Any) -> int:
        """The number it is now; from here on no other will do."""
        self.answers.ask("==", self - self.value)
        return self.value

    __index__ = __int__ = __trunc__ = __floor__ = __ceil__ = _noted

    def __float__(self) -> float:
        return float(self._noted())

    def __round__(self, digits: Any = None) -> int:
        return round(self._noted(), digits)

    def __truediv__(self, other: Any) -> Any:
        return self._noted() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._noted()

    def __pow__(self, other: Any) -> Any:
        return self._noted() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self._noted()

    def __str__(self) -> str:
        return str(self._noted())

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return format(self._noted(), how)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Size belongs to one run of the passes")


def _is_whole(item: Any) -> bool:
    kind = type(item)
    return kind is Size or kind is int or (isinstance(item, (int, np.integer)) and kind is not bool)


def _value(item: Any) -> int:
    return item.value if type(item) is Size else int(item)


def _form(item: Any) -> Form:
    return item.form if type(item) is Size else (((), int(item)),)


def _divided(above: Any, below: Any) -> dict[tuple[int, ...], int] | None:
    """The terms of a quotient that leaves no remainder at any size, or None."""
    divisor = _form(below)
    if len(divisor) != 1 or not divisor[0][1]:
        return None
    factors, number = divisor[0]
    terms = {}
    for product, times in _form(above):
        rest = list(product)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        if times % number:
            return None
        terms[tuple(rest)] = times // number
    return terms


def same(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Whether two shapes are equal; Sizes are asked last, where nothing else tells the shapes apart."""
    if len(one) != len(two):
        return False
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a is not b]
    if any(type(a) is not Size and type(b) is not Size and a != b for a, b in pairs):
        return False
    return all(a == b for a, b in pairs)


def form_of(shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Shapes as a key: equal where they are equal at all sizes."""
    return tuple([tuple([size.form if type(size) is Size else size for size in shape]) for shape in shapes])


def answers_of(shapes: Sequence[Any]) -> Answers | None:
    """The Answers behind the first Size in some shapes."""
    return next((size.answers for shape in shapes for size in shape if type(size) is Size), None)


class At:
    """Other sizes in the place of those that the passes ran for.

    numbers : of the data, in the order in which `Answers.size` was called
    constants : what has been computed for these sizes, by whose it is
    """

    def __init__(self, answers: Answers, numbers: Sequence[int]):
        self.answers, self.numbers = answers, numbers
        self.constants: dict[Any, Any] = {}
        self._agreed = (0, 0)
        self._factors: list[int] = []
        self._known: dict[Form, int] = {}
        self._shapes: dict[int, tuple[Any, tuple[int, ...]]] = {}

    def agrees(self, count: tuple[int, int]) -> bool:
        """Whether the first answers are the same here. count : how many of them, as `Answers.count` was"""
        if count <= self._agreed:
            return True
        noted, tests = self.answers.noted, self.answers.tests
        try:
            for (relation, form), answer in itertools.islice(noted.items(), self._agreed[0], count[0]):
                if _RELATIONS[relation](self._sum(form), 0) is not answer:
                    return False
            for constant, test, answer in tests[self._agreed[1] : count[1]]:
                if test(constant.at(self)) != answer:
                    return False
        except ArithmeticError:
            return False
        self._agreed = count
        return True

    def size(self, item: Any) -> int:
        """What a Size is here."""
        return self._sum(item.form) if type(item) is Size else item

    def shape(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        """A shape with its Sizes as numbers. The shapes of one graph are often one object."""
        found = self._shapes.get(id(shape))
        if found is None:
            made = [self._sum(size.form) if type(size) is Size else size for size in shape]
            found = self._shapes[id(shape)] = shape, tuple(made)  # kept with it: no other shape gets its id
        return found[1]

    def nbytes(self, value: Any) -> int:
        """Size in bytes of something with `shape` and `dtype`."""
        return math.prod(self.shape(value.shape)) * value.dtype.itemsize

    def _sum(self, form: Form) -> int:
        found = self._known.get(form)
        if found is None:
            found = 0
            for product, number in form:
                for factor in product:
                    number *= self._factor(factor)
                found += number
            self._known[form] = found
        return found

    def _factor(self, number: int) -> int:
        factors = self._factors
        while len(factors) <= number:  # a division comes after what it divides
            item = self.answers.factors[len(factors)]
            if isinstance(item, int):
                factors.append(self.numbers[item])
            else:
                factors.append(self.size(item[0]) // self.size(item[1]))
        return factors[number]
