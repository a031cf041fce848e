"""The lines of a kernel, written backwards from the elements that it stores.

A writer asks a Body for the element of a value at a place, which is an index for each axis. For an operator of the
kernel the Body asks for the elements of the operands at their places and then writes one line. A view writes no line;
it only changes the place. Every other value is loaded. A line goes into the outermost scope with all variables of its
place, so values that do not change in a loop are computed before the loop.
"""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from math import frexp, prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.triton.write.elements import Elements
from hybrid_lab.engines.triton.write.index import (
    ZERO,
    Index,
    Place,
    formula,
    linear,
    strided,
    strides_in,
    unravel,
    variable,
    variables_of,
)
from hybrid_lab.engines.triton.write.kinds import collects, element_of, is_product, is_reduction
from hybrid_lab.engines.triton.write.reuse import stored, varies
from hybrid_lab.engines.triton.write.syntax import (
    FUNCTIONS,
    TYPES,
    Remark,
    closes_at_the_end,
    is_number,
    label,
    literal,
    number_of,
    plain,
    rounded,
    short,
    tensor,
    typed,
    wide,
    wrapped,
)
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import is_floating, is_narrow
from hybrid_lab.ops.framework.kernel import Pointwise

#: What arguments for sizes that vary are called (see reuse.shown).
_SIZE = re.compile(r"size\d+")
_WORD = re.compile(r"\w+")

#: Names that the lines of kernels use themselves.
_OWN = frozenset(
    "rows columns inner batches keys queries entries hidden steps parts per_part elements start end "
    "first_row time now earlier mine seed _".split()
)

#: Longer masks and addresses of a load stand in a line of their own.
_LONG = 56

#: Bytes that one instruction loads or stores at most.
TOGETHER = 16

#: A kernel has at most MOST_LINES lines; an operator that reads more than MOST_READS elements is computed at one place
#: only.
MOST_LINES, MOST_READS = 512, 8


@functools.lru_cache(maxsize=1024)
def _identifier(wanted: str) -> str:
    """A name for a variable of a kernel."""
    name = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_").lower() or "x"
    return f"x_{name}" if name[0].isdigit() or keyword.iskeyword(name) or _SIZE.fullmatch(name) else name


class Refused(Exception):
    """Raised if one kernel cannot compute these operators; the message is the reason that reports show."""


class Scope:
    """Lines of one depth.

    part : index in Body.loads; variables : names that are known from here on
    memo : value and place, or expression -> the name of its line
    """

    def __init__(self, part: int = 0) -> None:
        self.part = part
        self.variables: set[str] = set()
        self.lines: list[tuple[str, Remark]] = []
        self.memo: dict[Any, str] = {}


#: Whole numbers below it are in int32.
INT32 = 1 << 31


def is_wide(shape: Sequence[int]) -> bool:
    """Whether places in an array of this shape, counted in elements, need int64."""
    return prod(map(int, shape)) >= INT32


