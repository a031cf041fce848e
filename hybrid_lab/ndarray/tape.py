"""The tape of autograd. Recorded steps are referenced by the arrays they produced: a dropped result drops its history.

An array's `tape_link` is None, a `Leaf` (attach_grad) or an `Output` (one result of a recorded step). A step is a
`Node`: an `Entry`, which computes its gradients, and the `tape_link` of each input. There is no global list.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.engines.memory import is_tensor, to_device

if TYPE_CHECKING:
    from hybrid_lab.ndarray.buffer import Buffer
    from hybrid_lab.ndarray.ndarray import NDArray

GRAD_REQS = ("write", "add", "null")
"""What backward does with a gradient: overwrite the array's `grad`, add to it, or keep none."""

_order = itertools.count()
_ndarray = np.ndarray


class _TapeState(threading.local):
    """Per thread: whether calls are recorded and run in training mode.

    retaining : in a backward pass, whether another pass over the same history may follow (retain_graph=True)
    stored : in a backward pass with listeners, the leaves whose gradients it has stored already
    trace : the trace in progress of a 2.x-style forward (set by symbol/), or None
    observe : called as observe("is_training") or observe("is_recording") when user code asks for the mode, or None
    scope : makes the context managers of `autograd.pause()` and similar scopes in traced code, or None: see Trace.mode
    """

    recording: bool = False
    training: bool = False
    retaining: bool = False
    stored: set[Leaf] | None = None
    trace: Any = None
    observe: Callable[[str], None] | None = None
    scope: Callable[[str, bool | None, bool | None], AbstractContextManager[None]] | None = None


state = _TapeState()


listeners: list[Callable[[Leaf], object]] = []
"""Called in a backward pass for each leaf, after its gradient was stored: the pass does not change it any more."""


class Leaf:
    """An array with a gradient of its own.

    grad : NDArray; req : "write" or "add"; fresh : whether backward wrote it since the Trainer last looked
    written : whether backward wrote it since it was made or set to zero
    """

    __slots__ = ("fresh", "grad", "req", "written")

    def __init__(self, grad: NDArray, req: str):
        self.grad, self.req, self.fresh, self.written = grad, req, False, False

    def store(self, gradient: Any) -> None:
        """`receive` the whole gradient of a backward pass, and tell the listeners."""
        if state.stored is None:
            self.receive(gradient)
        elif self not in state.stored:
            state.stored.add(self)
            self.receive(gradient)
            for listener in listeners:
                listener(self)

    def receive(self, gradient: np.ndarray | None) -> None:
        """Write the gradient into `grad`, or add it; None stands for zeros."""
        buffer = self.grad.buffer
        if buffer.stored:
            self._receive_sparse(gradient)
            return
        target = self.grad.host_view
        if gradient is target:  # backward computed it in place
            buffer.written()
            self.fresh = self.written = True
            return
        if buffer.device is not None or type(gradient) is not _ndarray:
            if buffer.device is not None or is_tensor(gradient):
                self._receive_on_device(gradient)
                return
        if buffer.host_stale:
            buffer.pull()
        if self.req != "add":
            target[...] = 0 if gradient is None else gradient
        elif gradient is not None:
            np.add(target, gradient, out=target)
        buffer.written()
        self.fresh = self.written = True

    def _receive_sparse(self, gradient: Any) -> None:
        """`receive`, if `grad` is a sparse array: it stores the values other than 0."""
        grad = self.grad
        if gradient is not None:
            values = gradient.cpu().numpy() if is_tensor(gradient) else gradient
            grad.assign(grad.host_view + values if self.req == "add" else values)
        elif self.req != "add":
            grad.fill(0)
        self.fresh = self.written = True

    def _receive_on_device(self, gradient: Any) -> None:
        """`receive`, if the gradient or `grad` is on a device: `grad` is then on the device."""
        grad = self.grad
        if gradient is None:
            if self.req != "add":
                grad.fill(0)
        elif not is_tensor(gradient):
            device = grad.buffer.device.device
            tensor = to_device(np.asarray(gradient, grad.host_view.dtype, order="C").reshape(grad.shape), device)
            grad._take(grad.raw(device) + tensor if self.req == "add" else tensor)
        elif self.req == "add":
            grad._take(grad.raw(gradient.device) + gradient)
        else:
            grad._take(gradient)
        self.fresh = self.written = True


