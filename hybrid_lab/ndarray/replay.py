"""Running a step of the tape again, operator by operator, to differentiate its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from hybrid_lab.ndarray.backward import Identity, run_backward
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import Entry, Mode, Node, Output, link, note


class _Outputs(Entry):
    """The outputs of an unfolded step: output i is input i."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return douts

    backward_recorded = backward

    def apart(self, arrived: tuple[bool, ...]) -> frozenset[int]:
        return frozenset([index for index, here in enumerate(arrived) if not here])


def unfold(node: Node, compute: Callable[[list[NDArray]], Sequence[NDArray]], inputs: Sequence[NDArray]) -> None:
    """Replace a recorded step by recorded steps that compute the same, for `Entry.unfold`.

    compute : inputs -> outputs, through recorded calls
    """
    pairs = zip(inputs, node.links, strict=True)
    starts = [NDArray.view_of(array.buffer, array.host_view, link) for array, link in pairs]
    with Mode(True, None):
        outputs = compute(starts)
    assert node.entry is not None
    links = tuple([output.tape_link for output in outputs])
    inner: set[Node] = set()
    pending = [link.node for link in links if type(link) is Output]
    while pending:
        step = pending.pop()
        if step.order > node.order and step not in inner:
            inner.add(step)
            pending += [link.node for link in step.links if type(link) is Output]
    # Their order numbers lie between the numbers of the steps before and after this step.
    for number, step in enumerate(sorted(inner, key=attrgetter("order")), 1):
        step.order = node.order - 1 + number / (len(inner) + 1)
    node.entry, node.links = _Outputs(node.entry.name), links


def replay(
    compute: Callable[[list[object]], Sequence[NDArray]],
    inputs: Sequence[object],
    douts: Sequence[object],
    needed: Sequence[bool],
) -> list[Any]:
    """Gradients of a step, for `Entry.backward_recorded`: run the step again, recorded, and differentiate that.

    compute : inputs -> outputs, through recorded calls
    inputs : NDArrays with their links; other inputs are passed on
    """
    starts: list[Any] = list(inputs)
    stop: list[Node] = []
    for index, item in enumerate(inputs):
        if isinstance(item, NDArray):
            # A step of its own, at which the backward pass stops; also for inputs whose gradient is not needed, because
            # the gradients of the others depend on them.
            starts[index] = NDArray.view_of(item.buffer, item.host_view)
            node = note(Identity(), (item,), (starts[index],))
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
    targets = [start.tape_link if want else None for start, want in zip(starts, needed, strict=True)]
    heads, head_grads = zip(*pairs, strict=True)
    asked = [target for target in targets if target is not None]
    gradients, _ = run_backward(heads, head_grads, asked, True, True, stop)
    return [None if target is None else gradients.get(target) for target in targets]
