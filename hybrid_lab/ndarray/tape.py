"""The tape of autograd: what was recorded hangs on the arrays it produced, so a dropped result drops its history too.

An array's `_tape` is None, a `Leaf` (attach_grad) or an `Output` (one result of a recorded step). A step is a `Node`:
an `Entry`, which knows how to go backward, and links to what its inputs had in `_tape`. There is no global list.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import AutogradError, ShapeError

if TYPE_CHECKING:
    from hybrid_lab.ndarray.ndarray import NDArray

_order = itertools.count()


class _State(threading.local):
    """Per thread: whether calls are recorded and run in training mode.

    trace : the trace in progress of a 2.x-style forward (set by symbol/), or None
    observe : called as observe("is_training") or observe("is_recording") when user code asks for the mode, or None
    """

    recording: bool = False
    training: bool = False
    trace: Any = None
    observe: Callable[[str], None] | None = None


state = _State()

symbol_of: Callable[[Any], Any] | None = None
"""array -> Symbol of its history, for `autograd.get_symbol`; registered by symbol/."""


class Leaf:
    """An array with a gradient of its own.

    grad : NDArray; req : "write" or "add"; fresh : whether backward wrote it since the Trainer last looked
    """

    __slots__ = ("fresh", "grad", "req")

    def __init__(self, grad: NDArray, req: str):
        self.grad, self.req, self.fresh = grad, req, False


class Output:
    """Result number `index` of a recorded node."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int):
        self.node, self.index = node, index


Link = Leaf | Output | None


class Entry:
    """What a recorded step must know to go backward; subclasses are eager operators, user Functions, compiled graphs.

    name : for messages; every subclass sets it
    """

    __slots__ = ()

    name: str

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """Gradients of the inputs as NumPy arrays, None for none.

        douts : one NumPy array per output, None where no gradient arrives (never all None); must not be written to
        needed : per input, whether its gradient is wanted
        """
        raise NotImplementedError

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """The same on NDArrays, through recorded calls, for create_graph=True."""
        raise AutogradError(
            f"{self.name} has no gradient of its gradient (create_graph=True). "
            "A hybridized block has one before hybridize(), or after hybridize(active=False)"
        )

    def release(self) -> None:
        """Drop what was saved; backward is not called again."""


class Node:
    """One recorded step. `entry` is None once a backward without retain_graph used it up."""

    __slots__ = ("__weakref__", "entry", "links", "order", "outputs")

    def __init__(self, entry: Entry, links: tuple[Link, ...], outputs: int):
        self.entry: Entry | None = entry
        self.links, self.outputs, self.order = links, outputs, next(_order)


def link(array: Any) -> Link:
    """What a step that reads `array` links to: None for constants, and for results whose history was used up."""
    held = getattr(array, "_tape", None)
    if type(held) is Output and held.node.entry is None:
        return None
    return held


def note(
    entry: Entry, inputs: Sequence[Any], outputs: Sequence[NDArray], links: tuple[Link, ...] | None = None
) -> Node | None:
    """Record a step: `outputs` (NDArrays) came from `inputs` (NDArrays, or anything else for constants).

    Returns the node, or None where no input is on the tape. `links`, if given, are the inputs' links, taken before an
    output was written.
    """
    if links is None:
        links = tuple(map(link, inputs))
    if not any(links):
        return None
    node = Node(entry, links, len(outputs))
    for index, output in enumerate(outputs):
        output._tape = Output(node, index)
    return node


class Saved:
    """A value that a gradient needs: kept by reference, and checked to be unchanged when it is read.

    array : NDArray; role and user, for the message: "the input rhs", "broadcast_mul"
    """

    __slots__ = ("buffer", "link", "role", "user", "version", "view")

    def __init__(self, array: NDArray, role: str, user: str):
        self.buffer, self.view, self.link = array._buffer, array._view, array._tape
        self.version = self.buffer.version
        self.role, self.user = role, user

    def check(self) -> None:
        """Raise AutogradError if the array was written to since."""
        if self.buffer.version != self.version:
            raise AutogradError(
                f"the gradient of {self.user} needs {self.role}, a {self.view.dtype.name} array of shape "
                f"{self.view.shape}, as it was when it was recorded, but it has been written to since. "
                "Write to a copy (x.copy()), or after backward()"
            )

    def value(self) -> np.ndarray:
        """The value on the host."""
        self.check()
        if self.buffer.host_stale:
            self.buffer.pull()
        return self.view

    def array(self, link: Link = None) -> NDArray:
        """The value as an NDArray with its place on the tape: `link`, else the one it had when it was saved."""
        from hybrid_lab.ndarray.ndarray import NDArray

        self.check()
        return NDArray._view_of(self.buffer, self.view, link or self.link)


class _Sum:
    """Gradients that arrive at one place: the first is borrowed, from the second on a sum of our own."""

    __slots__ = ("owned", "value")

    def __init__(self, value: Any):
        self.value, self.owned = value, False

    def add(self, value: Any) -> None:
        if self.owned:
            self.value += value
        else:
            self.value = self.value + value
            self.owned = isinstance(self.value, np.ndarray)


