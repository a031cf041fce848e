"""Weak references that code reads: whether the object is there, and its attributes, without keeping it alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

from hybrid_lab.hybridize.stale.code import bases_of_user
from hybrid_lab.hybridize.stale.kinds import dict_of, has_only_attributes, is_value


def refers_to(reference: Callable[[], Any], number: int) -> bool:
    """Whether a weak reference has its object. number : the `id` of the object; None has another one"""
    return id(referent(reference)) == number


def referent(reference: Callable[[], Any]) -> Any:
    """The object of a weak reference; of a reference to a method, the object of the method. None if it is gone."""
    target = reference()
    return getattr(target, "__self__", target) if isinstance(reference, weakref.WeakMethod) else target


def attribute_of(reference: Callable[[], Any], name: str) -> Any:
    """An attribute of the object of a weak reference."""
    return getattr(referent(reference), name)


def is_formed(reference: Callable[[], Any], kind: type, names: frozenset[str], own: frozenset[str]) -> bool:
    """Whether the object of a weak reference is of this class, and has just these attributes of `names` of its own."""
    target = referent(reference)
    return type(target) is kind and names.intersection(dict_of(target) or ()) == own


def comparisons(
    reference: weakref.ref[Any], name: str, names: Collection[str], asked: Collection[str], any_name: bool
) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...], str]]:
    """The values to compare, each as (function, arguments, name in messages): whether the object is there, and the
    attributes of an object that holds attributes only.

    name : of the reference; names : of attributes that the code reads, with `any_name` any; asked : of attributes for
    which it looks
    """
    target = referent(reference)
    yield refers_to, (reference, id(target)), f"{name}()"
    if target is None or not has_only_attributes(target):
        return
    kind, own = type(target), dict_of(target) or {}
    public = frozenset(each for each in (*names, *asked) if not each.startswith("__"))
    yield is_formed, (reference, kind, public, public.intersection(own)), f"the attributes of {name}()"
    values = (each for base in bases_of_user(kind) for each, part in vars(base).items() if is_value(part))
    for each in dict.fromkeys((*own, *values)):
        if (any_name or each in names) and not each.startswith("__"):
            yield attribute_of, (reference, each), f"{name}().{each}"
