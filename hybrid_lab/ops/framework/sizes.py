"""Symbolic sizes: the passes run once on symbols, and their graphs serve every batch that satisfies the guards.

A `SymbolicSize` stands in a shape for a size that may differ from call to call. It computes like a whole number, and
its `hint` is the value of the call at hand. Every comparison is recorded as a guard in its `Guards`:

    n = Guards().symbol(8)
    n * 64 // 16              4 * n, with the hint 32                 no guard
    n == 1                    False                                   guard: n is not 1
    range(n), float(n)        NeedsNumber

Passes and the operators' rules are deterministic: for other values that satisfy the same guards they take the same way,
step by step, and make the same graph with other numbers in its shapes. A `Binding` gives values to the symbols; it says
whether they satisfy the guards, and evaluates every size and shape. If a guard fails the passes run again.

A SymbolicSize is no int. Python's and NumPy's own code can read its number only by `__index__`, `__hash__` and the
like, and these raise `NeedsNumber`. The symbols that the size is made of are then given as numbers, and each number has
graphs of its own. `repr` gives the formula, which is equal for equal sizes.

After the passes, code that needs numbers but must know which numbers depend on symbols gets a `BoundSize`: an int with
its formula. The kernels of the Triton engine use it to turn varying sizes into arguments.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn, TypeAlias, TypeGuard

import numpy as np

#: A size: a number, or a formula of symbols. Shapes hold both and are typed as tuples of int.
Size: TypeAlias = "int | SymbolicSize"
#: A sum of products: pairs (numbers of the factors, sorted; coefficient), sorted. Equal polynomials are equal at all
#: sizes.
Polynomial = tuple[tuple[tuple[int, ...], int], ...]

_RELATIONS: dict[str, Callable[[Any, int], bool]] = {"==": operator.eq, "<": operator.lt}


class NeedsNumber(Exception):
    """A rule needs a size as a number, but the size is symbolic.

    symbols : numbers of the symbols that the size is made of
    rule : which rule: "Reshape: its rule", "layout: the pass"
    """

    def __init__(self, symbols: frozenset[int], rule: str = ""):
        super().__init__(symbols, rule)
        self.symbols, self.rule = symbols, rule

    def __str__(self) -> str:
        return f"{self.rule or 'a rule'} needs the size as a number"


class Guards:
    """The symbols of one run of the passes, and every condition on them that the passes relied on.

    recorded : (relation, polynomial) -> whether the relation holds between the polynomial and 0
    checks : (constant, test, its result), for constants whose elements depend on sizes
    inferred : results of shape rules in this run
    """

    def __init__(self) -> None:
        self.recorded: dict[tuple[str, Polynomial], bool] = {}
        self.checks: list[tuple[Any, Callable[[Any], Any], Any]] = []
        self.inferred: dict[Any, Any] = {}
        self._sizes: dict[Polynomial, SymbolicSize] = {}
        #: A symbol by its number, or (numerator, denominator) of a division that leaves a remainder.
        self.factors: list[int | tuple[SymbolicSize | int, SymbolicSize | int]] = []
        self._quotients: dict[Any, SymbolicSize] = {}
        self._values: list[int] = []
        self._hints: Binding | None = None

    def symbol(self, hint: int) -> SymbolicSize:
        """A new symbol. A Binding has values for the symbols in the order in which they were made."""
        self.factors.append(len(self._values))
        self._values.append(hint)
        return self._single(hint)

    @property
    def count(self) -> tuple[int, int]:
        """(number of guards, number of checks) so far. A graph made up to this point relies on these guards and checks,
        and on no later ones.
        """
        return len(self.recorded), len(self.checks)

    @property
    def hints(self) -> Binding:
        """The binding that the passes ran with."""
        if self._hints is None:
            self._hints = Binding(self, self._values)
        return self._hints

    def _single(self, hint: int) -> SymbolicSize:
        terms = (((len(self.factors) - 1,), 1),)
        size = self._sizes[terms] = SymbolicSize(self, terms, hint)
        return size

    def sum(self, terms: dict[tuple[int, ...], int], hint: int) -> Size:
        """The size with these terms, the same object for equal terms; an int if no symbol is left."""
        polynomial = tuple(sorted([item for item in terms.items() if item[1]]))
        if not polynomial or (len(polynomial) == 1 and not polynomial[0][0]):
            return hint
        size = self._sizes.get(polynomial)
        if size is None:
            size = self._sizes[polynomial] = SymbolicSize(self, polynomial, hint)
        return size

    def quotient(self, above: Size, below: Size) -> Size:
        """`above // below`."""
        if below == 0:  # a guard, where `below` is symbolic
            raise ZeroDivisionError("a size divided by 0")
        (dividend, first_hint), (divisor, second_hint) = _terms_and_hint(above), _terms_and_hint(below)
        hint = first_hint // second_hint
        exact = _divided(dividend, divisor)
        if exact is not None:
            return self.sum(exact, hint)
        key = (dividend, divisor)
        size = self._quotients.get(key)
        if size is None:
            self.factors.append((above, below))
            size = self._quotients[key] = self._single(hint)
        return size

    def check(self, relation: str, difference: Size) -> bool:
        """Whether the relation holds between `difference` and 0. The answer is recorded as a guard."""
        if type(difference) is not SymbolicSize:
            return _RELATIONS[relation](difference, 0)
        key = relation, difference.terms
        outcome = self.recorded.get(key)
        if outcome is None:
            outcome = self.recorded[key] = _RELATIONS[relation](difference.hint, 0)
        return outcome

    def symbols_of(self, size: object) -> frozenset[int]:
        """The numbers of the symbols that a size is made of."""
        return self.symbols_in(size.terms) if type(size) is SymbolicSize else frozenset()

    def symbols_in(self, polynomial: Polynomial) -> frozenset[int]:
        """The numbers of the symbols that a polynomial is made of."""
        found: set[int] = set()
        for factor in {factor for product, _ in polynomial for factor in product}:
            item = self.factors[factor]
            found |= {item} if isinstance(item, int) else self.symbols_of(item[0]) | self.symbols_of(item[1])
        return frozenset(found)

    def is_identity(self, polynomial: Polynomial, numbers: Collection[int], same: Sequence[int] = ()) -> bool:
        """Whether a polynomial is 0 at all sizes if some symbols are fixed to their hints.

        numbers : the fixed symbols; same : symbols that stand for one size
        """
        others = Guards()
        values: list[Any] = [
            hint if symbol in numbers else others.symbol(hint) for symbol, hint in enumerate(self.hints.values)
        ]
        for symbol in same:
            values[symbol] = values[same[0]]
        total: Size = Binding(self, values).size(SymbolicSize(self, polynomial, 0))
        return type(total) is not SymbolicSize and total == 0


class SymbolicSize:
    """A whole number that depends on symbols. terms : its polynomial; hint : its value in the call at hand"""

    __slots__ = ("guards", "hint", "terms")
    __array_ufunc__ = None

    def __init__(self, guards: Guards, terms: Polynomial, hint: int):
        self.guards, self.terms, self.hint = guards, terms, hint

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: Size) -> Size:
        if not _is_whole(other):
            return self._needs_number()
        terms, (added, hint) = dict(self.terms), _terms_and_hint(other)
        for product, number in added:
            terms[product] = terms.get(product, 0) + number
        return self.guards.sum(terms, self.hint + hint)

    def __mul__(self, other: Size) -> Size:
        if not _is_whole(other):
            return self._needs_number()
        if type(other) is not SymbolicSize:
            number = int(other)
            return self.guards.sum({product: each * number for product, each in self.terms}, self.hint * number)
        terms: dict[tuple[int, ...], int] = {}
        for product, number in self.terms:
            for more, times in other.terms:
                both = tuple(sorted(product + more))
                terms[both] = terms.get(both, 0) + number * times
        return self.guards.sum(terms, self.hint * other.hint)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __pos__(self) -> SymbolicSize:
        return self

    def __abs__(self) -> Size:
        return -self if self < 0 else self

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __floordiv__(self, other: Size) -> Size:
        return self.guards.quotient(self, other) if _is_whole(other) else self._needs_number()

    def __rfloordiv__(self, other: Size) -> Size:
        return self.guards.quotient(int(other), self) if _is_whole(other) else self._needs_number()

    def __mod__(self, other: Size) -> Size:
        return self - self // other * other if _is_whole(other) else self._needs_number()

    def __rmod__(self, other: Size) -> Size:
        return other - other // self * self if _is_whole(other) else self._needs_number()

    def __divmod__(self, other: Size) -> tuple[Size, Size]:
        return self // other, self % other

    # -- guards --------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if _is_whole(other):
            return self.guards.check("==", self - other)
        if isinstance(other, (float, np.floating)):
            return float(other).is_integer() and self == int(other)
        return NotImplemented

    def __lt__(self, other: Size) -> bool:
        return self.guards.check("<", self - other)

    def __gt__(self, other: Size) -> bool:
        return self.guards.check("<", other - self)

    def __le__(self, other: Size) -> bool:
        return not self > other

    def __ge__(self, other: Size) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return not self == 0

    # -- operations that need a number ---------------------------------------------------------------------------

    def _needs_number(self, *_: object) -> NoReturn:
        raise NeedsNumber(self.guards.symbols_of(self))

    __index__ = __int__ = __float__ = __trunc__ = __floor__ = __ceil__ = __round__ = __hash__ = _needs_number
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = _needs_number
    __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __invert__ = _needs_number
    __reduce__ = _needs_number

    def __format__(self, spec: str) -> str:
        return self._needs_number() if spec else repr(self)

    def __getattr__(self, name: str) -> Any:
        if hasattr(int, name) and not name.startswith("__"):
            self._needs_number()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """The formula. `s0` is the first symbol."""
        return " + ".join([_printed(self.guards, product, number) for product, number in self.terms])


def _printed(guards: Guards, product: tuple[int, ...], number: int) -> str:
    texts = []
    for factor in product:
        item = guards.factors[factor]
        texts.append(f"s{item}" if isinstance(item, int) else f"(({item[0]}) // ({item[1]}))")
    return "*".join([str(number)] * (number != 1 or not texts) + texts)


def _is_whole(item: object) -> TypeGuard[Size]:
    kind = type(item)
    return kind is SymbolicSize or kind is int or (isinstance(item, (int, np.integer)) and kind is not bool)


def _terms_and_hint(item: Size) -> tuple[Polynomial, int]:
    """The polynomial of a size, and its value in the call at hand."""
    return (item.terms, item.hint) if type(item) is SymbolicSize else ((((), int(item)),), int(item))


def _divided(dividend: Polynomial, divisor: Polynomial) -> dict[tuple[int, ...], int] | None:
    """The terms of a quotient that leaves no remainder at any size, or None."""
    if len(divisor) != 1 or not divisor[0][1]:
        return None
    factors, number = divisor[0]
    terms = {}
    for product, times in dividend:
        rest = list(product)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        if times % number:
            return None
        terms[tuple(rest)] = times // number
    return terms


def equal_shapes(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Whether two shapes are equal. Symbolic sizes are compared last: no guard if numbers tell the shapes apart."""
    if len(one) != len(two):
        return False
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a is not b]
    if any(type(a) is not SymbolicSize and type(b) is not SymbolicSize and a != b for a, b in pairs):
        return False
    return all(a == b for a, b in pairs)


