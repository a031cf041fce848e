"""Warn of values that a trace freezes without any sign at run time: random numbers, clocks, mode dispatch, and values
that the code changes outside the graph.

A trace cannot see `np.random.rand()`; the source can. The lint room has the rules. Reading the source loads the linter,
which takes most of the time of a first hybridized call, so it is read only if the bytecode shows a sign of such code.
What the code changed can be seen after a trace, wherever it was done.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, cast

from hybrid_lab.diagnostics.finding import Finding, Severity
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.hybridize.block import tree_of
from hybrid_lab.hybridize.stale.code import CodeFacts, cell_content, code_of, facts_of, functions_of, of_user
from hybrid_lab.hybridize.stale.user_state import Name, UserState
from hybrid_lab.system.logger import logger
from hybrid_lab.system.provided import Provided

if TYPE_CHECKING:
    from hybrid_lab.diagnostics.location import Location
    from hybrid_lab.hybridize.block import Hybrid, Tree

#: Rules about what hybrid code would silently do otherwise than eager code.
TRACE_RULES = frozenset({"HL172", "HL173", "HL176", "HL178"})

findings_of: Provided[[type], list[Finding]] = Provided("findings_of")

_checked: weakref.WeakKeyDictionary[type, list[Finding]] = weakref.WeakKeyDictionary()
_by_code: dict[tuple[tuple[CodeType, str], ...], list[Finding]] = {}
"""The findings of the latest classes by their code: a class inside a function is another one in each call."""
_KEPT = 256
#: Classes of Blocks that were refused a graph because their code keeps tensors on itself.
seen_to_keep: weakref.WeakSet[type] = weakref.WeakSet()
_told: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


@contextmanager
def warning_of_changes(block: Tree) -> Iterator[UserState]:
    """Around the trace of a Block's code: warn of each thing that the trace froze or changed, once per class. Gives the
    state before.

    Raises HybridizeError HL173 if the code left a tensor in an attribute, a global or a container in one. After a
    HybridizeError these objects are as before the trace, and so are the random numbers of NumPy and Python: the Block
    may run eagerly then.
    """
    blocks = _user_blocks(block)
    state = UserState(blocks)
    try:
        yield state
        kept = state.name_of_a_tensor()
        if kept is not None:
            raise _error_of_kept_tensor(kept)
    except HybridizeError:
        state.restore()
        raise
    for kind in {type(each): each for each in reversed(blocks)}:
        if kind not in _checked:
            for finding in _find_in_source(kind):
                _log(block, finding)
    for name in state.changed():
        changed = _change(name)
        if changed is not None:
            _log(block, changed)


@contextmanager
def undoing_changes(block: Tree, refuse_tensors: bool = False) -> Iterator[UserState]:
    """Around the trace of a Block's code: whatever it changes outside the graph is undone at the end. Gives the state
    before.

    refuse_tensors : raise HybridizeError HL173 if the code left a tensor where `warning_of_changes` looks for one
    """
    state = UserState(_user_blocks(block))
    try:
        yield state
        kept = state.name_of_a_tensor() if refuse_tensors else None
        if kept is not None:
            raise _error_of_kept_tensor(kept)
    finally:
        state.restore()


def keeps_tensors(block: Tree) -> bool:
    """Whether code of the Block, or of one below it, keeps tensors on it: as a trace saw, or as the source says."""
    kinds = {type(each) for each in _user_blocks(block)}
    if any(kind in seen_to_keep for kind in kinds):
        return True
    findings = [finding for kind in kinds for finding in _checked.get(kind) or _find_in_source(kind)]
    return any(finding.code == "HL173" and finding.severity is Severity.ERROR for finding in findings)


def _error_of_kept_tensor(kept: Name) -> HybridizeError:
    error = hybridize_error("HL173", _location(kept.block), block=kept.block.name, target=str(kept), changed="changed")
    error.runs_eagerly = error.keeps_tensors = True
    return error


def _change(name: Name) -> Finding | None:
    """The finding of a changed name; None if the source told of it, or this did, before."""
    from hybrid_lab.diagnostics import rules

    kind, target = type(name.block), str(name)
    told = _told.setdefault(kind, set())
    record = rules.get("HL178" if name.sort == "global" else "HL173")
    if target in told or any(_is_about(finding, record.code, name.text) for finding in _checked.get(kind, ())):
        return None
    told.add(target)
    location = _location(name.block)
    facts = {"target": target, "changed": "changed", "outcome": "keeps the value of that one call"}
    if name.sort == "global":
        facts = {"construct": target, "happens": "is changed"}
    file, line = (location.file, location.line) if location is not None else ("<unknown>", 1)
    message, rewrite = record.message_for(**facts), record.rewrite_for(**facts)
    return Finding(record.code, record.name, Severity.WARNING, message, file, line, 0, line, 0, rewrite=rewrite)


def _log(block: Tree, finding: Finding) -> None:
    logger.warning(f"{called(block)}: {finding}\n  Instead:  {finding.rewrite}")


def _find_in_source(kind: type) -> list[Finding]:
    code = tuple((each, each.co_filename) for each in code_of(kind))  # code is equal whatever its file
    findings = _by_code.pop(code, None)
    if findings is None:
        findings = []
        if any_sign(function for function in functions_of(kind) if function.__name__ != "__init__"):
            findings = [each for each in findings_of(kind) if each.code in TRACE_RULES and not _is_followed(each)]
    _by_code[code] = _checked[kind] = findings
    if len(_by_code) > _KEPT:
        _by_code.pop(next(iter(_by_code)), None)
    return findings


def _is_followed(finding: Finding) -> bool:
    """Whether the finding is about a value that is only read: calls compare the value, or warn."""
    return finding.code == "HL178" and not re.search(r"` is (assigned|changed) ", finding.message)


def _is_about(finding: Finding, code: str, name: str) -> bool:
    """Whether the source told already of this name: as `self.name`, `block.name[0]` or `global name`."""
    return finding.code == code and name in re.findall(r"\w+", finding.message.split("` ")[0])


def _user_blocks(block: Tree) -> list[Tree]:
    """The block and the Blocks below it, without Blocks of the package's own classes."""
    return [each for each in tree_of(block) if of_user(type(each).__module__)]


