"""`check`: source text, notebooks, files, modules, classes and Blocks in; findings out."""

from __future__ import annotations

import inspect
import linecache
import os
import types
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from ..diagnostics import rules
from ..diagnostics.errors import HybridLabError
from ..diagnostics.finding import Finding, Severity
from .checker import check_class, define
from .classes import Module, SourceClass
from .functions import construct
from .live import Live, in_package, is_a, is_hybrid
from .source import Source, notebook_cells, read_notebook
from .suppress import silence, stale, suppressions
from .values import Value
from .walk import Mark, Walk

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block

TARGETS = (None, "mxnet")


class _Found(NamedTuple):
    """A finding, whether it only matters for MXNet, and its source."""

    finding: Finding
    portability: bool
    source: Source


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

        blocks = blocks_below(cast("Block", subject))
        return _check_classes([(type(block), block, f"{name}.{path}".rstrip(".")) for path, block in blocks], target)
    raise HybridLabError(
        f"cannot check {type(subject).__name__!r}: give source text, a path to .py or .ipynb, a module, class or Block"
    )


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
    others = [Module(Source(text, "<context>")) for text in context]
    modules = [Module(source) for source in sources]
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
    findings = [item for module in modules for cls in classes[id(module)] if cls.hybrid for item in _check_class(cls)]
    return [_findings_of(module.source, findings, target) for module in modules]


def _resolve_late(cls: SourceClass, shared: dict[str, Value]) -> None:
    """A base class that only a later cell defines or imports."""
    bases = []
    for node, base in zip(cls.node.bases, cls.bases, strict=True):
        value = shared.get(getattr(node, "id", "")) if base is None else None
        bases.append(base if value is None else value.ref if isinstance(value.ref, SourceClass | str) else None)
    # `class A(A)` in a re-run cell means an older A, which is not to be had from the text.
    cls.bases = tuple(None if isinstance(base, SourceClass) and cls in base.mro() else base for base in bases)


def _findings_of(source: Source, findings: list[_Found], target: str | None) -> list[Finding]:
    """The findings in this source that no comment silences, and those about comments that silence nothing."""
    if source.error is not None:
        return [_syntax_finding(source)]
    comments = suppressions(source)
    here = [item for item in findings if item.source is source]
    unsilenced = silence([item.finding for item in here], comments)
    quiet = {item.finding for item in here if item.portability and target != "mxnet"}
    return _ordered([finding for finding in unsilenced if finding not in quiet] + stale(source, comments))


def _check_classes(subjects: list[tuple[type, Block | None, str | None]], target: str | None) -> list[Finding]:
    walk = Walk()
    live = Live(partial(define, walk))
    findings: list[Finding] = []
    sources: dict[str, Source] = {}
    for cls, block, path in subjects:
        if not is_hybrid(cls) or in_package(cls):
            continue
        source_class = live.source_class(cls)
        if source_class is None:
            findings.append(_no_source(cls, path))
            continue
        chain = [c for c in source_class.mro() if c.hybrid]
        if block is not None:
            chain[0] = live.with_instance(source_class, block, partial(construct, walk))
        # The method that makes the graph may be inherited: it is checked where it is written.
        for index, member in enumerate(chain):
            if index and "hybrid_forward" in chain[0].own_methods:
                break
            for item in _check_class(member):
                if not item.portability or target == "mxnet":
                    findings.append(item.finding if path is None else replace(item.finding, block=path))
            sources.setdefault(member.source.file, member.source)
            if index == 0 and ("hybrid_forward" in member.own_methods or "forward" in member.own_methods):
                break
    return _ordered(_silenced(findings, sources))


def _check_class(cls: SourceClass) -> list[_Found]:
    """Everything found in a class, and in the functions it calls."""
    walk = Walk()
    try:
        check_class(walk, cls)
    except RecursionError:
        too_deep = Mark(cls.node, message=f"class {cls.name} is nested too deeply to be checked.")
        walk.marks["HL199", 0, 0, 0] = (too_deep, "HL199", cls.source)
    return [_finding(mark, rules.get(code), source, walk.style) for mark, code, source in walk.marks.values()]


def _silenced(findings: list[Finding], sources: dict[str, Source]) -> list[Finding]:
    """Findings in live classes that no comment silences. sources: what was parsed already, by file"""
    unsilenced: list[Finding] = []
    for file in dict.fromkeys(finding.file for finding in findings):
        source = sources.get(file) or Source("".join(linecache.getlines(file)), file)
        here = [finding for finding in findings if finding.file == file]
        unsilenced += silence(here, suppressions(source))
    return unsilenced


def _finding(mark: Mark, record: rules.Rule, source: Source, style: str) -> _Found:
    severity = mark.severity
    if severity is None and record.softer_in_forward and style == "forward":
        severity = Severity.WARNING
    message = record.message_for(mark.tensor, **mark.facts) if mark.message is None else mark.message
    rewrite = record.rewrite_for(mark.tensor, **mark.facts) if mark.rewrite is None else mark.rewrite
    details = {"tensor": mark.tensor, "fix": mark.fix, "rewrite": rewrite.strip()}
    finding = source.finding(record, message, mark.node, severity, **details)
    return _Found(finding, bool(mark.portability or record.portability), source)


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


def _ordered(findings: Iterable[Finding]) -> list[Finding]:
    order = {severity: index for index, severity in enumerate(Severity)}
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda f: (f.file, f.cell or 0, f.line, f.col, order[f.severity], f.code, f.block or ""))
