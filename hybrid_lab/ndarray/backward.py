"""Backward: from heads to the leaves behind them, step by step in the opposite order of recording."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AutogradError, ShapeError
from hybrid_lab.engines.memory import empty, is_tensor, to_device, to_host
from hybrid_lab.ndarray import calls
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import Entry, Leaf, Link, Mode, Node, Output, note, state

FEW = 4096
"""Elements of a head up to which the ones from which a backward starts are kept."""
_ORDER = attrgetter("order")
_ndarray = np.ndarray


class _Gradients:
    """Gradients on their way back: those that arrived at each place (a Leaf, or a Node with several outputs), added up.

    The first that arrives is borrowed; from the second on the sum is our own.
    """

    __slots__ = ("_owned", "arrived")

    def __init__(self) -> None:
        self.arrived: dict[Any, list[Any]] = {}
        self._owned: set[tuple[Any, int]] = set()

    def arrive(self, held: Any, gradient: object) -> None:
        """Add a gradient of what `held` links to."""
        if type(held) is Output:
            place, index, size = held.node, held.index, held.node.outputs
        else:
            place, index, size = held, 0, 1
        slots = self.arrived.get(place)
        if slots is None:
            slots = self.arrived[place] = [None] * size
        present = slots[index]
        if present is not None and type(present) is not type(gradient):
            present, gradient = alike(present, gradient)
        if present is None:
            slots[index] = gradient
        elif (place, index) in self._owned and present is slots[index]:
            present += gradient
        else:  # also where the sum so far was copied to the side of the new gradient
            slots[index] = present = present + gradient
            if isinstance(present, np.ndarray):
                self._owned.add((place, index))

    def at(self, place: Any) -> list[Any] | None:
        """One gradient (or None) per output of a node, or the one of a leaf; None where nothing arrived."""
        return self.arrived.get(place)

    def drop(self, place: object) -> None:
        """Nobody asks for these any more."""
        self.arrived.pop(place, None)

    def get(self, target: Link) -> Any:
        """The gradient of one link, or None."""
        slots = self.arrived.get(target.node if type(target) is Output else target)
        return None if slots is None else slots[target.index if type(target) is Output else 0]


def alike(first: Any, second: Any) -> tuple[Any, Any]:
    """Two gradients on one side: on the device, where one of them is there."""
    if is_tensor(first) and isinstance(second, np.ndarray):
        return first, to_device(second, first.device)
    if is_tensor(second) and isinstance(first, np.ndarray):
        return to_device(first, second.device), second
    return first, second


def _on_host(douts: list[object]) -> list[Any]:
    """Output gradients as arrays, for steps that go backward on the host."""
    return [to_host(dout) if dout is not None and is_tensor(dout) else dout for dout in douts]


def _collect(links: Sequence[Link], stop: Sequence[Node]) -> tuple[Sequence[Node], dict[Leaf, None]]:
    """All nodes and leaves behind the links, but nothing behind `stop`; nodes in the order of recording."""
    first = links[0]
    if len(links) == 1 and type(first) is Output and not stop and Output not in map(type, first.node.links):
        apart = _apart(first.node, [first.index])
        found = [held for number, held in enumerate(first.node.links) if type(held) is Leaf and number not in apart]
        return (first.node,), dict.fromkeys(found)
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
    nodes = sorted(seen, key=_ORDER)
    return _reached(nodes, links, stop) if any(node.outputs > 1 for node in nodes) else (nodes, leaves)


def _apart(node: Node, indices: Iterable[int]) -> frozenset[int]:
    """The inputs of a step, by number, that lead to none of these of its outputs."""
    if node.outputs == 1:
        return frozenset()
    assert node.entry is not None
    wanted = set(indices)
    return node.entry.apart(tuple([index in wanted for index in range(node.outputs)]))


def _reached(nodes: Sequence[Node], links: Sequence[Link], stop: Sequence[Node]) -> tuple[list[Node], dict[Leaf, None]]:
    """Those of the nodes, and the leaves, that lead to the very outputs that are read: a compiled call has several."""
    read: dict[Node, set[int]] = {}
    leaves: dict[Leaf, None] = {}

    def mark(held: Link) -> None:
        if type(held) is Leaf:
            leaves[held] = None
        elif type(held) is Output:
            read.setdefault(held.node, set()).add(held.index)

    for held in links:
        mark(held)
    for node in reversed(nodes):
        if node in read and node not in stop:
            apart = _apart(node, read[node])
            for number, held in enumerate(node.links):
                if number not in apart:
                    mark(held)
    return [node for node in nodes if node in read], leaves


def _head_links(heads: Sequence[NDArray]) -> list[Any]:
    links = []
    for head in heads:
        held = head.tape_link
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


@lru_cache(maxsize=128)
def _few_ones(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.ones(shape, dtype)


def _ones(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Ones; those of small heads, as losses are, copied from some that are kept."""
    return _few_ones(shape, dtype).copy() if math.prod(shape) <= FEW else np.ones(shape, dtype)


