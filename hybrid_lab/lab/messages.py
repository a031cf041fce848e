"""The messages of the protocol (docs/protocol.md) as types: the one source of both sides.

The kernel checks requests against these types and builds replies of them. `scripts/write_protocol.py` writes the front
end's `extension/src/protocol/messages.ts` from them: the types, and a check for everything that the kernel sends.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

TARGET = "hybrid_lab"
"""Name of the comm target."""
PROTOCOL = 2

LongText = Annotated[str, "long text"]
"""In a request, a string that may be longer than a name or a path."""
NodeId = Annotated[str, "node id"]
"""Letters, digits and underscores, at most 64: the name of a node in DOT text."""

ErrorCode = Literal[
    "protocol",
    "bad-request",
    "unknown-model",
    "unknown-block",
    "exists",
    "bad-file-name",
    "not-found",
    "corrupt",
    "differs",
    "name-taken",
    "nothing-to-undo",
    "too-large",
    "busy",
    "failed",
]
AutosaveUnit = Literal["off", "step", "epoch"]
BadgeKind = Literal["parameter", "aux", "constant"]
BoxKind = Literal["block", "kernel", "session", "prologue", "fold", "part"]
ChangeKind = Literal["same", "added", "removed", "changed"]
LintTarget = Literal["", "mxnet"]
GraphSource = Literal["code", "file"]
Half = Literal["traced", "predict", "forward", "backward", "update"]
NodeKind = Literal["operator", "input", "parameter", "aux", "constant", "output"]
OverlayKind = Literal["time", "memory", "values", "gradients", "engine"]
DocumentKind = Literal["archive", "symbol", "arrays", "onnx", "unknown"]
Severity = Literal["error", "warning", "note"]
RunState = Literal["running", "done", "stopped", "interrupted", "failed"]
State = Literal["plain", "eager", "waiting", "active", "inlined", "failed", "file"]

Shape = list[int | None]
JsonObject = dict[str, Any]
"""A message or its body on the way in or out, not checked or no longer needed as a record."""
_Class = TypedDict("_Class", {"class": str})
"""The field `class`, which is a keyword of Python."""


# -- shared records ---------------------------------------------------------------------------------------------------


class Tensor(TypedDict):
    """Shape and dtype of an output."""

    shape: Shape | None
    dtype: str


class Span(TypedDict):
    """Lines from 1, columns in characters from 0; the end is exclusive."""

    line: int
    col: int
    end_line: int
    end_col: int


class Location(Span):
    """A place in the user's code."""

    file: str
    label: str
    cell: int | None
    cell_id: str


class Edit(Span):
    """A replacement of a span by text."""

    text: str


class Fix(TypedDict):
    """Edits that repair a finding."""

    title: str
    safe: bool
    edits: list[Edit]


class FindingCall(TypedDict):
    """A call, in a method that becomes a graph, that leads to a finding in the function called."""

    message: str
    location: Location


class Diagnostic(Span):
    """A finding of lint or of a trace. `calls`: where it is in a function that hybrid_forward calls."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    rewrite: str
    tensor: str
    block: str
    location: Location | None
    fix: Fix | None
    calls: NotRequired[list[FindingCall]]


class AutosaveState(TypedDict):
    """The autosave of a model. `every` steps, or 0: each epoch."""

    every: int
    file: str
    saves: int
    last: float
    seconds: float
    problem: str


class Saving(TypedDict):
    """How a model is saved. `left_out`: why "Save every model" leaves it out unless asked, "" if it does not."""

    left_out: str
    autosave: AutosaveState | None


class Model(_Class):
    """A top-level Block of the user's namespace."""

    id: str
    name: str
    block: str
    hybrid: bool
    hybridized: bool
    blocks: int
    graphs: int
    findings: int
    parameters: int | None
    engine: str
    file: str
    undo: str
    revision: int
    summary: str


class Parameter(TypedDict):
    """A parameter that a Block itself has."""

    name: str
    shape: Shape | None
    dtype: str
    grad_req: str
    shared: bool


class BlockRow(_Class):
    """A Block at its place in the tree of its model, without what is below it."""

    path: str
    attr: str
    name: str
    hybrid: bool
    state: State
    why: str
    repr: str
    parameters: list[Parameter]
    parameter_count: int | None
    output: list[Tensor]
    graphs: int
    engine: str
    findings: int
    shared_with: str | None
    location: Location | None


class BlockNode(BlockRow):
    """A Block with the tree below it."""

    children: list[BlockNode]


