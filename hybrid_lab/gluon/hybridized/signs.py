"""Signs, in the bytecode of functions, of code that a trace would freeze: without any, the source need not be read.

Reading the source loads the linter, which takes most of the time of a first hybridized call.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType

from hybrid_lab.gluon.hybridized.code import cell_content, loaded_names

#: Modules whose functions give another result in every call (HL172).
_CHANGING = frozenset({"datetime", "random", "secrets", "time", "uuid"})
_CHANGING_NAMES = frozenset({"getpid", "random", "urandom"})
#: What code asks to tell arrays from Symbols (HL176).
_QUESTIONS = frozenset({"hasattr", "isinstance", "issubclass"})
#: What tells them apart in a comparison, perhaps of another function: `F.__name__ == "..."`, `type(x) == NDArray`.
_COMPARED = frozenset({"NDArray", "Symbol", "__class__", "__module__", "__name__", "type"})
#: Instructions that change what outlives the call (HL173, HL178), and methods of containers that do.
_STORES = frozenset({
    "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_ATTR", "STORE_GLOBAL", "STORE_SLICE", "STORE_SUBSCR",
})  # fmt: skip
_GROWING = frozenset({"append", "appendleft", "extend", "insert", "setdefault", "update"})


def any_sign(functions: Iterable[FunctionType]) -> bool:
    """Whether a function may draw random numbers, read a clock, tell arrays from Symbols, or keep something."""
    functions = list(functions)
    if any(_shows_sign(each.__code__) or _names_changing(each) for each in functions):
        return True
    codes = [each.__code__ for each in functions]
    return any(_COMPARED & {*_names(code)} for code in codes) and any(map(_compares, codes))


def _names(code: CodeType) -> tuple[str, ...]:
    return *loaded_names(code, "attribute"), *loaded_names(code, "global")


def _names_changing(function: FunctionType) -> bool:
    """Whether a global of the function is a module whose results change, or comes from one; whether it compares with a
    module, as in `F == nd`.
    """
    code = function.__code__
    if _CHANGING.intersection(name.partition(".")[0] for name in loaded_names(code, "module")):
        return True
    compares = _compares(code)
    values = [function.__globals__.get(name) for name in loaded_names(code, "global")]
    for value in (*values, *map(cell_content, function.__closure__ or ())):
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] in _CHANGING or value.__name__.startswith("numpy.random") or compares:
                return True
            continue
        if not isinstance(value, (FunctionType, BuiltinFunctionType, MethodType, type)):
            value = type(value)  # an attribute of an object of the user's may be computed
        module = str(value.__module__ or type(getattr(value, "__self__", None)).__module__)
        if module.partition(".")[0] in _CHANGING or module.startswith("numpy.random"):
            return True
    return False


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


@lru_cache(maxsize=4096)
def _compares(code: CodeType) -> bool:
    return any(each.opname == "COMPARE_OP" for each in dis.get_instructions(code)) or any(map(_compares, _inner(code)))


@lru_cache(maxsize=4096)
def _shows_sign(code: CodeType) -> bool:
    names = {*_names(code)}
    if names & _CHANGING_NAMES or names & _QUESTIONS or "setattr" in names:
        return True
    before: dis.Instruction | None = None
    for each in dis.get_instructions(code):
        if each.opname in _STORES:
            return True
        if each.opname == "IS_OP" and not (before is not None and before.argval is None):
            return True
        # Of a local list, `found.append(x)`, nothing is left after the call.
        if each.argval in _GROWING and before is not None and not before.opname.startswith("LOAD_FAST"):
            return True
        before = each
    return any(map(_shows_sign, _inner(code)))
