"""`check`: source text, notebooks, files, modules, classes and Blocks in; findings out."""

from __future__ import annotations

import inspect
import linecache
import os
import types
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from hybrid_lab.diagnostics import rules
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.finding import CallSite, Finding, Severity
from hybrid_lab.diagnostics.location import display_file

from .budget import NODES, NODES_OF_CLASS, Budget, not_checked
from .checker import check_class, define
from .checks.unknown import unknown_in_module
from .classes import Module, SourceClass
from .functions import construct
from .known_names import names_given
from .live import Live, in_package, is_a, is_hybrid, look_of
from .project import Project
from .source import Source, notebook_cells, read_file, read_notebook, sources_within
from .suppress import Comments, silence, stale, suppressions
from .values import Value
from .walk import Mark, Walk

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block

TARGETS = (None, "mxnet")
_CONTEXT = "<context>"
_NODES_OF_EMPTY_CLASS = 20
"""What a class costs beside the nodes in it."""
_QUOTED = 1000
"""Characters of the code that a message quotes."""


class _TargetFinding(NamedTuple):
    """A finding, and whether it only matters for MXNet."""

    finding: Finding
    portability: bool


def check(
    source_or_class_or_block: object,
    target: str | None = None,
    *,
    context: Iterable[str] = (),
    file: str | None = None,
    name: str = "net",
) -> list[Finding]:
    """Find code that cannot be hybridized. Nothing of it is run.

    source_or_class_or_block : source text (a module or one cell), the JSON text of a notebook, a path ending in `.py`
        or `.ipynb`, a module, a HybridBlock class, or a Block - then every HybridBlock below it is checked with its
        real children and parameters, and findings carry block paths that start with `name`.
    target : "mxnet" adds the notes about what MXNet itself cannot do.
    context : sources of other cells, whose imports, functions and classes the checked text may use. Findings in them
        are not reported here; `check_cells` reports on all.
    file : the name to report for source text; a string is then source text, whatever it looks like.
    Returns the findings ordered by place. Source that does not parse gives one finding, HL001. Code too large or nested
    too deeply for a complete check is named in one finding, HL002.
    Raises HybridLabError for any other argument, and for a path without a file, or to a binary file.
    """
    if target not in TARGETS:
        raise HybridLabError(f"unknown target {target!r}: use target='mxnet', or none")
    subject = source_or_class_or_block
    if isinstance(subject, types.ModuleType):
        path = inspect.getsourcefile(subject)
        if path is None:
            raise HybridLabError(f"the source of {subject!r} cannot be found")
        subject = Path(path)
    if isinstance(subject, os.PathLike) or (isinstance(subject, str) and file is None and _is_path(subject)):
        path = os.fsdecode(subject)
        file = file or path
        subject = read_file(path)
    if isinstance(subject, str):
        if (document := read_notebook(subject)) is not None:
            per_cell = _check_sources(notebook_cells(document, file or "<notebook>"), target, context)
            return [finding for findings in per_cell for finding in findings]
        return _check_sources([Source(subject, file or "<source>")], target, context)[0]
    if isinstance(subject, type):
        return _check_classes([(subject, None, None)], target)
    if is_a(subject, "Block"):
        from hybrid_lab.insight.states import blocks_below  # loaded already if a Block is alive

        return check_blocks(dict(blocks_below(cast("Block", subject))), name, target)
    raise HybridLabError(
        f"cannot check {type(subject).__name__!r}: give source text, a path to .py or .ipynb, a module, class or Block"
    )


def check_blocks(blocks: Mapping[str, Block], name: str, target: str | None = None) -> list[Finding]:
    """The findings in the classes of these Blocks, without the Blocks below them.

    blocks : by the path in the model; name : of the model
    """
    checked = {kind for kind in set(map(type, blocks.values())) if _is_checked(kind)}
    of_user = [(path, block) for path, block in blocks.items() if type(block) in checked]
    return _check_classes([(type(block), block, f"{name}.{path}".rstrip(".")) for path, block in of_user], target)


