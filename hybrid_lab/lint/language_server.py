"""`hybrid-lab lsp`: the linter as a language server, for Python files and notebooks in any editor.

It speaks the Language Server Protocol 3.17 by pygls. It runs no code of the user's: like `check`, it only parses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics import rules
from hybrid_lab.diagnostics.finding import CallSite, Edit, Finding, Severity

from .editor_text import UTF_16, EditorText
from .fixes import apply_fixes
from .runner import TARGETS, check

SECTION = "hybridLab"
"""The settings of an editor that are read: `{"hybridLab": {"target": "mxnet"}}`."""
FIX_ALL = "source.fixAll.hybrid-lab"
FIX_ALL_IN_NOTEBOOK = "notebook.source.fixAll.hybrid-lab"
DELAY = 0.2
"""Seconds without a change after which a document is checked."""
MOST = 2000
"""Findings of one document that are shown."""
_UNREADABLE = "HL001"
"""The rule about source that does not parse, which every editor marks by itself."""
_SEVERITY = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}


class LintServer(LanguageServer):
    """The documents that an editor has open, and the findings in them.

    A *unit* is checked together: one Python file, or the Python cells of one notebook.

    texts : the text of each file and cell, by its URI
    findings : of each document, for its text at the time of the check
    """

    def __init__(self, target: str | None = None) -> None:
        super().__init__(
            "hybrid-lab",
            __version__,
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            notebook_document_sync=types.NotebookDocumentSyncOptions(
                notebook_selector=[
                    types.NotebookDocumentFilterWithCells(
                        notebook="*", cells=[types.NotebookCellLanguage(language="python")]
                    )
                ]
            ),
        )
        self.target = target
        self.texts: dict[str, EditorText] = {}
        self.findings: dict[str, list[Finding]] = {}
        self._cells: dict[str, list[str]] = {}
        self._notebook_of: dict[str, str] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._thread = ThreadPoolExecutor(1, "hybrid_lab-lint")

    # Documents

    def put(self, document: types.TextDocumentItem) -> None:
        """Take the text of a file or cell that was opened."""
        encoding = str(getattr(self.server_capabilities.position_encoding, "value", None) or UTF_16)
        self.texts[document.uri] = EditorText(document.text, document.version, encoding, document.language_id)

    def change(self, uri: str, version: int | None, changes: Iterable[types.TextDocumentContentChangeEvent]) -> None:
        """Apply changes to the text of a file or cell, in their order."""
        for change in changes:
            text = self.texts.get(uri)
            if text is None:
                return
            if isinstance(change, types.TextDocumentContentChangePartial):
                start, end = change.range.start, change.range.end
                places = (start.line, start.character), (end.line, end.character)
                self.texts[uri] = text.changed(*places, change.text, version)
            else:
                self.texts[uri] = EditorText(change.text, version, text.encoding, text.language)

    def unit_of(self, uri: str) -> str:
        """The unit that a file or cell belongs to."""
        return self._notebook_of.get(uri, uri)

    def texts_of(self, unit: str) -> list[str]:
        """The URIs of the Python texts of a unit, in their order."""
        uris = self._cells.get(unit, [unit])
        return [uri for uri in uris if uri in self.texts and self.texts[uri].language == "python"]

    def arrange(self, notebook: str) -> None:
        """Take the order of a notebook's cells from the workspace, which follows the editor."""
        document = self.workspace.get_notebook_document(notebook_uri=notebook)
        cells = [] if document is None else document.cells
        self._cells[notebook] = [cell.document for cell in cells if cell.kind == types.NotebookCellKind.Code]
        self._notebook_of.update(dict.fromkeys(self._cells[notebook], notebook))

    def forget(self, uris: Iterable[str]) -> None:
        """Drop closed files and cells, and their marks in the editor."""
        for uri in uris:
            self.texts.pop(uri, None)
            self._notebook_of.pop(uri, None)
            if self.findings.pop(uri, None):
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def close(self, unit: str, uris: Iterable[str]) -> None:
        """Drop a unit."""
        if (running := self._checks.pop(unit, None)) is not None:
            running.cancel()
        self._cells.pop(unit, None)
        self.forget(uris)

    # Checks

    def check_soon(self, unit: str, delay: float = DELAY) -> None:
        """Check a unit when it has not changed for a moment."""
        if (running := self._checks.get(unit)) is not None:
            running.cancel()
        self._checks[unit] = asyncio.ensure_future(self._check(unit, delay))

    async def settled(self, unit: str) -> None:
        """Wait until the findings belong to the current text."""
        while (running := self._checks.get(unit)) is not None and not running.done():
            await asyncio.wait([running])

    async def _check(self, unit: str, delay: float) -> None:
        await asyncio.sleep(delay)
        uris = self.texts_of(unit)
        texts = [self.texts[uri].text for uri in uris]
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, findings_in, unit, texts, unit in self._cells, self.target)
        for uri, findings in zip(uris, found, strict=True):
            self.findings[uri] = findings
            self._publish(uri)

    def _publish(self, uri: str) -> None:
        text = self.texts[uri]
        shown = [self._diagnostic(uri, finding) for finding in self.findings[uri][:MOST]]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, version=text.version))

    def _diagnostic(self, uri: str, finding: Finding) -> types.Diagnostic:
        related = [
            types.DiagnosticRelatedInformation(types.Location(where, span), finding.message_at(call))
            for call in finding.calls
            if (where := self._uri_of(call, uri)) is not None and (span := self._range(where, call)) is not None
        ]
        return types.Diagnostic(
            self._range(uri, finding) or _no_range(),
            finding.message,
            severity=_SEVERITY[finding.severity],
            code=finding.code,
            source="hybrid-lab",
            related_information=related or None,
        )

    def _uri_of(self, call: CallSite, uri: str) -> str | None:
        """The document that a call is in, if it is open in the editor."""
        cells = self._cells.get(self.unit_of(uri))
        if cells is None or call.cell is None:
            return uri if call.cell is None else None
        uris = self.texts_of(self.unit_of(uri))
        return uris[call.cell - 1] if 0 < call.cell <= len(uris) else None

    def _range(self, uri: str, place: Finding | CallSite | Edit) -> types.Range | None:
        text = self.texts.get(uri)
        if text is None or not 0 < place.end_line <= text.line_count:
            return None
        start, end = text.position(place.line, place.col), text.position(place.end_line, place.end_col)
        return types.Range(types.Position(*start), types.Position(*end))

    def at(self, uri: str, wanted: types.Range) -> Iterator[tuple[Finding, types.Range]]:
        """The findings whose marks touch a range, with the range of each."""
        for finding in self.findings.get(uri, ()):
            span = self._range(uri, finding)
            if (
                span is not None
                and _order(span.start) <= _order(wanted.end)
                and _order(wanted.start) <= _order(span.end)
            ):
                yield finding, span

    # Repairs

    def fix_of(self, uri: str, finding: Finding) -> types.WorkspaceEdit | None:
        """The edit that repairs one finding; None if it cannot be repaired automatically."""
        if finding.fix is None:
            return None
        repaired = apply_fixes(self.texts[uri].text, [finding], unsafe=True)
        return self._edit({uri: repaired})

    def fix_all(self, uris: Iterable[str]) -> types.WorkspaceEdit | None:
        """The edit that applies all safe repairs in some documents; None if there are none."""
        return self._edit({uri: apply_fixes(self.texts[uri].text, self.findings.get(uri, ())) for uri in uris})

    def _edit(self, repaired: Mapping[str, str]) -> types.WorkspaceEdit | None:
        edits = {uri: edit for uri, new in repaired.items() if (edit := self._difference(uri, new)) is not None}
        if not edits:
            return None
        workspace = self.client_capabilities.workspace
        edit_capability = None if workspace is None else workspace.workspace_edit
        if edit_capability is None or not edit_capability.document_changes:
            return types.WorkspaceEdit(changes={uri: [edit] for uri, edit in edits.items()})
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(uri, self.texts[uri].version), [edit]
                )
                for uri, edit in edits.items()
            ]
        )

    def _difference(self, uri: str, new: str) -> types.TextEdit | None:
        """The one edit, of whole lines, that makes `new` of a text."""
        text = self.texts[uri]
        before, after = text.text.splitlines(keepends=True), new.splitlines(keepends=True)
        if before == after:
            return None
        same = min(len(before), len(after))
        head = next((index for index in range(same) if before[index] != after[index]), same)
        tail = next((i for i in range(same - head) if before[-1 - i] != after[-1 - i]), same - head)
        start, end = sum(map(len, before[:head])), len(text.text) - sum(map(len, before[len(before) - tail :]))
        places = [types.Position(*text.position_of(offset)) for offset in (start, end)]
        return types.TextEdit(types.Range(*places), "".join(after[head : len(after) - tail]))

    # Settings

    def take_settings(self, settings: object) -> None:
        """Take over the target in an editor's settings, and check everything that is open again if it is another."""
        given = settings.get(SECTION, settings) if isinstance(settings, Mapping) else None
        if not isinstance(given, Mapping) or "target" not in given:
            return
        target = given["target"] or None
        if target not in TARGETS:
            text = f'hybrid-lab: the setting {SECTION}.target is {target!r}; it can be "mxnet", or empty'
            self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, text))
        elif target != self.target:
            self.target = target
            for unit in {self.unit_of(uri) for uri in self.texts}:
                self.check_soon(unit, 0)

    async def ask_settings(self) -> None:
        """Ask the editor for its settings, if it answers such questions."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.configuration:
            items = [types.ConfigurationItem(section=SECTION)]
            answer = await self.workspace_configuration_async(types.ConfigurationParams(items))
            self.take_settings(answer[0] if answer else None)


def findings_in(unit: str, texts: list[str], is_notebook: bool, target: str | None) -> list[list[Finding]]:
    """The findings in each text of a unit."""
    file = to_fs_path(unit) or f"<{unit}>"
    if not is_notebook:
        return [_shown(check(text, target, file=file)) for text in texts]
    cells = [{"cell_type": "code", "source": text} for text in texts]
    found = _shown(check(json.dumps({"cells": cells}), target, file=file))
    return [[finding for finding in found if finding.cell == number] for number in range(1, len(texts) + 1)]


def _shown(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.code != _UNREADABLE]


def _order(position: types.Position) -> tuple[int, int]:
    return position.line, position.character


def _no_range() -> types.Range:
    return types.Range(types.Position(0, 0), types.Position(0, 0))


def server(target: str | None = None) -> LintServer:
    """A language server with all its features; `start_io()` runs it on standard input and output."""
    ls = LintServer(target)

    @ls.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        if (options := params.initialization_options) is not None:
            ls.take_settings(options)

    @ls.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        await ls.ask_settings()

    @ls.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        ls.take_settings(params.settings)
        await ls.ask_settings()

    @ls.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: types.DidOpenTextDocumentParams) -> None:
        ls.put(params.text_document)
        ls.check_soon(params.text_document.uri, 0)

    @ls.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        ls.change(uri, params.text_document.version, params.content_changes)
        ls.check_soon(ls.unit_of(uri))

    @ls.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: types.DidCloseTextDocumentParams) -> None:
        ls.close(params.text_document.uri, [params.text_document.uri])

    @ls.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    async def did_open_notebook(params: types.DidOpenNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            ls.put(cell)
        ls.arrange(params.notebook_document.uri)
        ls.check_soon(params.notebook_document.uri, 0)

    @ls.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    async def did_change_notebook(params: types.DidChangeNotebookDocumentParams) -> None:
        notebook, cells = params.notebook_document.uri, params.change.cells
        if cells is None:
            return
        if cells.structure is not None:
            ls.forget(cell.uri for cell in cells.structure.did_close or ())
            for cell in cells.structure.did_open or ():
                ls.put(cell)
        for content in cells.text_content or ():
            ls.change(content.document.uri, content.document.version, content.changes)
        ls.arrange(notebook)
        ls.check_soon(notebook)

    @ls.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    async def did_close_notebook(params: types.DidCloseNotebookDocumentParams) -> None:
        ls.close(params.notebook_document.uri, [cell.uri for cell in params.cell_text_documents])

    @ls.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        uri = params.text_document.uri
        await ls.settled(ls.unit_of(uri))
        here = list(ls.at(uri, types.Range(params.position, params.position)))
        if not here:
            return None
        text = "\n\n---\n\n".join(hover_text(finding) for finding, _ in here)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), here[0][1])

    @ls.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL, FIX_ALL_IN_NOTEBOOK]),
    )
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        await ls.settled(ls.unit_of(uri))
        return [] if uri not in ls.texts else list(_actions(ls, uri, params))

    return ls


def _actions(ls: LintServer, uri: str, params: types.CodeActionParams) -> Iterator[types.CodeAction]:
    only = params.context.only
    if _asked(types.CodeActionKind.QuickFix, only):
        for finding, span in ls.at(uri, params.range):
            if finding.fix is not None and (edit := ls.fix_of(uri, finding)) is not None:
                marks = [
                    mark for mark in params.context.diagnostics if mark.code == finding.code and mark.range == span
                ]
                title = f"{finding.code}: {finding.fix.title}" + ("" if finding.fix.safe else " (check the result)")
                yield types.CodeAction(
                    title, types.CodeActionKind.QuickFix, marks, is_preferred=finding.fix.safe, edit=edit
                )
    places = [(FIX_ALL, [uri], "Hybrid Lab: apply all safe fixes")]
    if only is not None:
        texts = ls.texts_of(ls.unit_of(uri))
        places.append((FIX_ALL_IN_NOTEBOOK, texts, "Hybrid Lab: apply all safe fixes in the notebook"))
    for kind, uris, title in places:
        if _asked(kind, only) and (edit := ls.fix_all(uris)) is not None:
            yield types.CodeAction(title, kind, edit=edit)


def _asked(kind: str, only: Iterable[Any] | None) -> bool:
    """Whether an editor that wants some kinds of actions, or those below them, wants this one."""
    wanted = None if only is None else [str(getattr(each, "value", each)) for each in only]
    kind = str(getattr(kind, "value", kind))
    return wanted is None or any(kind == each or kind.startswith(f"{each}.") for each in wanted)


def hover_text(finding: Finding) -> str:
    """A finding with the page of its rule, in Markdown."""
    parts = [f"**{finding.code}** {finding.message}"]
    if finding.rewrite.strip():
        parts.append(f"Instead:\n\n```python\n{finding.rewrite}\n```")
    return "\n\n".join([*parts, "---", rules.page(finding.code)])
