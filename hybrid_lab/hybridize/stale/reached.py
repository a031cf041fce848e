"""Reached: the functions that a trace of some Blocks can run, and what they name.

Which method a call reaches is decided by its name alone, so a method counts if any reached function reads an attribute
of this name. Methods that only a training loop calls do not count.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Collection, Iterable
from functools import lru_cache
from importlib.util import resolve_name
from types import FunctionType
from typing import Any

from hybrid_lab.hybridize.block import AnyBlock
from hybrid_lab.hybridize.stale.code import (
    NOT_TRACED,
    bases_of_user,
    facts_of,
    function_in,
    functions_in,
    merge_subscripts,
    of_user,
)

_LIMIT = 500
"""Functions that are followed, at most."""
#: Methods that Python calls without their name in the code; those below are not run by a trace.
_NOT_IMPLIED = frozenset({
    "__copy__", "__deepcopy__", "__del__", "__dir__", "__getstate__", "__init__",
    "__init_subclass__", "__new__", "__reduce__", "__reduce_ex__", "__repr__", "__setattr__", "__setstate__", "__str__",
})  # fmt: skip
#: Beginnings of a trace.
_BEGIN = frozenset({"forward", "hybrid_forward"})
_WITHOUT_VALUES = sys.stdlib_module_names | {"numpy", "scipy", "torch"}
#: What code names that reads attributes by texts, whichever they are.
_BY_ANY_TEXT = frozenset({
    "__dict__", "__getattribute__", "attrgetter", "eval", "exec", "getattr", "methodcaller", "vars",
})  # fmt: skip
#: What code names that runs texts.
_RUNS_TEXTS = frozenset({"eval", "exec"})
#: Exceptions that code handles if an attribute may be missing.
_MISSING = frozenset({"AttributeError", "Exception"})
_NAME = re.compile(r"[^\W\d]\w*")
_PATH = re.compile(r"[\w.]+")
_PIECE = re.compile(r"[\w.%{}]+")
_LONG = 200
"""Characters of a text that is no expression."""
#: Methods that Python runs for what code names: a name -> the methods.
_RUN_BY = {
    "copy": {"__copy__"}, "deepcopy": {"__deepcopy__"}, "dir": {"__dir__"}, "format": {"__format__", "__str__"},
    "repr": {"__repr__"}, "setattr": {"__setattr__"}, "str": {"__repr__", "__str__"},
}  # fmt: skip
#: What code names that reads globals by texts.
_BY_GLOBAL_TEXT = frozenset({"__globals__", "eval", "exec", "f_globals", "globals"})
#: Names of functions and methods that may read files.
READERS = frozenset({
    "exists", "fromfile", "genfromtxt", "getline", "getlines", "getmtime", "getsize", "glob", "iglob", "is_dir",
    "is_file", "isdir", "isfile", "iterdir", "listdir", "load", "loadtxt", "open", "read", "read_bytes", "read_text",
    "rglob", "scandir", "stat", "walk",
})  # fmt: skip
#: What code names that imports modules by texts.
_IMPORTS = frozenset({"__import__", "import_module", "modules"})


class Reached:
    """Functions that a trace of Blocks of some classes can run.

    functions : the user's, in the order of discovery; names : of all attributes that the functions read
    strings : constants in them; subscripts : see `CodeFacts`
    texts : names in these constants that the code may read attributes or globals by
    any_name : whether they make names of attributes at run time; then a method counts if its name begins or ends with
        one of `pieces`, as with "act" of `getattr(self, f"act{number}")`, unless it trains or saves
    pieces : constants of the code; value_pieces : texts that it reads from values
    asked : names of attributes that the functions look for even if missing, as in `getattr(x, "rate", 1)`
    called : names of globals, attributes and outer variables that the functions call or hand on
    makes_globals : names in `_BY_GLOBAL_TEXT` with which the functions read globals by texts made at run time
    """

    def __init__(self, kinds: Iterable[type]):
        self.functions: list[FunctionType] = []
        self.names: set[str] = set()
        self.strings: set[str] = set()
        self.subscripts: dict[str, frozenset[str | int] | None] = {}
        self.any_name = False
        self.pieces: set[str] = set()
        self.value_pieces: set[str] = set()
        self.asked: set[str] = set()
        self.called: set[str] = set()
        self.makes_globals: set[str] = set()
        self._reads_by_text = self._runs_texts = False
        self._seen: set[int] = set()
        self._methods: dict[str, list[FunctionType]] = {}
        self._kinds: set[type] = set()
        self._bases: set[tuple[type, frozenset[str]]] = set()
        self._given: set[str] = set()  # names of methods that the user gave classes of this package
        self.add_kinds(kinds)

    @property
    def size(self) -> int:
        """It grows with everything that is added."""
        return sum(map(len, (self.functions, self.names, self.asked, self.called, self.pieces | self.value_pieces)))

    def add_kinds(self, kinds: Iterable[type], begin: frozenset[str] = _BEGIN) -> None:
        """Classes of Blocks that the trace runs; with `begin` empty, classes of objects that the code reads.

        begin : names of the methods that the trace calls
        """
        for kind in kinds:
            if kind in self._kinds:
                continue
            self._kinds.add(kind)
            for base in kind.__mro__:
                if (base, begin) not in self._bases and not has_no_values(base.__module__):
                    self._bases.add((base, begin))
                    self._add_methods(base, begin)

    def _add_methods(self, base: type, begin: frozenset[str]) -> None:
        """The methods that a class itself has; of a class of this package, methods that the user gave it:
        `nn.Dense.hybrid_forward = f`.
        """
        is_users = of_user(base.__module__)
        for name, item in vars(base).items():
            if not is_users:
                own = not isinstance(item, FunctionType) or item.__module__ == base.__module__
                if own or not of_user(item.__module__):
                    continue
                self._given.add(name)
            implied = name.startswith("__") and name.endswith("__") and name not in _NOT_IMPLIED
            for function in functions_in(item):
                self._methods.setdefault(name, []).append(function)
                is_named = name in begin or name in self.names or implied
                is_made = self.any_name and self.may_be_made(name) and not _is_outside_of_traces(function)
                if is_named or is_made:
                    self.add(function)

    def code_of(self, kind: type) -> list[str]:
        """Names under which a class has, or inherits, functions that were reached; with the beginnings of a trace."""
        of_kind = {name for base in bases_of_user(kind) for name in vars(base)} | self._given
        if not of_user(kind.__module__) and not of_kind & _BEGIN:
            return [name for name in ("hybrid_forward", "forward", "__call__") if hasattr(kind, name)]
        names = {name for name, functions in self._methods.items() if any(id(each) in self._seen for each in functions)}
        return sorted((names & of_kind) | (_BEGIN & set(dir(kind))))

    def add_constructors(self, kind: type) -> None:
        """A class that the code may call: its objects are made in the trace. Classes of Blocks and of exceptions are
        left out.
        """
        if issubclass(kind, (AnyBlock, BaseException)):
            return
        for base in bases_of_user(kind):
            for name in ("__new__", "__init__", "__post_init__"):
                for function in functions_in(vars(base).get(name)):
                    self.add(function)

    def has_method(self, name: str) -> bool:
        """Whether a class of the user's that the code reaches has a method of this name."""
        return name in self._methods

    def add_names_of(self, kind: type) -> None:
        """A class of this package, of which an object is read: what its methods read of it counts."""
        self.names |= names_in_package(kind)

    def add(self, function: FunctionType) -> None:
        """A function, and all that it may call."""
        pending = [function]
        while pending and len(self.functions) < _LIMIT:
            function = pending.pop()
            if id(function) in self._seen or not of_user(function.__module__) or has_no_values(function.__module__):
                continue
            self._seen.add(id(function))
            self.functions.append(function)
            facts = facts_of(function.__code__)
            names = set(facts.loaded)
            loaded = names | {*facts.globals}
            self.called |= facts.called
            names.update(*(_RUN_BY[name] for name in _RUN_BY.keys() & loaded))
            if facts.formats:
                names |= {"__format__", "__repr__", "__str__"}
            if facts.keeps:
                names.add("__setattr__")
            self.makes_globals |= {name for name in _BY_GLOBAL_TEXT & loaded if facts.subscripts.get(name) is None}
            self.any_name |= not loaded.isdisjoint(_BY_ANY_TEXT)
            self._reads_by_text |= self.any_name or "hasattr" in loaded
            self._runs_texts |= not loaded.isdisjoint(_RUNS_TEXTS)
            self.strings.update(facts.strings)
            if self._reads_by_text:
                self.asked |= self.texts
                names |= self.texts
            if (self.any_name or self.makes_globals) and (words := _words(self.strings) - self.pieces):
                self.pieces |= words
                pending += self._made_methods() if self.any_name else []
            if not loaded.isdisjoint(_MISSING):
                self.asked |= names
            merge_subscripts(self.subscripts, facts.subscripts)
            pending += [each for name in names - self.names for each in self._methods.get(name, ())]
            self.names |= names
            held = (function.__globals__.get(name) for name in self.globals_of(function))
            pending += [each for each in held if isinstance(each, FunctionType)]

    def may_be_made(self, name: str) -> bool:
        """Whether code with `any_name` may make the name of this method, or attribute of a class, at run time."""
        pieces = {each.strip("_") for each in (*self.pieces, *self.value_pieces)}
        return any(_is_part(each, name, pieces, is_constant=True) for each in self.pieces) or any(
            _is_part(each, name, pieces, is_constant=False) for each in self.value_pieces
        )

    def _made_methods(self) -> list[FunctionType]:
        """The methods whose names the code may make of the texts that are known by now."""
        made = (found for name, found in self._methods.items() if self.may_be_made(name))
        return [each for found in made for each in found if not _is_outside_of_traces(each)]

    def add_pieces(self, texts: Iterable[str]) -> None:
        """Texts that the code reads from values: `getattr(self, self.activation)`."""
        words = _words(texts) - self.value_pieces
        if (self.any_name or self.makes_globals) and words:
            self.value_pieces |= words
            for function in self._made_methods() if self.any_name else ():
                self.add(function)

    @property
    def texts(self) -> set[str]:
        """`rate` and `config` of "config.rate"; of code that runs texts, of all that may be expressions."""
        some = (text for text in self.strings if len(text) <= _LONG and (self._runs_texts or _PATH.fullmatch(text)))
        return {name for text in some for name in _NAME.findall(text)}

    def add_texts(self, texts: Iterable[str]) -> None:
        """Texts that an object reads attributes by: `operator.attrgetter("config.rate")`."""
        self.strings.update(texts)
        new = self.texts - self.names
        self.asked |= self.texts
        self.names |= new
        for name in new:
            for function in self._methods.get(name, ()):
                self.add(function)

    def globals_of(self, function: FunctionType) -> tuple[str, ...]:
        """Names of globals that a function reads."""
        facts = facts_of(function.__code__)
        read = facts.globals
        by_text = _BY_GLOBAL_TEXT & {*read, *facts.loaded}
        if not by_text:
            return read
        made = filter(self.may_be_made, function.__globals__) if by_text & self.makes_globals else ()
        return tuple(dict.fromkeys((*read, *sorted(self.texts), *made)))

    def modules_of(self, function: FunctionType) -> tuple[str, ...]:
        """Names of modules that a function may import when it runs, and of the packages around them."""
        facts = facts_of(function.__code__)
        names = list(facts.modules)
        if "__name__" in facts.globals:  # `sys.modules[__name__]`, or another way to the function's own module
            names.append(function.__module__)
        if not _IMPORTS.isdisjoint((*facts.globals, *facts.loaded)):
            names += sorted(filter(_PATH.fullmatch, facts.strings))
        return tuple(dict.fromkeys(each for name in names for each in _with_packages(name, function.__globals__)))


