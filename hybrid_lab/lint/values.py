"""Abstract values: known facts about an expression in the user's code without running it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple


class Kind(Enum):
    """The sorts of values a checker tells apart."""

    OTHER = "other"  # a Python value, or nothing known
    CONSTANT = "constant"  # a literal; `ref` holds it
    TENSOR = "tensor"  # part of the graph; `single` if it is surely one tensor, not a list of them
    SEQUENCE = "sequence"  # a list, a tuple, or the outputs of one operator; `items` if each is known, else `element`
    MAPPING = "mapping"  # a dict; `element` joins its values
    HOST = "host"  # numbers read out of a tensor
    SHAPE = "shape"  # read from `.shape`, `.size`, `.ndim`
    LENGTH = "length"  # `len(tensor)`
    MODE = "mode"  # an answer of autograd, or about the sort of a tensor
    ARRAY = "array"  # an NDArray that is no part of the graph
    PARAMETER = "parameter"
    BLOCK = "block"  # an instance; `ref` is its class (a dotted name or a class of the source)
    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"  # of a tensor or other value; `ref` is its name, `element` the owner
    MODULE = "module"  # or anything reached through one; `ref` is its dotted name
    OPERATORS = "operators"  # F, or a namespace inside it; `ref` is the path below F
    SELF = "self"
    SUPER = "super"


ITERATOR = "iterator"
"""The `ref` of a value that each reader reads on."""
GENERATOR = "generator of random numbers"
"""The `ref` of a value whose methods give another result in each call."""


class Held(NamedTuple):
    """Where a value is kept from call to call, so that a change of it outlives the call.

    on_self : on the Block, else in the module or in a function around; text : `self.seen`
    """

    on_self: bool
    text: str


@dataclass(frozen=True, slots=True)
class Value:
    """One abstract value.

    name : how the user calls the tensor it comes from. depends : an input of the block takes part in it. optional:
    may be None. fresh : a new array nobody else refers to. like : equal for values surely of equal shape. thin : True
    if an axis got the length 1, or ("of", like) if the value lost such an axis. site : identifies the expression
    that made a Block. held : the place that keeps it from call to call. size, depth : of a container, the values in it,
    and how deep they are nested.
    """

    kind: Kind
    name: str | None = None
    ref: Hashable = None
    items: tuple[Value, ...] | None = None
    element: Value | None = None
    single: bool = True
    depends: bool = True
    optional: bool = False
    fresh: bool = False
    like: Hashable = None
    thin: Hashable = False
    site: int | None = None
    held: Held | None = None
    size: int = field(default=1, compare=False)
    depth: int = field(default=0, compare=False)

    @property
    def is_tensor(self) -> bool:
        """One tensor of the graph, or something that holds tensors and is not known better."""
        return self.kind is Kind.TENSOR

    @property
    def is_one_tensor(self) -> bool:
        """Surely one tensor, not a list of them."""
        return self.kind is Kind.TENSOR and self.single

    @property
    def has_tensor(self) -> bool:
        """A tensor, or a container with one inside."""
        if self.kind in (Kind.SEQUENCE, Kind.MAPPING):
            return any(item.has_tensor for item in self.members)
        return self.kind is Kind.TENSOR

    @property
    def members(self) -> tuple[Value, ...]:
        """The values that iterating over a container may give."""
        if self.items is not None:
            return self.items
        return (self.element,) if self.element is not None else ()

    def but(self, **changes: Any) -> Value:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def held_as(self, held: Held | None) -> Value:
        """The same, kept from call to call if it is a container or an object."""
        if self.held == held or self.kind not in (Kind.OTHER, Kind.SEQUENCE, Kind.MAPPING):
            return self
        return replace(self, held=held)


OTHER = Value(Kind.OTHER)
NONE = Value(Kind.CONSTANT, ref=("NoneType", None))


def constant(value: Hashable) -> Value:
    """The value of a literal."""
    return Value(Kind.CONSTANT, ref=(type(value).__name__, value))


def tensor(name: str | None = None, *, single: bool = True, **details: Any) -> Value:
    """A tensor of the graph. details : other fields of Value"""
    return Value(Kind.TENSOR, name=name, single=single, **details)


def sequence(items: tuple[Value, ...] | None = None, element: Value | None = None) -> Value:
    """A list or tuple, of known items or of any number of such elements."""
    return container(Kind.SEQUENCE, items, element)


def mapping(element: Value | None = None) -> Value:
    """A dict of any number of such values."""
    return container(Kind.MAPPING, element=element)


_LARGEST = 512
"""Values in one container, those in containers inside of it too; what a larger one holds is known as a whole only."""
_DEEPEST = 16


def container(kind: Kind, items: tuple[Value, ...] | None = None, element: Value | None = None) -> Value:
    """A SEQUENCE or MAPPING. In a very large one the single items are not told apart."""
    members = items if items is not None else () if element is None else (element,)
    size = 1 + sum(member.size for member in members)
    depth = 1 + max((member.depth for member in members), default=0)
    if size > _LARGEST or depth > _DEEPEST:
        joined = element_of(Value(kind, items=tuple(members)))
        if joined.size > _LARGEST // 2 or joined.depth >= _DEEPEST:
            joined = tensor(single=False) if joined.has_tensor else OTHER
        items, element, size, depth = None, joined, 1 + joined.size, 1 + joined.depth
    return Value(kind, items=items, element=element, depends=False, size=size, depth=depth)


def element_of(value: Value) -> Value:
    """One member of a container, joined over all members."""
    members = value.members
    if not members:
        return OTHER
    joined = members[0]
    for member in members[1:]:
        joined = join(joined, member)
    return joined


def join(a: Value, b: Value) -> Value:
    """The value of a name that is `a` on one path and `b` on another."""
    if a is b or a == b:
        return a
    held = a.held or b.held
    return _join(a, b) if held is None else _join(a.but(held=None), b.but(held=None)).held_as(held)


def _join(a: Value, b: Value) -> Value:
    if a == b:
        return a
    if b.kind is Kind.TENSOR and a.kind is not Kind.TENSOR:
        a, b = b, a
    if a.kind is Kind.TENSOR:
        return _join_tensor(a, b)
    if a.kind is b.kind is Kind.SEQUENCE or a.kind is b.kind is Kind.MAPPING:
        if a.kind is Kind.SEQUENCE and a.items is not None and b.items is not None and len(a.items) == len(b.items):
            return sequence(tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)))
        if not a.members or not b.members:  # an empty list that the other path fills
            full = a if a.members else b
            return container(a.kind, element=element_of(full) if full.members else None)
        return container(a.kind, element=join(element_of(a), element_of(b)))
    if a.kind is b.kind:
        return a.but(name=a.name or b.name) if a.ref == b.ref else (OTHER if a.kind is Kind.CONSTANT else a)
    for kind in (Kind.SEQUENCE, Kind.MAPPING, Kind.HOST, Kind.SHAPE, Kind.LENGTH, Kind.MODE):
        for one, other in ((a, b), (b, a)):
            if one.kind is kind:
                return tensor(one.name, single=False) if one.has_tensor and other.has_tensor else one
    if NONE in (a, b):
        return (b if a == NONE else a).but(optional=True)
    return OTHER


def _join_tensor(a: Value, b: Value) -> Value:
    if b.kind is Kind.TENSOR:
        return Value(
            Kind.TENSOR,
            name=a.name or b.name,
            single=a.single and b.single,
            depends=a.depends or b.depends,
            optional=a.optional or b.optional,
            fresh=a.fresh and b.fresh,
            like=a.like if a.like == b.like else None,
            thin=a.thin if a.thin == b.thin else False,
        )
    if b == NONE:
        return a.but(optional=True, like=None)
    if b.kind is Kind.CONSTANT:
        return a.but(like=None)
    return a.but(single=False, like=None, fresh=False)
