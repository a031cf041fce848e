"""Which values a ValueGuard compares.

An assignment to an attribute of a Block is noticed by `HybridBlock.__setattr__`. A guard compares values that change
without such an assignment: the methods of classes and the code of functions, globals, variables of functions around,
attributes of classes, objects and modules, contents of containers and small NumPy arrays, versions of NDArrays, and
attributes of the user's Blocks that Python changes without `HybridBlock.__setattr__`.
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import functools
import inspect
import io
import operator
import os
import re
import sys
import threading
import weakref
from array import array
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hybrid_lab.context import current_context
from hybrid_lab.hybridize.block import OWN, AnyBlock, AnyParameter, tree_of
from hybrid_lab.hybridize.stale.code import ANY, bases_of_user, facts_of, of_user
from hybrid_lab.hybridize.stale.reached import READERS, Reached, has_no_values, names_in_package
from hybrid_lab.hybridize.stale.value_guard import PLAIN, Numbers, ValueGuard, plain_key
from hybrid_lab.mxnet.util import is_np_array, is_np_shape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.symbol.symbol import Symbol

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

MAX_PARTS = 300
"""Values that one guard compares. Comparing them takes some microseconds."""
MAX_BYTES = 1 << 20
"""Of a NumPy array that is compared."""
_DEEP = 8
"""Levels of containers and objects that are looked into."""
#: The descriptor of a field of a namedtuple.
_FIELD: type = type(vars(namedtuple("_Point", "x"))["x"])  # noqa: PYI024 - typing makes the same
#: Values that cannot change; another one in their place is another object.
_FIXED = (str, bytes, int, float, complex, range, slice, type(...),
          CodeType, Enum, re.Pattern, np.dtype, np.generic, _FIELD)  # fmt: skip
#: Have ways of their own to tell that they changed.
_TOLD = (AnyParameter, Symbol)
#: Attributes of a Parameter that no call notices.
_OF_PARAMETERS = frozenset({"grad_req", "init", "lr_mult", "wd_mult"})
#: Modules of Python whose objects say nothing that a graph could depend on, or never change.
_NEUTRAL = frozenset({
    "_thread", "abc", "contextlib", "datetime", "decimal", "fractions", "inspect", "logging", "operator", "pathlib",
    "threading", "typing", "uuid", "warnings", "zoneinfo",
})  # fmt: skip
#: Objects around memory of their own or of others, without attributes.
_MEMORY: tuple[Any, ...] = (memoryview,)
_MAPPED: tuple[Any, ...] = ()
with contextlib.suppress(ImportError):  # a Python in a browser may have neither
    import ctypes

    _MEMORY = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union, memoryview)
with contextlib.suppress(ImportError):
    import mmap

    _MAPPED = (mmap.mmap,)
#: Views of a dict, which is their `mapping`.
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
#: Types of compared values on modules of Python and of installed packages.
_SIMPLE = PLAIN | {list, dict, set}
#: Packages whose objects are compared in all their attributes, whichever the code names.
_WHOLE = frozenset({"collections", "scipy", "torch"})
#: Modules of Python whose objects are compared.
_OPEN = frozenset({"argparse", "collections", "types"})
_WRITTEN_IN_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE of `type.__flags__`: other classes may hold what is no attribute."""
_DRAWING = (np.random.RandomState, np.random.Generator)
_BUILTINS = vars(builtins)
_PACKAGE = __name__.partition(".")[0]
#: Builtins that tools replace for a while, and on which no graph depends.
_OUTPUT = frozenset({"display", "input", "open", "print"})
#: Functions that tell of a setting.
_STATES: dict[str, Callable[[], Any]] = {
    "current_context": lambda: str(current_context()), "get_printoptions": lambda: repr(np.get_printoptions()),
    "getcwd": os.getcwd, "geterr": lambda: repr(np.geterr()), "getrecursionlimit": sys.getrecursionlimit,
    "is_np_array": is_np_array, "is_np_shape": is_np_shape,
}  # fmt: skip
#: Functions and methods that read the environment.
_ENVIRONMENT = ("environ", "getenv")


def guard_of(block: Tree) -> ValueGuard | None:
    """A guard of the values that the code of a Block and of those below it reads now; None if it reads none."""
    blocks = tree_of(block)
    kinds = {type(each) for each in blocks}
    reached, size, guard = Reached(kinds), -1, ValueGuard()
    while size != reached.size:  # what is found may have code of its own, which reads more
        size = reached.size
        guard = _Walk(blocks, reached).guard
    guard.functions = tuple(reached.functions)
    return guard or None


