"""Which values a ValueGuard compares.

An assignment to an attribute of a Block is noticed by `HybridBlock.__setattr__`. A guard compares values that change
without such an assignment: the methods of classes and the code of functions, globals, variables of functions around,
attributes of classes, objects and modules, contents of containers and small NumPy arrays, versions of NDArrays, and
attributes of the user's Blocks that Python changes without `HybridBlock.__setattr__`.
"""

from __future__ import annotations

import builtins
import contextvars
import functools
import inspect
import io
import operator
import os
import sys
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, MethodWrapperType, ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hybrid_lab.hybridize.block import OWN, AnyBlock, AnyParameter, tree_of
from hybrid_lab.hybridize.stale import kinds
from hybrid_lab.hybridize.stale.code import ANY, bases_of_user, facts_of, of_user
from hybrid_lab.hybridize.stale.kinds import PLAIN, dict_of, is_of_python, is_value
from hybrid_lab.hybridize.stale.reached import READERS, Reached, has_no_values, names_in_package
from hybrid_lab.hybridize.stale.settings import STATES, decimal_context
from hybrid_lab.hybridize.stale.value_guard import Numbers, ValueGuard, described_key, description
from hybrid_lab.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

MAX_PARTS = 300
"""Values that one guard compares. Comparing them takes some microseconds."""
MAX_BYTES = 1 << 20
"""Of a NumPy array that is compared."""
_DEEP = 8
"""Levels of containers and objects that are looked into."""
#: Attributes of a Parameter that no call notices.
_OF_PARAMETERS = frozenset({"grad_req", "init", "lr_mult", "wd_mult"})
#: Attributes of a Block by which code comes to all of its Parameters.
_WAYS_TO_PARAMETERS = frozenset({"_params", "collect_params", "params"})
_BUILTINS = vars(builtins)
_PACKAGE = __name__.partition(".")[0]
#: Builtins that tools replace for a while, and on which no graph depends.
_OUTPUT = frozenset({"display", "input", "open", "print"})
#: Functions and methods that read the environment.
_ENVIRONMENT = ("environ", "getenv")