def _with_packages(module: str, names: dict[str, Any]) -> list[str]:
    """`package` and `package.module` of the name of a module, as code with the globals `names` imports it."""
    with contextlib.suppress(ImportError, ValueError):  # a relative name outside of a package
        parts = resolve_name(module, str(names.get("__package__") or "")).split(".")
        return [".".join(parts[: number + 1]) for number in range(len(parts))]
    return []


def _is_part(piece: str, name: str, pieces: Collection[str], is_constant: bool) -> bool:
    """Whether code may make a name from this text: the name begins or ends with it, and the rest is a number, nothing,
    or another one of `pieces`. The rest may be anything beside a constant of the code that has three letters or an
    underscore at an end, as in `f"act{number}"` and `f"f_{kind}"`. A method that a value only begins, as "train" does
    `train_step`, is not meant.
    """
    rest = name.removeprefix(piece) if name.startswith(piece) else name.removesuffix(piece)
    if len(rest) == len(name):
        return False
    if is_constant and (len(piece) > 2 or piece[0] == "_" or piece[-1] == "_"):
        return True
    rest = rest.strip("_")
    return not rest or rest.isdigit() or rest in pieces


def _words(texts: Iterable[str]) -> set[str]:
    """The names in texts that may be pieces of names."""
    return {word for text in texts if _PIECE.fullmatch(text) for word in _NAME.findall(text)}


def _is_outside_of_traces(function: FunctionType) -> bool:
    """Whether a method trains or saves."""
    facts = facts_of(function.__code__)
    return not NOT_TRACED.isdisjoint((*facts.attributes, *facts.globals))


@lru_cache(maxsize=1024)
def names_in_package(kind: type) -> frozenset[str]:
    """Names of attributes that the methods of a class, and of its bases, read, as far as this package wrote them."""
    functions = (
        function_in(item)
        for base in kind.__mro__
        if not of_user(base.__module__) and base.__name__ not in ("Block", "HybridBlock", "object")
        for name, item in vars(base).items()
        if name != "__init__"
    )
    codes = [each.__code__ for each in functions if each is not None]
    return frozenset(name for code in codes for name in facts_of(code).loaded)


def has_no_values(module: str) -> bool:
    """Whether a module is Python's, NumPy's or the like: its functions are not followed."""
    return str(module).partition(".")[0] in _WITHOUT_VALUES