class ChangedBlock(BlockRow):
    """A Block that changed. `below`: the paths of its children, in order."""

    below: list[str]


class GraphProgram(TypedDict):
    """A graph of a Block that can be drawn: an entry of the selector.

    id : stable while the program lives: `traced`, `p3:forward`
    label : what it computes, with the shapes of the data: `training forward (64, 1, 28, 28)`
    engine, reason, seconds : what `mx.explain` says of a compiled program: its engine, why it was compiled and why on
        this engine, and the wall time of the compile; "", "" and 0.0 of the traced graph
    """

    id: str
    label: str
    half: Half
    engine: str
    reason: str
    seconds: float


class Read(TypedDict):
    """A value that a node reads: output number `output` of the node `node`, as an edge from there."""

    node: NodeId
    output: int


class Badge(TypedDict):
    """A parameter, state or constant that one operator alone reads: drawn inside the operator, no node of its own.

    name : short, `weight`; of a constant its value or type
    path : of the parameter in the model, `features.0.weight`; "" for a constant
    """

    name: str
    path: str
    shape: Shape | None
    dtype: str
    kind: BadgeKind


class GraphNode(TypedDict):
    """A node of a graph's picture.

    box : id of the innermost box that it stands in; "" at the top
    label : the text in the picture; op : name of the operator, "" of what is none
    inputs : the edges that end here, in the order of the operator's inputs, badges left out
    outputs : of an operator its visible outputs, and hidden ones as far as a node reads them
    block : path, in the model, of the Block whose code called it
    location : index in the reply's locations; engine : that runs it; "" in a traced graph, and for a view
    """

    id: NodeId
    box: str
    kind: NodeKind
    label: str
    op: str
    attributes: dict[str, str]
    inputs: list[Read]
    outputs: list[Tensor]
    badges: list[Badge]
    block: str
    location: int | None
    engine: str


class GraphBox(_Class):
    """A frame around nodes and other boxes, which opens in place.

    parent : id of the box around it; "" at the top. Parents come before their children
    kind : `block`: a call of a Block. `kernel`: a GPU kernel. `session`: one call of another engine. `prologue`: what
        runs again only when a parameter changed. `fold`: alike Blocks in a row; its children are these Blocks.
        `part`: a piece of a layer that has too many members
    label : `conv1`; of a kernel its name; of a fold `0 to 5`; of a part `operators 1 to 150`
    class : of the Block, also of a fold's Blocks; "" of others
    block : path of the Block in the model; null for other kinds
    copies : number of Blocks in a fold; 1 for other kinds
    operators : inside, at all levels
    summary : `14 operators, rows`; text : the source of a kernel; notes : a launch's programs, tiles and bytes, a line
        each
    outputs : values that are computed inside and read outside, or that the graph returns
    location : index in the reply's locations: where the Block was called, or the first operator inside stands
    """

    id: NodeId
    parent: str
    kind: BoxKind
    label: str
    block: str | None
    copies: int
    operators: int
    summary: str
    text: str
    notes: list[str]
    outputs: list[Tensor]
    location: int | None


# -- replies and pushes -----------------------------------------------------------------------------------------------


class HelloReply(TypedDict):
    """What this kernel is."""

    kernel: str
    protocol: int
    python: str
    host: str
    folder: str
    engine: str
    subshells: bool


class ModelsReply(TypedDict):
    """The models of the namespace; also a push."""

    models: list[Model]
    busy: bool
    notes: list[str]
    saving: NotRequired[dict[str, Saving]]


class TreeReply(TypedDict):
    """The block tree of a model."""

    model: Model
    root: BlockNode


class ChangesReply(TypedDict):
    """What changed in the block tree of a model since a revision. `whole`: only `tree` tells it."""

    model: Model
    whole: bool
    blocks: list[ChangedBlock]


class GraphReply(TypedDict):
    """The picture of one Block's graph.

    program : id of the program that is shown; programs : all that can be shown, the traced graph first
    boxes, nodes : the whole picture, with the inside of closed boxes; both in the order of execution
    locations : the places in the user's code, each once; thousands of nodes may come from one line
    text : the graph as printed; of a large one the first operators
    dot : a static picture in the DOT language, of a large graph with few levels of boxes open; "" of a very large one
    missing : why there is no graph and what to do, else ""
    failed : of a graph whose trace failed, the line at which it ends
    """

    path: str
    program: str
    programs: list[GraphProgram]
    boxes: list[GraphBox]
    nodes: list[GraphNode]
    locations: list[Location]
    text: str
    dot: str
    summary: str
    missing: str
    variants: int
    failed: Location | None