def guard_of(block: Tree) -> ValueGuard:
    """A guard of the values that the code of a Block and of those below it reads now."""
    blocks = tree_of(block)
    reached, size, guard = Reached({type(each) for each in blocks}), -1, ValueGuard()
    while size != reached.size:  # what is found may have code of its own, which reads more
        size = reached.size
        guard = _Walk(blocks, reached).guard
    guard.functions = tuple(reached.functions)
    return guard


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
            if callable(value) and not isinstance(value, (AnyBlock, type)) and kinds.is_code_of_user(value):
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
        parameters: Iterable[Any] = block._reg_params.values()
        if self.reached.any_name or not _WAYS_TO_PARAMETERS.isdisjoint(names):  # with Parameters that are no attributes
            parameters = dict.fromkeys((*parameters, *block.params.values()))
            self._call(block.params.__len__, (), f"len({block.name}.params)")
        for parameter in parameters:
            self._parameter(parameter, parameter.name)
            if is_users:
                missing = [each for each in self.reached.asked if not hasattr(type(parameter), each)]
                self._absent(parameter, missing, parameter.name)
        if is_users and self.reached.asked:
            self._absent(block, self.reached.asked, block.name)
            self._absent_in_classes(kind)
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
            if not of_user(owner.__module__) and (name not in self.reached.names or not is_value(value)):
                continue
            if is_value(value):
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
        described = {described_key(key): description(part) for key, part in settings.items()}
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
        for each in held.keys() - kinds.attributes_of_parameters(kind):
            if self._is_read(each, self.reached.names):
                self._item(held, each, held[each], f"{name}.{each}")

    def _absent_in_classes(self, kind: type) -> None:
        """Compare that no class of the user's gets a missing attribute for which the code looks."""
        for base in kind.__mro__:
            if issubclass(base, AnyBlock) or (of_user(base.__module__) and not is_of_python(base)):
                self._absent(base, [name for name in self.reached.asked if not hasattr(kind, name)], base.__name__)

    def _special_methods(self, kind: type) -> None:
        """Compare that a class of the user's, or a base of it, gets and loses no special method, such as `__bool__`,
        which Python runs without its name in the code: by the names of its attributes.
        """
        for base in bases_of_user(kind):
            if not is_of_python(base) and (id(base), "special") not in self.places:
                self.places.add((id(base), "special"))
                held = vars(base)
                special = tuple(sorted(name for name in held if name.startswith("__") and callable(held[name])))
                name = self._unique(f"the special methods of {base.__name__}", self.guard._calls)
                self.guard._calls.append([kinds.has_names, (held, frozenset(held)), True, name, special])

    def _function(self, function: FunctionType) -> None:
        self._attribute(function, "__code__", function.__code__, f"the code of {function.__qualname__}")
        if function.__defaults__:
            self._attribute(function, "__defaults__", function.__defaults__, f"the defaults of {function.__qualname__}")
        names = function.__globals__
        read = self.reached.globals_of(function)
        for name in read:
            if name in names and kinds.is_named_value(names[name]):
                self._item(names, name, names[name], name)
            elif isinstance(names.get(name), ModuleType):
                self._look(names[name], name)
            elif name in _BUILTINS and name not in names and _is_named_builtin(name, _BUILTINS[name]):
                self._item(_BUILTINS, name, _BUILTINS[name], name)
            if getattr(names.get(name), "__module__", None) == "decimal":
                self._call(decimal_context, (), "decimal.getcontext()")
        facts = facts_of(function.__code__)
        loaded = {*read, *facts.loaded}
        for name in STATES.keys() & loaded:
            self._call(STATES[name], (), f"{name}()")
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
            described = {described_key(key): description(value) for key, value in os.environ.items()}
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
            group.append([owner, what, value, self._unique(name, group), description(value)])
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
        if isinstance(value, kinds.FIXED) and of_user(kind.__module__) and not is_of_python(kind):
            self.seen[id(value)] = value
            self._object(value, name, depth, is_container=True)
        if isinstance(value, (*kinds.FIXED, *kinds.TOLD)):
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
        elif isinstance(value, kinds.MEMORY) and memoryview(value).contiguous and memoryview(value).nbytes:
            self._array(np.frombuffer(memoryview(value), np.uint8), name, depth)
        elif isinstance(value, kinds.MAPPED) and len(value) <= MAX_BYTES:  # an array over it would keep it open
            self._call(bytes, (value,), f"{name}[:]")
        elif isinstance(value, kinds.VIEWS):
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
            self._call(decimal_context, (), "decimal.getcontext()")
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
        elif isinstance(value, kinds.DRAWING):
            self._cannot(name, f"it is a {kind.__qualname__}")
        else:
            self._object(value, name, depth)

    def _weak_reference(self, reference: weakref.ref[Any], name: str) -> None:
        """Whether the object is there, and what it holds. The guard does not keep an object of attributes alive."""
        from hybrid_lab.hybridize.stale.weak_references import comparisons, referent

        compared = comparisons(reference, name, self.reached.names, self.reached.asked, self.reached.any_name)
        for function, arguments, said in compared:
            self._call(function, arguments, said)
        target = referent(reference)
        if target is not None and not kinds.has_only_attributes(target):
            self._look(target, f"{name}()")
        elif target is not None:
            self._class(type(target), f"type({name}())")
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
        elif data.readonly and (not isinstance(value, np.ndarray) or not kinds.writeable_below(value)):
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
            self._look(part, name + described_key(key), depth + 1)
            if type(key) not in PLAIN:
                self._look(key, f"a key of {name}", depth + 1)
        if dict_of(value) is not None:
            self._object(value, name, depth, is_container=True)

    def _compare_parts(self, value: Any, pairs: list[tuple[Any, Any]], name: str) -> None:
        keys, parts = [key for key, _ in pairs], [part for _, part in pairs]
        described: dict[str, object] = {described_key(key): description(part) for key, part in pairs}
        if isinstance(value, set):
            described = {"{}": frozenset(map(description, parts))}
        elif isinstance(value, dict):
            described[" (the order of its keys)"] = tuple(map(description, keys))
        group = self.guard._dicts if isinstance(value, (dict, MappingProxyType)) else self.guard._sequences
        group.append([value, keys, parts, self._unique(name, group), described])

    def _module(self, module: ModuleType, name: str) -> None:
        held = vars(module)
        for each in sorted(self.reached.names & held.keys()):
            if not kinds.is_settings(module):  # a value that was put there, as on `sys`
                if type(held[each]) in kinds.SIMPLE or kinds.is_function_of_user(held[each]):
                    self._item(held, each, held[each], f"{name}.{each}")
                elif isinstance(held[each], type) and not of_user(held[each].__module__):
                    self._class(held[each], f"{name}.{each}")
            elif isinstance(held[each], ModuleType):
                self._look(held[each], f"{name}.{each}")
            elif kinds.is_named_value(held[each]):
                self._item(held, each, held[each], f"{name}.{each}")
        if module.__name__ == "decimal":
            self._call(decimal_context, (), "decimal.getcontext()")
        if kinds.is_settings(module):
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
        if issubclass(kind, AnyBlock) or is_of_python(kind):
            return
        self.reached.add_kinds([kind], begin=frozenset())
        self._code(kind)
        self._class(type(kind), f"type({name})")
        self._special_methods(kind)
        self._absent_in_classes(kind)
        for base in bases_of_user(kind):
            if not is_of_python(base):
                for each, value in list(vars(base).items()):
                    if self._is_read(each, self.reached.names) and not each.startswith("__") and is_value(value):
                        said = f"{base.__name__}.{each}"
                        if inspect.getattr_static(kind, each) is value:  # a derived class may come to hide it
                            self._attribute(kind, each, value, said)
                        else:
                            self._item(vars(base), each, value, said)
                        self.guard.of_classes.append((base, each, value))
                    elif each in self.reached.names and not is_value(value):
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
        whole = root in kinds.WHOLE or (root == "numpy" and callable(value))
        if is_of_python(kind) and not is_container and kind.__module__ not in kinds.OPEN:
            if isinstance(value, functools._lru_cache_wrapper):
                self._look(value.__wrapped__, name, depth + 1)
            elif root not in kinds.NEUTRAL and kind.__module__ != "builtins":
                self._cannot(name, f"it is a {kind.__qualname__}")
            return
        held = dict_of(value)
        slots = [each for base in kind.__mro__ for each in kinds.slots_of(base)]
        if held is None and not slots:
            if not is_container and not callable(value):
                self._cannot(name, f"it is a {kind.__qualname__}, whose attributes are not known")
            return
        if of_user(kind.__module__):
            self._class(kind, name)
            if not is_container and not is_of_python(kind):
                self._attribute(value, "__class__", kind, f"type({name})")
        else:
            self.reached.add_names_of(kind)
        if held is not None:
            read = tuple(each for each in held if whole or self._is_read(each, self.reached.names))
            attributes = self._unique(f"the attributes of {name}", self.guard._calls)
            self.guard._calls.append([kinds.has_names, (held, frozenset(held)), True, attributes, read])
            for each in read:
                self._item(held, each, held[each], f"{name}.{each}")
        for each in slots:
            if self._is_read(each, self.reached.names) and hasattr(value, each):
                self._attribute(value, each, getattr(value, each), f"{name}.{each}")
            elif each in self.reached.asked:
                self._call(hasattr, (value, each), f"{name}.{each}")

    def _cannot(self, name: str, reason: str) -> None:
        self.guard.unwatched.setdefault(name, reason)


def _is_named_builtin(name: str, value: object) -> bool:
    """Whether a name that `builtins` has is compared: tools replace `print` and the like for a while."""
    is_error = isinstance(value, type) and issubclass(value, BaseException)
    return name not in _OUTPUT and not name.startswith("__") and not is_error
