"""Messages about what running a model shows: overlays of a graph, values of arrays, and the watch for NaN."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import ModelRequest, NodeId

OverlayKind = Literal["time", "memory", "values", "gradients", "engine"]


MeasuredOn = Literal["random", "variables", "kept", ""]
"""The inputs that an overlay ran the graph on: random numbers, the user's variables, or those that were kept of a call;
"" where nothing ran.
"""


class OverlayItem(TypedDict):
    """What an overlay says of a node or box of a graph's picture.

    value : seconds, bytes, the largest absolute value, or the norm of a gradient; null if there is no number
    share : of the whole graph's time; else of the largest value; short : the number, for the picture
    text : all in words, the number first; bad : holds NaN or infinities
    """

    id: NodeId
    value: float | None
    share: float
    short: str
    text: str
    bad: bool


class Moment(TypedDict):
    """A step of a program, and the bytes of its arena that are in use then."""

    id: NodeId
    bytes: int


class StepMoment(TypedDict):
    """A step of a recorded call or of its backward: the bytes in use of the arena that both share, and the part of
    these bytes that the forward keeps for the backward.
    """

    half: Literal["forward", "backward"]
    bytes: int
    kept: int


class OverlayReply(TypedDict):
    """An overlay of the picture that `graph` sent of the same program.

    unit : of the values: `s`, `B`, or "" for numbers; headline : the whole in one line
    measured_on : the inputs; NaN that comes from random ones says nothing of the user's data
    missing : why there is nothing and what to do, else ""
    marked : the slowest operators, what fills the arena at its peak, the first operator with NaN or infinities, or the
        largest gradients
    timeline : how full the arena is, in the order of execution
    step : the same of the forward and its backward one after the other, if they share an arena
    """

    kind: OverlayKind
    program: str
    unit: str
    measured_on: MeasuredOn
    headline: str
    missing: str
    items: list[OverlayItem]
    marked: list[NodeId]
    timeline: list[Moment]
    step: NotRequired[list[StepMoment]]


class OverlayRequest(ModelRequest):
    """Which overlay of which program of a Block.

    data : names of variables with the inputs to run the program on, as `x` or `x, y`; "" takes the kept inputs of a
        call of this kind, else random numbers
    """

    path: str
    program: str
    kind: OverlayKind
    data: str


class KeptCall(TypedDict):
    """A call whose inputs are kept. path : of the Block that was called; inputs : their types, `f32[1,3,224,224]`"""

    path: str
    inputs: str
    bytes: int


class KeepInputsReply(TypedDict):
    """Whether the inputs of the model's next calls are kept, and what is kept by now."""

    on: bool
    calls: list[KeptCall]


class KeepInputsRequest(ModelRequest):
    """Keep the inputs of the model's next compiled calls, of each kind once; or give them back. Without `on`, tell."""

    on: NotRequired[bool]


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


class ValuesRequest(ModelRequest):
    """Which array: of the Block at `path` the parameter `name`, its gradient, or output number `name` of the last call
    that `mx.capture` read.
    """

    path: str
    name: str
    what: Literal["data", "grad", "output"]


class WatchNanReply(TypedDict):
    """Whether the model is watched for NaN and infinities."""

    on: bool


class WatchNanRequest(ModelRequest):
    """Watch a model for NaN and infinities, or no longer; without `on`, tell whether it is watched."""

    on: NotRequired[bool]