def _ones_for(head: NDArray) -> Any:
    """Ones to start from where the head's numbers are: on the host, or on a device."""
    device, shape, dtype = head.buffer.device, head.host_view.shape, head.host_view.dtype
    if device is None:
        return _ones(shape, dtype)
    return empty(shape, device.dtype, device.device).fill_(1)


def _head_gradients(heads: Sequence[NDArray], head_grads: Sequence[object] | None, recorded: bool) -> list[Any]:
    if head_grads is None:
        head_grads = [None] * len(heads)
    if len(head_grads) != len(heads):
        raise AutogradError(
            f"there are {len(heads)} heads and {len(head_grads)} head gradients; give one (or None) per head"
        )
    given: list[Any] = []
    for head, gradient in zip(heads, head_grads, strict=True):
        if gradient is None:
            ones = _ones(head.host_view.shape, head.host_view.dtype) if recorded else _ones_for(head)
            given.append(type(head).from_host(ones, head.ctx) if recorded else ones)
            continue
        if not isinstance(gradient, type(head)):
            raise AutogradError(f"a head gradient must be an NDArray or None, not {type(gradient).__name__}")
        if gradient.shape != head.shape:
            raise ShapeError(f"the head gradient has shape {gradient.shape}, its head {head.shape}; they must be equal")
        if gradient.dtype != head.dtype:
            gradient = gradient.astype(head.dtype)
        device = gradient.buffer.device
        near = device is not None and not gradient.buffer.device_stale
        given.append(gradient if recorded else gradient.raw(device.device) if near else gradient._data)
    return given


def run_backward(
    heads: Sequence[NDArray],
    head_grads: Sequence[object] | None,
    targets: Sequence[object] | None,
    retain_graph: bool,
    create_graph: bool,
    stop: Sequence[Node] = (),
    in_place: bool = False,
) -> tuple[_Gradients, dict[Leaf, None]]:
    """Go backward from `heads`.

    targets : links whose gradients are wanted, or None for all leaves
    stop : nodes behind which nothing is wanted
    in_place : gradients of leaves may be written into their `grad` at once
    Returns the gradients (NumPy arrays, or NDArrays with create_graph), and all leaves that were reached.
    """
    links = _head_links(heads)
    gradients = _head_gradients(heads, head_grads, create_graph)
    nodes, leaves = _collect(links, stop)
    if create_graph and [node for node in nodes if node.entry is not None and node.entry.unfold(node)]:
        nodes, leaves = _collect(links, stop)
    found = _Gradients()
    for held, gradient in zip(links, gradients, strict=True):
        found.arrive(held, gradient)
    if targets is None:
        for node in reversed(nodes):
            douts = found.at(node)
            if douts is not None:
                needed = tuple([held is not None for held in node.links])
                # A `grad` may be an input of a step that is still to come, so only the last one may write to it.
                _step_back(found, node, douts, needed, create_graph, not retain_graph, in_place and node is nodes[0])
                found.drop(node)
            if not retain_graph:
                _use_up(node)
        return found, leaves

    wanted = {target for target in targets if type(target) is Leaf}
    outputs = {(target.node, target.index) for target in targets if type(target) is Output}
    asked = {node for node, _ in outputs}
    useful: set[Node] = set()

    def leads(held: Link) -> bool:
        """Whether the gradient of this link is wanted, or needed for one that is."""
        if type(held) is Output:
            return held.node in useful or (held.node, held.index) in outputs
        return held in wanted

    for node in nodes:
        if any(map(leads, node.links)):
            useful.add(node)
    for node in reversed(nodes):
        douts = found.at(node)
        if douts is not None and node in useful:
            needed = tuple([leads(held) for held in node.links])
            _step_back(found, node, douts, needed, create_graph, not retain_graph)
        if node not in asked:
            found.drop(node)
        if not retain_graph:
            _use_up(node)
    return found, leaves


