"""Calls a monitor callback of an Executor with the outputs of operators, with their inputs, and with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.engines.memory import is_tensor, to_host
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ndarray import creation, tape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.symbol.symbol import Symbol

Callback = Callable[[str, NDArray], object]


class Monitoring:
    """Calls `callback(name, array)` while a graph runs operator by operator, and while it is differentiated.

    fc_output : the result of an operator; its name is the name in `list_outputs()`
    weight, fc_weight : an input, with monitor_all: a variable under its own name, then every input under the operator's
    fc_backward_output0 : the gradient of an input, with a number if the operator has several
    """

    def __init__(self, callback: Callback, monitor_all: bool) -> None:
        self._callback, self._all = callback, monitor_all

    def look(self, node: Node, inputs: Sequence[Any], outputs: Sequence[NDArray]) -> None:
        """Report an operator that has run, and prepare to report its gradients."""
        if self._all:
            names = node.op.signature.inputs or [f"arg{number}" for number in range(len(node.inputs))]
            for item, name, array in zip(node.inputs, names, inputs, strict=False):
                if isinstance(item, Value) and isinstance(array, NDArray):
                    if item.is_input:
                        self._callback(item.node.name, array.detach())
                    self._callback(f"{node.name}_{name}", array.detach())
        for name, array in zip(Symbol(node.outputs[: len(outputs)]).list_outputs(), outputs, strict=True):
            self._callback(name, array.detach())
        link = outputs[0].tape_link
        if isinstance(link, tape.Output) and link.node.entry is not None and not node.op.subgraphs:
            link.node.entry = _Reported(link.node.entry, node, inputs, self._callback)


class _Reported(tape.Entry):
    """A recorded operator whose gradients go to the callback, too."""

    def __init__(self, entry: tape.Entry, node: Node, inputs: Sequence[Any], callback: Callback) -> None:
        self._entry, self._callback = entry, callback
        self.name, self.device = entry.name, entry.device
        states = node.op.signature.aux
        names = (*node.op.signature.inputs, *[""] * len(inputs))
        places = [
            place for place, item in enumerate(inputs) if isinstance(item, NDArray) and names[place] not in states
        ]
        title = f"{node.name}_backward_output"
        self._rows = [
            (place, f"{title}{number if len(places) > 1 else ''}", inputs[place].shape, inputs[place].host_view.dtype)
            for number, place in enumerate(places)
        ]

    def _report(self, results: Sequence[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        for place, name, shape, dtype in self._rows:
            if needed[place]:
                result = results[place]
                if result is None:
                    result = np.zeros(shape, dtype)
                self._callback(
                    name, NDArray.wrap(to_host(result) if is_tensor(result) else np.array(result, order="C"))
                )
        return results

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return self._report(self._entry.backward(douts, needed), needed)

    def finish(
        self, douts: list[Any], needed: tuple[bool, ...], leaves: Sequence[tape.Leaf | None] | None = None
    ) -> Sequence[Any]:
        return self._report(self._entry.finish(douts, needed), needed)

    def apart(self, arrived: tuple[bool, ...]) -> frozenset[int]:
        return self._entry.apart(arrived)

    def check(self) -> None:
        self._entry.check()

    def release(self) -> None:
        self._entry.release()


def with_gradient(array: NDArray) -> NDArray:
    """The memory of an argument as an array with a gradient, which only the callback sees if it has none yet."""
    if array.tape_link is not None or not is_floating(array.host_view.dtype):
        return array
    own = array.detach()
    own.tape_link = tape.Leaf(creation.zeros(array.shape, ctx=array.context, dtype=array.dtype), "write")
    return own
