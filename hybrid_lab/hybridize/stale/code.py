"""Which code a class runs: compared with what a graph was traced from, it tells whether the graph is stale."""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import NamedTuple

_PACKAGE = __name__.partition(".")[0]
_LIMIT = 500
"""Functions that are followed, at most."""


def code_of(kind: type) -> tuple[CodeType, ...]:
    """The code of the user's methods of a Block class, and of the user's functions that they name.

    Classes and functions of this package are left out: they do not change while a kernel lives. Equal code gives equal
    code objects, so running a cell again unchanged changes nothing.
    """
    return tuple(function.__code__ for function in functions_of(kind))


ANY = "*"
"""Among the attributes read: the user's code makes their names at run time."""


#: The names that the methods of a Block class read, without its constructor and without every Block's own names:
#: attributes, with ANY if the user's code calls getattr or vars; and the globals that each of the user's functions
#: reads.
Reads = tuple[frozenset[str], dict[FunctionType, tuple[str, ...]]]


def reads_of(kind: type) -> Reads:
    """The names that the code of a Block class, in its current form, reads beside its arguments."""
    return _read_by(kind) if of_user(kind.__module__) else _read_by_layer(kind)


def _read_by(kind: type) -> Reads:
    methods = [
        function
        for base in kind.__mro__
        if base.__name__ not in ("Block", "HybridBlock") and base is not object
        for name, item in vars(base).items()
        if name != "__init__" and (function := function_in(item)) is not None
    ]
    outside = _outside_of_traces(methods)
    followed = [function for function in functions_of(kind) if function.__name__ != "__init__"]
    names = {function: facts_of(function.__code__).globals for function in followed if function not in outside}
    inside = [function for function in methods if function not in outside]
    attributes = {name for each in (*inside, *names) for name in facts_of(each.__code__).attributes}
    if any("getattr" in each or "vars" in each for each in names.values()):
        attributes.add(ANY)
    return frozenset(attributes), names


#: What only code outside of a trace names: a Symbol has no gradient, and a trace neither trains nor saves.
NOT_TRACED = frozenset({
    "Trainer", "backward", "load_cached_graphs", "load_parameters", "load_states", "save_cached_graphs",
    "save_parameters", "save_states",
})  # fmt: skip
_TRACED = ("__call__", "forward", "hybrid_forward")


def _outside_of_traces(methods: list[FunctionType]) -> set[FunctionType]:
    """Methods that train or save, and what calls them: what they read is in no graph, unless forward calls them."""
    facts = {each: facts_of(each.__code__) for each in methods}
    loads = {each: {*known.attributes, *known.globals} for each, known in facts.items()}
    outside: set[FunctionType] = set()
    names = set(NOT_TRACED)
    others = [each for each in methods if each.__name__ not in _TRACED]
    while found := [each for each in others if each not in outside and loads[each] & names]:
        outside.update(found)
        names.update(each.__name__ for each in found)
    pending = [each for each in methods if each.__name__ in _TRACED]
    while pending:
        called = loads[pending.pop()]
        reached = [each for each in outside if each.__name__ in called]
        outside.difference_update(reached)
        pending += reached
    return outside


@lru_cache(maxsize=1024)
def _read_by_layer(kind: type) -> Reads:
    """The same for the package's own classes, which do not change."""
    return _read_by(kind)


def attributes_read(kind: type) -> frozenset[str]:
    """Names of attributes that the methods of a Block class read, see Reads."""
    return reads_of(kind)[0]