def _step_back(
    found: _Gradients,
    node: Node,
    douts: list[Any],
    needed: tuple[bool, ...],
    create_graph: bool,
    last: bool,
    in_place: bool = False,
) -> None:
    """The gradients of one node's inputs from those of its outputs."""
    entry = node.entry
    assert entry is not None
    arrived = found.arrived
    if entry.device is None and not create_graph and any(type(dout) is not _ndarray for dout in douts):
        douts = _on_host(douts)
    if in_place and last and entry.takes_leaves:
        results = entry.finish(douts, needed, _untouched(node.links, arrived))
    else:
        run = entry.backward_recorded if create_graph else entry.finish if last else entry.backward
        results = run(douts, needed)
    for held, want, result in zip(node.links, needed, results, strict=True):
        if not want or result is None:
            continue
        if type(held) is Leaf and held not in arrived:
            arrived[held] = [result]
        else:
            found.arrive(held, result)


def _untouched(links: Sequence[Link], arrived: dict[Any, Any]) -> list[Leaf | None]:
    """Per link the leaf, where its gradient is written (not added), comes from this link alone and is the first, and
    no gradient that arrived lies in its `grad`.
    """
    times = Counter(links)
    borrowed = [item for slots in arrived.values() for item in slots if item is not None]

    def free(held: Leaf) -> bool:
        return not any(overlaps(held.grad, item) for item in borrowed)

    return [
        held
        if type(held) is Leaf and held.req == "write" and times[held] == 1 and held not in arrived and free(held)
        else None
        for held in links
    ]


def overlaps(array: NDArray, gradient: Any) -> bool:
    """Whether a gradient may lie in the memory of an array."""
    if not is_tensor(gradient):
        return np.may_share_memory(array.host_view, gradient)
    own = array.buffer.device
    return own is not None and own.untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr()


def _use_up(node: Node) -> None:
    entry = node.entry
    if entry is not None:
        entry.release()
    node.entry, node.links = None, ()


def backward(heads: Sequence[NDArray], head_grads: Sequence[Any] | None, retain_graph: bool, train_mode: bool) -> None:
    """Write (or add) the gradients of the heads into the `grad` of every leaf they depend on; zeros if none arrives."""
    held = heads[0].tape_link if len(heads) == 1 else None
    if head_grads is None and not retain_graph and type(held) is Output and _alone(held.node):
        return
    before = state.recording, state.training
    state.recording, state.training = False, train_mode
    try:
        if type(held) is Output and held.node.entry is not None and Output not in map(type, held.node.links):
            dout = _ones_for(heads[0]) if head_grads is None else _head_gradients(heads, head_grads, False)[0]
            arrived = _through_one_step(held, dout, retain_graph, head_grads is None)
        else:
            found, leaves = run_backward(heads, head_grads, None, retain_graph, False, in_place=head_grads is None)
            arrived = {leaf: found.get(leaf) for leaf in leaves}
    finally:
        state.recording, state.training = before
    for leaf, gradient in arrived.items():
        leaf.receive(gradient)


