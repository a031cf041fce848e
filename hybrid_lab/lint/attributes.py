"""The values of names, attributes and items, and of the elements in an iteration."""

from __future__ import annotations

import ast
import builtins

from . import names
from .classes import Frame, SourceClass
from .functions import call_function, construct
from .values import OTHER, Held, Kind, Value, element_of, mapping, sequence, tensor
from .walk import Walk

_BUILTINS = frozenset(dir(builtins))
_ON_SELF = {
    "params", "collect_params", "name_scope", "register_child", "register_forward_hook", "register_forward_pre_hook",
    "hybridize", "initialize", "prefix", "name", "cast", "apply",
}  # fmt: skip


def lookup(walk: Walk, name: str) -> Value:
    """The value of a name: of the frame, those around it, the module, Python's builtins, or by convention."""
    frame: Frame | None = walk.frame
    while frame is not None:
        if name in frame.env:
            return frame.env[name]
        frame = frame.closure
    module = walk.frame.module
    if (value := module.names.get(name) or module.lookup(name)) is not None:
        return value.held_as(Held(False, name)) if walk.frame.function is not None else value
    if name in _BUILTINS:
        return Value(Kind.MODULE, ref=f"builtins.{name}")
    if name in names.CONVENTIONAL:
        return Value(Kind.MODULE, ref=names.CONVENTIONAL[name])
    return Value(Kind.MODULE, ref=f"?.{name}")


def attribute_of(walk: Walk, owner: Value, name: str) -> Value:
    """The value of `owner.name`."""
    if owner.kind is Kind.SELF:
        return _self_attribute(walk, owner, name)
    if owner.kind is Kind.MODULE:
        return Value(Kind.MODULE, ref=names.canonical(f"{owner.ref}.{name}"))
    if owner.kind is Kind.OPERATORS:
        return Value(Kind.OPERATORS, ref=f"{owner.ref}.{name}" if owner.ref else name)
    if owner.kind is Kind.TENSOR:
        return _tensor_attribute(owner, name)
    if owner.kind is Kind.SUPER or (owner.kind is Kind.CLASS and isinstance(owner.ref, SourceClass)):
        return _class_attribute(walk, owner, name)
    if owner.kind is Kind.BLOCK and isinstance(owner.ref, SourceClass):
        construct(walk, owner.ref)
        if (attribute := owner.ref.attributes.get(name)) is not None:
            return attribute.value
        if (method := owner.ref.find(name)) is not None:
            return Value(Kind.FUNCTION, ref=method, element=Value(Kind.SELF, ref=owner.ref))
    if owner.kind is Kind.BLOCK and name in ("weight", "bias", "gamma", "beta"):
        return Value(Kind.PARAMETER, name=name)
    if owner.kind in (Kind.OTHER, Kind.CONSTANT, Kind.SHAPE, Kind.LENGTH, Kind.MODE):
        return Value(Kind.METHOD, ref=name, element=owner) if owner.kind is Kind.CONSTANT else part_of(owner, OTHER)
    if owner.kind is Kind.HOST and name in ("shape", "size", "ndim", "dtype"):
        return OTHER
    return Value(Kind.METHOD, ref=name, element=owner)


def _self_attribute(walk: Walk, owner: Value, name: str) -> Value:
    cls = owner.ref
    assert isinstance(cls, SourceClass)
    held = Held(True, f"self.{name}")
    if (stored := walk.stored.get((cls, name))) is not None:
        return stored.held_as(held)
    if (attribute := cls.attributes.get(name)) is not None:
        return attribute.value.held_as(held)
    if (method := cls.find(name)) is not None:
        bound = Value(Kind.FUNCTION, ref=method, element=owner if method.kind != "static" else None)
        return call_function(walk, method, [owner], {}) if method.kind == "property" else bound
    if name in _ON_SELF or name in ("hybrid_forward", "forward"):
        return Value(Kind.METHOD, ref=name, element=owner)
    return mapping().held_as(held) if name == "__dict__" else OTHER.held_as(held)


def _class_attribute(walk: Walk, owner: Value, name: str) -> Value:
    cls = owner.ref
    assert isinstance(cls, SourceClass)
    if owner.kind is Kind.SUPER:
        # `element` is the object; `ref` the class whose method says super().
        me = owner.element
        start = me.ref if me is not None and isinstance(me.ref, SourceClass) else cls
        method = start.find(name, after=cls)
        if method is not None:
            return Value(Kind.FUNCTION, ref=method, element=me)
        return Value(Kind.METHOD, ref=name, element=me or OTHER)
    if (attribute := cls.attributes.get(name)) is not None:
        return attribute.value
    if (method := cls.find(name)) is not None:
        return Value(Kind.FUNCTION, ref=method)
    return OTHER


def _tensor_attribute(owner: Value, name: str) -> Value:
    if name in ("shape", "size", "ndim"):
        return Value(Kind.SHAPE, name=owner.name)
    if name in ("dtype", "context", "ctx", "device", "stype", *names.TENSOR_PYTHON_ATTRIBUTES):
        return OTHER
    if name == "T":
        return tensor(owner.name, depends=owner.depends)
    return Value(Kind.METHOD, ref=name, element=owner)


def part_of(owner: Value, part: Value) -> Value:
    """A part of an object, kept from call to call if the object is."""
    return part if owner.held is None else part.held_as(owner.held)


def subscript_of(owner: Value, index: ast.expr) -> Value:
    """The value of `owner[index]`."""
    part = _subscript_of(owner, index)
    return part.held_as(None) if isinstance(index, ast.Slice) else part_of(owner, part)


def _subscript_of(owner: Value, index: ast.expr) -> Value:
    if owner.kind is Kind.TENSOR:
        return owner.but(like=None, thin=False, fresh=False)
    if owner.kind is Kind.SEQUENCE:
        return _item(owner, index)
    if owner.kind is Kind.MAPPING:
        return element_of(owner)
    if owner.kind in (Kind.HOST, Kind.SHAPE, Kind.ARRAY):
        return owner
    return OTHER


def _item(owner: Value, index: ast.expr) -> Value:
    try:
        bounds = (
            slice(
                *(None if part is None else ast.literal_eval(part) for part in (index.lower, index.upper, index.step))
            )
            if isinstance(index, ast.Slice)
            else ast.literal_eval(index)
        )
        if owner.items is not None:
            chosen = owner.items[bounds]
            return sequence(chosen) if isinstance(chosen, tuple) else chosen
    except (ValueError, TypeError, IndexError, SyntaxError):
        pass
    element = element_of(owner)
    return sequence(element=element) if isinstance(index, ast.Slice) and owner.members else element


def member(value: Value) -> Value:
    """The value of the loop variable in `for ... in value`."""
    return part_of(value, _member(value))


def _member(value: Value) -> Value:
    if value.kind is Kind.TENSOR:
        return tensor(value.name, single=value.single, depends=value.depends)
    if value.kind is Kind.SEQUENCE:
        return element_of(value)
    if value.kind in (Kind.HOST, Kind.SHAPE, Kind.ARRAY):
        return value
    return OTHER