class OverlayItem(TypedDict):
    """What an overlay says of a node or box of a graph's picture.

    value : seconds, bytes, the largest absolute value, or the norm of a gradient; null where there is no number
    share : of the whole graph's time; else of the largest value; text : all in words; bad : holds NaN or infinities
    """

    id: NodeId
    value: float | None
    share: float
    text: str
    bad: bool


class Moment(TypedDict):
    """A step of a program, and the bytes of its arena that are in use then."""

    id: NodeId
    bytes: int


class StepMoment(TypedDict):
    """A step of a recorded call or of its backward: the bytes in use of the arena that both share, and those of them
    that the forward keeps for the backward.
    """

    half: Literal["forward", "backward"]
    bytes: int
    kept: int


class OverlayReply(TypedDict):
    """An overlay of the picture that `graph` sent of the same program.

    unit : of the values: `s`, `B`, or "" for numbers; headline : the whole in one line
    missing : why there is nothing and what to do, else ""
    marked : the slowest operators, what fills the arena at its peak, the first operator with NaN or infinities, or the
        largest gradients
    timeline : how full the arena is, in the order of execution
    step : the same of the forward and its backward one after the other, if they share an arena
    """

    kind: OverlayKind
    program: str
    unit: str
    headline: str
    missing: str
    items: list[OverlayItem]
    marked: list[NodeId]
    timeline: list[Moment]
    step: NotRequired[list[StepMoment]]


class ArrayNumber(TypedDict):
    """A number of an array, as `min`, and its text."""

    name: str
    text: str


class ValuesReply(TypedDict):
    """The numbers of a parameter, of its gradient, or of what a Block returned, for the details.

    type : shape, dtype and context; finite : whether no value is NaN or infinite
    bars : a histogram from `low` to `high`; picture : a PNG as a data URI, with its caption
    text : the values as they are printed; missing : why there are none, else ""
    """

    title: str
    type: str
    facts: list[ArrayNumber]
    finite: bool
    bars: list[int]
    low: str
    high: str
    picture: str
    caption: str
    text: str
    missing: str


class WatchNanReply(TypedDict):
    """Whether the model is watched for NaN and infinities."""

    on: bool


class FindingsReply(TypedDict):
    """The findings of a model."""

    findings: list[Diagnostic]


class ExplainReply(TypedDict):
    """The text of `mx.explain`."""

    text: str


class LintReply(TypedDict):
    """Findings by the id of the cell."""

    cells: dict[str, list[Diagnostic]]


class SavedGraph(TypedDict):
    """A graph in an archive."""

    path: str
    operators: int


class SaveReply(TypedDict):
    """The written archive."""

    path: str
    file: str
    host: str
    bytes: int
    graphs: list[SavedGraph]
    blocks: int
    parameters: int
    seconds: float
    note: str
    kept: NotRequired[str]


class OperatorChange(TypedDict):
    """An operator of two graphs, side by side."""

    kind: ChangeKind
    block: str
    first: str
    second: str
    changes: list[str]
    first_place: int | None
    second_place: int | None
    line: str


class TensorChange(TypedDict):
    """A parameter that differs."""

    kind: ChangeKind
    name: str
    first: str
    second: str
    values: int
    changed: int
    largest: float | None
    scale: float | None
    text: str


class BlockChange(TypedDict):
    """A Block that differs, or whose operators or tensors do."""

    kind: ChangeKind
    path: str
    class_name: str
    changes: list[str]
    operators: list[OperatorChange]
    tensors: list[TensorChange]


class Difference(TypedDict):
    """What differs between two models."""

    equal: bool
    summary: str
    first: str
    second: str
    blocks: list[BlockChange]
    others: list[str]
    notes: list[str]


class CompareReply(TypedDict):
    """What differs between a file and a model."""

    path: str
    file: str
    host: str
    difference: Difference


class ReloadReply(TypedDict):
    """What a reload changed."""

    path: str
    file: str
    host: str
    summary: str
    graphs: int
    parameters: int
    diff: list[str]
    undo: str
    seconds: float
    difference: NotRequired[Difference | None]
    notes: NotRequired[list[str]]


class UndoReply(TypedDict):
    """What an undo put back."""

    summary: str


class OpenReply(TypedDict):
    """The model that was loaded without its code."""

    model: Model
    path: str
    summary: str