def _is_of_user(code: Any) -> bool:
    return isinstance(code, (FunctionType, MethodType, functools.partial)) or of_user(type(code).__module__)


def _refers_to(reference: Callable[[], Any], number: int) -> bool:
    """Whether a weak reference has its object. number : the `id` of the object; None has another one"""
    return id(_referent(reference)) == number


def _referent(reference: Callable[[], Any]) -> Any:
    """The object of a weak reference; of a reference to a method, the object of the method. None if it is gone."""
    target = reference()
    return getattr(target, "__self__", target) if isinstance(reference, weakref.WeakMethod) else target


def _attribute_of(reference: Callable[[], Any], name: str) -> Any:
    """An attribute of the object of a weak reference."""
    return getattr(_referent(reference), name)


def _has_names(attributes: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Whether an object or class has the attributes of these names, and no others."""
    return attributes.keys() == names


def _is_formed(reference: Callable[[], Any], kind: type, names: frozenset[str], own: frozenset[str]) -> bool:
    """Whether the object of a weak reference is of this class, and has just these attributes of `names` of its own."""
    target = _referent(reference)
    return type(target) is kind and names.intersection(_dict_of(target) or ()) == own


class _Plain:
    """An object that holds attributes only."""


def _has_only_attributes(value: Any) -> bool:
    """Whether an object has no slots, and is no container, array, Block or class: it is as large as a plain object."""
    kind = type(value)
    is_as_large = (kind.__basicsize__, kind.__itemsize__) == (_Plain.__basicsize__, _Plain.__itemsize__)
    return is_as_large and _dict_of(value) is not None and of_user(kind.__module__) and not isinstance(value, AnyBlock)


def _decimal_context() -> str:
    """What the numbers of `decimal` are computed with, without the flags that computing sets."""
    context: Any = sys.modules["decimal"].getcontext()
    return repr((context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp))


@functools.lru_cache(maxsize=64)
def _attributes_of_parameters(kind: Any) -> frozenset[str]:
    """The attributes of every Parameter. kind : the class of one"""
    base = next(each for each in kind.__mro__ if AnyParameter in each.__bases__)
    return frozenset(dir(base()))


class _Walk:
    """Finds the values of a guard: from the functions that a trace can reach to all that they name.

    reached : these functions, with the names of attributes that they read
    """

    def __init__(self, blocks: list[Tree], reached: Reached):
        self.guard, self.reached = ValueGuard(), reached
        self.parts = 0
        self.places: set[tuple[int, Any]] = set()
        self.outside: set[int] = set()  # Blocks that are no children
        self.classes: set[int] = set()
        self.kinds: set[type] = set()  # of Blocks
        self.names: dict[tuple[str, int], int] = {}
        #: id of an object -> its attributes, what messages call it, and the names that `_absent` is given
        self.missing: dict[int, tuple[Any, str, set[str]]] = {}
        self.blocks = list(blocks)
        self.seen: dict[int, object] = {id(each): each for each in self.blocks}
        for function in tuple(reached.functions):
            self._function(function)
        for block in self.blocks:  # the list grows by Blocks that are held without being children
            self._block(block)
        for held, said, names in self.missing.values():
            if names:
                self._call(held.keys().isdisjoint, (frozenset(names),), f"{said} ({', '.join(sorted(names))})")

    # -- where values begin ----------------------------------------------------------------------------------

    def _block(self, block: Tree) -> None:
        kind: Any = type(block)
        held = vars(block)
        is_users, in_package = of_user(kind.__module__), names_in_package(kind)
        # Methods of a base class in this package read attributes, too.
        names = self.reached.names | in_package if is_users else self.reached.names
        if kind not in self.kinds:  # all Blocks of a class run the same code
            self.kinds.add(kind)
            self._code(kind)
        self._class(type(kind), f"type({kind.__name__})")
        for name, value in () if is_users else tuple(held.items()):
            if name in OWN:
                continue
            if callable(value) and not isinstance(value, (AnyBlock, type)) and _is_of_user(value):
                self._look(value, f"{block.name}.{name}")  # code, as of nn.HybridLambda(lambda F, x: x * RATE)
            elif type(value) is dict and name in in_package:  # the settings of a layer
                self._settings(value, f"{block.name}.{name}")
        for name, value in tuple(held.items()):
            if name not in OWN and self._is_read(name, names):
                is_outside = id(block) in self.outside
                # A child that is replaced past `__setattr__` is not worth a comparison of each.
                if is_outside or (is_users and not isinstance(value, (AnyBlock, AnyParameter))):
                    self._item(held, name, value, f"{block.name if is_outside else 'self'}.{name}")
                self._look_by_name(value, f"self.{name}", name)
        for parameter in dict.fromkeys((*block._reg_params.values(), *block.params.values())):
            self._parameter(parameter, parameter.name)
            if is_users:
                missing = [each for each in self.reached.asked if not hasattr(type(parameter), each)]
                self._absent(parameter, missing, parameter.name)
        if is_users and self.reached.asked:
            self._absent(block, self.reached.asked, block.name)
            self._absent_in_classes(kind)
        if "params" in names:
            self._call(block.params.__len__, (), f"len({block.name}.params)")
        self.guard.is_partial |= self.reached.any_name
        if self.reached.any_name:
            names = {
                *names,
                *(name for base in bases_of_user(kind) for name in vars(base) if self.reached.may_be_made(name)),
            }
        for name in names:
            if name in held or name in OWN:
                continue
            owner = next((base for base in kind.__mro__ if name in vars(base)), None)
            if owner is None:
                continue
            value = vars(owner)[name]
            if not of_user(owner.__module__) and (name not in self.reached.names or not _is_value(value)):
                continue
            if _is_value(value):
                # Compared on the Block: an attribute of the instance may later hide the class attribute.
                self._attribute(block, name, value, f"{owner.__name__}.{name}")
                self.guard.of_classes.append((owner, name, value))
            else:
                self._descriptor(owner, name, value)

    def _descriptor(self, owner: type, name: str, value: object) -> None:
        """An attribute of a class that is no value: a descriptor of a class of the user's, whose methods run, or one of
        functools, such as `partialmethod`.
        """
        if of_user(type(value).__module__) and not isinstance(value, (FunctionType, functools.cached_property)):
            self._item(vars(owner), name, value, f"{owner.__name__}.{name}")

    def _settings(self, settings: dict[str, Any], name: str) -> None:
        """Plain values by name, which are compared as a whole."""
        described = {_subscript(key): _description(part) for key, part in settings.items()}
        self.guard._calls.append([settings.__eq__, (dict(settings),), True, f"{name}[:]", described])

    def _code(self, kind: type) -> None:
        """The functions that a class has under the names of what a trace reaches."""
        for name in self.reached.code_of(kind):
            item = inspect.getattr_static(kind, name, None)
            said = f"{kind.__name__}.{name}"
            if isinstance(item, (FunctionType, property, staticmethod, functools.cached_property)):
                self._attribute(kind, name, getattr(kind, name), said)
            elif isinstance(item, classmethod):  # read from the class, it is another object each time
                self._call(inspect.getattr_static, (kind, name), said)
                self.reached.add_constructors(kind)  # it may call the class
            for base in kind.__mro__[1:-1]:  # `super()` calls what the class hides
                hidden = vars(base).get(name, item)
                if hidden is not item and base.__module__.partition(".")[0] != _PACKAGE:
                    self._item(vars(base), name, hidden, f"{base.__name__}.{name}")

    def _parameter(self, parameter: Any, name: str) -> None:
        """What code may read of a Parameter beside its array, shape and dtype."""
        for each in _OF_PARAMETERS & self.reached.names:
            self._attribute(parameter, each, getattr(parameter, each), f"{name}.{each}")
        self._class(type(parameter), type(parameter).__name__)
        held = vars(parameter)
        kind: type = type(parameter)
        for each in held.keys() - _attributes_of_parameters(kind):
            if self._is_read(each, self.reached.names):
                self._item(held, each, held[each], f"{name}.{each}")

    def _absent_in_classes(self, kind: type) -> None:
        """Compare that no class of the user's gets a missing attribute for which the code looks."""
        for base in kind.__mro__:
            if issubclass(base, AnyBlock) or (of_user(base.__module__) and not _is_of_python(base)):
                self._absent(base, [name for name in self.reached.asked if not hasattr(kind, name)], base.__name__)

    def _special_methods(self, kind: type) -> None:
        """Compare that a class of the user's, or a base of it, gets and loses no special method, such as `__bool__`,
        which Python runs without its name in the code: by the names of its attributes.
        """
        for base in bases_of_user(kind):
            if not _is_of_python(base) and (id(base), "special") not in self.places:
                self.places.add((id(base), "special"))
                held = vars(base)
                special = tuple(sorted(name for name in held if name.startswith("__") and callable(held[name])))
                name = self._unique(f"the special methods of {base.__name__}", self.guard._calls)
                self.guard._calls.append([_has_names, (held, frozenset(held)), True, name, special])

    def _function(self, function: FunctionType) -> None:
        self._attribute(function, "__code__", function.__code__, f"the code of {function.__qualname__}")
        if function.__defaults__:
            self._attribute(function, "__defaults__", function.__defaults__, f"the defaults of {function.__qualname__}")
        names = function.__globals__
        read = self.reached.globals_of(function)
        for name in read:
            if name in names and _is_named_value(names[name]):
                self._item(names, name, names[name], name)
            elif isinstance(names.get(name), ModuleType):
                self._look(names[name], name)
            elif name in _BUILTINS and name not in names and _is_named_builtin(name, _BUILTINS[name]):
                self._item(_BUILTINS, name, _BUILTINS[name], name)
            if getattr(names.get(name), "__module__", None) == "decimal":
                self._call(_decimal_context, (), "decimal.getcontext()")
        facts = facts_of(function.__code__)
        loaded = {*read, *facts.loaded}
        for name in _STATES.keys() & loaded:
            self._call(_STATES[name], (), f"{name}()")
        if not READERS.isdisjoint(loaded):
            from hybrid_lab.hybridize.stale.read_files import files_read

            for name in files_read(function, self.reached, self.blocks):
                self._cannot(name, "it reads files")
        for name in self.reached.makes_globals & loaded:
            self._cannot(name, "it reads names that are made at run time")
        self._absent(names, read, f"the globals of {function.__module__}")
        modules = self.reached.modules_of(function)
        for name in modules:
            if name in sys.modules:
                self._look(sys.modules[name], name)
            if of_user(name) and not has_no_values(name):
                self._call(sys.modules.get, (name,), f"sys.modules[{name!r}]")  # loaded by the trace, or anew
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if name != "__class__":
                try:
                    self._attribute(cell, "cell_contents", cell.cell_contents, name)
                except ValueError:  # not set yet
                    continue
        if function.__kwdefaults__:
            said = f"the keyword defaults of {function.__qualname__}"
            self._attribute(function, "__kwdefaults__", function.__kwdefaults__, said)
        for name, value in vars(function).items():
            # functools.singledispatch has its functions in `registry`.
            if (name in self.reached.names and name != "__wrapped__") or name == "registry":
                self._item(vars(function), name, value, f"{function.__qualname__}.{name}")
        if names.get(function.__name__) is function:
            self._absent(function, self.reached.asked, function.__qualname__)
        for name in loaded.intersection(_ENVIRONMENT):
            self._environment(self.reached.subscripts.get(name))

    def _environment(self, keys: Iterable[Any] | None = None) -> None:
        """Some variables of the environment; all of them if the code names them at run time."""
        if keys is not None:
            for key in keys:
                if type(key) is str:
                    self._call(os.environ.get, (key,), f"os.environ[{key!r}]")
        elif (id(os.environ), ANY) not in self.places:
            self.places.add((id(os.environ), ANY))
            data = os.environ._data  # type: ignore[attr-defined]
            described = {_subscript(key): _description(value) for key, value in os.environ.items()}
            self.guard._calls.append([dict(data).__eq__, (data,), True, "os.environ", described])

    # -- values by their names -------------------------------------------------------------------------------

    def _item(self, mapping: Any, key: Any, value: Any, name: str) -> None:
        self._add(self.guard._items, mapping, key, value, name)

    def _attribute(self, owner: object, attribute: str, value: Any, name: str) -> None:
        self._add(self.guard._attributes, owner, attribute, value, name)

    def _absent(self, owner: Any, names: Iterable[str], said: str) -> None:
        """Compare that no missing name of `names` appears in a dict, or among the attributes of an object."""
        held = owner if isinstance(owner, dict) else vars(owner)
        self.missing.setdefault(id(owner), (held, said, set()))[2].update(name for name in names if name not in held)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], name: str) -> None:
        # A weak reference is hashed by hashing its object, which may be unhashable.
        place = tuple(id(each) if isinstance(each, weakref.ref) else each for each in arguments)
        self._add(self.guard._calls, function, arguments, function(*arguments), name, place)

    def _add(self, group: list[list[Any]], owner: Any, what: Any, value: Any, name: str, place: Any = None) -> None:
        """place : tells two values of one owner apart, by default `what`"""
        place = id(owner), what if place is None else place
        if place not in self.places:
            self.places.add(place)
            self.parts += 1
            group.append([owner, what, value, self._unique(name, group), _description(value)])
            self._look_by_name(value, name, what)

    def _look_by_name(self, value: Any, name: str, last: object) -> None:
        """For a list or dict that the code only subscripts with constants, compare only the entries at these constants.

        last : the name of the attribute or variable
        """
        last = name if last == "cell_contents" else last
        if isinstance(value, type) and last in self.reached.called:
            self.reached.add_constructors(value)
        keys = self.reached.subscripts.get(last) if type(last) is str else None
        if keys is None or type(value) not in (list, dict):
            self._look(value, name)
            return
        there = value if isinstance(value, dict) else range(-len(value), len(value))
        for key in keys:
            if key in there:
                self._item(value, key, value[key], f"{name}[{key!r}]")
                if isinstance(value[key], type):
                    self.reached.add_constructors(value[key])
            elif isinstance(value, dict):
                self._call(value.__contains__, (key,), f"{key!r} in {name}")
            else:
                self._call(value.__len__, (), f"len({name})")

    def _unique(self, name: str, group: list[list[Any]]) -> str:
        """Two Blocks may have attributes of one name."""
        count = self.names[name, id(group)] = self.names.get((name, id(group)), 0) + 1
        return name if count == 1 else f"{name} ({count})"

    def _is_read(self, name: str, names: Iterable[str]) -> bool:
        return self.reached.any_name or name in names

    # -- what values hold ------------------------------------------------------------------------------------

    def _look(self, value: Any, name: str, depth: int = 0) -> None:
        """Compare the contents of a mutable value, also at the next calls."""
        kind = type(value)
        if kind is str:
            self.reached.add_pieces([value])
        if kind in PLAIN or id(value) in self.seen:
            return
        if isinstance(value, AnyParameter):
            self._parameter(value, name)
        if isinstance(value, _FIXED) and of_user(kind.__module__) and not _is_of_python(kind):
            self.seen[id(value)] = value
            self._object(value, name, depth, is_container=True)
        if isinstance(value, (*_FIXED, *_TOLD)):
            return
        if isinstance(value, (BuiltinFunctionType, MethodWrapperType)):
            owner: Any = value.__self__
            if not isinstance(owner, (ModuleType, type)):
                self._look(owner, name, depth)
            return
        self.seen[id(value)] = value
        self.guard.is_partial |= not isinstance(value, (FunctionType, AnyBlock, ModuleType))
        if depth > _DEEP or self.parts > MAX_PARTS:
            self._cannot(name, "it holds too much")
        elif isinstance(value, NDArray):  # the code may read numbers of it
            self._tensor(value, name)
        elif isinstance(value, AnyBlock):
            self._held_block(cast("Tree", value))
        elif isinstance(value, Iterator):
            if not (isinstance(value, io.IOBase) and (value.closed or not value.readable())):  # no log file
                self.guard.iterators.append(name)
        elif isinstance(value, (np.ndarray, bytearray, array)):
            self._array(value, name, depth)
            self._object(value, name, depth, is_container=True)
        elif isinstance(value, _MEMORY) and memoryview(value).contiguous and memoryview(value).nbytes:
            self._array(np.frombuffer(memoryview(value), np.uint8), name, depth)
        elif isinstance(value, _MAPPED) and len(value) <= MAX_BYTES:  # an array over it would keep it open
            self._call(bytes, (value,), f"{name}[:]")
        elif isinstance(value, _VIEWS):
            self._look(value.mapping, name, depth)
        elif isinstance(value, (dict, list, tuple, deque, set, frozenset, MappingProxyType)):
            self._container(value, name, depth)
        elif kind.__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr"):
            self._torch_tensor(value, name, depth)
        elif isinstance(value, FunctionType):
            self.reached.add(value)
        elif isinstance(value, MethodType):
            self._look(value.__func__, name, depth + 1)
            self._look(value.__self__, f"{name}.__self__", depth + 1)
        elif isinstance(value, (functools.partial, functools.partialmethod)):
            for part in (value.func, value.args, value.keywords):
                self._look(part, name, depth + 1)
        elif isinstance(value, functools.singledispatchmethod):
            self._look(value.dispatcher, name, depth + 1)
        elif isinstance(value, contextvars.ContextVar):
            self._call(value.get, (None,), f"{name}.get()")
        elif isinstance(value, (operator.attrgetter, operator.methodcaller)):
            self.reached.add_texts(part for part in value.__reduce__()[1] if isinstance(part, str))
        elif kind.__module__ == "decimal":
            self._call(_decimal_context, (), "decimal.getcontext()")
        elif isinstance(value, weakref.ref):
            self._weak_reference(value, name)
        elif value is os.environ:
            self._environment()
        elif isinstance(value, ModuleType):
            self._module(value, name)
        elif isinstance(value, type):
            self._class(value, name)
            if depth:  # an entry of a container
                self.reached.add_constructors(value)
        elif isinstance(value, _DRAWING):
            self._cannot(name, f"it is a {kind.__qualname__}")
        else:
            self._object(value, name, depth)

    def _weak_reference(self, reference: weakref.ref[Any], name: str) -> None:
        """Whether the object is there, and what it holds. The guard does not keep an object of attributes alive."""
        target = _referent(reference)
        self._call(_refers_to, (reference, id(target)), f"{name}()")
        if target is None:
            return
        if not _has_only_attributes(target):
            self._look(target, f"{name}()")
            return
        kind = type(target)
        self._class(kind, f"type({name}())")
        names = frozenset(each for each in self.reached.names | self.reached.asked if not each.startswith("__"))
        own = names.intersection(_dict_of(target) or ())
        self._call(_is_formed, (reference, kind, names, own), f"the attributes of {name}()")
        values = (each for base in bases_of_user(kind) for each, part in vars(base).items() if _is_value(part))
        for each in dict.fromkeys((*(_dict_of(target) or ()), *values)):
            if self._is_read(each, self.reached.names) and not each.startswith("__"):
                self._call(_attribute_of, (reference, each), f"{name}().{each}")
        if isinstance(reference, weakref.WeakMethod):
            self._look(reference().__func__, name)  # type: ignore[union-attr]

    def _held_block(self, block: Tree) -> None:
        """A Block that is no child: no Block above hears of its changes."""
        blocks = tree_of(block)
        for each in blocks:
            self.seen[id(each)] = each
            self.outside.add(id(each))
            self._item(vars(each), "_structure_version", each._structure_version, f"the structure of {each.name}")
        self.blocks += blocks
        self.reached.add_kinds({type(each) for each in blocks})

    def _array(self, value: Any, name: str, depth: int) -> None:
        data = memoryview(value)
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            if value.size <= MAX_PARTS:
                self._look(tuple(value.flat), name, depth + 1)
            self._cannot(name, "it is an array of objects")
        elif data.readonly and (not isinstance(value, np.ndarray) or not _writeable_below(value)):
            return
        elif data.nbytes > MAX_BYTES:
            self._cannot(
                name, f"it has {data.nbytes / 2**20:.1f} MiB; `{name}.setflags(write=False)` says that it never changes"
            )
        else:
            held = value.tobytes() if not isinstance(value, bytearray) else bytes(value)
            view = value if not isinstance(value, bytearray) else memoryview(value)
            self.parts += 1
            self.guard._arrays.append([view, None, held, self._unique(f"{name}[:]", self.guard._arrays), held])

    def _torch_tensor(self, value: Any, name: str, depth: int) -> None:
        """A tensor of torch: its numbers, which other tensors and arrays may share, and which memory holds them."""
        try:
            numbers = value.detach().numpy()
        except (RuntimeError, TypeError):  # on a GPU, sparse, of a type that NumPy does not have
            self._attribute(value, "_version", value._version, f"{name}[:]")
            self._cannot(name, "its numbers are out of NumPy's reach")
            return
        self._call(value.data_ptr, (), f"{name}.data")
        self._array(numbers, name, depth)

    def _tensor(self, value: NDArray, name: str) -> None:
        if value.stype != "default":
            self._cannot(name, "it is a sparse array")
            return
        self.parts += 1
        version = value.version
        numbers = Numbers(value.asnumpy()) if value.size * np.dtype(value.dtype).itemsize <= MAX_BYTES else version
        self.guard._tensors.append([value, None, version, self._unique(f"{name}[:]", self.guard._tensors), numbers])

    def _container(self, value: Any, name: str, depth: int) -> None:
        by_key = isinstance(value, (dict, MappingProxyType))
        pairs = list(value.items()) if by_key else list(enumerate(list(value)))
        if isinstance(value, (list, dict, deque, set, MappingProxyType)):
            if self.parts + len(pairs) > MAX_PARTS and len(pairs) > 8:
                self._cannot(name, f"it has {len(pairs)} entries")
                return
            self.parts += len(pairs)
            self._compare_parts(value, pairs, name)
        if isinstance(value, (set, frozenset)):
            for part in value:
                self._look(part, f"an entry of {name}", depth + 1)
            return
        for key, part in pairs:
            self._look(part, name + _subscript(key), depth + 1)
            if type(key) not in PLAIN:
                self._look(key, f"a key of {name}", depth + 1)
        if _dict_of(value) is not None:
            self._object(value, name, depth, is_container=True)

    def _compare_parts(self, value: Any, pairs: list[tuple[Any, Any]], name: str) -> None:
        keys, parts = [key for key, _ in pairs], [part for _, part in pairs]
        described: dict[str, object] = {_subscript(key): _description(part) for key, part in pairs}
        if isinstance(value, set):
            described = {"{}": frozenset(map(_description, parts))}
        elif isinstance(value, dict):
            described[" (the order of its keys)"] = tuple(map(_description, keys))
        by_key = isinstance(value, (dict, MappingProxyType))
        group = self.guard._dicts if by_key else self.guard._sequences
        group.append([value, keys if by_key else None, parts, self._unique(name, group), described])

    def _module(self, module: ModuleType, name: str) -> None:
        held = vars(module)
        for each in sorted(self.reached.names & held.keys()):
            if not _is_settings(module):  # a value that was put there, as on `sys`
                if type(held[each]) in _SIMPLE or _is_function_of_user(held[each]):
                    self._item(held, each, held[each], f"{name}.{each}")
                elif isinstance(held[each], type) and not of_user(held[each].__module__):
                    self._class(held[each], f"{name}.{each}")
            elif isinstance(held[each], ModuleType):
                self._look(held[each], f"{name}.{each}")
            elif _is_named_value(held[each]):
                self._item(held, each, held[each], f"{name}.{each}")
        if module.__name__ == "decimal":
            self._call(_decimal_context, (), "decimal.getcontext()")
        if _is_settings(module):
            self._absent(module, self.reached.asked, name)
            if "__getattr__" in held:
                self._look(held["__getattr__"], f"{name}.__getattr__")

    def _class(self, kind: type, name: str) -> None:
        if id(kind) in self.classes:
            return
        self.classes.add(id(kind))
        if not of_user(kind.__module__):  # a value that was put there
            for each in self.reached.names & vars(kind).keys():
                if type(vars(kind)[each]) in PLAIN:
                    self._attribute(kind, each, getattr(kind, each), f"{name}.{each}")
            return
        if issubclass(kind, AnyBlock) or _is_of_python(kind):
            return
        self.reached.add_kinds([kind], begin=frozenset())
        self._code(kind)
        self._class(type(kind), f"type({name})")
        self._special_methods(kind)
        self._absent_in_classes(kind)
        for base in bases_of_user(kind):
            if not _is_of_python(base):
                for each, value in list(vars(base).items()):
                    if self._is_read(each, self.reached.names) and not each.startswith("__") and _is_value(value):
                        said = f"{base.__name__}.{each}"
                        if inspect.getattr_static(kind, each) is value:  # a derived class may come to hide it
                            self._attribute(kind, each, value, said)
                        else:
                            self._item(vars(base), each, value, said)
                        self.guard.of_classes.append((base, each, value))
                    elif each in self.reached.names and not _is_value(value):
                        self._descriptor(base, each, value)

    def _object(self, value: object, name: str, depth: int, is_container: bool = False) -> None:
        kind = type(value)
        if isinstance(value, threading.local):  # each thread has attributes of its own
            for each in sorted(vars(value)):
                if self._is_read(each, self.reached.names):
                    self._attribute(value, each, getattr(value, each), f"{name}.{each}")
            return
        if kind.__module__ == "multiprocessing.sharedctypes" and hasattr(value, "get_obj"):
            self._look(value.get_obj(), name, depth)
            return
        root = kind.__module__.partition(".")[0]
        # The names that its own methods read are not known.
        whole = root in _WHOLE or (root == "numpy" and callable(value))
        if _is_of_python(kind) and not is_container and kind.__module__ not in _OPEN:
            if isinstance(value, functools._lru_cache_wrapper):
                self._look(value.__wrapped__, name, depth + 1)
            elif root not in _NEUTRAL and kind.__module__ != "builtins":
                self._cannot(name, f"it is a {kind.__qualname__}")
            return
        held = _dict_of(value)
        slots = [each for base in kind.__mro__ for each in _slots(base)]
        if held is None and not slots:
            if not is_container and not callable(value):
                self._cannot(name, f"it is a {kind.__qualname__}, whose attributes are not known")
            return
        if of_user(kind.__module__):
            self._class(kind, name)
            if not is_container and not _is_of_python(kind):
                self._attribute(value, "__class__", kind, f"type({name})")
        else:
            self.reached.add_names_of(kind)
        if held is not None:
            read = tuple(each for each in held if whole or self._is_read(each, self.reached.names))
            attributes = self._unique(f"the attributes of {name}", self.guard._calls)
            self.guard._calls.append([_has_names, (held, frozenset(held)), True, attributes, read])
            for each in read:
                self._item(held, each, held[each], f"{name}.{each}")
        for each in slots:
            if self._is_read(each, self.reached.names) and hasattr(value, each):
                self._attribute(value, each, getattr(value, each), f"{name}.{each}")
            elif each in self.reached.asked:
                self._call(hasattr, (value, each), f"{name}.{each}")

    def _cannot(self, name: str, reason: str) -> None:
        self.guard.unwatched.setdefault(name, reason)


