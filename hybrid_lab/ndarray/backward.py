"""Backward passes: from heads to leaves, through the recorded steps in reverse order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AutogradError, ShapeError
from hybrid_lab.engines.memory import empty, is_tensor, to_device, to_host
from hybrid_lab.ndarray import calls
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import Entry, Leaf, Link, Mode, Node, Output, listeners, note, state

watchers: list[Callable[[Sequence[NDArray]], object]] = []
"""Functions that get the heads of each backward pass before it begins: for tools."""

FEW = 4096
"""Arrays of ones with at most this many elements are cached; a backward starts from a copy."""
_ORDER = attrgetter("order")
_ndarray = np.ndarray


def _sum(one: Any, other: Any) -> Any:
    """The sum of two gradients, an array also where NumPy gives a scalar: of arrays without dimensions."""
    total = one + other
    return np.asarray(total) if isinstance(total, np.generic) else total


class _Gradients:
    """The gradients of a backward pass so far: the sum for each Leaf, and for each output of a Node.

    A single gradient is stored as it came, without a copy. A second gradient makes a new array, to which further
    gradients are added.
    """

    __slots__ = ("_owned", "arrived")

    def __init__(self) -> None:
        self.arrived: dict[Any, list[Any]] = {}
        self._owned: set[tuple[Any, int]] = set()

    def arrive(self, link: Any, gradient: object) -> None:
        """Add a gradient of the leaf or output behind a link."""
        if type(link) is Output:
            target, index, size = link.node, link.index, link.node.outputs
        else:
            target, index, size = link, 0, 1
        slots = self.arrived.get(target)
        if slots is None:
            slots = self.arrived[target] = [None] * size
        present = slots[index]
        if present is not None and type(present) is not type(gradient):
            present, gradient = alike(present, gradient)
        if present is None:
            slots[index] = gradient
        elif (target, index) in self._owned and present is slots[index]:
            present += gradient
        else:  # even if the sum so far was copied to the device of the new gradient
            # The gradient of a bool is a bool, as NumPy's sums of bools are, but not NDArrays' sums.
            bools = type(present) is NDArray and present.host_view.dtype == bool
            slots[index] = present = present | gradient if bools else _sum(present, gradient)
            if isinstance(present, np.ndarray):
                self._owned.add((target, index))

    def at(self, target: Any) -> list[Any] | None:
        """One gradient (or None) per output of a node, or a leaf's only gradient; None if nothing arrived."""
        return self.arrived.get(target)

    def drop(self, target: object) -> None:
        """Forget the gradients of a leaf or node."""
        self.arrived.pop(target, None)

    def get(self, target: Link) -> Any:
        """The gradient of one link, or None."""
        slots = self.arrived.get(target.node if type(target) is Output else target)
        return None if slots is None else slots[target.index if type(target) is Output else 0]


def alike(first: Any, second: Any) -> tuple[Any, Any]:
    """Both gradients on the device if either is there."""
    if is_tensor(first) and isinstance(second, np.ndarray):
        return first, to_device(second, first.device)
    if is_tensor(second) and isinstance(first, np.ndarray):
        return to_device(first, second.device), second
    return first, second


def _on_host(douts: list[object]) -> list[Any]:
    """Output gradients as NumPy arrays, for steps whose gradients are computed on the host."""
    return [to_host(dout) if dout is not None and is_tensor(dout) else dout for dout in douts]


def _collect(links: Sequence[Link], stop: Sequence[Node]) -> tuple[Sequence[Node], dict[Leaf, None]]:
    """All nodes and leaves behind the links, but nothing behind `stop`; nodes in the order of recording."""
    first = links[0]
    if len(links) == 1 and type(first) is Output and not stop and Output not in map(type, first.node.links):
        apart = _apart(first.node, [first.index])
        reached = [link for number, link in enumerate(first.node.links) if type(link) is Leaf and number not in apart]
        return (first.node,), dict.fromkeys(reached)
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
    """The indices of a step's inputs on which the given outputs do not depend."""
    if node.outputs == 1:
        return frozenset()
    assert node.entry is not None
    wanted = set(indices)
    return node.entry.apart(tuple([index in wanted for index in range(node.outputs)]))