def shapes_key(shapes: Sequence[Any]) -> tuple[Any, ...]:
    """A hashable key for shapes. Keys are equal if and only if the shapes are equal at all sizes."""
    return tuple([
        tuple([size.terms if type(size) is SymbolicSize else size for size in shape]) for shape in shapes
    ])  # fmt: skip


def guards_of(shapes: Sequence[Any]) -> Guards | None:
    """The Guards of the first symbolic size in some shapes; None if all are numbers."""
    return next((size.guards for shape in shapes for size in shape if type(size) is SymbolicSize), None)


def binding_of(symbolic: Sequence[Any], shapes: Sequence[Any]) -> Binding | None:
    """The values with which shapes of numbers and symbols, in the order in which these were made, are `shapes`. None if
    there are none: a number differs.
    """
    guards, values = guards_of(symbolic), list[int]()
    for one, two in zip(symbolic, shapes, strict=True):
        for size, value in zip(one, two, strict=True):
            if type(size) is SymbolicSize:
                values.append(value)
            elif size != value:
                return None
    return None if guards is None else Binding(guards, values)


class Binding:
    """Values for the symbols of some Guards.

    values : in the order in which the symbols were made
    constants : constants whose elements depend on sizes -> their arrays for these values
    """

    def __init__(self, guards: Guards, values: Sequence[int]):
        self.guards, self.values = guards, tuple(values)
        self.constants: dict[Any, Any] = {}
        self._satisfied = (0, 0)
        self._factors: list[int] = []
        self._sums: dict[Polynomial, int] = {}
        self._shapes: dict[int, tuple[Any, tuple[int, ...]]] = {}

    def satisfies(self, count: tuple[int, int]) -> bool:
        """Whether the first guards hold for these values. count : how many of them, as `Guards.count` was"""
        if count <= self._satisfied:
            return True
        guards = self.guards
        try:
            recorded = itertools.islice(guards.recorded.items(), self._satisfied[0], count[0])
            for (relation, polynomial), outcome in recorded:
                if _RELATIONS[relation](self._sum(polynomial), 0) is not outcome:
                    return False
            for constant, test, outcome in guards.checks[self._satisfied[1] : count[1]]:
                if test(constant.at(self)) != outcome:
                    return False
        except ArithmeticError:
            return False
        self._satisfied = count
        return True

    def size(self, item: Any) -> int:
        """The value of a symbolic size; numbers are returned unchanged."""
        return self._sum(item.terms) if type(item) is SymbolicSize else item

    def shape(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        """A shape with values for its symbolic sizes. The shapes of one graph are often one object."""
        found = self._shapes.get(id(shape))
        if found is None:
            bound = [self._sum(size.terms) if type(size) is SymbolicSize else size for size in shape]
            found = self._shapes[id(shape)] = shape, tuple(bound)  # kept with it: no other shape gets its id
        return found[1]

    def nbytes(self, value: Any) -> int:
        """Size in bytes of something with `shape` and `dtype`."""
        return math.prod(self.shape(value.shape)) * value.dtype.itemsize

    def _sum(self, polynomial: Polynomial) -> int:
        total = self._sums.get(polynomial)
        if total is None:
            total = 0
            for product, number in polynomial:
                for factor in product:
                    number *= self._factor(factor)
                total += number
            self._sums[polynomial] = total
        return total

    def _factor(self, number: int) -> int:
        factors = self._factors
        while len(factors) <= number:  # a division comes after its operands
            item = self.guards.factors[len(factors)]
            if isinstance(item, int):
                factors.append(self.values[item])
            else:
                factors.append(self.size(item[0]) // self.size(item[1]))
        return factors[number]

    def bound_shape(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        """The same with a BoundSize for each symbolic size."""
        return tuple([BoundSize(self._sum(size.terms), size) if type(size) is SymbolicSize else size for size in shape])


def _with_formula(operation: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The methods `x + y` and `y + x` of a BoundSize x, for the operator `+`. The result is a number if no symbol is
    left in it.
    """

    def result(one: int, two: object) -> int:
        if not isinstance(two, int):
            return NotImplemented
        value = operation(int(one), int(two))
        size = operation(*[item.size if type(item) is BoundSize else item for item in (one, two)])
        return BoundSize(value, size) if type(size) is SymbolicSize else value

    return result, lambda self, other: result(other, self)


class BoundSize(int):
    """The value of a symbolic size, for code that needs numbers: an int that knows its formula. No guards are recorded.

    size : the symbolic size; sums, products and quotients of a BoundSize have one, too
    """

    size: SymbolicSize

    def __new__(cls, value: int, size: SymbolicSize) -> BoundSize:
        bound = super().__new__(cls, value)
        bound.size = size
        return bound

    __add__, __radd__ = _with_formula(operator.add)
    __sub__, __rsub__ = _with_formula(operator.sub)
    __mul__, __rmul__ = _with_formula(operator.mul)
    __floordiv__, __rfloordiv__ = _with_formula(operator.floordiv)
    __mod__, __rmod__ = _with_formula(operator.mod)

    def __neg__(self) -> int:
        return self * -1

    def __abs__(self) -> int:
        return -self if self < 0 else self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)  # a copy is a number