def _collect(links: Sequence[Link], stop: Sequence[Node]) -> tuple[list[Node], dict[Leaf, None]]:
    """All nodes and leaves behind the links, but nothing behind `stop`; nodes in the order of recording."""
    seen: set[Node] = set()
    leaves: dict[Leaf, None] = {}
    stack: list[Any] = list(links)
    while stack:
        item = stack.pop()
        if type(item) is Leaf:
            leaves[item] = None
        elif item is not None and item.node not in seen:
            node = item.node
            if node.entry is None:
                raise AutogradError(
                    "a part of this computation was already used up by an earlier backward(); "
                    "pass retain_graph=True there to differentiate it again"
                )
            seen.add(node)
            if node not in stop:
                stack.extend(node.links)
    return sorted(seen, key=lambda node: node.order), leaves


def _head_links(heads: Sequence[NDArray]) -> list[Any]:
    links = []
    for head in heads:
        held = head._tape
        if held is None:
            raise AutogradError(
                f"cannot differentiate an array of shape {head.shape} that is not in a computational graph: compute it "
                "under autograd.record() from arrays with attach_grad() (or initialized Parameters)"
            )
        if type(held) is Output and held.node.entry is None:
            raise AutogradError(
                "cannot differentiate this array again: its history was used up by an earlier backward(); "
                "pass retain_graph=True there to differentiate the same computation twice"
            )
        links.append(held)
    return links


def _head_gradients(heads: Sequence[NDArray], head_grads: Sequence[Any] | None, recorded: bool) -> list[Any]:
    from hybrid_lab.ndarray.ndarray import NDArray

    if head_grads is None:
        head_grads = [None] * len(heads)
    if len(head_grads) != len(heads):
        raise AutogradError(
            f"there are {len(heads)} heads and {len(head_grads)} head gradients; give one (or None) per head"
        )
    given = []
    for head, gradient in zip(heads, head_grads, strict=True):
        if gradient is None:
            ones = np.ones(head.shape, head.dtype)
            given.append(NDArray._wrap(ones, head.ctx) if recorded else ones)
            continue
        if not isinstance(gradient, NDArray):
            raise AutogradError(f"a head gradient must be an NDArray or None, not {type(gradient).__name__}")
        if gradient.shape != head.shape:
            raise ShapeError(f"the head gradient has shape {gradient.shape}, its head {head.shape}; they must be equal")
        if gradient.dtype != head.dtype:
            gradient = gradient.astype(head.dtype)
        given.append(gradient if recorded else gradient._data)
    return given


def run_backward(
    heads: Sequence[NDArray],
    head_grads: Sequence[Any] | None,
    targets: Sequence[Any] | None,
    retain_graph: bool,
    create_graph: bool,
    stop: Sequence[Node] = (),
) -> tuple[dict[Any, Any], dict[Leaf, None]]:
    """Go backward from `heads`.

    targets : links whose gradients are wanted, or None for all leaves
    stop : nodes behind which nothing is wanted
    Returns gradients (NumPy arrays, or NDArrays with create_graph) by target, and all leaves that were reached. Keys of
    Outputs are (node, index).
    """
    links = _head_links(heads)
    gradients = _head_gradients(heads, head_grads, create_graph)
    nodes, leaves = _collect(links, stop)
    wanted = None if targets is None else {_key(target) for target in targets}
    useful = set(nodes)
    if wanted is not None:
        useful = set()
        for node in nodes:
            if any(
                held is not None and (_key(held) in wanted or (type(held) is Output and held.node in useful))
                for held in node.links
            ):
                useful.add(node)

    sums: dict[Any, _Sum] = {}
    for held, gradient in zip(links, gradients, strict=True):
        _arrive(sums, held, gradient)
    for node in reversed(nodes):
        keys = [(node, index) for index in range(node.outputs)]
        arrived = [sums.get(key) for key in keys]
        if node in useful and any(arrived):
            douts = [None if item is None else item.value for item in arrived]
            needed = tuple(
                held is not None
                and (wanted is None or _key(held) in wanted or (type(held) is Output and held.node in useful))
                for held in node.links
            )
            entry = node.entry
            assert entry is not None
            results = (entry.backward_recorded if create_graph else entry.backward)(douts, needed)
            for held, want, result in zip(node.links, needed, results, strict=True):
                if want and result is not None:
                    _arrive(sums, held, result)
        for key in keys:
            if wanted is None or key not in wanted:
                sums.pop(key, None)
        if not retain_graph:
            _use_up(node)
    return {key: item.value for key, item in sums.items()}, leaves


def _key(held: Any) -> Any:
    return (held.node, held.index) if type(held) is Output else held


def _arrive(sums: dict[Any, _Sum], held: Any, gradient: Any) -> None:
    key = _key(held)
    found = sums.get(key)
    if found is None:
        sums[key] = _Sum(gradient)
    else:
        found.add(gradient)


