"""Keys in brackets in MXNet's files: MXNet has no operator for a whole key, so `_index` becomes several of its own.

x[:, [0, 2]]      = take(x, [0, 2], axis=1)
x[..., ::2]       = swapaxes(slice(swapaxes(x, 0, -1), step 2), 0, -1)
x[[0, 1], [2, 0]] = gather_nd(x, [[0, 1], [2, 0]])

The number of axes is not known here, so that axes of the parts behind `...` are counted from the end. Other keys, such
as two lists that do not stand in front, have no such form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.node import Constant, Node, Value, constant_node, input_node
from hybrid_lab.ops.arrays.constant_index import ConstantIndex, read_key
from hybrid_lab.ops.framework.operator import Operator, get

#: An operator, and the positions that it reads beside the data.
Step = tuple[Operator, np.ndarray | None]


def with_index_steps(graph: Graph) -> Graph:
    """The graph, in which MXNet's operators stand for each `_index` that they can express."""

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, ControlFlow):
            return _in_bodies(node, node.op, inputs)
        steps = _steps(node.op) if isinstance(node.op, ConstantIndex) else None
        if steps is None:
            return None
        value = inputs[0]
        for op, positions in steps:
            beside = () if positions is None else (constant_node(positions),)
            value = make_node(op, (value, *beside), origin=node).outputs[0]
        return (value,)

    if not any(isinstance(node.op, (ConstantIndex, ControlFlow)) for node in graph.operators):
        return graph
    return graph.map(rewrite)


def _in_bodies(node: Node, op: ControlFlow, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
    """A loop or a branch with such bodies. They capture the positions: MXNet's bodies hold no arrays of their own."""
    bodies = [with_index_steps(body.graph) for body in op.bodies]
    if all(graph is body.graph for graph, body in zip(bodies, op.bodies, strict=True)):
        return None
    constants = {each.outputs[0]: None for graph in bodies for each in graph.nodes if isinstance(each.op, Constant)}
    names = {value.node.name for value in bodies[0].inputs}
    captured = []
    for value in constants:
        names.add(name := next(name for count in range(len(names) + 1) if (name := f"positions{count}") not in names))
        captured.append(input_node(name, "data", shape=value.shape, dtype=value.dtype))
    inside = dict(zip(constants, captured, strict=True))
    rebuilt = []
    for graph in bodies:
        body = graph.substitute(inside)
        rebuilt.append(Graph([*body.inputs, *captured], body.outputs, body.effects, body.draws, body.name))
    return node.replace(op=op.rebuilt(rebuilt, op.carried), inputs=(*inputs, *constants)).outputs


def _steps(op: ConstantIndex) -> list[Step] | None:
    """The operators that compute a key one after the other; None if there is no such form."""
    key = read_key(op.key)
    place = next((number for number, part in enumerate(key) if part is Ellipsis), len(key))
    front, back = key[:place], key[place + 1 :]
    parts = (*front, *back)
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if any(isinstance(part, bool) for part in parts) or any(part.size == 0 for part in arrays):
        return None
    if len(arrays) > 1 or any(part.ndim > 1 for part in arrays):
        return _gathered(front, back)
    if arrays and not _stays_in_place(key):
        return None
    return [*_cuts(front, back), *_axes(front, back, op.vectors)]


def _gathered(front: Sequence[Any], back: Sequence[Any]) -> list[Step] | None:
    """Lists for the first axes: all their positions at once."""
    if back or not all(isinstance(part, (int, np.ndarray)) for part in front):
        return None
    positions = [
        each
        for part in front
        for each in (part.nonzero() if isinstance(part, np.ndarray) and part.dtype == bool else (np.asarray(part),))
    ]
    if any((each < 0).any() for each in positions):
        return None
    return [(get("gather_nd").bind(), np.stack(np.broadcast_arrays(*positions)).astype(np.int64))]


def _stays_in_place(key: Sequence[Any]) -> bool:
    """Whether the axis of the one list stays where it is: numbers count as lists beside it, and lists that something
    stands between move to the front.
    """
    advanced = [number for number, part in enumerate(key) if isinstance(part, (int, np.ndarray))]
    together = advanced[-1] - advanced[0] == len(advanced) - 1
    return together or isinstance(key[0], np.ndarray)


def _cuts(front: Sequence[Any], back: Sequence[Any]) -> Iterator[Step]:
    """The ranges, numbers and the list, each along its own axis; no axis goes or comes."""
    head = [part for part in front if part is not None]
    tail = [part for part in back if part is not None]
    for axis, part in [*enumerate(head), *zip(range(-len(tail), 0), tail, strict=True)]:
        if isinstance(part, np.ndarray):
            positions = np.flatnonzero(part) if part.dtype == bool else part
            yield get("take").bind(axis=axis, mode="wrap" if (positions < 0).any() else "clip"), positions
            continue
        cut = part if isinstance(part, slice) else slice(part, part + 1 if part != -1 else None)
        if cut == slice(None):
            continue
        if axis >= 0:
            yield _slice(axis, cut), None
        elif cut.step in (None, 1):
            yield get("slice_axis").bind(axis=axis, begin=cut.start or 0, end=cut.stop), None
        else:
            yield get("SwapAxis").bind(dim1=0, dim2=axis), None
            yield _slice(0, cut), None
            yield get("SwapAxis").bind(dim1=0, dim2=axis), None


def _slice(axis: int, cut: slice) -> Operator:
    """A range of one axis, counted from the front."""
    before = (None,) * axis
    step = {} if cut.step is None else {"step": (*before, cut.step)}
    return get("slice").bind(begin=(*before, cut.start), end=(*before, cut.stop), **step)


def _axes(front: Sequence[Any], back: Sequence[Any], vectors: bool) -> Iterator[Step]:
    """The axes of None are added, the axes of numbers dropped: `squeeze` leaves at least one axis of a `mx.nd`
    array.
    """
    added = [axis for axis, part in enumerate(front) if part is None]
    added += [axis - len(back) for axis, part in reversed([*enumerate(back)]) if part is None]
    for axis in added:
        yield get("expand_dims").bind(axis=axis), None
    dropped = [axis for axis, part in enumerate(front) if isinstance(part, int)]
    dropped += [axis - len(back) for axis, part in enumerate(back) if isinstance(part, int)]
    if dropped:
        yield get("squeeze" if vectors else "_drop_axes").bind(axis=tuple(dropped)), None