def _alone(node: Node) -> bool:
    """The whole backward where all that is recorded is one call with one output, and its entry has a short way for it.

    It gives what `_through_one_step` gives. Returns False, with nothing done, where something else is the case.
    """
    entry, links = node.entry, node.links
    if entry is None or node.outputs != 1 or Output in map(type, links):
        return False
    if len(links) > 1 and len(set(links)) < len(links):  # a leaf that several gradients arrive at
        return False
    gradients = entry.finish_alone()
    if gradients is None:
        return False
    _use_up(node)
    for held, gradient in zip(links, gradients, strict=True):
        if held is not None:
            held.receive(gradient)  # type: ignore[union-attr]
    return True


def _through_one_step(head: Output, dout: Any, retain_graph: bool, in_place: bool) -> dict[Leaf, Any]:
    """`run_backward` where a single step is recorded, as with a hybridized block that computes the loss."""
    node = head.node
    entry, links = node.entry, node.links
    assert entry is not None
    if entry.device is None and type(dout) is not _ndarray:
        (dout,) = _on_host([dout])
    douts = [None] * node.outputs
    douts[head.index] = dout
    arrived: dict[Leaf, Any] = {}
    needed = tuple(map(bool, links))
    if retain_graph:
        results = entry.backward(douts, needed)
    elif in_place and entry.takes_leaves:
        results = entry.finish(douts, needed, _untouched(links, {}))
    else:
        results = entry.finish(douts, needed)
    apart = _apart(node, [head.index])
    for number, (held, result) in enumerate(zip(links, results, strict=True)):
        if type(held) is Leaf and number not in apart:
            present = arrived.get(held)
            if present is not None and result is not None and type(present) is not type(result):
                present, result = alike(present, result)
            arrived[held] = result if present is None else present if result is None else present + result
    if not retain_graph:
        _use_up(node)
    return arrived


def grad(
    heads: Sequence[NDArray],
    variables: Sequence[NDArray],
    head_grads: Sequence[object] | None,
    retain_graph: bool,
    create_graph: bool,
    train_mode: bool,
) -> list[NDArray]:
    """Gradients of the heads with respect to the variables, as new arrays; `grad` attributes stay as they are."""
    targets = []
    for variable in variables:
        if variable.tape_link is None:
            raise AutogradError(
                f"cannot differentiate with respect to an array of shape {variable.shape} that is not in a "
                "computational graph; call attach_grad() on it before autograd.record()"
            )
        targets.append(variable.tape_link)
    with Mode(create_graph, train_mode):
        found, leaves = run_backward(heads, head_grads, targets, retain_graph, create_graph)
    results = []
    for number, (variable, target) in enumerate(zip(variables, targets, strict=True)):
        gradient = found.get(target)
        if gradient is None and target in leaves:
            gradient = NDArray.from_host(np.zeros(variable.shape, variable.dtype), variable.ctx)
            results.append(_recorded(gradient, variables) if create_graph else gradient)
            continue
        if gradient is None:
            raise AutogradError(
                f"variable {number} of shape {variable.shape} gets no gradient: the heads do not depend on it"
            )
        # A gradient may still be memory of the tape or of another gradient.
        if not create_graph and is_tensor(gradient):
            gradient = NDArray.wrap_device(gradient.clone(), variable.ctx)
        elif not create_graph:
            gradient = NDArray.from_host(np.array(gradient, order="C"), variable.ctx)
        results.append(_recorded(gradient, variables) if create_graph else gradient)
    return results


class Identity(Entry):
    """y = x. There may be further inputs, on which y does not depend: they get zeros, as in MXNet."""

    __slots__ = ()

    name = "an identity"

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return [*douts, *[None] * (len(needed) - 1)]

    backward_recorded = backward


def _recorded(gradient: NDArray, variables: Sequence[NDArray]) -> NDArray:
    """The gradient as a step of these variables, so that one which is constant can be differentiated too."""
    result = type(gradient).view_of(gradient.buffer, gradient.host_view)
    note(Identity(), (gradient, *variables), (result,))
    return result


calls.backward = backward