class Output:
    """Result number `index` of a recorded node."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int):
        self.node, self.index = node, index


Link = Leaf | Output | None


class Entry:
    """The parts of a recorded step that backward needs; subclasses are eager operators, user Functions, compiled
    graphs.

    name : for messages; every subclass sets it
    """

    __slots__ = ()

    name: str

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """Gradients of the inputs as NumPy arrays, None for none.

        douts : one NumPy array per output, None if no gradient arrives (never all None); must not be written to
        needed : per input, whether its gradient is wanted
        """
        raise NotImplementedError

    device: Any = None
    """torch's device on which `backward` computes, with tensors; None for the host."""

    takes_leaves: bool = False
    """Whether `finish` can write gradients directly into the `grad` of leaves."""

    def finish(
        self, douts: list[Any], needed: tuple[bool, ...], leaves: Sequence[Leaf | None] | None = None
    ) -> Sequence[Any]:
        """The last `backward`, which may overwrite saved values.

        leaves : per input the leaf whose `grad` may be written directly, or None; the result is then that array
        """
        return self.backward(douts, needed)

    def apart(self, arrived: tuple[bool, ...]) -> frozenset[int]:
        """The indices of the inputs on which no output with `arrived` depends; empty for a single operator."""
        return frozenset()

    def finish_alone(self) -> Sequence[Any] | None:
        """`finish` with ones as the gradient of the only output; None if the entry has no shorter way."""
        return None

    def backward_recorded(self, douts: list[object], needed: tuple[bool, ...]) -> Sequence[Any]:
        """The same on NDArrays, through recorded calls, for create_graph=True."""
        raise AutogradError(
            f"{self.name} has no gradient of its gradient (create_graph=True). "
            "A hybridized block has one before hybridize(), or after hybridize(active=False)"
        )

    def buffers_read(self) -> Sequence[Buffer] | None:
        """The memory that `backward` reads and that others may write to; None if unknown."""
        return None

    def unfold(self, node: Node) -> bool:
        """Replace this step, `node`, by its single operators, if a gradient of its gradient needs them. Returns whether
        it was replaced.
        """
        return False

    def check(self) -> None:
        """Raise AutogradError if a value that the gradient needs was written to since it was recorded."""

    def release(self) -> None:
        """Drop the saved values; backward is not called again."""


class Node:
    """One recorded step. `entry` is None once a backward without retain_graph used it up."""

    __slots__ = ("__weakref__", "entry", "links", "order", "outputs")

    def __init__(self, entry: Entry, links: tuple[Link, ...], outputs: int):
        self.entry: Entry | None = entry
        self.links, self.outputs = links, outputs
        self.order: float = next(_order)


def now() -> float:
    """A number between the orders of the steps recorded before and after."""
    return next(_order)


def link(array: object) -> Link:
    """The link that a step keeps for its input `array`: None for constants and for results without history."""
    own = getattr(array, "tape_link", None)
    if type(own) is Output and own.node.entry is None:
        return None
    return own


def note(
    entry: Entry, inputs: Sequence[Any], outputs: Sequence[NDArray], links: tuple[Link, ...] | None = None
) -> Node | None:
    """Record a step: `outputs` (NDArrays) came from `inputs` (NDArrays, or anything else for constants).

    Returns the node, or None if no input is on the tape. `links`, if given, are the inputs' links, taken before an
    output was written.
    """
    if links is None:
        links = tuple(map(link, inputs))
    if not any(links):
        return None
    node = Node(entry, links, len(outputs))
    for index, output in enumerate(outputs):
        output.tape_link = Output(node, index)
    return node


def written_since(user: str, role: str, shape: tuple[int, ...], dtype: Any) -> AutogradError:
    """The error for a value that was written to after it was recorded."""
    return AutogradError(
        f"the gradient of {user} needs {role}, a {dtype.name} array of shape {shape}, as it was when it was recorded, "
        "but it has been written to since. Write to a copy (x.copy()), or after backward()"
    )


