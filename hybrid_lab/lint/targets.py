"""Assignments to names, attributes and items, and narrowing of names by tests."""

from __future__ import annotations

import ast
from collections.abc import Hashable

from .attributes import attribute_of, lookup, member, subscript_of
from .classes import Attribute, Frame, SourceClass
from .values import NONE, OTHER, Kind, Value, container, element_of, join, sequence, tensor
from .walk import Walk, evaluate


def bind(walk: Walk, target: ast.expr, value: Value) -> None:
    """Assign an abstract value to a target expression."""
    walk.values[id(target)] = value
    if isinstance(target, ast.Name):
        named = value.kind is Kind.TENSOR and value.name is None
        walk.frame.env[target.id] = value.but(name=target.id) if named else value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element, part in zip(target.elts, unpacked(value, target.elts), strict=True):
            bind(walk, element.value if isinstance(element, ast.Starred) else element, part)
    elif isinstance(target, ast.Attribute):
        owner = evaluate(walk, target.value)
        if owner.kind is Kind.SELF:
            store_on_self(walk, owner.ref, target, value)
        walk.values[id(target)] = value
        walk.look(target)
    elif isinstance(target, ast.Subscript):
        owner = evaluate(walk, target.value)
        evaluate(walk, target.slice)
        walk.look(target)
        if owner.kind in (Kind.SEQUENCE, Kind.MAPPING):
            grow(walk, target.value, owner, value)


def store_on_self(walk: Walk, cls: Hashable, target: ast.Attribute, value: Value) -> None:
    """Note assignments of the method under way, often the constructor, to an attribute of self."""
    name = target.attr
    if walk.constructing is None:
        assert isinstance(cls, SourceClass)
        declared = cls.attributes.get(name)
        before = walk.stored.get((cls, name)) or (declared.value if declared is not None else OTHER)
        walk.stored[cls, name] = value if before.kind is Kind.OTHER else join(value, before)
        return
    if value.site is not None:
        walk.constructing.registered.add(value.site)
    known = walk.constructing.attributes.get(name)
    if known is not None and known.value != NONE and known.value.kind is not Kind.CONSTANT:
        # A second assignment on another path: keep the certain facts, and the place that tells most.
        value = known.value if value.kind in (Kind.CONSTANT, Kind.OTHER) else value
    walk.constructing.attributes[name] = Attribute(name, value, target)


def grow(walk: Walk, place: ast.expr, owner: Value, value: Value) -> None:
    """Note a new member of a container."""
    grown = container(owner.kind, element=join(element_of(owner), value) if owner.members else value)
    if isinstance(place, ast.Name):
        frame: Frame | None = walk.frame
        while frame is not None and place.id not in frame.env:
            frame = frame.closure
        if frame is None:
            walk.frame.grown.add(place.id)
        (frame or walk.frame).env[place.id] = grown
    elif isinstance(place, ast.Attribute) and walk.values.get(id(place.value), OTHER).kind is Kind.SELF:
        if walk.constructing is None:
            walk.stored[walk.value(place.value).ref, place.attr] = grown
        else:
            node = walk.constructing.attributes.get(place.attr)
            assignment = node.node if node is not None else place
            walk.constructing.attributes[place.attr] = Attribute(place.attr, grown, assignment)


def unpacked(value: Value, targets: list[ast.expr]) -> list[Value]:
    """The values that the targets of `a, *b = value` get."""
    count = len(targets)
    starred = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    if value.items is not None and starred is None and len(value.items) == count:
        return list(value.items)
    part = member(value)
    parts = [part] * count
    if starred is not None:
        if value.items is not None and len(value.items) >= count - 1:
            tail = count - 1 - starred
            middle = value.items[starred : len(value.items) - tail]
            ends = value.items[len(value.items) - tail :] if tail else ()
            return [*value.items[:starred], sequence(middle), *ends]
        parts[starred] = sequence(element=part)
    return parts


def load_target(walk: Walk, target: ast.expr) -> Value:
    """The value of a target before an assignment such as `x += y`."""
    if isinstance(target, ast.Name):
        return lookup(walk, target.id)
    if isinstance(target, ast.Attribute):
        return attribute_of(walk, evaluate(walk, target.value), target.attr)
    if isinstance(target, ast.Subscript):
        owner = evaluate(walk, target.value)
        evaluate(walk, target.slice)
        return subscript_of(owner, target.slice)
    return OTHER


def narrow(walk: Walk, test: ast.expr, outcome: bool) -> None:
    """Narrow the values of names after a condition that was `outcome`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        narrow(walk, test.operand, not outcome)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is outcome:
        for operand in test.values:
            narrow(walk, operand, outcome)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        right = test.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            _narrow_none(walk, test.left.id, isinstance(test.ops[0], ast.Is) is outcome)
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
        if len(test.args) == 2 and isinstance(test.args[0], ast.Name):
            _narrow_class(walk, test.args[0].id, test.args[1], outcome)


def _narrow_none(walk: Walk, name: str, is_none: bool) -> None:
    value = walk.frame.env.get(name)
    if value is not None and value.kind is Kind.TENSOR:
        walk.frame.env[name] = NONE if is_none else value.but(optional=False)


def _narrow_class(walk: Walk, name: str, classes: ast.expr, outcome: bool) -> None:
    value = walk.frame.env.get(name)
    if value is None or value.kind is not Kind.TENSOR:
        return
    asked = {
        child.attr if isinstance(child, ast.Attribute) else child.id
        for child in ast.walk(classes)
        if isinstance(child, (ast.Name, ast.Attribute))
    }
    if asked & {"list", "tuple", "List", "Tuple", "Sequence"}:
        walk.frame.env[name] = sequence(element=tensor(name)) if outcome else value.but(single=True)
    elif outcome and asked & {"int", "float", "bool", "str", "dict", "Number", "integer_types", "numeric_types"}:
        walk.frame.env[name] = OTHER
    elif outcome and not asked & {"NDArray", "Symbol"} and _of_other_libraries(walk.value(classes)):
        walk.frame.env[name] = OTHER


def _of_other_libraries(classes: Value) -> bool:
    """Whether a class, or each class in a tuple, is known not to be this package's: `numpy.ndarray`."""
    if classes.kind is Kind.SEQUENCE:
        return bool(classes.members) and all(map(_of_other_libraries, classes.members))
    name = classes.ref if classes.kind is Kind.MODULE and isinstance(classes.ref, str) else "?"
    return not name.startswith(("?", ".", "mx", "builtins."))