def _use_up(node: Node) -> None:
    entry = node.entry
    if entry is not None:
        entry.release()
    node.entry, node.links = None, ()


def backward(heads: Sequence[NDArray], head_grads: Sequence[Any] | None, retain_graph: bool, train_mode: bool) -> None:
    """Write (or add) the gradients of the heads into the `grad` of every leaf they depend on; zeros if none arrives."""
    if all(head._tape is None for head in heads):
        _head_links(heads)
    with Mode(False, train_mode):
        found, leaves = run_backward(heads, head_grads, None, retain_graph, False)
    for leaf in leaves:
        gradient = found.get(leaf)
        target = leaf.grad._data
        if leaf.req == "add":
            if gradient is not None:
                np.add(target, gradient, out=target)
        else:
            np.copyto(target, 0 if gradient is None else gradient, casting="unsafe")
        leaf.grad._buffer.written()
        leaf.fresh = True


def grad(
    heads: Sequence[NDArray],
    variables: Sequence[NDArray],
    head_grads: Sequence[Any] | None,
    retain_graph: bool,
    create_graph: bool,
    train_mode: bool,
) -> list[NDArray]:
    """Gradients of the heads with respect to the variables, as new arrays; `grad` attributes stay as they are."""
    from hybrid_lab.ndarray.ndarray import NDArray

    targets = []
    for variable in variables:
        if variable._tape is None:
            raise AutogradError(
                f"cannot differentiate with respect to an array of shape {variable.shape} that is not in a "
                "computational graph; call attach_grad() on it before autograd.record()"
            )
        targets.append(variable._tape)
    with Mode(create_graph, train_mode):
        found, leaves = run_backward(heads, head_grads, targets, retain_graph, create_graph)
    results = []
    for number, (variable, target) in enumerate(zip(variables, targets, strict=True)):
        gradient = found.get(_key(target))
        if gradient is None and target in leaves:
            gradient = np.zeros(variable.shape, variable.dtype)
            results.append(NDArray._wrap(gradient, variable.ctx))
            continue
        if gradient is None:
            raise AutogradError(
                f"variable {number} of shape {variable.shape} gets no gradient: the heads do not depend on it"
            )
        # A gradient may still be memory of the tape or of another gradient.
        results.append(gradient if create_graph else NDArray._wrap(np.array(gradient, order="C"), variable.ctx))
    return results


class _Pass(Entry):
    """y = x: cuts what comes before x off from what is differentiated with respect to y."""

    __slots__ = ()

    name = "a pass"

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return douts

    backward_recorded = backward


def replay(
    compute: Callable[[list[Any]], Sequence[NDArray]],
    inputs: Sequence[Any],
    douts: Sequence[Any],
    needed: Sequence[bool],
) -> list[Any]:
    """Gradients of a step by running it again, recorded, and differentiating that: for `Entry.backward_recorded`.

    compute : inputs -> outputs, through recorded calls
    inputs : NDArrays with their places on the tape; others are passed on
    """
    from hybrid_lab.ndarray.ndarray import NDArray

    starts: list[Any] = list(inputs)
    stop: list[Node] = []
    for index, item in enumerate(inputs):
        if isinstance(item, NDArray):
            # Those that are not needed too: the gradients that come out depend on them.
            starts[index] = NDArray._view_of(item._buffer, item._view)
            node = note(_Pass(), (item,), (starts[index],))
            if node is not None:
                stop.append(node)
    with Mode(True, None):
        outputs = compute(starts)
    pairs = [
        (output, dout)
        for output, dout in zip(outputs, douts, strict=False)
        if dout is not None and link(output) is not None
    ]
    if not pairs:
        return [None] * len(inputs)
    targets = [start._tape if want else None for start, want in zip(starts, needed, strict=True)]
    heads, head_grads = zip(*pairs, strict=True)
    asked = [target for target in targets if target is not None]
    found, _ = run_backward(heads, head_grads, asked, True, True, stop)
    return [None if target is None else found.get(_key(target)) for target in targets]


class Mode:
    """`with` these settings of recording and training; None leaves one as it is."""

    __slots__ = ("_before", "_recording", "_training")

    def __init__(self, recording: bool | None, training: bool | None):
        self._recording, self._training = recording, training

    def __enter__(self) -> None:
        self._before = state.recording, state.training
        if self._recording is not None:
            state.recording = self._recording
        if self._training is not None:
            state.training = self._training

    def __exit__(self, *error: Any) -> None:
        state.recording, state.training = self._before


def refuse_write(array: NDArray) -> None:
    """Raise AutogradError if `array` is on the tape and calls are being recorded."""
    if state.recording and link(array) is not None:
        kind = "has a gradient attached" if type(array._tape) is Leaf else "was computed under autograd.record()"
        raise AutogradError(
            f"writing to an array of shape {array.shape} that {kind} would make its gradient wrong. "
            "Compute a new array (y = y + 1 instead of y += 1), or write before autograd.record() or after backward()"
        )
