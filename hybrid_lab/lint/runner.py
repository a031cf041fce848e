"""`check`: source text, notebooks, files, modules, classes and Blocks in; findings out."""

from __future__ import annotations

import inspect
import linecache
import os
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from ..diagnostics import rules
from ..diagnostics.errors import HybridLabError
from ..diagnostics.finding import Call, Finding, Severity
from ..diagnostics.location import display_file
from .checker import check_class, define
from .classes import Module, SourceClass
from .functions import construct
from .live import Live, in_package, is_a, is_hybrid, look_of
from .project import Project
from .source import Source, notebook_cells, read_notebook
from .suppress import Comments, silence, stale, suppressions
from .values import Value
from .walk import Mark, Walk

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block

TARGETS = (None, "mxnet")
_CONTEXT = "<context>"


class _Found(NamedTuple):
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

    source_or_class_or_block: source text (a module or one cell), the JSON text of a notebook, a path ending in `.py` or
        `.ipynb`, a module, a HybridBlock class, or a Block - then every HybridBlock below it is checked with its real
        children and parameters, and findings carry block paths that start with `name`.
    target: "mxnet" adds the notes about what MXNet itself cannot do.
    context: sources of other cells, whose imports, functions and classes the checked text may use. What is found in
        them is not reported here; `check_cells` reports on all.
    file: the name to report for source text.
    Returns the findings ordered by place. Source that does not parse gives one finding, HL001.
    Raises HybridLabError for any other argument, and for a path to a file that does not exist.
    """
    if target not in TARGETS:
        raise HybridLabError(f"unknown target {target!r}: use target='mxnet', or none")
    subject = source_or_class_or_block
    if isinstance(subject, types.ModuleType):
        path = inspect.getsourcefile(subject)
        if path is None:
            raise HybridLabError(f"the source of {subject!r} cannot be found")
        subject = Path(path)
    if isinstance(subject, os.PathLike) or (isinstance(subject, str) and _is_path(subject)):
        file = file or os.fspath(subject)
        subject = Path(subject).read_text(encoding="utf-8-sig")
    if isinstance(subject, str):
        if (document := read_notebook(subject)) is not None:
            per_cell = _check_sources(notebook_cells(document, file or "<notebook>"), target, context)
            return [finding for findings in per_cell for finding in findings]
        return _check_sources([Source(subject, file or "<source>")], target, context)[0]
    if isinstance(subject, type):
        return _check_classes([(subject, None, None)], target)
    if is_a(subject, "Block"):
        from ..insight.states import blocks_below  # loaded already where a Block is alive

        return check_blocks(dict(blocks_below(cast("Block", subject))), name, target)
    raise HybridLabError(
        f"cannot check {type(subject).__name__!r}: give source text, a path to .py or .ipynb, a module, class or Block"
    )


def check_blocks(blocks: Mapping[str, Block], name: str, target: str | None = None) -> list[Finding]:
    """The findings in the classes of these Blocks, without what is below them.

    blocks: by the path in the model; name: of the model
    """
    checked = {kind for kind in set(map(type, blocks.values())) if _is_checked(kind)}
    of_user = [(path, block) for path, block in blocks.items() if type(block) in checked]
    return _check_classes([(type(block), block, f"{name}.{path}".rstrip(".")) for path, block in of_user], target)


def check_cells(
    cells: Sequence[str], target: str | None = None, files: Sequence[str] | None = None
) -> list[list[Finding]]:
    """The findings of each code cell of a notebook, checked together: a cell sees imports and classes of the others.

    Lines count within the cell. files: the names to report, `<cell 1>`, ... by default.
    """
    named = files or [f"<cell {number}>" for number in range(1, len(cells) + 1)]
    return _check_sources([Source(cell, file) for cell, file in zip(cells, named, strict=True)], target, ())


def findings_of(kind: type) -> list[Finding]:
    """The findings of a class, which gluon asks for after its first trace; none where its source is not at hand."""
    try:
        return check(kind)
    except (HybridLabError, OSError, TypeError):
        return []


def _is_path(text: str) -> bool:
    """Whether it is the name of a file. Raises HybridLabError where it looks like one that is not there."""
    named = "\n" not in text and text.endswith((".py", ".ipynb"))
    if not named or os.path.exists(text):
        return named
    # `net.py` is an expression too, but nobody has one line checked that ends like this.
    raise HybridLabError(f"there is no file {text!r} (looked for in {os.getcwd()!r}); source text is checked as it is")


def _check_sources(sources: list[Source], target: str | None, context: Iterable[str]) -> list[list[Finding]]:
    walk = Walk()
    others = [Module(Source(text, _CONTEXT)) for text in context]
    live, project = Live(), Project()

    def imported(source: Source, name: str) -> Value | None:
        return live.imported(name) or project.imported(name, source.file)

    modules = [Module(source, imported=partial(imported, source)) for source in sources]
    classes: dict[int, list[SourceClass]] = {}
    shared: dict[str, Value] = {}
    for module in [*others, *modules]:
        # A name means what the nearest cell above says; failing that, what any cell says.
        module.names = dict(shared)
        classes[id(module)] = define(walk, module)
        shared = dict(module.names)
    for module in [*others, *modules]:
        module.lookup = shared.get
    for module in [*others, *modules]:
        for cls in classes[id(module)]:
            _resolve_late(cls, shared)
    found = [item for module in modules for cls in classes[id(module)] if cls.hybrid for item in _check_class(cls)]
    comments = {(source.file, source.cell): suppressions(source) for source in sources}
    findings = _unsilenced(found, comments, target)
    elsewhere = [item for item in findings if (item.file, item.cell) not in comments and item.file != _CONTEXT]
    findings += _at_calls(elsewhere)
    reports = []
    for source in sources:
        here = [item for item in findings if (item.file, item.cell) == (source.file, source.cell)]
        stale_comments = stale(source, comments[source.file, source.cell])
        reports.append([_syntax_finding(source)] if source.error is not None else ordered(here + stale_comments))
    return reports


def _resolve_late(cls: SourceClass, shared: dict[str, Value]) -> None:
    """A base class that only a later cell defines or imports."""
    bases = []
    for node, base in zip(cls.node.bases, cls.bases, strict=True):
        value = shared.get(getattr(node, "id", "")) if base is None else None
        bases.append(base if value is None else value.ref if isinstance(value.ref, SourceClass | str) else None)
    # `class A(A)` in a re-run cell means an older A, which is not to be had from the text.
    cls.bases = tuple(None if isinstance(base, SourceClass) and cls in base.mro() else base for base in bases)


def _unsilenced(found: list[_Found], comments: Comments, target: str | None) -> list[Finding]:
    """The findings that matter for the target and that no comment silences."""
    findings = []
    for item in found:
        # A comment about what only matters for MXNet is not stale without that target.
        finding = silence(item.finding, comments)
        if finding is not None and (target == "mxnet" or not item.portability):
            findings.append(finding)
    return findings


def _at_calls(findings: list[Finding]) -> list[Finding]:
    """What is found in functions of other files, at the calls of these functions: one finding a call."""
    by_call: dict[Call, list[Finding]] = {}
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
    walk = Walk()
    live = Live()
    found: list[_Found] = []
    sources: dict[str, Source] = {}
    known: dict[Hashable, list[_Found]] = {}
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
            found.append(_Found(_no_source(cls, path), False))
            continue
        chain = [c for c in source_class.mro() if c.hybrid]
        if block is not None:
            chain[0] = live.with_instance(source_class, block, partial(construct, walk))
        # The method that makes the graph may be inherited: it is checked where it is written.
        for index, member in enumerate(chain):
            if index and "hybrid_forward" in chain[0].own_methods:
                break
            for item in _check_class(member):
                found.append(item if path is None else item._replace(finding=replace(item.finding, block=path)))
            sources.setdefault(member.source.file, member.source)
            if index == 0 and ("hybrid_forward" in member.own_methods or "forward" in member.own_methods):
                break
        if look is not None:
            known[look] = found[before:]
    return ordered(_unsilenced(found, _comments_for(found, sources), target))


def _check_class(cls: SourceClass) -> list[_Found]:
    """Everything found in a class, and in the functions it calls."""
    walk = Walk()
    try:
        check_class(walk, cls)
    except RecursionError:
        too_deep = Mark(cls.node, message=f"class {cls.name} is nested too deeply to be checked.")
        walk.marks["HL199", 0, (0, 0, 0, 0)] = (too_deep, "HL199", cls.source)
    return [_finding(mark, rules.get(code), source, walk.style) for mark, code, source in walk.marks.values()]


def _comments_for(found: list[_Found], sources: dict[str, Source]) -> Comments:
    """The comments of all files with findings or calls that lead to them. sources: what was parsed already, by file"""
    comments: Comments = {}
    for file in {file for item in found for file in (item.finding.file, *(call.file for call in item.finding.calls))}:
        source = sources.get(file) or Source("".join(linecache.getlines(file)), file)
        comments[file, None] = suppressions(source)
    return comments


def _finding(mark: Mark, record: rules.Rule, source: Source, style: str) -> _Found:
    severity = mark.severity
    if severity is None and record.softer_in_forward and style == "forward":
        severity = Severity.WARNING
    message = record.message_for(mark.tensor, **mark.facts) if mark.message is None else mark.message
    rewrite = record.rewrite_for(mark.tensor, **mark.facts) if mark.rewrite is None else mark.rewrite
    calls = tuple(mark.calls)
    details = {"tensor": mark.tensor, "fix": mark.fix, "rewrite": rewrite.strip(), "calls": calls}
    finding = source.finding(record, message, mark.node, severity, **details)
    return _Found(finding, bool(mark.portability or record.portability))


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
    calls: dict[Finding, set[Call]] = {}
    for finding in findings:
        calls.setdefault(replace(finding, calls=()), set()).update(finding.calls)
    unique = [
        replace(finding, calls=tuple(sorted(at, key=lambda c: (c.file, c.cell or 0, c.line, c.col))))
        for finding, at in calls.items()
    ]
    return sorted(unique, key=lambda f: (f.file, f.cell or 0, f.line, f.col, order[f.severity], f.code, f.block or ""))
