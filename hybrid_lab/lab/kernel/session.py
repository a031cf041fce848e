"""Session: answers the front end's requests about the models of one kernel, one method per request."""

from __future__ import annotations

import contextlib
import platform
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import about, count
from hybrid_lab.lab.diagnostics import findings_by_path, lint_cells, lint_key, lint_rows, merged
from hybrid_lab.lab.distributed.board import board
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.answers import Answers
from hybrid_lab.lab.kernel.nan_watches import NanWatches
from hybrid_lab.lab.messages.answers import AnswersReply
from hybrid_lab.lab.messages.common import EmptyRequest, JsonObject, ModelRequest
from hybrid_lab.lab.messages.connection import (
    PROTOCOL,
    AssetReply,
    AssetRequest,
    FolderReply,
    FolderRequest,
    HelloReply,
    HelloRequest,
    StaticReply,
    StaticRequest,
    WatchReply,
    WatchRequest,
)
from hybrid_lab.lab.messages.differences import (
    ComparedValuesReply,
    ComparedValuesRequest,
    CompareReply,
    CompareRequest,
)
from hybrid_lab.lab.messages.findings import Diagnostic, FindingsReply, LintReply, LintRequest
from hybrid_lab.lab.messages.graphs import GraphReply, GraphRequest
from hybrid_lab.lab.messages.measured import (
    KeepInputsReply,
    KeepInputsRequest,
    OverlayReply,
    OverlayRequest,
    ValuesReply,
    ValuesRequest,
    WatchNanReply,
    WatchNanRequest,
)
from hybrid_lab.lab.messages.models import (
    ChangesReply,
    ChangesRequest,
    ExplainReply,
    ModelsReply,
    SummaryReply,
    SummaryRequest,
    TreeReply,
)
from hybrid_lab.lab.messages.saving import (
    ArchivesReply,
    ArchivesRequest,
    AutosaveReply,
    AutosaveRequest,
    HistogramsReply,
    HistogramsRequest,
    HistoryReply,
    HistoryRequest,
    NoteReply,
    NoteRequest,
    OpenReply,
    OpenRequest,
    ReloadReply,
    ReloadRequest,
    RestoreReply,
    RestoreRequest,
    SaveReply,
    SaveRequest,
    TargetsReply,
    TargetsRequest,
    UndoReply,
    UndoRequest,
)
from hybrid_lab.lab.messages.sharing import ShareReply
from hybrid_lab.lab.messages.training import CurvesReply, RunsReply, RunsRequest
from hybrid_lab.lab.messages.workers import WorkersReply
from hybrid_lab.lab.models.block_work import block_work
from hybrid_lab.lab.models.registry import LiveModel, Registry, model_data, saving_data
from hybrid_lab.lab.models.tree import block_tree, changed_blocks
from hybrid_lab.lab.models.values import values_of
from hybrid_lab.lab.picture.graph_view import graph_view
from hybrid_lab.lab.picture.kept_inputs import KeptInputs
from hybrid_lab.lab.picture.overlays import overlay
from hybrid_lab.lab.picture.overlays.source import Data
from hybrid_lab.lab.saving import actions, archives, file_names
from hybrid_lab.lab.saving.autosaves import autosave_data
from hybrid_lab.lab.saving.save_list import histograms_reply
from hybrid_lab.lab.training.comparison import runs_reply
from hybrid_lab.lab.training.current import runs
from hybrid_lab.lab.training.curves import run_data
from hybrid_lab.lab.views.front_end_files import script
from hybrid_lab.lab.views.shared_page import page_file, write_page

if TYPE_CHECKING:
    from hybrid_lab.lab.views.widget import View

#: progress(text, done, total)
Progress = Callable[[str, int, int], None]

#: Requests that may take seconds -> the front end's text meanwhile.
_SLOW = {
    "save": "saving",
    "reload": "loading",
    "open": "loading",
    "compare": "comparing",
    "overlay": "measuring",
    "share": "writing the page",
}
_NOTES_KEPT = 20


