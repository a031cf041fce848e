"""The requests of the protocol, with the types of their bodies."""

from __future__ import annotations

from .answers import AnswersReply
from .common import EmptyRequest, ModelRequest
from .connection import (
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
from .differences import ComparedValuesReply, ComparedValuesRequest, CompareReply, CompareRequest
from .documents import (
    ContentsReply,
    ContentsRequest,
    DifferenceReply,
    DifferenceRequest,
    DifferingValuesRequest,
    DocumentReply,
)
from .findings import FindingsReply, LintReply, LintRequest
from .graphs import GraphReply, GraphRequest
from .measured import (
    KeepInputsReply,
    KeepInputsRequest,
    OverlayReply,
    OverlayRequest,
    ValuesReply,
    ValuesRequest,
    WatchNanReply,
    WatchNanRequest,
)
from .models import ChangesReply, ChangesRequest, ExplainReply, ModelsReply, SummaryReply, SummaryRequest, TreeReply
from .saving import (
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
from .sharing import ShareReply
from .training import CurvesReply, RunsReply, RunsRequest
from .workers import WorkersReply

REQUESTS: dict[str, tuple[type, type]] = {
    "hello": (HelloRequest, HelloReply),
    "models": (EmptyRequest, ModelsReply),
    "tree": (ModelRequest, TreeReply),
    "changes": (ChangesRequest, ChangesReply),
    "summary": (SummaryRequest, SummaryReply),
    "graph": (GraphRequest, GraphReply),
    "overlay": (OverlayRequest, OverlayReply),
    "values": (ValuesRequest, ValuesReply),
    "keep_inputs": (KeepInputsRequest, KeepInputsReply),
    "watch_nan": (WatchNanRequest, WatchNanReply),
    "findings": (ModelRequest, FindingsReply),
    "answers": (ModelRequest, AnswersReply),
    "explain": (ModelRequest, ExplainReply),
    "lint": (LintRequest, LintReply),
    "save": (SaveRequest, SaveReply),
    "reload": (ReloadRequest, ReloadReply),
    "compare": (CompareRequest, CompareReply),
    "compared_values": (ComparedValuesRequest, ComparedValuesReply),
    "undo": (UndoRequest, UndoReply),
    "targets": (TargetsRequest, TargetsReply),
    "history": (HistoryRequest, HistoryReply),
    "histograms": (HistogramsRequest, HistogramsReply),
    "restore": (RestoreRequest, RestoreReply),
    "note": (NoteRequest, NoteReply),
    "folder": (FolderRequest, FolderReply),
    "autosave": (AutosaveRequest, AutosaveReply),
    "open": (OpenRequest, OpenReply),
    "archives": (ArchivesRequest, ArchivesReply),
    "share": (ModelRequest, ShareReply),
    "asset": (AssetRequest, AssetReply),
    "curves": (EmptyRequest, CurvesReply),
    "runs": (RunsRequest, RunsReply),
    "workers": (EmptyRequest, WorkersReply),
    "watch": (WatchRequest, WatchReply),
    "static": (StaticRequest, StaticReply),
}
"""Type of a request -> the bodies of the request and of its reply."""
DOCUMENT_REQUESTS: dict[str, tuple[type, type]] = {
    "document": (EmptyRequest, DocumentReply),
    "contents": (ContentsRequest, ContentsReply),
    "difference": (DifferenceRequest, DifferenceReply),
    "differing_values": (DifferingValuesRequest, ComparedValuesReply),
}
"""The same for requests about a model file, which the Jupyter server answers beside `tree`, `graph` and `explain`."""