def attributes_of_calls(kind: type) -> frozenset[str]:
    """Names of attributes that a call of a Block may read: attributes in its forward and in the methods and user's
    functions called there; with ANY if the code makes names at run time.
    """
    methods: dict[str, list[FunctionType]] = {}
    for base in bases_of_user(kind):
        for name, item in vars(base).items():
            function = function_in(item)
            if function is not None:
                methods.setdefault(name, []).append(function)
    pending = [function for name in _CALLED for function in methods.get(name, ())]
    seen: set[int] = set()
    names: set[str] = set()
    while pending and len(seen) < _LIMIT:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        facts = facts_of(function.__code__)
        attributes, read = facts.attributes, facts.globals
        names.update(attributes)
        if {"getattr", "vars"} & {*read} or "__dict__" in attributes:
            names.add(ANY)
        pending += [each for name in attributes for each in methods.get(name, ())]
        functions = [function.__globals__.get(name) for name in read]
        pending += [each for each in functions if isinstance(each, FunctionType) and of_user(each.__module__)]
    return frozenset(names)


_CALLED = ("__call__", "forward", "hybrid_forward", "infer_shape")


def stored_on_self(kind: type) -> frozenset[str]:
    """Names of the attributes that the methods of a class itself, without its bases, assign on their first argument."""
    names: set[str] = set()
    for item in vars(kind).values():
        function = function_in(item)
        if function is None or not function.__code__.co_argcount:
            continue
        this, last = function.__code__.co_varnames[0], None
        for each in dis.get_instructions(function.__code__):
            if each.opname == "STORE_ATTR" and (last == this or (isinstance(last, tuple) and last[-1] == this)):
                names.add(each.argval)
            last = each.argval
    return frozenset(names)


#: Name -> the constants in `name[constant]` and `name.get(constant)`; None if the code uses it in another way, too.
Subscripts = Mapping[str, "frozenset[str | int] | None"]


_ATTRIBUTES = "LOAD_ATTR", "LOAD_METHOD"
_GLOBALS = "LOAD_GLOBAL", "LOAD_NAME"


class CodeFacts(NamedTuple):
    """What a code object names, and the functions inside of it.

    attributes : names of attributes that it reads; loaded : the same, with names from super() and
    `from module import name`
    called : names of globals, attributes and outer variables that it calls or hands on
    globals : names of globals in it; modules : names of imported modules, `..rates` for a relative import. For
        `from package import name`, also `package.name`, perhaps a module
    names : all of `co_names`, including assigned names
    strings : its constants; subscripts : how it subscripts globals, attributes and outer variables
    compares : whether it compares anything, or asks `a in b`
    keeps : whether an instruction changes what outlives the call, or tells objects apart other than None
    formats : whether it makes texts of values, as f-strings do
    """

    attributes: tuple[str, ...]
    loaded: tuple[str, ...]
    globals: tuple[str, ...]
    modules: tuple[str, ...]
    names: tuple[str, ...]
    strings: frozenset[str]
    subscripts: Subscripts
    compares: bool
    keeps: bool
    called: frozenset[str]
    formats: bool


#: Instructions that change what outlives the call (HL173, HL178), and methods of containers that do.
_STORES = frozenset({
    "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_ATTR", "STORE_GLOBAL", "STORE_SLICE", "STORE_SUBSCR",
})  # fmt: skip
#: The same of a variable of a function around.
_STORES_OUTSIDE = frozenset({"DELETE_DEREF", "STORE_DEREF"})
_GROWING = frozenset({"append", "appendleft", "extend", "insert", "setdefault", "update"})
#: How the names of instructions end that load a local variable, perhaps after another one or after a store.
_LOADS_OF_LOCALS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK")


def _keeps(each: dis.Instruction, before: dis.Instruction | None) -> bool:
    if each.opname == "IS_OP":  # since 3.14 also in `all(... for ...)`: whether `all` is the builtin
        return before is None or (before.argval is not None and before.opname != "LOAD_COMMON_CONSTANT")
    # Of a local list, `found.append(x)`, nothing is left after the call. One instruction may store and load it.
    grows = each.argval in _GROWING and before is not None and not before.opname.endswith(_LOADS_OF_LOCALS)
    return grows or each.opname in _STORES