def _reached(nodes: Sequence[Node], links: Sequence[Link], stop: Sequence[Node]) -> tuple[list[Node], dict[Leaf, None]]:
    """The nodes and leaves on which the links depend. An output of a compiled call may depend on some inputs only."""
    read: dict[Node, set[int]] = {}
    leaves: dict[Leaf, None] = {}

    def mark(link: Link) -> None:
        if type(link) is Leaf:
            leaves[link] = None
        elif type(link) is Output:
            read.setdefault(link.node, set()).add(link.index)

    for link in links:
        mark(link)
    for node in reversed(nodes):
        if node in read and node not in stop:
            apart = _apart(node, read[node])
            for number, link in enumerate(node.links):
                if number not in apart:
                    mark(link)
    return [node for node in nodes if node in read], leaves


def _head_links(heads: Sequence[NDArray]) -> list[Any]:
    links = []
    for head in heads:
        link = head.tape_link
        if link is None:
            raise AutogradError(
                f"cannot differentiate an array of shape {head.shape} that is not in a computational graph: compute it "
                "under autograd.record() from arrays with attach_grad() (or initialized Parameters)"
            )
        if type(link) is Output and link.node.entry is None:
            raise AutogradError(
                "cannot differentiate this array again: its history was used up by an earlier backward(); "
                "pass retain_graph=True there to differentiate the same computation twice"
            )
        links.append(link)
    return links