class Session:
    """registry : of the models; namespace : the user's variables; views : the open widgets

    changed : called after a request changed a model; subshells : see `hello`; busy : tells whether a cell is running
    kernel : the id of the kernel, which requests and models carry; "" if models are of no kernel, but of a file
    """

    def __init__(
        self,
        namespace: Callable[[], dict[str, object]],
        changed: Callable[[], None] = lambda: None,
        subshells: bool = False,
        busy: Callable[[], bool] = lambda: False,
        registry: Registry | None = None,
        kernel: str = "",
    ):
        self.kernel = kernel
        self.registry = Registry(namespace, kernel) if registry is None else registry
        self.views: weakref.WeakSet[View] = weakref.WeakSet()
        self._notes: list[str] = []
        self._watches = NanWatches(namespace)
        #: by id of the model; the model itself holds them
        self._kept: weakref.WeakValueDictionary[str, KeptInputs] = weakref.WeakValueDictionary()
        self._answers = Answers()
        self._lock = threading.Lock()
        self._namespace, self._changed, self._subshells, self._busy = namespace, changed, subshells, busy

    def answer(self, kind: str, body: JsonObject, progress: Progress) -> Mapping[str, object]:
        """The reply's body. Raises RequestError, with code `failed` for errors in the user's or the system's terms."""
        try:
            if kind in _SLOW:
                progress(_SLOW[kind], 0, 0)
            if board.has(body.get("model")):
                return board.answer(kind, body)
            entry = self.registry.known(body.get("model"))
            with contextlib.nullcontext() if entry is None else about(entry):
                reply: Mapping[str, object] = getattr(self, f"_on_{kind}")(body)
            return reply
        except RequestError:
            raise
        except OSError as error:  # a FileError too: its next step is for who names files by paths
            message = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
            raise RequestError("failed", message, file_names.what_to_do(error, saves=kind == "save")) from error
        except HybridLabError as error:
            raise RequestError("failed", str(error)) from error

    def ask(self, kind: str, body: JsonObject) -> Mapping[str, object]:
        """The same for who waits for no progress."""
        return self.answer(kind, body, lambda text, done, total: None)

    def note(self, notes: list[str]) -> None:
        """Keep sentences for the user until the next `models`."""
        with self._lock:
            self._notes = [*self._notes, *notes][-_NOTES_KEPT:]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _on_hello(self, body: HelloRequest) -> HelloReply:
        from hybrid_lab import engines

        default = engines.default()
        return {
            "kernel": __version__,
            "kernel_id": self.kernel,
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "host": actions.host(),
            "folder": str(file_names.folder()),
            "engine": "auto" if default is None else default.name,
            "subshells": self._subshells,
        }

    def models(self) -> ModelsReply:
        """The body of `models`, reply and push."""
        with self._lock:
            notes, self._notes = self._notes, []
        entries = self.registry.refresh()
        rows = [model_data(entry, len(self.findings(entry))) for entry in entries]
        saving = {entry.id: saving_data(entry) for entry in entries}
        try:
            folder = str(file_names.folder())
        except OSError:  # it was deleted
            folder = ""
        rows += board.models["models"]
        saving |= board.models.get("saving", {})
        return {"models": rows, "busy": self._busy(), "notes": notes, "saving": saving, "folder": folder}

    def _on_models(self, body: EmptyRequest) -> ModelsReply:
        return self.models()

    def findings(self, entry: LiveModel) -> list[Diagnostic]:
        """Findings of a model. Its classes are checked again only when they or the tree changed."""
        with self.registry.lock:
            key = lint_key(entry.facts.kinds, entry.block, entry.name)
            if key != entry.lint_key:
                if key.is_new_to(entry.lint_key):
                    entry.rows.forget_findings()
                entry.lint, entry.lint_key = lint_rows(entry.rows, entry.name), key
            findings = merged(entry.lint, entry.facts.failures)
            if findings != entry.findings:
                before, now = (findings_by_path(items, entry.name) for items in (entry.findings, findings))
                entry.rows.mark(path for path in before | now if before.get(path) != now.get(path))
                entry.findings = findings
            return findings

    def _on_tree(self, body: ModelRequest) -> TreeReply:
        return self.tree(self.registry.get(body["model"]))

    def tree(self, entry: LiveModel) -> TreeReply:
        """The body of `tree`."""
        findings = self.findings(entry)
        model = model_data(entry, len(findings))  # first: the tree may be newer than the revision, not older
        return {"model": model, "root": block_tree(entry.block, entry.name, findings_by_path(findings, entry.name))}

    def _on_changes(self, body: ChangesRequest) -> ChangesReply:
        entry = self.registry.get(body["model"])
        findings = self.findings(entry)
        model = model_data(entry, len(findings))
        rows = entry.rows.changed(body["since"])
        if rows is None:
            return {"model": model, "whole": True, "blocks": []}
        counts = findings_by_path(findings, entry.name)
        blocks = changed_blocks(entry.block, rows, entry.rows, entry.name, counts)
        return {"model": model, "whole": False, "blocks": blocks}

    def _on_summary(self, body: SummaryRequest) -> SummaryReply:
        return block_work(self.registry.get(body["model"]).block, body, self._busy())

    def _on_graph(self, body: GraphRequest) -> GraphReply:
        entry = self.registry.get(body["model"])
        with self._known(entry, body["path"]):
            return graph_view(entry.block, body["path"], body["program"])

    def _on_overlay(self, body: OverlayRequest) -> OverlayReply:
        entry = self.registry.get(body["model"])
        path, kind = body["path"], body["kind"]
        with self._known(entry, path):
            data = Data(body["data"], self._namespace(), self._kept.get(entry.id))
            return overlay(entry.block, path, body["program"], kind, data, self._busy())

    def _on_keep_inputs(self, body: KeepInputsRequest) -> KeepInputsReply:
        entry = self.registry.get(body["model"])
        kept, wanted = self._kept.get(entry.id), body.get("on")
        if wanted and kept is None:
            kept = self._kept[entry.id] = KeptInputs(entry.block)
        elif wanted is False and kept is not None:
            self._kept.pop(entry.id).close()
            kept = None
        if kept is not None:
            kept.look()
        return {"on": kept is not None, "calls": [] if kept is None else kept.calls}

    def _on_values(self, body: ValuesRequest) -> ValuesReply:
        entry = self.registry.get(body["model"])
        with self._known(entry, body["path"]):
            return values_of(entry.block, body["path"], body["name"], body["what"])

    def _on_watch_nan(self, body: WatchNanRequest) -> WatchNanReply:
        return {"on": self._watches.switch(self.registry.get(body["model"]), body.get("on"))}

    @contextlib.contextmanager
    def _known(self, entry: LiveModel, path: str) -> Iterator[None]:
        """Answer a KeyError of a path that the model does not have."""
        try:
            yield
        except KeyError:
            raise RequestError("unknown-block", f"{entry.name} has no Block {path!r}", "Refresh the tree.") from None

    def _on_findings(self, body: ModelRequest) -> FindingsReply:
        return {"findings": self.findings(self.registry.get(body["model"]))}

    def _on_answers(self, body: ModelRequest) -> AnswersReply:
        return self._answers.of(self.registry.get(body["model"]), self._busy())

    def _on_explain(self, body: ModelRequest) -> ExplainReply:
        from hybrid_lab.insight import explain

        return {"text": str(explain(self.registry.get(body["model"]).block))}

    def _on_lint(self, body: LintRequest) -> LintReply:
        return {"cells": lint_cells(body)}

    def _on_archives(self, body: ArchivesRequest) -> ArchivesReply:
        return archives.archives_reply(body.get("path", ""), self._namespace())

    def _on_targets(self, body: TargetsRequest) -> TargetsReply:
        return {"targets": [archives.target(name) for name in body["files"][:1000]]}

    def _on_history(self, body: HistoryRequest) -> HistoryReply:
        entry = self.registry.get(body["model"])
        return archives.earlier(body["file"] or entry.proposed_file)

    def _on_histograms(self, body: HistogramsRequest) -> HistogramsReply:
        entry = self.registry.get(body["model"])
        with self._known(entry, body["path"]):
            return histograms_reply(entry.block, body["file"] or entry.proposed_file, body["path"], body["name"])

    def _on_compare(self, body: CompareRequest) -> CompareReply:
        entry = self.registry.get(body["model"])
        graphs = body.get("graphs", False)
        return actions.compare(entry, body["file"], body.get("path", ""), body.get("other"), graphs)

    def _on_compared_values(self, body: ComparedValuesRequest) -> ComparedValuesReply:
        entry = self.registry.get(body["model"])
        at, other = body.get("path", ""), body.get("other")
        return actions.compare_values(entry, body["file"], at, other, body["first"], body["second"])

    def _on_folder(self, body: FolderRequest) -> FolderReply:
        return archives.folder_reply(body["notebook"], body["path"])

    def _on_curves(self, body: EmptyRequest) -> CurvesReply:
        return {"runs": [run_data(run) for run in runs.all()]}

    def _on_runs(self, body: RunsRequest) -> RunsReply:
        return runs_reply(body["numbers"])

    def _on_workers(self, body: EmptyRequest) -> WorkersReply:
        return board.workers

    def _on_share(self, body: ModelRequest) -> ShareReply:
        entry = self.registry.get(body["model"])
        file = page_file(file_names.folder(), entry.name)
        page = write_page(self.ask, entry.id, entry.name, entry.block, file, measure=not self._busy())
        return {"path": page.path, "bytes": page.bytes, "graphs": page.graphs, "left_out": page.left_out}

    def _on_watch(self, body: WatchRequest) -> WatchReply:
        """The connection itself has noted it, see `Comms`."""
        return {}

    def _on_static(self, body: StaticRequest) -> StaticReply:
        for view in list(self.views):
            if view.model_id == body["view"]:
                return {"html": view.static_html()}
        raise RequestError("unknown-model", "this view is of an earlier kernel", "Run its cell again.")

    def _on_asset(self, body: AssetRequest) -> AssetReply:
        return {"name": body["name"], "text": script(body["name"])}

    # -- changing -----------------------------------------------------------------------------------------------------

    def _on_save(self, body: SaveRequest) -> SaveReply:
        entry = self.registry.get(body["model"])
        reply = actions.save(
            entry,
            body["file"],
            body["overwrite"],
            body.get("path", ""),
            body.get("replaces"),
            body.get("note", ""),
        )
        self._changed()
        return reply

    def _on_reload(self, body: ReloadRequest) -> ReloadReply:
        entry = self.registry.get(body["model"])
        reply = actions.reload(entry, body["file"], body["graphs"], body.get("path", ""))
        entry.rows.mark([])  # the numbers are others, in the same rows
        self._changed()
        return reply

    def _on_restore(self, body: RestoreRequest) -> RestoreReply:
        reply = actions.restore(self.registry.get(body["model"]), body["file"])
        self._changed()
        return reply

    def _on_note(self, body: NoteRequest) -> NoteReply:
        entry = self.registry.get(body["model"])
        return actions.set_note(body["file"] or entry.proposed_file, body["note"])

    def _on_autosave(self, body: AutosaveRequest) -> AutosaveReply:
        entry = self.registry.get(body["model"])
        actions.set_autosave(entry, body["file"], body["unit"], body["every"], body.get("overwrite", False))
        self._changed()
        return {"autosave": autosave_data(entry.block)}

    def _on_undo(self, body: UndoRequest) -> UndoReply:
        entry = self.registry.get(body["model"])
        reply = actions.undo(entry, body["undo"])
        entry.rows.mark([])  # the numbers are others, in the same rows
        self._changed()
        return reply

    def _on_open(self, body: OpenRequest) -> OpenReply:
        name = body["name"]
        net, path = actions.open_archive(body["file"], name, body["replace"], self._namespace())
        entry = next(entry for entry in self.registry.refresh() if entry.reference() is net)
        entry.file = path
        self._changed()
        model = model_data(entry, len(self.findings(entry)))
        counts = f"{count(model['blocks'], 'block')}, {count(model['graphs'], 'graph')}"
        return {"model": model, "path": str(path), "summary": f"{counts}, bound to {name}"}