def check_cells(
    cells: Sequence[str], target: str | None = None, files: Sequence[str] | None = None
) -> list[list[Finding]]:
    """The findings of each code cell of a notebook, checked together: a cell sees imports and classes of the other
    cells.

    Lines count within the cell. files : the names to report, `<cell 1>`, ... by default.
    """
    named = files or [f"<cell {number}>" for number in range(1, len(cells) + 1)]
    texts = [(cell, file, None) for cell, file in zip(cells, named, strict=True)]
    return _check_sources(sources_within(texts), target, ())


def findings_of(kind: type) -> list[Finding]:
    """The findings of a class, which gluon asks for after its first trace; none if its source is not at hand."""
    try:
        return check(kind)
    except (HybridLabError, OSError, TypeError):
        return []


def _is_path(text: str) -> bool:
    """Whether it is the name of a file. Raises HybridLabError for the name of a missing file."""
    named = "\n" not in text and text.endswith((".py", ".ipynb"))
    if not named or os.path.exists(text):
        return named
    # `net.py` is an expression too, but a one-line source does not end like this.
    raise HybridLabError(f"there is no file {text!r} (looked for in {os.getcwd()!r}); source text is checked as it is")


class _SharedNames:
    """The names that the cells of a notebook give one another."""

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[int, Value]]] = {}

    def add(self, cell: int, names: dict[str, Value]) -> None:
        """Add the names of a cell, which comes after all others so far."""
        for name, value in names.items():
            self._values.setdefault(name, []).append((cell, value))

    def nearest(self, cell: int, name: str) -> Value | None:
        """The meaning of a name in a cell: from the nearest cell above that gives it a value, else from the last cell
        that does.
        """
        values = self._values.get(name)
        if values is None:
            return None
        above = bisect_left(values, cell, key=lambda item: item[0])
        return values[above - 1][1]

    def last(self, name: str) -> Value | None:
        """The value from the last cell."""
        return self._values[name][-1][1] if name in self._values else None


def _check_sources(sources: list[Source], target: str | None, context: Iterable[str]) -> list[list[Finding]]:
    budget = Budget()
    others = [Module(source) for source in sources_within((text, _CONTEXT, None) for text in context)]
    live, project = Live(budget), Project(budget)

    def imported(source: Source, name: str) -> Value | None:
        return live.imported(name) or project.imported(name, source.file)

    modules = [Module(source, imported=partial(imported, source)) for source in sources]
    shared = _SharedNames()
    cells = [*others, *modules]
    given = frozenset().union(*(names_given(module.source) for module in cells))
    classes: list[list[SourceClass]] = []
    for number, module in enumerate(cells):
        module.lookup, module.given = partial(shared.nearest, number), given
        allowed = budget.of_definitions()
        walk = Walk(allowed)
        classes.append(define(walk, module) if allowed else [])
        budget.nodes -= allowed - walk.budget
        if walk.budget <= 0 and number >= len(others):
            budget.leave_source(module.source)
        shared.add(number, module.names)
    for found_there in classes:
        for cls in found_there:
            _resolve_late(cls, shared)
    checked = [cls for found_there in classes[len(others) :] for cls in found_there if cls.hybrid]
    found = [item for cls in checked for item in _check_class(cls, budget)]
    found += _unknown_names(modules, found)
    found += [_TargetFinding(finding, False) for finding in budget.findings()]
    comments = {(source.file, source.cell): suppressions(source) for source in sources}
    findings = _unsilenced(found, comments, target)
    elsewhere = [item for item in findings if (item.file, item.cell) not in comments and item.file != _CONTEXT]
    at: dict[tuple[str, int | None], list[Finding]] = {}
    for item in [*findings, *_at_calls(elsewhere)]:
        at.setdefault((item.file, item.cell), []).append(item)
    reports = []
    for source in sources:
        place = source.file, source.cell
        if source.error is not None:
            reports.append([_syntax_finding(source)])
        elif source.unchecked is not None:
            reports.append([not_checked(source, f"the code {source.unchecked}")])
        else:
            reports.append(ordered([*at.get(place, ()), *stale(source, comments[place])]))
    return reports