class Archive(_Class):
    """An archive beside the notebook."""

    file: str
    bytes: int
    modified: float
    blocks: int
    graphs: int
    problem: str
    variable: NotRequired[str]


class Target(Archive):
    """A file that a save would write. `version`: of the file that is there, "" if there is none."""

    path: str
    version: str


class TargetsReply(TypedDict):
    """What is there under these names."""

    targets: list[Target]


class HistoryReply(TypedDict):
    """Earlier saves of a file, newest first; `file` of each is the name to compare with or to reload from."""

    folder: str
    saves: list[Archive]


class AutosaveReply(TypedDict):
    """How a model is saved by itself; null: it is not."""

    autosave: AutosaveState | None


class ArchivesReply(TypedDict):
    """The archives beside the notebook, newest first."""

    folder: str
    host: str
    archives: list[Archive]


class AssetReply(TypedDict):
    """A JavaScript module that the widget loads when it needs it."""

    name: str
    text: str


class Loop(TypedDict):
    """A `mx.lab.progress` loop of a training run."""

    title: str
    unit: str
    depth: int
    done: int
    total: int | None
    seconds: float
    rate: float | None
    left: float | None
    state: RunState
    text: str


class Curve(TypedDict):
    """The values of one name over the steps of a run, in buckets."""

    name: str
    unit: str
    steps: list[int]
    means: list[float]
    lows: list[float]
    highs: list[float]
    last: float | None
    last_step: int
    bad: int | None
    latest: str
    text: str


class TrainingRun(TypedDict):
    """What one cell trained."""

    number: int
    label: str
    state: RunState
    ended: str
    seconds: float
    overhead: float
    note: str
    earlier_loops: int
    loops: list[Loop]
    curves: list[Curve]


class CurvesReply(TypedDict):
    """The training runs, oldest first; as a push the current run alone."""

    runs: list[TrainingRun]


class WatchReply(TypedDict):
    """The page's wish was noted."""


class StaticReply(TypedDict):
    """What a notebook keeps of a view: HTML without scripts, as the cell's output has it."""

    html: str


class ErrorBody(TypedDict):
    """Why a request was not answered."""

    code: ErrorCode
    message: str
    next: str
    details: list[str]


class Progress(TypedDict):
    """A push that belongs to a request under way."""

    text: str
    done: int
    total: int


class Envelope(TypedDict):
    """The frame of everything that the kernel sends."""

    hybrid_lab: int
    id: str
    type: Literal["ok", "error", "models", "curves", "progress"]
    body: object


# -- model files, which the Jupyter server reads ----------------------------------------------------------------------


class Fact(TypedDict):
    """One line about a file."""

    name: str
    text: str


class DocumentReply(TypedDict):
    """What a model file is. `has_model`: it has a tree.

    `code` loads it in a notebook, "" where nothing does: `FILE` stands for its path, and `BESIDE` for the path of the
    file `beside` in the same folder.
    """

    file: str
    host: str
    kind: DocumentKind
    title: str
    bytes: int
    modified: float
    facts: list[Fact]
    parts: int
    has_model: bool
    code: str
    beside: str
    problem: str
    next: str


class FilePart(TypedDict):
    """A tensor or another member of a file, after it was read. Numbers are those of the finite elements."""

    name: str
    kind: Literal["tensor", "member"]
    shape: Shape | None
    dtype: str
    bytes: int
    state: Literal["verified", "read", "damaged"]
    digest: str
    minimum: float | None
    maximum: float | None
    mean: float | None
    nan: int
    inf: int
    problem: str


class ContentsReply(TypedDict):
    """Some of the parts of a file, and the number of the next one; -1 after the last."""

    parts: list[FilePart]
    next: int


class DifferenceLine(TypedDict):
    """What differs between two files in one place."""

    change: Literal["added", "removed", "changed", "same"]
    what: Literal["Block", "operator", "tensor", "file"]
    name: str
    text: str


class DifferenceReply(TypedDict):
    """What differs between two files. `count` is the number of all lines."""

    other: str
    summary: str
    count: int
    lines: list[DifferenceLine]


# -- requests ---------------------------------------------------------------------------------------------------------


class HelloRequest(TypedDict):
    """The first message of a front end."""

    front_end: str
    protocol: int
    notebook: str


class EmptyRequest(TypedDict):
    """A request without fields."""


class ModelRequest(TypedDict):
    """A request about a model."""

    model: str


class ChangesRequest(ModelRequest):
    """The revision of the tree that the page has."""

    since: int


