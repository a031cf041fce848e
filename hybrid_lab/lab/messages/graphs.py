"""Messages about the picture of a Block's graph."""

from __future__ import annotations

from typing import Literal, TypedDict

from .common import Location, ModelRequest, NodeId, Shape, Tensor, WithClass

BadgeKind = Literal["parameter", "aux", "constant"]
BoxKind = Literal["block", "kernel", "session", "prologue", "fold", "part"]
Half = Literal["traced", "predict", "forward", "backward", "update"]
NodeKind = Literal["operator", "input", "parameter", "aux", "constant", "output"]


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


class GraphBox(WithClass):
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
    location : index in the reply's locations: the line that calls the Block, or the line of the first operator inside
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


class GraphReply(TypedDict):
    """The picture of one Block's graph.

    program : id of the program shown; programs : all available programs, the traced graph first
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


class GraphRequest(ModelRequest):
    """Which graph of which Block to draw: the id of a program, or "" for the latest compiled one, else the traced."""

    path: str
    program: str