@lru_cache(maxsize=128)
def _few_ones(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.ones(shape, dtype)


def _ones(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Ones; for small heads, such as losses, a copy of a cached array."""
    return _few_ones(shape, dtype).copy() if math.prod(shape) <= FEW else np.ones(shape, dtype)


def _ones_for(head: NDArray) -> Any:
    """The gradient to start from: ones on the head's device, or on the host."""
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
    gradients: list[Any] = []
    for head, gradient in zip(heads, head_grads, strict=True):
        if gradient is None:
            ones = _ones(head.host_view.shape, head.host_view.dtype) if recorded else _ones_for(head)
            gradients.append(type(head).from_host(ones, head.ctx) if recorded else ones)
            continue
        if not isinstance(gradient, NDArray) or gradient.is_np < head.is_np:
            raise AutogradError(f"a head gradient must be an NDArray or None, not {type(gradient).__name__}")
        if gradient.shape != head.shape:
            raise ShapeError(f"the head gradient has shape {gradient.shape}, its head {head.shape}; they must be equal")
        if gradient.dtype != head.dtype:
            gradient = gradient.astype(head.dtype)
        device = gradient.buffer.device
        near = device is not None and not gradient.buffer.device_stale
        gradients.append(gradient if recorded else gradient.raw(device.device) if near else gradient._data)
    return gradients


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
    stop : nodes at which the pass ends
    in_place : gradients of leaves may be written into their `grad` at once
    Returns the gradients (NumPy arrays, or NDArrays with create_graph), and all leaves that were reached.
    """
    links = _head_links(heads)
    gradients = _head_gradients(heads, head_grads, create_graph)
    nodes, leaves = _collect(links, stop)
    if create_graph and [node for node in nodes if node.entry is not None and node.entry.unfold(node)]:
        nodes, leaves = _collect(links, stop)
    collected = _Gradients()
    for link, gradient in zip(links, gradients, strict=True):
        collected.arrive(link, gradient)
    if targets is not None:
        _go_back_to(targets, nodes, collected, retain_graph, create_graph)
        return collected, leaves
    early = _Early(nodes) if state.stored is not None and not create_graph else None
    for node in reversed(nodes):
        douts = collected.at(node)
        if douts is not None:
            needed = tuple([link is not None for link in node.links])
            # A later step may read a `grad` as an input, so only the last step may write to it.
            last_step = in_place and node is nodes[0]
            _step_back(collected, node, douts, needed, create_graph, not retain_graph, last_step)
            collected.drop(node)
        if early is not None:
            early.passed(node, collected)
        if not retain_graph:
            _use_up(node)
    return collected, leaves


class _Early:
    """Stores the gradient of a leaf in the middle of a backward pass, when no further step adds to it.

    It does so only if no further step reads the memory of the leaf's `grad`.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._steps = Counter(link for node in nodes for link in set(node.links) if type(link) is Leaf)
        # Which memory each step reads; None if unknown.
        self._reads = {node: None if node.entry is None else node.entry.buffers_read() for node in nodes}
        self._unknown = sum(buffers is None for buffers in self._reads.values())
        self._read = Counter(id(buffer) for buffers in self._reads.values() for buffer in buffers or ())

    def passed(self, node: Node, collected: _Gradients) -> None:
        """After a step: store the complete gradients."""
        buffers = self._reads.pop(node)
        self._unknown -= buffers is None
        self._read.subtract([id(buffer) for buffer in buffers or ()])
        for link in dict.fromkeys(reversed(node.links)):
            if type(link) is Leaf:
                self._steps[link] -= 1
                if not self._steps[link] and not self._unknown and not self._read[id(link.grad.buffer)]:
                    self._store(link, collected)

    def _store(self, leaf: Leaf, collected: _Gradients) -> None:
        slots = collected.at(leaf)
        others = [item for target, items in collected.arrived.items() if target is not leaf for item in items]
        if not any(item is not None and overlaps(leaf.grad, item) for item in others):
            leaf.store(None if slots is None else slots[0])
            collected.drop(leaf)


def _go_back_to(
    targets: Sequence[object], nodes: Sequence[Node], collected: _Gradients, retain_graph: bool, create_graph: bool
) -> None:
    """Collect the gradients of these links, by the steps that lead to them only."""
    wanted = {target for target in targets if type(target) is Leaf}
    outputs = {(target.node, target.index) for target in targets if type(target) is Output}
    asked = {node for node, _ in outputs}
    useful: set[Node] = set()

    def leads(link: Link) -> bool:
        """Whether the gradient of this link is wanted, or needed for a wanted gradient."""
        if type(link) is Output:
            return link.node in useful or (link.node, link.index) in outputs
        return link in wanted

    for node in nodes:
        if any(map(leads, node.links)):
            useful.add(node)
    for node in reversed(nodes):
        douts = collected.at(node)
        if douts is not None and node in useful:
            needed = tuple([leads(link) for link in node.links])
            _step_back(collected, node, douts, needed, create_graph, not retain_graph)
        if node not in asked:
            collected.drop(node)
        if not retain_graph:
            _use_up(node)


def _step_back(
    collected: _Gradients,
    node: Node,
    douts: list[Any],
    needed: tuple[bool, ...],
    create_graph: bool,
    last: bool,
    in_place: bool = False,
) -> None:
    """Compute the gradients of one node's inputs from the gradients of its outputs."""
    entry = node.entry
    assert entry is not None
    arrived = collected.arrived
    if entry.device is None and not create_graph and any(type(dout) is not _ndarray for dout in douts):
        douts = _on_host(douts)
    if in_place and last and entry.takes_leaves:
        results = entry.finish(douts, needed, _untouched(node.links, arrived))
    else:
        run = entry.backward_recorded if create_graph else entry.finish if last else entry.backward
        results = run(douts, needed)
    for link, want, result in zip(node.links, needed, results, strict=True):
        if not want or result is None:
            continue
        if type(link) is Leaf and link not in arrived:
            arrived[link] = [result]
        else:
            collected.arrive(link, result)


def _untouched(links: Sequence[Link], arrived: dict[Any, Any]) -> list[Leaf | None]:
    """Per link the leaf whose `grad` may be written directly, else None.

    Directly means: `grad` is overwritten, not added to; this link brings the only gradient; and no gradient that has
    arrived is a view of `grad`.
    """
    times = Counter(links)
    borrowed = [item for slots in arrived.values() for item in slots if item is not None]

    def free(link: Leaf) -> bool:
        return not link.grad.buffer.stored and not any(overlaps(link.grad, item) for item in borrowed)

    return [
        link
        if type(link) is Leaf and link.req == "write" and times[link] == 1 and link not in arrived and free(link)
        else None
        for link in links
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
    for watch in watchers:
        watch(heads)
    link = heads[0].tape_link if len(heads) == 1 else None
    if head_grads is None and not retain_graph and type(link) is Output and _alone(link.node):
        return
    before = state.recording, state.training, state.retaining, state.stored
    state.recording, state.training, state.retaining = False, train_mode, retain_graph
    state.stored = set() if listeners else None
    try:
        if type(link) is Output and link.node.entry is not None and Output not in map(type, link.node.links):
            dout = _ones_for(heads[0]) if head_grads is None else _head_gradients(heads, head_grads, False)[0]
            arrived = _through_one_step(link, dout, retain_graph, head_grads is None)
        else:
            collected, leaves = run_backward(heads, head_grads, None, retain_graph, False, in_place=head_grads is None)
            arrived = {leaf: collected.get(leaf) for leaf in leaves}
        for leaf in reversed(arrived):  # the leaves lie in the order of the forward pass
            leaf.store(arrived[leaf])
    finally:
        state.recording, state.training, state.retaining, state.stored = before


def _alone(node: Node) -> bool:
    """A whole backward pass by `Entry.finish_alone`: for a head that is the only output of the only recorded step.

    Returns False, with nothing done, in any other case, and if the entry has no such method.
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
    for link, gradient in zip(reversed(links), reversed(gradients), strict=True):
        if link is not None:
            link.receive(gradient)  # type: ignore[union-attr]
            for listener in listeners:
                listener(link)  # type: ignore[arg-type]
    return True


def _through_one_step(head: Output, dout: Any, retain_graph: bool, in_place: bool) -> dict[Leaf, Any]:
    """`run_backward` for a single recorded step, such as a hybridized block that computes the loss."""
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
    for number, (link, result) in enumerate(zip(links, results, strict=True)):
        if type(link) is Leaf and number not in apart:
            present = arrived.get(link)
            if present is not None and result is not None and type(present) is not type(result):
                present, result = alike(present, result)
            arrived[link] = result if present is None else present if result is None else _sum(present, result)
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
    """Gradients of the heads with respect to the variables, as new arrays; `grad` attributes are not changed."""
    for watch in watchers:
        watch(heads)
    targets = []
    for variable in variables:
        if variable.tape_link is None:
            raise AutogradError(
                f"cannot differentiate with respect to an array of shape {variable.shape} that is not in a "
                "computational graph; call attach_grad() on it before autograd.record()"
            )
        targets.append(variable.tape_link)
    before, state.retaining = state.retaining, retain_graph
    try:
        with Mode(create_graph, train_mode):
            collected, leaves = run_backward(heads, head_grads, targets, retain_graph, create_graph)
    finally:
        state.retaining = before
    results = []
    for number, (variable, target) in enumerate(zip(variables, targets, strict=True)):
        gradient = collected.get(target)
        if gradient is None and target in leaves:
            gradient = NDArray.from_host(np.zeros(variable.shape, variable.dtype), variable.ctx)
            results.append(as_function_of(gradient, variables) if create_graph else gradient)
            continue
        if gradient is None:
            raise AutogradError(
                f"variable {number} of shape {variable.shape} gets no gradient: the heads do not depend on it"
            )
        # The gradient may share memory with the tape or with another gradient.
        if not create_graph and is_tensor(gradient):
            gradient = NDArray.wrap_device(gradient.clone(), variable.ctx)
        elif not create_graph:
            gradient = NDArray.from_host(np.array(gradient, order="C"), variable.ctx)
        results.append(as_function_of(gradient, variables) if create_graph else gradient)
    for variable, result in zip(variables, results, strict=True):
        variable.alike(result)
    return results


class Identity(Entry):
    """y = x. There may be further inputs, on which y does not depend: they get zeros, as in MXNet."""

    __slots__ = ()

    name = "an identity"

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return [*douts, *[None] * (len(needed) - 1)]

    backward_recorded = backward


def as_function_of(gradient: NDArray, variables: Sequence[object]) -> NDArray:
    """The gradient as a recorded function of the variables, so that even a constant gradient can be differentiated."""
    result = type(gradient).view_of(gradient.buffer, gradient.host_view)
    note(Identity(), (gradient, *variables), (result,))
    return result


calls.provide(backward=backward)