class GraphRequest(ModelRequest):
    """Which graph of which Block to draw: the id of a program, or "" for the latest compiled one, else the traced."""

    path: str
    program: str


class OverlayRequest(ModelRequest):
    """Which overlay of which program of a Block.

    data : names of variables with the inputs to run the program on, as `x` or `x, y`; "" takes random numbers
    """

    path: str
    program: str
    kind: OverlayKind
    data: str


class ValuesRequest(ModelRequest):
    """Which array: of the Block at `path` the parameter `name`, its gradient, or output number `name` of the last call
    that `mx.capture` read.
    """

    path: str
    name: str
    what: Literal["data", "grad", "output"]


class WatchNanRequest(ModelRequest):
    """Watch a model for NaN and infinities, or no longer; without `on`, tell whether it is watched."""

    on: NotRequired[bool]


class CellSource(TypedDict):
    """A code cell to check."""

    id: str
    source: LongText


class LintRequest(TypedDict):
    """All code cells of a notebook, and the ids of those to report on; none: all. With the target `mxnet`, also notes
    about what MXNet itself cannot do.
    """

    cells: list[CellSource]
    only: list[str]
    target: NotRequired[LintTarget]


class SaveRequest(ModelRequest):
    """Where to save a model."""

    file: str
    overwrite: bool
    path: NotRequired[str]
    replaces: NotRequired[str]


class ReloadRequest(ModelRequest):
    """What to load into a model."""

    file: str
    graphs: GraphSource
    path: NotRequired[str]


class CompareRequest(ModelRequest):
    """The file to compare a model, or the Block at a path of it, with."""

    file: str
    path: NotRequired[str]


class TargetsRequest(TypedDict):
    """Names of files that are to be written."""

    files: list[str]


class HistoryRequest(TypedDict):
    """The file whose earlier saves are asked for."""

    file: str


class AutosaveRequest(ModelRequest):
    """`unit` "off" ends it; "step": after every so many; "epoch": each time that a DataLoader ends after a step."""

    file: str
    unit: AutosaveUnit
    every: int


class UndoRequest(ModelRequest):
    """The token of the reload to undo."""

    undo: str


class OpenRequest(TypedDict):
    """The archive to load, and the variable to bind it to."""

    file: str
    name: str
    replace: bool


class AssetRequest(TypedDict):
    """The module to send."""

    name: Literal["graphviz"]


class WatchRequest(TypedDict):
    """Whether somebody sees this page's panel: a page that nobody sees gets no pushes."""

    visible: bool


class StaticRequest(TypedDict):
    """The id of a view's widget."""

    view: str


class ContentsRequest(TypedDict):
    """The number of the first part to read."""

    start: int


class DifferenceRequest(TypedDict):
    """The path of another file on the server."""

    other: str


REQUESTS: dict[str, tuple[type, type]] = {
    "hello": (HelloRequest, HelloReply),
    "models": (EmptyRequest, ModelsReply),
    "tree": (ModelRequest, TreeReply),
    "changes": (ChangesRequest, ChangesReply),
    "graph": (GraphRequest, GraphReply),
    "overlay": (OverlayRequest, OverlayReply),
    "values": (ValuesRequest, ValuesReply),
    "watch_nan": (WatchNanRequest, WatchNanReply),
    "findings": (ModelRequest, FindingsReply),
    "explain": (ModelRequest, ExplainReply),
    "lint": (LintRequest, LintReply),
    "save": (SaveRequest, SaveReply),
    "reload": (ReloadRequest, ReloadReply),
    "compare": (CompareRequest, CompareReply),
    "undo": (UndoRequest, UndoReply),
    "targets": (TargetsRequest, TargetsReply),
    "history": (HistoryRequest, HistoryReply),
    "autosave": (AutosaveRequest, AutosaveReply),
    "open": (OpenRequest, OpenReply),
    "archives": (EmptyRequest, ArchivesReply),
    "asset": (AssetRequest, AssetReply),
    "curves": (EmptyRequest, CurvesReply),
    "watch": (WatchRequest, WatchReply),
    "static": (StaticRequest, StaticReply),
}
"""Type of a request -> the bodies of the request and of its reply."""

DOCUMENT_REQUESTS: dict[str, tuple[type, type]] = {
    "document": (EmptyRequest, DocumentReply),
    "contents": (ContentsRequest, ContentsReply),
    "difference": (DifferenceRequest, DifferenceReply),
}
"""The same for requests about a model file, which the Jupyter server answers beside `tree`, `graph` and `explain`."""