@lru_cache(maxsize=4096)
def facts_of(code: CodeType) -> CodeFacts:
    """Read the bytecode once."""
    instructions = list(dis.get_instructions(code))
    inner = [facts_of(each) for each in code.co_consts if isinstance(each, CodeType)]

    def named(field: str, *opnames: str) -> tuple[str, ...]:
        own = (each.argval for each in instructions if each.opname in opnames)
        return tuple(dict.fromkeys((*own, *(name for other in inner for name in getattr(other, field)))))

    plain = [each for each in instructions if each.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL")]
    modules = [
        name
        for level, names, each in zip(plain, plain[1:], plain[2:], strict=False)
        if each.opname == "IMPORT_NAME"
        for name in _imported("." * level.argval + each.argval, names.argval or ())
    ]
    subscripts: dict[str, frozenset[str | int] | None] = {}
    for number, each in enumerate(plain):
        if each.opname in (*_GLOBALS, *_ATTRIBUTES, "LOAD_DEREF", "LOAD_SUPER_ATTR"):
            if each.argval != "globals" or not _is_namespace(plain[max(number - 2, 0) : number + 2]):
                merge_subscripts(subscripts, {each.argval: _constant_key(each.argval, plain[number + 1 : number + 6])})
            else:
                subscripts.setdefault("globals", frozenset())
    for other in inner:
        merge_subscripts(subscripts, other.subscripts)
    strings = frozenset(each for each in code.co_consts if isinstance(each, str))
    return CodeFacts(
        named("attributes", *_ATTRIBUTES),
        named("loaded", *_ATTRIBUTES, "LOAD_SUPER_ATTR", "IMPORT_FROM"),
        named("globals", *_GLOBALS),
        tuple(dict.fromkeys((*modules, *(name for other in inner for name in other.modules)))),
        (*code.co_names, *(name for other in inner for name in other.names)),
        strings.union(*(other.strings for other in inner)),
        subscripts,
        any(each.opname in ("COMPARE_OP", "CONTAINS_OP") for each in instructions)
        or any(other.compares for other in inner),
        any(map(_keeps, instructions, [None, *instructions]))
        or any(each.opname in _STORES_OUTSIDE and each.argval in code.co_freevars for each in instructions)
        or any(other.keeps for other in inner),
        frozenset(_called(instructions)).union(*(other.called for other in inner)),
        any(each.opname.startswith("FORMAT_") for each in instructions) or any(other.formats for other in inner),
    )


def paths_of(code: CodeType) -> frozenset[tuple[str, ...]]:
    """Names with the attributes that code reads of them, `("np", "load")`; the name is "" if another value has the
    attributes. `open` is left out if it only writes.
    """
    modules = {each.partition(".")[0] for each in facts_of(code).modules}
    inner = (paths_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(_paths(list(dis.get_instructions(code)), modules)).union(*inner)


def _paths(instructions: list[dis.Instruction], modules: set[str]) -> Iterator[tuple[str, ...]]:
    """Names with the attributes that code reads of them. modules : names that it imports"""
    plain = [each for each in instructions if each.opname != "EXTENDED_ARG"]
    last = -1
    for number, each in enumerate(plain):
        is_name = each.opname in (*_GLOBALS, "LOAD_DEREF")
        is_name |= each.opname.startswith("LOAD_FAST") and type(each.argval) is str and each.argval in modules
        if not is_name and (number <= last or each.opname not in _ATTRIBUTES):
            continue
        path = (each.argval,) if is_name else ("", each.argval)
        last = number
        while last + 1 < len(plain) and plain[last + 1].opname in _ATTRIBUTES:
            last += 1
            path = (*path, plain[last].argval)
        if path[-1] != "open" or not _only_writes(plain[last:], is_first=len(path) > 1 and path[0] != "io"):
            yield path


def _only_writes(instructions: Sequence[dis.Instruction], is_first: bool) -> bool:
    """Whether a call of `open` has a constant mode with which the file is only written to.

    instructions : from the one that loads `open`; is_first : whether the mode is the first argument, as of a path
    """
    arguments = list(_arguments(instructions))
    for number, each in enumerate(arguments):
        after = arguments[number + 1].opname if number + 1 < len(arguments) else ""
        is_text = each.opname == "LOAD_CONST" and isinstance(each.argval, str) and (number or is_first)
        if is_text and _ONLY_WRITES.fullmatch(each.argval) and not after.startswith("BINARY_"):
            return True
    return False


_ONLY_WRITES = re.compile("[bt]?[awx][bt]?")


def _called(instructions: list[dis.Instruction]) -> Iterator[str]:
    """The names that code calls, and the globals and outer variables that it hands on, as in `map(Rate, numbers)`; an
    argument of `isinstance` is not handed on.
    """
    asked: set[int] = set()  # offsets of the arguments of isinstance
    for number, each in enumerate(instructions):
        if each.opname == "LOAD_GLOBAL" and each.argval in ("isinstance", "issubclass"):
            asked.update(argument.offset for argument in _arguments(instructions[number:]))
    for number, each in enumerate(instructions):
        callee = _callee(instructions, number) if _begins_call(each) else None
        if callee is not None and callee.opname in _LOADS_OF_NAMES:
            yield callee.argval
        elif each.opname in ("LOAD_DEREF", "LOAD_GLOBAL") and each.offset not in asked:
            if number + 1 == len(instructions) or instructions[number + 1].opname not in _ATTRIBUTES:
                yield each.argval


def _arguments(instructions: Sequence[dis.Instruction]) -> Iterator[dis.Instruction]:
    """The instructions of the arguments of a call, without calls inside of them. The first of `instructions` loads what
    is called.
    """
    depth = 0
    for each in instructions:
        if each.opname in _CALLS:
            depth -= 1
        elif _begins_call(each):
            depth += 1
            continue
        if depth <= 0:
            return
        if depth == 1:
            yield each


#: Instructions that call; PRECALL of Python 3.11 stands before them.
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})