class Body:
    """group : the operators that the kernel computes itself, and the values that it stores.

    pointers : stored value -> its pointer argument
    inputs : loaded value -> its pointer argument, in the order of first use; draws : draw numbers that are arguments
    widens : whether float16 and bfloat16 are computed in float32; the factors of a product are not
    wide : places are counted in int64: an array has 2^31 elements or more
    counts : pairs (whole number, its argument, "" before the first use): divisors of means, which are not printed
        because they differ between batches
    lengths : name of a variable -> the argument with its length, if the kernel has one
    loads : the number of loads before the first loop, and from the start of each loop on; loads of one element per row
        do not count
    """

    #: Whether half-precision results are rounded before they are cast, or used again after they are stored, as eagerly.
    rounds = True
    #: As in KernelSource.
    precision = ""
    #: The operators of which a division may be off by 2 units in the last place (see exact.py).
    approximate: Collection[Node] = ()

    def __init__(self, group: Region):
        nodes = group.nodes
        values = {value for node in nodes for value in (*node.values_in, *node.outputs)}
        self.wide = any(is_wide(value.shape) for value in values)
        self.nodes = set(nodes)
        self.inputs: dict[Value, str] = {}
        self.draws: list[int] = []
        self.loads, self.scopes = [0], [Scope()]
        self.masks: dict[str, str] = {}
        self.widens = True
        self.counts: list[tuple[int, str]] = []
        self.lengths: dict[str, str] = {}
        draws = {f"draw{node.draw or 0}" for node in nodes if node.op.random}
        self._taken = {"tl", "triton", "float", "range", *_OWN, *FUNCTIONS, *draws}
        names = ["out_ptr"] if len(group.outputs) == 1 else [f"out{index}_ptr" for index in range(len(group.outputs))]
        self.pointers = dict(zip(group.outputs, map(self.fresh, names), strict=True))
        self._lines = 0
        self._made_of: dict[str, set[str]] = {}
        self._heavy: dict[Value, tuple[Place, str]] = {}
        self._runs: dict[str, list[tuple[int, int]]] = {}
        read = {value for node in nodes for value in node.values_in}
        self._stored = {
            value for value in (stored() if self.rounds else ()) if value in read and is_narrow(value.dtype)
        }

    # -- variables, scopes and lines ---------------------------------------------------------------------------------

    def declare(self, name: str, length: int, mask: str = "") -> Index:
        """A variable of the innermost scope. mask : the name of its condition, if it may run past its length."""
        self.scopes[-1].variables.add(name)
        self._taken.add(name)
        if mask:
            self.masks[name] = mask
            self._taken.add(mask)
        return variable(name, length)

    def open(self) -> None:
        """Begin a loop."""
        self.scopes.append(Scope(len(self.loads)))
        self.loads.append(0)

    def close(self, head: str) -> None:
        """End it: its lines, indented, under `head`."""
        inner = self.scopes.pop()
        self.scopes[-1].part = inner.part
        self.line(head)
        self.scopes[-1].lines += [(f"    {text}", comment) for text, comment in inner.lines]

    def line(self, text: str, comment: Remark = "") -> None:
        self.scopes[-1].lines.append((text, comment))

    def line_each(self, texts: Sequence[str]) -> None:
        """Lines without comments."""
        for text in texts:
            self.line(text)

    def mentions(self, name: str) -> bool:
        """Whether a line of the outermost scope reads an argument."""
        return any(name in _WORD.findall(text) for text, _ in self.scopes[0].lines)

    def store_tile(self, pointer: str, where: Index, name: str, axes: Sequence[str], number: str = "") -> None:
        """Store a tile at `where`. axes : the variables of the tile; number : `where` as text, if it is not printed

        An axis of one element does not move the place in memory; its variable, 0 then, still gives the tile its shape.
        """
        moving = where.variables
        address = [pointer, *([number or str(where)] if where.terms else [])]
        address += [axis for axis in axes if axis not in moving]
        self.line(f"tl.store({' + '.join(address)}, {name}, mask={' & '.join(f'{axis}_inside' for axis in axes)})")

    def check_place(self, value: Value, place: Place, own: Place) -> None:
        """Raise Refused if a value is read at other elements than the kernel has at hand."""
        if linear(place, value.shape) != linear(own, value.shape):
            raise Refused(f"{value.node.op.name} is read at other places than the kernel's own")

    def fresh(self, wanted: str) -> str:
        """A new name: `wanted`, with a number behind it if it is taken."""
        name = base = _identifier(wanted)
        number = 2
        while name in self._taken:
            name, number = f"{base}{number}", number + 1
        self._taken.add(name)
        return name

    def _scope_of(self, variables: Collection[str]) -> Scope:
        """The outermost scope in which all these variables are known."""
        for depth in reversed(range(len(self.scopes))):
            if self.scopes[depth].variables & set(variables):
                return self.scopes[depth]
        return self.scopes[0]

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, value: Value, place: Place, guard: str = "") -> str:
        """The name of an element. guard : a condition without which it must not be loaded."""
        scope = self.scopes[0]
        if guard or len(self.scopes) > 1:
            variables = variables_of(place)
            # A condition that only other readers need would keep the element in the loop, and make it anew for each
            # reader.
            guard = " & ".join(self._conditions(guard, variables))
            scope = self._scope_of([*variables, *_WORD.findall(guard)])
        key = (value, place, guard, self.widens)
        if key not in scope.memo:
            scope.memo[key] = self._written(value, place, guard, scope)
        return scope.memo[key]

    def _written(self, value: Value, place: Place, guard: str, scope: Scope) -> str:
        node = value.node
        if isinstance(node.op, Constant) and node.op.array.size == 1:
            return literal(node.op.array.item(), value.dtype)
        if node not in self.nodes:
            return self._load(value, place, guard, scope)
        moved = moved_place(node, value.index, place, self)
        if moved is not None:
            return self.value(node.inputs[0], moved, guard)
        return self.compute(value, place, guard, scope)

    def compute(self, value: Value, place: Place, guard: str, scope: Scope) -> str:
        """One operator: its record's expression over its operands' elements."""
        node = value.node
        if is_reduction(node) or is_product(node) or collects(node):
            return self.anchored(value, place)
        kernel = node.op.triton
        if not isinstance(kernel, Pointwise):
            if self._heavy.get(value, (place, guard)) != (place, guard):
                raise Refused(f"{node.op.name} would be computed again at each place that it is read at")
            elements, kernel = Elements(self, node, guard, scope), element_of(node.op)
            assert kernel is not None, "groups hold no other kinds of operators"
            try:
                expression = kernel.read(node.op, elements, place)
            except Unmappable as reason:
                raise Refused(str(reason)) from None
            if elements.count_of_reads > MOST_READS:
                self._heavy[value] = (place, guard)
            if plain(expression):
                return expression
            return self.write(expression, short(node.op.name), scope, node)
        first = next((item.dtype for item in node.values_in), value.dtype)
        dtype = value.dtype if value.dtype.kind != "b" else first
        counted = -1
        if node.op.name in ("broadcast_div", "broadcast_mul") and first == dtype and is_floating(dtype):
            counted = self.count_of(node.inputs[1], node.op.name == "broadcast_mul")
        operands = [
            self.operand(item, place, guard, dtype) if node.op.reads_values(index) else "0.0"
            for index, item in enumerate(node.inputs[:1] if counted >= 0 else node.inputs)
        ]
        if kernel.jumps:
            operands = [self._rounded(*pair, scope) for pair in zip(operands, node.inputs)]
        if operands and all(map(is_number, operands)):  # a Python number has no .to
            operands[0] = tensor(operands[0], dtype)
        template = kernel.expression(node.op, dtype)
        if template.partition("(")[0] in FUNCTIONS:
            operands = [tensor(item, dtype) for item in operands]
        if counted >= 0:
            template, operands = "{0} / {1}", [operands[0], self.count(counted)]
        if template == "{0} / {1}" and node in self.approximate:
            template, operands = "tl.fdiv({0}, {1})", [tensor(item, dtype) for item in operands]
        keywords = {}
        if node.op.random:
            draw = node.draw or 0
            if draw not in self.draws:
                self.draws.append(draw)
            where = linear(place, value.shape)
            element = f"({where}).to(tl.int64)" if where.terms else f"tl.full([], {where}, tl.int64)"
            keywords = {"seed": "seed", "draw": f"draw{draw}", "element": element}
        expression = template.format(*map(wrapped, operands), **keywords)
        if wide(value.dtype) != wide(first) or not is_floating(value.dtype) or node.op.random:
            expression = f"({expression}).to({TYPES[wide(value.dtype)]})"
        elif expression.startswith("(") and closes_at_the_end(expression):
            expression = expression[1:-1]
        if value in self._stored:  # another kernel continues with the stored (rounded) number, so this kernel does, too
            expression = rounded(f"({expression})", value.dtype)
        return self.write(expression, short(node.op.name), scope, node)

    def _rounded(self, name: str, item: object, scope: Scope) -> str:
        """An operand as eager calls have it: rounded, if it is of half precision and was computed here."""
        if not isinstance(item, Value) or not is_narrow(item.dtype) or not self.is_computed(item):
            return name
        return self._line_for(rounded(name, item.dtype), "rounded", scope)

    def is_computed(self, value: Value) -> bool:
        """Whether the kernel computes a value itself, and does not load it."""
        while value.node in self.nodes and value.node.op.view:
            value = value.node.values_in[0]
        return value.node in self.nodes

    def count_of(self, item: Any, factor: bool) -> int:
        """The index of the count that an operand is, or -1. factor : the operand is 1 / count, and a power of two"""
        while isinstance(item, Value) and item.node in self.nodes and item.node.op.view:
            item = item.node.inputs[0]
        number = number_of(item)
        if number is None or not number > 0 or (factor and frexp(number)[0] != 0.5):
            return -1
        number = 1 / number if factor else number
        return next((index for index, (count, _) in enumerate(self.counts) if count == number), -1)

    def count(self, index: int) -> str:
        """The argument with a count."""
        number, name = self.counts[index]
        if not name:
            name = self.fresh("count")
            self.counts[index] = number, name
        return name

    def write(self, expression: str, wanted: str, scope: Scope, comment: Remark = "") -> str:
        """A line that names an expression; returns the name. Raises Refused if the kernel grows too long."""
        self._lines += 1
        if self._lines > MOST_LINES:
            raise Refused(f"the kernel would have more than {MOST_LINES} lines")
        name = self.fresh(wanted)
        scope.lines.append((f"{name} = {expression}", comment))
        return name

    def named(self, expression: str, wanted: str, comment: Remark = "") -> str:
        """A line of the innermost scope that names an expression."""
        return self.write(expression, wanted, self.scopes[-1], comment)

    def anchored(self, value: Value, place: Place) -> str:
        """An element of a reduction or a product; kernels of these kinds say how."""
        raise Refused("a reduction over elements that the kernel does not have at once")

    def operand(self, item: object, place: Place, guard: str, dtype: object) -> str:
        """An operand of a pointwise operator: its axes of size 1 are read at 0."""
        if not isinstance(item, Value):
            return literal(item, dtype)
        return self.value(item, broadcast_place(place, item.shape), guard)

    def _load(self, value: Value, place: Place, guard: str, scope: Scope) -> str:
        pointer = self.pointer(value)
        where = linear(place, value.shape)
        self.runs_along(where, value.dtype)
        masks = [self.masks[name] for name in where.variables if name in self.masks]
        guards = self._conditions(guard, where.variables)
        mask = " & ".join(dict.fromkeys([*masks, *guards]))
        number = formula(where, self.lengths)
        address = f"{pointer} + {number}" if where != ZERO else pointer
        if len(address) > _LONG:
            address = f"{pointer} + {self._line_for(number, 'at', scope)}"
        if len(mask) > _LONG:
            mask = self._line_for(mask, "there", scope)
        self.loads[scope.part] += mask != "row_inside"
        text = f"tl.load({address}, mask={mask}, other=0)" if mask else f"tl.load({address})"
        if is_narrow(value.dtype) and self.widens:
            text += ".to(tl.float32)"
        elif value.dtype.kind == "b":
            text = f"{text} != 0"
        return self.write(text, label(value), scope, typed(value))

    def _conditions(self, guard: str, variables: Collection[str]) -> list[str]:
        """The conditions of a guard that can be false at a place of these variables: conditions that depend on no other
        variables.
        """
        if not guard:
            return []
        known = {name for scope in self.scopes for name in scope.variables}
        moving = {*variables, *(name for number in variables for name in self._made_of.get(number, ()))}
        return [part for part in guard.split(" & ") if known.intersection(_WORD.findall(part)) <= moving]

    def without(self, guard: str, variables: Collection[str]) -> list[str]:
        """The guard's conditions on other variables: a load that does not move along those variables omits the
        conditions.
        """
        needed = self._conditions(guard, variables)
        return [part for part in guard.split(" & ") if part and part not in needed]

    def runs_along(self, where: Index, dtype: np.dtype) -> None:
        """Record an access to memory: the variable that counts neighbours, and how many one instruction can access."""
        for (name, length, below, size), factor in where.terms:
            if factor == 1 and not below > 1:
                part = below * size < length  # printed, and so known
                run = int(size) & -int(size) if part and not varies(size) else TOGETHER
                self._runs.setdefault(name, []).append((run, TOGETHER // dtype.itemsize))

    def together(self, lengths: Mapping[str, str] | None = None) -> dict[str, int]:
        """Size argument -> number: if the size is a multiple of it, one instruction can load or store that many
        neighbours, so the compiler should know. Other sizes do not matter for that.

        lengths : name of a variable -> argument with its length; by default the body's
        """
        multiples: dict[str, int] = {}
        for name, length in (self.lengths if lengths is None else lengths).items():
            runs = self._runs.get(name, ())
            most = min(max((run for run, _ in runs), default=1), min((many for _, many in runs), default=1))
            if most > 1:
                multiples[length] = max(multiples.get(length, 1), most)
        return multiples

    def _line_for(self, expression: str, wanted: str, scope: Scope) -> str:
        if expression not in scope.memo:
            scope.memo[expression] = self.fresh(wanted)
            scope.lines.append((f"{scope.memo[expression]} = {expression}", ""))
        return scope.memo[expression]

    def named_if_long(self, expression: str, wanted: str) -> str:
        """The expression, or the name of a line of the innermost scope with it."""
        return self._line_for(expression, wanted, self.scopes[-1]) if len(expression) > _LONG else expression

    def pointer(self, value: Value) -> str:
        """The argument that a value is loaded from."""
        if value not in self.inputs:
            self.inputs[value] = self.fresh(f"{label(value)}_ptr")
        return self.inputs[value]

    def number(self, text: str, length: int, variables: Sequence[str], wanted: str = "place") -> Index:
        """A computed whole number below `length` as a variable of its own, in the scope of the variables it depends
        on.
        """
        scope = self._scope_of(variables)
        key = ("number", text)
        if key not in scope.memo:
            name = self.write(text, wanted, scope)
            scope.variables.add(name)
            self._made_of[name] = {*variables, *(item for part in variables for item in self._made_of.get(part, ()))}
            masks = dict.fromkeys(self.masks[item] for item in variables if item in self.masks)
            if masks:
                self.masks[name] = " & ".join(masks)
            scope.memo[key] = name
        return variable(scope.memo[key], length)


def smooth(nodes: Collection[Node]) -> Collection[Node]:
    """The operators, if no operator is a comparison or rounds to whole numbers; else none. The exponential of a score
    is itself off by more than an approximate division of scores and weights, which their loop then has.
    """
    jumping = (isinstance(node.op.triton, Pointwise) and node.op.triton.jumps for node in nodes)
    return () if any(jumping) else nodes


def moved_place(node: Node, output: int, place: Place, body: Body) -> Place | None:
    """Where in its first input a view has the element at `place`; None if the node is no view."""
    if not node.op.view:
        return None
    source, strides = node.inputs[0], strides_in(node, output)
    if strides is None:
        return None
    number = strided(place, *strides)
    places = unravel(number, source.shape)
    if places is None:
        places = body.number(str(number), prod(source.shape), number.variables).digits(source.shape)
    return places


def broadcast_place(place: Place, shape: Sequence[int]) -> Place:
    """The place of the operand's element that belongs to an element at `place`."""
    last = place[len(place) - len(shape) :]
    return tuple(ZERO if size == 1 else index for index, size in zip(last, shape, strict=True))
