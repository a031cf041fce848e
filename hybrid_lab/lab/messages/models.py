"""Messages about models: their list and their block trees."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import Location, ModelRequest, Shape, Tensor, WithClass

State = Literal["plain", "eager", "waiting", "active", "inlined", "refused", "failed", "file", "imported"]


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


class FailedBlock(TypedDict):
    """The first Block of a model whose own code does not hybridize.

    count : how many there are; code : gives it in the notebook, `net.head[2]`
    """

    path: str
    why: str
    count: int
    code: NotRequired[str]


class Model(WithClass):
    """A top-level Block of the user's namespace, or several Blocks that one variable holds.

    undo : the token of what can be undone next; undoes : it in words
    held : its holder if no variable holds it, `in a function`; else ""
    also : its other names in words, `also other`; of several Blocks the variables of some, `net is nets.0`; else ""
    failed : the part that does not hybridize, null if everything does
    """

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
    undoes: str
    revision: int
    held: NotRequired[str]
    also: NotRequired[str]
    failed: NotRequired[FailedBlock | None]
    summary: str


class Parameter(TypedDict):
    """A parameter that a Block itself has."""

    name: str
    shape: Shape | None
    dtype: str
    grad_req: str
    shared: bool


class BlockRow(WithClass):
    """A Block at its place in the tree of its model, without what is below it.

    codes : for each child, what stands before and after the Block's own code in the code that gives the child:
        `["", "[0]"]` of the first child of a Sequential. The code of the top Block is the model's name
    group : whether it stands for a list, dict or object that holds Blocks, which is no Block itself
    failed_in : of a Block without a graph, the path from it to the Block below whose code has none; "" for its own code
    """

    path: str
    attr: str
    codes: NotRequired[list[list[str]]]
    group: NotRequired[bool]
    name: str
    hybrid: bool
    state: State
    why: str
    failed_in: NotRequired[str]
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


class ModelsReply(TypedDict):
    """The models of the namespace; also a push. `folder`: the current folder for files, "" if unknown."""

    models: list[Model]
    busy: bool
    notes: list[str]
    saving: NotRequired[dict[str, Saving]]
    folder: NotRequired[str]


class TreeReply(TypedDict):
    """The block tree of a model."""

    model: Model
    root: BlockNode


class ChangesReply(TypedDict):
    """What changed in the block tree of a model since a revision. `whole`: only `tree` tells it."""

    model: Model
    whole: bool
    blocks: list[ChangedBlock]


class ChangesRequest(ModelRequest):
    """The revision of the tree that the page has."""

    since: int


class ExplainReply(TypedDict):
    """The text of `mx.explain`."""

    text: str


class BlockWork(TypedDict):
    """What one call of the model needs in a Block and all below it, as `mx.summary` counts it.

    counted_at : the path of the Block's first place, if this is a later one; its parameters are counted there, and so
        are its calls if the same Block around it makes them
    calls : how often the Block is called; 0: not at all
    multiply_adds, flop, activations (bytes) : null if unknown, and if the Block is not called
    """

    path: str
    counted_at: str | None
    calls: int
    parameters: int | None
    multiply_adds: int | None
    flop: int | None
    activations: int | None
    outputs: list[Tensor]


class SummaryReply(TypedDict):
    """`mx.summary` of a model. Nothing runs.

    inputs : their types, `f32[8,3,224,224]`; what_if : they are not the inputs of the last call
    headline : the totals in one line; missing : why numbers are not known, else ""
    blocks : in the order of the tree; empty if nothing is known
    """

    inputs: str
    what_if: bool
    headline: str
    missing: str
    blocks: list[BlockWork]


class SummaryRequest(ModelRequest):
    """What a model would be called with.

    inputs : shapes as the user types them, `32 x 3 x 224 x 224`; "": the inputs of the last call
    batch : the length of the first axis; 0: unchanged; dtype : of inputs and parameters; "": unchanged
    """

    inputs: str
    batch: int
    dtype: str