#: What the instructions of an expression, taken one after the other, leave on the stack too much: the value of `a` in
#: `a if x else b`; and too little: END_FOR comes by a jump, with one value more.
_BESIDE_JUMPS = {"JUMP_FORWARD": -1, "END_FOR": 1}
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
_LOADS_OF_NAMES = frozenset({"LOAD_ATTR", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_SUPER_ATTR"})


def _begins_call(each: dis.Instruction) -> bool:
    """Whether an instruction loads what a later one calls, with NULL or `self` beside it, or that NULL alone.

    Releases of Python have different bits for it in the argument. LOAD_ATTR of Python 3.11 has no such bit, because
    LOAD_METHOD loads methods there. The text of `dis` tells it in every release.
    """
    if each.opname in ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_SUPER_ATTR"):
        return each.argrepr != each.argval
    return each.opname in ("LOAD_METHOD", "PUSH_NULL")


def _callee(instructions: list[dis.Instruction], number: int) -> dis.Instruction | None:
    """The instruction that leaves the function of a call on the stack. number : of the instruction that begins it"""
    begin = instructions[number]
    if begin.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
        return begin
    if sys.version_info >= (3, 13):  # NULL lies above the function
        return begin if begin.opname == "LOAD_GLOBAL" else instructions[number - 1]
    callee, depth = None, -1  # NULL lies below it, and above NULL there is nothing but the function at depth 1
    for each in instructions[number:]:
        depth += dis.stack_effect(each.opcode, each.arg, jump=False) + _BESIDE_JUMPS.get(each.opname, 0)
        if depth < 1 and callee is not None:
            break
        # A jump takes what it looks at from the stack, PRECALL the arguments.
        if depth == 1 and each.opcode not in _JUMPS and each.opname != "PRECALL":
            callee = each
    return callee


def _imported(module: str, names: Sequence[str]) -> list[str]:
    """The modules that `from module import names` may import."""
    inside = module if module.endswith(".") else f"{module}."
    return [module, *(f"{inside}{name}" for name in names if name != "*")]


def merge_subscripts(uses: dict[str, frozenset[str | int] | None], more: Subscripts) -> None:
    """Add the uses of more code."""
    for name, keys in more.items():
        known = uses.get(name, frozenset())
        uses[name] = None if keys is None or known is None else known | keys


#: Functions that read something by the name in their first argument.
_READING = frozenset({"eval", "exec", "getenv"})


def _constant_key(name: str, following: Sequence[dis.Instruction]) -> frozenset[str | int] | None:
    """The constant, where the instructions after a name read `[constant]`, `.get(constant`, the same of the result of
    a call without arguments, as in `globals()["rate"]`, or `(constant` after a name in `_READING`.
    """
    if following and following[0].opname == "CALL" and not following[0].arg:
        following = following[1:]
    by_get = bool(following) and following[0].opname in _ATTRIBUTES and following[0].argval == "get"
    key = next(iter(following[by_get:]), None)
    if key is None or key.opname not in ("LOAD_CONST", "LOAD_SMALL_INT") or type(key.argval) not in (str, int):
        return None
    after = following[by_get + 1 :]
    if by_get or name in _READING:  # `get("a" + name)` has no call behind the constant, or behind a second argument
        is_read = any(each.opname == "CALL" for each in after[:2]) and after[0].opname.startswith(("CALL", "LOAD_"))
    else:
        is_read = bool(after) and (after[0].opname == "BINARY_SUBSCR" or after[0].argrepr == "[]")
    return frozenset([key.argval]) if is_read else None


def _is_namespace(around: Sequence[dis.Instruction]) -> bool:
    """Whether instructions are `exec(constant, globals()`, the code of which is known."""
    if len(around) < 4 or around[0].argval not in ("eval", "exec") or around[2].argval != "globals":
        return False
    return around[1].opname == "LOAD_CONST" and around[3].opname == "CALL" and not around[3].arg


def instruction_loading(code: CodeType, name: str) -> tuple[CodeType, int] | None:
    """The code, of a function or of one inside of it, and the offset of its first instruction that loads this name."""
    for each in dis.get_instructions(code):
        if each.argval == name and each.opname.startswith(("LOAD_", "IMPORT_")):
            return code, each.offset
    inner = (instruction_loading(constant, name) for constant in code.co_consts if isinstance(constant, CodeType))
    return next((found for found in inner if found is not None), None)


def functions_of(kind: type) -> list[FunctionType]:
    """The user's methods of a Block class, and the user's functions that they name."""
    functions: dict[int, FunctionType] = {}
    pending: list[FunctionType] = []
    for base in bases_of_user(kind):
        pending += [function for item in vars(base).values() if (function := function_in(item)) is not None]
    while pending and len(functions) < _LIMIT:
        function = pending.pop()
        if id(function) not in functions and of_user(function.__module__):
            functions[id(function)] = function
            names = facts_of(function.__code__).names
            pending += [item for name in names if isinstance(item := function.__globals__.get(name), FunctionType)]
    return list(functions.values())


def of_user(module: object) -> bool:
    """Whether a module of this name is the user's: neither this package's nor Python's built-ins."""
    return not (isinstance(module, str) and (module == "builtins" or module.partition(".")[0] == _PACKAGE))


def bases_of_user(kind: type) -> list[type]:
    """The class itself and its bases that the user wrote, in the order of the MRO."""
    return [base for base in kind.__mro__ if of_user(base.__module__)]


def function_in(item: object) -> FunctionType | None:
    """The plain function in a class attribute: a method, a static or class method, a property's getter."""
    return next(reversed(functions_in(item)), None)


def functions_in(item: object) -> list[FunctionType]:
    """The functions of decorators that wrap the function in a class attribute, the outermost first, then itself."""
    item = getattr(item, "__func__", None) or getattr(item, "fget", None) or item
    functions: list[FunctionType] = []
    while isinstance(item, FunctionType) and item not in functions:
        functions.append(item)
        item = getattr(item, "__wrapped__", None)
    return functions


def cell_content(cell: CellType) -> object:
    """The value of a variable of a function around; None if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