def _unknown_names(modules: list[Module], found: list[_TargetFinding]) -> Iterator[_TargetFinding]:
    """What HL166 finds outside of the methods that make graphs."""
    places = {(item.finding.file, item.finding.cell, item.finding.line, item.finding.col) for item in found}
    for module in modules:
        for mark in unknown_in_module(module):
            item = _finding(mark, rules.get("HL166"), module.source)
            if (item.finding.file, item.finding.cell, item.finding.line, item.finding.col) not in places:
                yield item


def _resolve_late(cls: SourceClass, shared: _SharedNames) -> None:
    """A base class that only a later cell defines or imports."""
    bases = []
    for node, base in zip(cls.node.bases, cls.bases, strict=True):
        value = shared.last(getattr(node, "id", "")) if base is None else None
        bases.append(base if value is None else value.ref if isinstance(value.ref, SourceClass | str) else None)
    # `class A(A)` in a re-run cell means an older A, which is not to be had from the text.
    cls.bases = tuple(None if isinstance(base, SourceClass) and cls in base.mro() else base for base in bases)


def _unsilenced(found: list[_TargetFinding], comments: Comments, target: str | None) -> list[Finding]:
    """The findings that matter for the target and that no comment silences."""
    findings = []
    for item in found:
        # A comment about what only matters for MXNet is not stale without that target.
        finding = silence(item.finding, comments)
        if finding is not None and (target == "mxnet" or not item.portability):
            findings.append(finding)
    return findings


def _at_calls(findings: list[Finding]) -> list[Finding]:
    """Findings in functions of other files, at the calls of these functions: one finding a call."""
    by_call: dict[CallSite, list[Finding]] = {}
    for finding in ordered(findings):
        for call in finding.calls:
            by_call.setdefault(call, []).append(finding)
    at_calls = []
    for call, inside in by_call.items():
        worst = min(inside, key=lambda finding: list(Severity).index(finding.severity))
        message = f"{worst.message_at(call).rstrip('.')} (line {worst.line} of {display_file(worst.file)})."
        if len(inside) > 1:
            message += f" {len(inside) - 1} more there."
        place = {field.name: getattr(call, field.name) for field in fields(call) if field.name != "function"}
        at_calls.append(replace(worst, message=message, fix=None, calls=(), **place))
    return at_calls


def _is_checked(kind: type) -> bool:
    """Whether a class is a HybridBlock of the user's."""
    return is_hybrid(kind) and not in_package(kind)


def _check_classes(subjects: list[tuple[type, Block | None, str | None]], target: str | None) -> list[Finding]:
    budget = Budget()
    live = Live(budget)
    walk = Walk(NODES)  # of the constructors
    found: list[_TargetFinding] = []
    sources: dict[str, Source] = {}
    known: dict[Hashable, list[_TargetFinding]] = {}
    for cls, block, path in subjects:
        if not _is_checked(cls):
            continue
        look = None if block is None else look_of(block)
        if look in known:
            found += [item._replace(finding=replace(item.finding, block=path)) for item in known[look]]
            continue
        before = len(found)
        source_class = live.source_class(cls)
        if source_class is None:
            found.append(_TargetFinding(_no_source(cls, path), False))
            continue
        chain = [c for c in source_class.mro() if c.hybrid]
        if block is not None:
            chain[0] = live.with_instance(source_class, block, partial(construct, walk))
        # The method that makes the graph may be inherited: it is checked where it is written.
        for index, member in enumerate(chain):
            if index and "hybrid_forward" in chain[0].own_methods:
                break
            for item in _check_class(member, budget):
                found.append(item if path is None else item._replace(finding=replace(item.finding, block=path)))
            sources.setdefault(member.source.file, member.source)
            if index == 0 and ("hybrid_forward" in member.own_methods or "forward" in member.own_methods):
                break
        if look is not None:
            known[look] = found[before:]
    found += [_TargetFinding(finding, False) for finding in budget.findings()]
    return ordered(_unsilenced(found, _comments_for(found, sources), target))


