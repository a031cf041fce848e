"""Calls of functions that are known by name: Python's own, NumPy's and this package's."""

from __future__ import annotations

import ast

from . import names
from .attributes import attribute_of, member
from .classes import Frame, positional_arguments
from .functions import input_in, keep_children, unknown_result
from .operators import apply, call_operator
from .values import GENERATOR, ITERATOR, NONE, OTHER, Kind, Value, element_of, mapping, sequence, tensor
from .walk import Walk


def call_known(walk: Walk, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """The return value of the function with this dotted name."""
    everything = [*arguments, *keywords.values()]
    root, _, rest = name.partition(".")
    if name in _ITERATORS:
        return OTHER.but(ref=ITERATOR)
    if (passed := _function_of(name, arguments, keywords)) is not None:
        function, argument = passed
        walk.results[id(node)] = argument if function == NONE else apply(walk, function, [argument])
    if root == "builtins":
        return _builtin(walk, node, rest, arguments, everything)
    if root == "numpy":
        if rest.startswith("random"):
            return OTHER.but(ref=GENERATOR) if name in _GENERATORS else OTHER
        if any(value.has_tensor for value in everything):
            return tensor()
        host = any(value.kind is Kind.HOST for value in everything)
        return Value(Kind.HOST) if host else OTHER
    if root == "math":
        return Value(Kind.HOST) if any(value.has_tensor for value in everything) else OTHER
    if root == "mx":
        return _framework(walk, node, name, arguments, keywords)
    if name in ("copy.copy", "copy.deepcopy") and arguments:
        return arguments[0].held_as(None)
    if name in ("collections.OrderedDict", "collections.defaultdict", "collections.Counter"):
        return mapping()
    if name in _GENERATORS:
        return OTHER.but(ref=GENERATOR)
    if name in ("itertools.chain",):
        members = [member(value) for value in arguments]
        return sequence(element=element_of(sequence(tuple(members))) if members else None)
    if name == "functools.partial" and arguments:
        return OTHER
    if name == "functools.reduce" and len(arguments) > 1:
        return apply(walk, arguments[0], [member(arguments[1]), member(arguments[1])])
    keep_children(walk, everything)
    return unknown_result(everything)


_GENERATORS = frozenset({
    "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator", "random.Random",
    "random.SystemRandom",
})  # fmt: skip
_ITERATORS = frozenset({
    "itertools.count", "itertools.cycle", "itertools.repeat", "itertools.accumulate", "itertools.product", "csv.reader",
    "builtins.open", "io.StringIO", "os.scandir",
})  # fmt: skip
_FILTERS = ("builtins.filter", "itertools.takewhile", "itertools.dropwhile", "itertools.filterfalse")


def _function_of(name: str, arguments: list[Value], keywords: dict[str, Value]) -> tuple[Value, Value] | None:
    """The function passed to `filter` and similar functions, or as the `key` of `sorted`, and its arguments."""
    if name in _FILTERS and len(arguments) == 2:
        return arguments[0], member(arguments[1])
    if name in ("builtins.sorted", "builtins.max", "builtins.min") and arguments and "key" in keywords:
        members = member(arguments[0]) if len(arguments) == 1 else element_of(sequence(tuple(arguments)))
        return keywords["key"], members
    return None


def _framework(walk: Walk, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    everything = [*arguments, *keywords.values()]
    if name in names.PARAMETERS:
        return Value(Kind.PARAMETER)
    if names.is_block_class(name) is not None:
        keep_children(walk, everything)
        return Value(Kind.BLOCK, ref=name, site=id(node), depends=False)
    if name in ("mx.autograd.is_training", "mx.autograd.is_recording"):
        return Value(Kind.MODE, ref="mode")
    for namespace in names.OPERATOR_NAMESPACES:
        if name.startswith(namespace + "."):
            operator = name.removeprefix(namespace + ".")
            if operator.rpartition(".")[2] in ("array", "from_numpy", "load"):
                return tensor(depends=False) if walk.style == "forward" else Value(Kind.ARRAY)
            if operator in ("NDArray", "Symbol", "waitall", "save"):
                return OTHER
            result = call_operator(walk, node, operator, arguments, keywords)
            # Outside a graph, in a constructor or at module level, it makes an array.
            in_graph = walk.constructing is None and walk.frame.function is not None
            return result if in_graph or namespace == "mx.sym" else Value(Kind.ARRAY)
    if name.startswith(("mx.np.", "mx.npx.")):
        return call_operator(walk, node, name.split(".", 2)[2], arguments, keywords)
    return unknown_result(everything)


def _builtin(walk: Walk, node: ast.Call, name: str, arguments: list[Value], everything: list[Value]) -> Value:
    first = arguments[0] if arguments else OTHER
    match name:
        case "len":
            return Value(Kind.LENGTH, name=first.name) if first.is_one_tensor else OTHER
        case "int" | "float" | "bool" | "complex" | "round":
            if first.kind in (Kind.SHAPE, Kind.LENGTH, Kind.HOST):
                return first
            return Value(Kind.HOST, name=first.name) if first.is_one_tensor else OTHER
        case "abs" | "pow" | "divmod":
            return next((value for value in arguments if value.has_tensor), first)
        case "max" | "min":
            parts = list(first.members) if len(arguments) == 1 and first.members else arguments
            chosen = next((value for value in parts if value.is_tensor), None)
            return chosen or (first if first.kind in (Kind.SHAPE, Kind.HOST, Kind.LENGTH) else OTHER)
        case "sum":
            inner = member(first)
            return tensor(inner.name, depends=input_in(inner)) if inner.has_tensor else OTHER
        case "list" | "tuple" | "reversed" | "sorted" | "iter" | "set" | "frozenset":
            if name == "iter" and first.ref == ITERATOR:
                return first
            made = first.but(held=None, ref=None)
            if first.kind is not Kind.SEQUENCE:
                inner = member(first)
                made = sequence(element=inner) if inner.kind is not Kind.OTHER else sequence()
            elif name == "reversed" and first.members:
                made = sequence(element=element_of(first))
            return made.but(ref=ITERATOR) if name in ("iter", "reversed") else made
        case "zip":
            return sequence(element=sequence(tuple(member(value) for value in arguments))).but(ref=ITERATOR)
        case "enumerate":
            return sequence(element=sequence((OTHER, member(first)))).but(ref=ITERATOR)
        case "map" | "filter":
            members = [member(value) for value in arguments[1:]]
            if name == "filter":
                return sequence(element=members[0]) if members else OTHER
            return sequence(element=apply(walk, first, members))
        case "next":
            return member(first)
        case "dict":
            return mapping(element_of(sequence(tuple(everything))) if everything else None)
        case "isinstance" | "hasattr" | "type" if first.is_tensor or first.kind is Kind.OPERATORS:
            return _sort_question(walk, node, name)
        case "getattr" if len(node.args) > 1:
            attribute = node.args[1]
            if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
                return attribute_of(walk, first, attribute.value)
            return OTHER
        case "setattr" if len(arguments) > 2:
            keep_children(walk, arguments[2:])
            return NONE
        case "super":
            return _super(walk)
        case "vars" if first.kind is Kind.SELF:
            return attribute_of(walk, first, "__dict__")
        case "range" | "print" | "str" | "repr" | "format" | "id" | "callable" | "hash" | "ord" | "vars" | "dir":
            return OTHER
    return unknown_result(everything)


def _sort_question(walk: Walk, node: ast.Call, name: str) -> Value:
    if name == "isinstance" and len(node.args) == 2:
        asked = walk.values.get(id(node.args[1]), OTHER)
        parts = asked.members or (asked,)
        arrays = any(part.ref in ("mx.nd.NDArray", "mx.nd.ndarray", "mx.np.ndarray") for part in parts)
        symbols = any(part.ref == "mx.sym.Symbol" for part in parts)
        return Value(Kind.MODE, ref="sort") if arrays != symbols else OTHER
    return Value(Kind.MODE, ref="sort") if name == "hasattr" else OTHER


def _super(walk: Walk) -> Value:
    frame: Frame | None = walk.frame
    while frame is not None and (frame.function is None or frame.function.owner is None):
        frame = frame.closure
    if frame is None or frame.function is None or frame.function.owner is None:
        return OTHER
    positional = positional_arguments(frame.function.node)
    me = frame.env.get(positional[0].arg, OTHER) if positional else OTHER
    return Value(Kind.SUPER, ref=frame.function.owner, element=me)