def _description(value: Any) -> object:
    """Equal for equal plain values; of what holds others the kind; of all else which object it is."""
    if type(value) in PLAIN:
        return plain_key(value)
    if isinstance(value, (tuple, frozenset)):
        return type(value).__qualname__, *map(_description, value)
    if isinstance(value, (dict, list, deque, set, np.ndarray)):
        return type(value).__qualname__
    if isinstance(value, FunctionType):
        # The variables around the user's functions are compared; `npx.relu` and `npx.sigmoid` are of one code.
        if not value.__closure__ or (of_user(value.__module__) and not has_no_values(value.__module__)):
            return "function", value.__code__
        return "object", id(value)
    if isinstance(value, CodeType):
        return "code", value
    if isinstance(value, (np.generic, np.dtype, range, slice)):
        return type(value), repr(value)
    if isinstance(value, functools.partial):
        keywords = tuple((name, _description(each)) for name, each in sorted(value.keywords.items()))
        return "partial", _description(value.func), tuple(map(_description, value.args)), keywords
    for plain in (int, float, complex, str, bytes):  # of a class of the user's
        if isinstance(value, plain) and not isinstance(value, Enum):
            return type(value).__qualname__, plain.__repr__(value)
    if _dict_of(value) is not None and not isinstance(value, (type, AnyBlock, NDArray, Enum)):
        kind = type(value)
        if kind.__module__ in _OPEN or not (has_no_values(kind.__module__) or _is_from_c(kind)):
            return kind.__qualname__
    return "object", id(value)


