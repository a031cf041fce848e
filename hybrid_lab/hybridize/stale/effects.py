"""Whether the code of Blocks can have an effect beside its result. Most networks call operators, children and methods
of their own, and nothing else: around their traces there is nothing to remember and to compare.

It is decided by names, and anything unknown counts as an effect.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from types import FunctionType, GetSetDescriptorType
from typing import TYPE_CHECKING, Any

from hybrid_lab.hybridize.block import AnyParameter
from hybrid_lab.hybridize.stale.code import bases_of_user, cell_content, facts_of, functions_in, functions_of, of_user
from hybrid_lab.hybridize.stale.reached import replaced
from hybrid_lab.hybridize.stale.value_guard import PLAIN
from hybrid_lab.hybridize.stale.watched_values import code_held
from hybrid_lab.ops.framework.operator import is_loaded

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

#: Builtins that do nothing but give a result.
_PURE = frozenset({
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "max", "min", "pow",
    "print", "range", "reversed", "round", "slice", "str", "sum", "super", "tuple", "zip",
})  # fmt: skip
#: Operators, and methods of the same names that change containers; and the operator that calls code of the user's.
_AMBIGUOUS = frozenset({"Custom", "add", "clear", "pop", "remove", "reverse", "sort", "update"})
#: Attributes of arrays that traced code may read, and what it reads a Parameter with.
_READ = frozenset({"context", "ctx", "data", "dtype", "ndim", "shape", "size"})
#: Names under which a Block may have code of its own.
_CODE = frozenset({"forward", "hybrid_forward"})
#: Methods of this package's Blocks that only run the code of Blocks.
_RUNS = _CODE | {"__call__"}
#: Attributes of a class that are code which Python itself calls as a plain function.
_METHODS = (FunctionType, staticmethod, classmethod, property)


def has_no_effect(blocks: Iterable[Tree]) -> bool:
    """Whether a trace of these Blocks, which are all of a tree, changes and keeps nothing that outlives it, and gives
    the same graph each time.
    """
    blocks = list(blocks)
    known = _Names(blocks)
    return all(not _runs_other_code(block) and _names_no_effect(block, known) for block in blocks)


class _Names:
    """Names of attributes in a tree of Blocks, whichever Block the code reads them of.

    objects : names under which Blocks, and the user's classes, have lists and other objects
    of_package : names that this package's classes have, and Python's
    """

    def __init__(self, blocks: list[Any]) -> None:
        ids = {id(block) for block in blocks}
        kinds = {type(block) for block in blocks}
        bases = {base for kind in kinds for base in kind.__mro__}
        users = {base for base in bases if of_user(base.__module__)}
        self.objects = {
            name for block in blocks if of_user(type(block).__module__) for name in vars(block)
            if _is_object(vars(block)[name], ids)
        } | {
            name for base in users for name, item in vars(base).items()
            if type(item) not in PLAIN and type(item) not in _METHODS
        }  # fmt: skip
        self.of_package = {name for base in bases - users for name in vars(base)} - _RUNS


def _is_object(held: object, blocks: set[int]) -> bool:
    """Whether an attribute is neither a plain value, nor a Parameter, nor a Block of the tree. blocks : their ids"""
    is_parameter = isinstance(held, AnyParameter) and not of_user(type(held).__module__)
    return not (type(held) in PLAIN or is_parameter or id(held) in blocks)


def _runs_other_code(block: Any) -> bool:
    """Whether a call of the Block runs code beside its class's: hooks, functions among its attributes, Parameters of a
    user's class.
    """
    held = vars(block)
    return bool(
        block._forward_hooks
        or block._forward_pre_hooks
        or not _CODE.isdisjoint(held)
        or any(of_user(type(each).__module__) for each in block._reg_params.values())
        or code_held(block)
    )


def _names_no_effect(block: Any, known: _Names) -> bool:
    """Whether all names in the user's code of a Block are known to have no effect. known : those of its tree"""
    kind, held = type(block), vars(block)
    if any(replaced(base, _CODE) for base in kind.__mro__ if not of_user(base.__module__)):
        return False
    if not of_user(kind.__module__):
        return not bases_of_user(kind)
    items = [(name, item) for base in bases_of_user(kind) for name, item in vars(base).items()]
    methods = [(name, functions_in(item)) for name, item in items if type(item) in _METHODS]
    if of_user(type(kind).__module__) or any(len(functions) != 1 for _, functions in methods):  # a decorator's code
        return False
    if any(_is_implied(name) and _may_run(item) for name, item in items):
        return False
    own = {name for name, _ in methods} - known.objects - known.of_package
    unknown = _AMBIGUOUS | known.objects | known.of_package
    functions = [each for each in functions_of(kind) if each.__name__ != "__init__"]
    names = {name for each in functions for name in facts_of(each.__code__).loaded}
    compares = any(facts_of(each.__code__).compares for each in functions)
    return all(_reads_plain(each, kind) for each in functions) and all(
        name in own
        or (name in held and name not in known.objects)
        or (name not in unknown and not hasattr(kind, name) and (name in _READ or is_loaded(name)))
        or (name == "__name__" and not compares)
        for name in names
    )


def _is_implied(name: str) -> bool:
    """Whether Python runs what a class has under this name although no code names it."""
    return name in _CODE or (name.startswith("__") and name.endswith("__"))


def _may_run(item: object) -> bool:
    """Whether an attribute of a class is an object that code of its own makes a call of."""
    if type(item) in _METHODS or isinstance(item, (GetSetDescriptorType, type)):
        return False
    return callable(item) or hasattr(type(item), "__get__")


def _reads_plain(function: FunctionType, kind: type) -> bool:
    """Whether a function of a class reads only numbers, texts, examined functions and builtins from outside."""
    facts = facts_of(function.__code__)
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    around = map(cell_content, function.__closure__ or ())
    values += [value for value in around if not any(value is base for base in kind.__mro__)]
    return (
        not (facts.keeps or facts.modules)
        and all(type(value) in PLAIN for value in values)
        and all(map(_is_harmless, facts.globals, [function.__globals__] * len(facts.globals)))
    )


def _is_harmless(name: str, names: dict[str, Any]) -> bool:
    """Whether a global is a plain value, a function of the user's or a builtin without effects."""
    if name not in names:
        value = getattr(builtins, name, None)
        return name in _PURE or (isinstance(value, type) and issubclass(value, Exception))
    value = names[name]
    return type(value) in PLAIN or (type(value) is FunctionType and of_user(value.__module__))