def _check_class(cls: SourceClass, budget: Budget) -> list[_TargetFinding]:
    """Everything found in a class, and in the functions it calls."""
    if budget.is_spent:
        budget.leave_long(cls)
        return []
    walk = Walk(min(budget.nodes, NODES_OF_CLASS))
    before = walk.budget
    try:
        check_class(walk, cls)
    except RecursionError:
        budget.leave_deep(cls)
    else:
        if walk.budget < 0:
            budget.leave_long(cls)
    budget.nodes -= before - walk.budget + _NODES_OF_EMPTY_CLASS
    found = [(mark.around, _finding(mark, rules.get(code), source)) for mark, code, source in walk.marks.values()]
    return [item for around, item in found if not (around and item.portability)]


def _comments_for(found: list[_TargetFinding], sources: dict[str, Source]) -> Comments:
    """The comments of all files with findings or calls that lead to them. sources : parsed sources so far, by file"""
    comments: Comments = {}
    for file in {file for item in found for file in (item.finding.file, *(call.file for call in item.finding.calls))}:
        source = sources.get(file) or Source("".join(linecache.getlines(file)), file)
        comments[file, None] = suppressions(source)
    return comments


def _finding(mark: Mark, record: rules.Rule, source: Source) -> _TargetFinding:
    severity = mark.severity
    if severity is None and record.softer_in_forward and mark.style == "forward":
        severity = Severity.WARNING
    facts = {name: _shortened(fact) for name, fact in mark.facts.items()}
    message = record.message_for(mark.tensor, **facts) if mark.message is None else mark.message
    rewrite = record.rewrite_for(mark.tensor, **facts) if mark.rewrite is None else mark.rewrite
    calls = tuple(mark.calls)
    details = {"tensor": mark.tensor, "fix": mark.fix, "rewrite": rewrite.strip(), "calls": calls}
    finding = source.finding(record, message, mark.node, severity, **details)
    return _TargetFinding(finding, bool(mark.portability or record.portability))


def _shortened(fact: object) -> object:
    """A part of the code that is quoted, as far as anybody reads it."""
    return f"{fact[:_QUOTED]} ..." if isinstance(fact, str) and len(fact) > _QUOTED else fact


def _syntax_finding(source: Source) -> Finding:
    record = rules.get("HL001")
    error = source.error
    assert error is not None
    line = min(max(error.lineno or 1, 1), max(len(source.lines), 1))
    text = source.lines[line - 1]
    col = min(max((error.offset or 1) - 1, 0), len(text))
    problem = record.message_for(problem=error.msg or None)
    return source.finding(record, problem, (line, col, line, max(len(text), col)))


def _no_source(cls: type, path: str | None) -> Finding:
    record = rules.get("HL199")
    message = f"the source of class {cls.__qualname__} cannot be found, so it was not checked."
    return Finding(record.code, record.name, record.severity, message, "<unknown>", 1, 0, 1, 0, block=path)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by place, each once; equal ones of several classes have the calls of all."""
    order = {severity: index for index, severity in enumerate(Severity)}
    calls: dict[Finding, set[CallSite]] = {}
    for finding in findings:
        calls.setdefault(replace(finding, calls=()), set()).update(finding.calls)
    unique = [
        replace(finding, calls=tuple(sorted(at, key=lambda c: (c.file, c.cell or 0, c.line, c.col))))
        for finding, at in calls.items()
    ]
    return sorted(unique, key=lambda f: (f.file, f.cell or 0, f.line, f.col, order[f.severity], f.code, f.block or ""))