def _location(block: Tree) -> Location | None:
    from hybrid_lab.hybridize.neutral import location_of

    return location_of(cast("Hybrid", block)) if hasattr(block, "_code_style") else None


# -- signs in the bytecode ---------------------------------------------------------------------------------------------

#: Modules whose functions give another result in every call (HL172).
_CHANGING = frozenset({"datetime", "random", "secrets", "time", "uuid"})
#: Names of functions like these (HL172), what code asks to tell arrays from Symbols (HL176), and what keeps a value.
_SIGNS = frozenset({"getpid", "random", "urandom", "hasattr", "isinstance", "issubclass", "setattr"})
#: What tells them apart in a comparison, perhaps of another function: `F.__name__ == "..."`, `type(x) == NDArray`.
_COMPARED = frozenset({"NDArray", "Symbol", "__class__", "__module__", "__name__", "type"})


def any_sign(functions: Iterable[FunctionType]) -> bool:
    """Whether a function may draw random numbers, read a clock, tell arrays from Symbols, or keep something."""
    compares = compared = False
    for function in functions:
        facts = facts_of(function.__code__)
        names = {*facts.loaded, *facts.globals}
        if facts.keeps or not _SIGNS.isdisjoint(names) or _names_changing(function, facts):
            return True
        compares |= facts.compares
        compared |= not _COMPARED.isdisjoint(names)
    return compares and compared


def _names_changing(function: FunctionType, facts: CodeFacts) -> bool:
    """Whether a global of the function is a module whose results change, or comes from one; whether it compares with a
    module, as in `F == nd`.
    """
    if _CHANGING.intersection(name.partition(".")[0] for name in facts.modules):
        return True
    compares = facts.compares
    values = [function.__globals__.get(name) for name in facts.globals]
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