def _is_from_c(kind: type) -> bool:
    """Whether an object of a class may hold what is no attribute."""
    return not all(base.__flags__ & _WRITTEN_IN_PYTHON for base in kind.__mro__ if base is not object)


def _dict_of(value: object) -> dict[str, Any] | None:
    """The attributes of an object; code of its class is not run."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def _subscript(key: object) -> str:
    return f"[{key!r}]" if isinstance(key, (str, int)) else f"[{key!s:.20}]"


def _is_value(item: object) -> bool:
    """Whether an attribute of a class is a value, neither a method nor a descriptor."""
    return not (isinstance(item, (FunctionType, staticmethod, classmethod, property)) or hasattr(type(item), "__get__"))


def _is_named_builtin(name: str, value: object) -> bool:
    """Whether a name that `builtins` has is compared: tools replace `print` and the like for a while."""
    is_error = isinstance(value, type) and issubclass(value, BaseException)
    return name not in _OUTPUT and not name.startswith("__") and not is_error


def _is_named_value(value: object) -> bool:
    """Whether a global is compared: modules and classes of Blocks are not."""
    return not (isinstance(value, ModuleType) or (isinstance(value, type) and issubclass(value, AnyBlock)))


def _is_function_of_user(value: object) -> bool:
    return isinstance(value, FunctionType) and of_user(value.__module__) and not has_no_values(value.__module__)


def _is_of_python(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in sys.stdlib_module_names or value.__module__ == builtins.__name__


def _is_settings(module: ModuleType) -> bool:
    """Whether a module may be a place for the user's settings: it is neither Python's nor an installed package."""
    root, file = module.__name__.partition(".")[0], str(vars(module).get("__file__"))
    installed = "site-packages" in file or "dist-packages" in file
    return root not in sys.stdlib_module_names and of_user(module.__name__) and not installed


def _writeable_below(value: np.ndarray) -> bool:
    base = value.base
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


def _slots(base: type) -> tuple[str, ...]:
    slots: Any = vars(base).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
