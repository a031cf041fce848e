"""Declared shapes: for which shapes and dtypes of its inputs a graph holds, as a file or another framework says it.

An input has a name, its sizes and a dtype. A size is a number, a formula of symbols, None for any size, or a symbol,
which stands for one size everywhere. Conditions are comparisons of formulas, all of which must hold:

    ["x", ["b", 6], "float32"], ["mask", ["b", "2*n + 1"], "bool"]        "b <= 64", "n % 4 == 0"

Formulas come from files. They are parsed and computed here, by the operators of whole numbers alone, and never
executed. The sizes that are checked may be symbolic (`sizes.py`); the comparisons then become guards.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DeclaredSizeError, DTypeError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating, name_of
from hybrid_lab.ops.framework.sizes import Size

LONGEST_FORMULA = 1000
"""Characters of a formula. Longer ones are refused: Python's parser takes memory by their depth."""
_DEEPEST, _LARGEST_POWER = 60, 8
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_CHOICES: Mapping[str, Callable[[Any, Any], bool]] = {"max": operator.gt, "min": operator.lt}
_ALIKE = frozenset({"int32", "int64"})
"""Dtypes of whole numbers that stand for each other: arrays here often have the narrower one."""

Symbols = Mapping[str, Size]


class Formula:
    """A formula of sizes: numbers, symbols, + - * // % **, max, min, comparisons, and, or, not.

    symbols : the names in it. Raises ValueError for any other text
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or len(text) > LONGEST_FORMULA:
            raise ValueError(f"{str(text)[:60]!r} is no formula of sizes")
        self.text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
            names: set[str] = set()
            self._check(self._tree, names, _DEEPEST)
        except (SyntaxError, RecursionError, MemoryError):
            raise ValueError(f"{text[:60]!r} is no formula of sizes") from None
        self.symbols = frozenset(names)

    def _check(self, node: ast.AST, names: set[str], levels: int) -> None:
        """Raise ValueError for anything but arithmetic on whole numbers, and for more levels of it."""
        if not levels:
            raise ValueError(f"{self.text[:60]!r} is nested too deeply for a formula of sizes")
        levels -= 1
        match node:
            case ast.Name(id=name):
                names.add(name)
            case ast.Constant(value=value) if type(value) is int and abs(value) < 2**63:
                pass
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=value)):
                if type(value) is not int or not 0 < value <= _LARGEST_POWER:
                    raise ValueError(f"{self.text[:60]!r} has a power that sizes do not have")
                self._check(left, names, levels)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                self._check(left, names, levels)
                self._check(right, names, levels)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
                self._check(operand, names, levels)
            case ast.BoolOp(values=values):
                for part in values:
                    self._check(part, names, levels)
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
                for part in (left, *others):
                    self._check(part, names, levels)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CHOICES and args:
                for part in args:
                    self._check(part, names, levels)
            case _:
                raise ValueError(f"{self.text[:60]!r} is no formula of sizes")

    def value(self, symbols: Symbols) -> Any:
        """The value for these sizes: a size, or whether a comparison holds. Raises ArithmeticError for x // 0."""
        return self._value(self._tree, symbols)

    def _value(self, node: Any, symbols: Symbols) -> Any:
        def value(part: Any) -> Any:
            return self._value(part, symbols)

        match node:
            case ast.Name(id=name):
                return symbols[name]
            case ast.Constant(value=number):
                return number
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(times))):
                factor, power = value(base), 1
                for _ in range(times):
                    power = factor * power
                return power
            case ast.BinOp():
                return _ARITHMETIC[type(node.op)](value(node.left), value(node.right))
            case ast.UnaryOp(op=ast.Not()):
                return not value(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return value(node.operand) * -1
            case ast.UnaryOp():
                return value(node.operand)
            case ast.BoolOp(op=ast.And()):
                return all(value(part) for part in node.values)
            case ast.BoolOp():
                return any(value(part) for part in node.values)
            case ast.Call(func=ast.Name(id=name), args=[first, *others]):
                chosen, better = value(first), _CHOICES[name]
                for part in others:
                    other = value(part)
                    chosen = other if better(other, chosen) else chosen
                return chosen
        left = value(node.left)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = value(part)
            if not _COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True


Declared = int | str | None
"""A size: a number, a formula, or None for any."""


@dataclass(frozen=True)
class DeclaredInput:
    """An input. sizes : None for any shape; dtype : name of the dtype, None for any dtype"""

    name: str
    sizes: tuple[Declared, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class DeclaredShapes:
    """The shapes and dtypes of inputs for which a graph holds, and the conditions on their symbols.

    Raises ValueError for formulas that are none.
    """

    inputs: tuple[DeclaredInput, ...]
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for item in self.inputs:
            for size in item.sizes or ():
                if isinstance(size, str):
                    _formula(size)
                elif size is not None and (type(size) is not int or not 0 <= size < 2**48):
                    raise ValueError(f"the input {item.name!r} has a size of {str(size)[:60]}")
            if item.dtype is not None:
                dtype_of(item.dtype)
        for text in self.conditions:
            _formula(text)

    def dumps(self) -> tuple[str, str]:
        """The inputs and the conditions as JSON."""
        inputs = [[item.name, None if item.sizes is None else list(item.sizes), item.dtype] for item in self.inputs]
        return _text(inputs), _text(list(self.conditions))

    @staticmethod
    def loads(inputs: str, conditions: str) -> DeclaredShapes:
        """What `dumps` gave. Raises ValueError for another text."""
        try:
            return DeclaredShapes(
                tuple([
                    DeclaredInput(_typed(name, str), None if sizes is None else tuple(_typed(sizes, list)), dtype)
                    for name, sizes, dtype in json.loads(inputs)
                ]),
                tuple(_typed(json.loads(conditions), list)),
            )  # fmt: skip
        except (TypeError, RecursionError) as error:
            raise ValueError(f"declared shapes that make no sense: {str(error)[:80]}") from None

    # -- checking ----------------------------------------------------------------------------------------------------

    def check_shapes(self, shapes: Sequence[Sequence[Size]], advice: Callable[[DeclaredInput], str]) -> None:
        """Raise DeclaredSizeError if the graph does not hold for inputs of these shapes. advice : what to do then"""
        symbols: dict[str, Size] = {}
        places: dict[str, tuple[DeclaredInput, int, Size]] = {}
        formulas: list[tuple[DeclaredInput, int, Formula, Size]] = []

        def refused(item: DeclaredInput, axis: int, size: Size, what: str) -> DeclaredSizeError:
            return DeclaredSizeError(
                f"the input {item.name!r} has the size {_number(size)} on axis {axis}; the graph {what}. {advice(item)}"
            )

        def known(formula: Formula) -> str:
            """`, with s0 = 3 (axis 0 of 'x')`, for each symbol of a formula."""
            parts = [
                f"{name} = {_number(symbols[name])} (axis {places[name][1]} of {places[name][0].name!r})"
                for name in sorted(formula.symbols)
            ]
            return f", with {', '.join(parts)}" if parts else ""

        for item, shape in zip(self.inputs, shapes, strict=True):
            if item.sizes is None:
                continue
            if len(item.sizes) != len(shape):
                raise DeclaredSizeError(
                    f"the input {item.name!r} has {dimensions(len(shape))}; the graph takes "
                    f"{dimensions(len(item.sizes))}, {_shown(item.sizes)}. {advice(item)}"
                )
            for axis, (declared, size) in enumerate(zip(item.sizes, shape, strict=True)):
                if isinstance(declared, int):
                    if size != declared:
                        raise refused(item, axis, size, f"holds for {declared} there alone")
                elif isinstance(declared, str) and declared.isidentifier():
                    if declared not in symbols:
                        symbols[declared], places[declared] = size, (item, axis, size)
                    elif size != symbols[declared]:
                        first, other, _ = places[declared]
                        has = _number(symbols[declared])
                        equal = f"needs it equal to axis {other} of {first.name!r}, which has {has}"
                        raise refused(item, axis, size, equal)
                elif isinstance(declared, str):
                    formulas.append((item, axis, _formula(declared), size))
        for item, axis, formula, size in formulas:
            self._solve(formula, size, symbols)
            for name in formula.symbols:
                places.setdefault(name, (item, axis, size))
            if formula.symbols <= symbols.keys() and size != _computed(formula, symbols):
                raise refused(item, axis, size, f"holds for {formula.text} there{known(formula)}")
        for text in self.conditions:
            formula = _formula(text)
            if formula.symbols <= symbols.keys() and not _computed(formula, symbols):
                item, axis, size = places[min(formula.symbols)] if formula.symbols else (self.inputs[0], 0, 0)
                raise refused(item, axis, size, f"holds for {text}{known(formula)}")

    @staticmethod
    def _solve(formula: Formula, size: Size, symbols: dict[str, Size]) -> None:
        """Find the only symbol of `factor*s + rest` that is not known yet. Another formula is left alone."""
        unknown = formula.symbols - symbols.keys()
        if len(unknown) != 1:
            return
        (name,) = unknown
        at = [formula.value({**symbols, name: number}) for number in (0, 1, 2)]
        factor = at[1] - at[0]
        if type(factor) is int and factor > 0 and at[2] - at[1] == factor:
            symbols[name] = (size - at[0]) // factor

    def check_dtypes(self, dtypes: Sequence[np.dtype]) -> None:
        """Raise DTypeError if the graph does not hold for these dtypes; floating ones stand for each other."""
        for item, dtype in zip(self.inputs, dtypes, strict=True):
            if item.dtype is None or dtype is None:
                continue
            declared, own = dtype_of(item.dtype), name_of(dtype)
            alike = is_floating(declared) and is_floating(dtype)
            if not (alike or own == item.dtype or {own, item.dtype} <= _ALIKE):
                raise DTypeError(
                    f"the input {item.name!r} has the dtype {own}; the graph computes with {item.dtype}. "
                    f"Convert it first: {item.name}.astype({item.dtype!r})"
                )


@lru_cache(maxsize=4096)
def _formula(text: str) -> Formula:
    return Formula(text)


def _computed(formula: Formula, symbols: Symbols) -> Any:
    """The value, False if it divides by 0."""
    try:
        return formula.value(symbols)
    except ArithmeticError:
        return False


def _number(size: Size) -> int:
    """The number of a size; for a symbolic size, its number in the current call."""
    return int(getattr(size, "hint", size))


def _shown(sizes: Sequence[Declared]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in sizes)}{',' if len(sizes) == 1 else ''})"


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:60]!r} is no {kind.__name__}")
    return value


def _text(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