class SavedVersion:
    """One version of a buffer, saved by steps on the tape. `Parameter.set_data` copies the version's values before it
    overwrites them, so that gradients still find them.

    version : of the buffer; copy : a Buffer with the values, or None while the buffer itself has them
    """

    __slots__ = ("__weakref__", "copy", "version")

    copy: Buffer | None

    def __init__(self, version: int):
        self.version, self.copy = version, None

    @staticmethod
    def of(buffer: Buffer) -> SavedVersion:
        """The `SavedVersion` of the buffer's present version; it is made if missing."""
        saved_version = current(buffer)
        if saved_version is None:
            saved_version = SavedVersion(buffer.version)
            buffer.saved_version = ref(saved_version)
        return saved_version


def current(buffer: Buffer) -> SavedVersion | None:
    """The `SavedVersion` for the present version, if a step on the tape saved the values."""
    saved_version = None if buffer.saved_version is None else buffer.saved_version()
    return saved_version if saved_version is not None and saved_version.version == buffer.version else None


def keep(array: NDArray) -> None:
    """Copy the values of `array`, which shows its whole buffer and will be overwritten, if a step on the tape saved
    them.
    """
    saved_version = current(array.buffer)
    if saved_version is not None and saved_version.copy is None:
        saved_version.copy = array.from_host(array._data.copy(), array.context).buffer


class Saved:
    """A value that a gradient reads, kept by reference. Reading it raises AutogradError if it has changed, unless
    `keep` made a copy before.

    link : the `tape_link` of the array when it was saved
    array : NDArray; role and user, for the message: "the input rhs", "broadcast_mul"
    """

    __slots__ = ("buffer", "link", "role", "saved_version", "user", "version", "view")

    def __init__(self, array: NDArray, role: str, user: str):
        self.buffer, self.view, self.link = array.buffer, array.host_view, array.tape_link
        self.version = self.buffer.version
        self.role, self.user = role, user
        # Only Parameters have a kept copy: memory that no step computed. A view, for example from reshape, may show it.
        computed = self.view is self.buffer.host and type(self.link) is Output
        self.saved_version = None if computed else SavedVersion.of(self.buffer)

    def memory(self) -> tuple[Buffer, np.ndarray]:
        """The buffer with the current value, and the value's part of it. Raises AutogradError if the array was written
        to since.
        """
        if self.buffer.version == self.version:
            return self.buffer, self.view
        if self.saved_version is None or self.saved_version.copy is None:
            raise written_since(self.user, self.role, self.view.shape, self.view.dtype)
        return self.saved_version.copy, self._view_of(self.saved_version.copy.host)

    def _view_of(self, copy: np.ndarray) -> np.ndarray:
        """The part of `copy`, a copy of the buffer's memory, that corresponds to `view`."""
        if self.view is self.buffer.host:
            return copy
        addresses = [array.__array_interface__["data"][0] for array in (self.view, self.buffer.host)]
        start = (addresses[0] - addresses[1]) // copy.itemsize
        return copy.reshape(-1)[start : start + self.view.size].reshape(self.view.shape)

    def value(self) -> np.ndarray:
        """The value on the host."""
        buffer, view = self.memory()
        if buffer.host_stale:
            buffer.pull()
        return view

    def tensor(self, device: str | None) -> Any:
        """The value on a device."""
        from hybrid_lab.ndarray.buffer import tensor_of

        return tensor_of(*self.memory(), device)


class Mode:
    """`with` these settings of recording and training; None leaves a mode unchanged."""

    __slots__ = ("_before", "_recording", "_training")

    def __init__(self, recording: bool | None, training: bool | None):
        self._recording, self._training = recording, training

    def __enter__(self) -> None:
        self._before = state.recording, state.training
        if self._recording is not None:
            state.recording = self._recording
        if self._training is not None:
            state.training = self._training

    def __exit__(self, *error: object) -> None:
        state.recording, state.training = self._before


def refuse_write(array: NDArray) -> None:
    """Raise AutogradError if `array` is on the tape and calls are being recorded."""
    if state.recording and link(array) is not None:
        kind = "has a gradient attached" if type(array.tape_link) is Leaf else "was computed under autograd.record()"
        raise AutogradError(
            f"writing to an array of shape {array.shape} that {kind} would make its gradient wrong. "
            "Compute a new array (y = y + 1 instead of y += 1), or write before autograd.record() or after backward()"
        )
