"""The graphs of a HybridBlock for inputs that need not exist: shapes are enough, and nothing runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.engines.triton.plan.training import with_less_saved
from hybrid_lab.gluon.trainer import trainers
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.specialize import specialize, specialize_call
from hybrid_lab.hybridize.deferred_shapes import set_shapes
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.context import resolve
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating, is_narrow

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.engines.triton.plan.by_vendor import VendorRule
    from hybrid_lab.gluon.parameter import Parameter
    from hybrid_lab.hybridize.block import Hybrid, Tree


def graphs_of(net: Hybrid, inputs: object, train: bool = False, rule: VendorRule | None = None) -> dict[str, Graph]:
    """The graphs of a call by their role: "forward", in prediction also "parameters" if something depends on parameters
    alone; in training "forward", "backward" and "update".

    inputs : arrays or shapes, one or a list of them; (2, 3) is a shape, of the dtype of the weights
    rule : which recurrent layers a GPU's own library computes; None : none
    The update is the step of the Trainer that has the parameters, else plain SGD. Nothing runs, and only the shapes of
    parameters change, which become known. Raises HybridizeError if the code cannot become a graph.
    """
    args = arguments(inputs, weight_dtype(net))
    leaves, spec = flatten(args, f"the input of {net.name}")
    calls = net._graph_calls.twin(traces=net._active or bool(net._graphs.pinned))
    with tape.Mode(train, train):
        neutral = calls.neutral(spec, leaves)
    set_shapes(net, neutral, leaves)
    parameters = neutral.parameters
    wrt = [index for index, leaf in enumerate(leaves) if tape.link(leaf) is not None] if train else []
    if train:
        wrt += [len(leaves) + index for index, item in enumerate(parameters) if item.grad_req != "null"]
    shapes = [*(leaf.shape for leaf in leaves), *(item.shape for item in parameters)]
    dtypes = [np.dtype(item.dtype) for item in (*leaves, *parameters)]
    call = neutral.graph, shapes, dtypes, train, wrt, len(leaves)
    if neutral.bound:
        special = specialize(*call, bound=True, precision=invoking.precision)
    else:  # as a call does, so that kernels have the same text
        special = specialize_call({}, *call, invoking.precision)
    parts = {"parameters": special.prologue, "forward": special.forward}
    if special.split is not None:
        split = with_less_saved(special.split, rule)
        parts |= {"forward": split.forward, "backward": split.backward}
    graphs = {name: graph for name, graph in parts.items() if graph is not None}
    trained = [item for item in parameters if item.grad_req != "null"]
    return graphs | update_graphs(trained) if train else graphs


def arguments(inputs: object, dtype: DTypeLike = "float32") -> tuple[Any, ...]:
    """Arrays, or zeros in the place of shapes.

    dtype : of a plain shape; `(shape, dtype)`, and objects with a shape and a dtype, have their own
    """
    if isinstance(inputs, (NDArray, np.ndarray)) or _is_shape(inputs) or _described(inputs) is not None:
        inputs = (inputs,)
    if not isinstance(inputs, (list, tuple)) or all(
        item is None or isinstance(item, (int, float, np.number)) for item in inputs
    ):
        raise HybridLabError(
            "inputs= takes an array or a shape, or a list of them: inputs=(8, 3, 224, 224), or inputs=[x, (8, 10)]"
        )
    return tuple(_array(item, dtype) for item in inputs)


def weight_dtype(block: Tree) -> Any:
    """The dtype of the first weight of a model, in which the model takes floating inputs; float32 without weights."""
    first: Any = None
    has_weights = False
    for each in _parameters(block):
        is_weight = len(each.partial_shape or ()) > 1
        if is_floating(dtype_of(each.dtype)):
            if is_weight:
                return each.dtype
            first = first or each.dtype
        has_weights = has_weights or is_weight
    return "float32" if first is None or has_weights else first


def _parameters(block: Tree) -> Iterator[Parameter]:
    """The parameters of a Block and of those below it, in their order."""
    seen: set[Tree] = set()
    stack = [block]
    while stack:
        each = stack.pop()
        if each not in seen:
            seen.add(each)
            yield from tuple(each._reg_params.values())
            stack += reversed(tuple(each._children.values()))


def _described(item: object) -> tuple[tuple[int, ...], np.dtype] | None:
    """Shape and dtype of `(shape, dtype)`, of a DataDesc and the like; None for anything else."""
    if isinstance(item, (NDArray, np.ndarray)):
        return None
    shape: Any = getattr(item, "shape", None)
    dtype: Any = getattr(item, "dtype", None)
    if dtype is None and isinstance(item, (list, tuple)) and len(item) == 2:
        shape, dtype = item
    if not _is_shape(shape) or dtype is None or not isinstance(dtype, (str, type, np.dtype)):
        return None
    return tuple(map(int, shape)), check_dtype(dtype)


def _is_shape(item: object) -> bool:
    return isinstance(item, (list, tuple)) and bool(item) and all(_is_size(size) for size in item)


def _is_size(item: object) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def _array(item: Any, dtype: DTypeLike) -> Any:
    if _is_shape(item):
        return _untouched(tuple(map(int, item)), dtype_of(dtype))
    described = _described(item)
    if described is not None:
        return _untouched(*described)
    if isinstance(item, np.ndarray):
        return nd.array(item, dtype=item.dtype)
    return item


def _untouched(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Zeros that take no memory, whatever the shape: one number, repeated, read-only."""
    if min(shape) < 0:
        raise ShapeError(f"a shape cannot have negative sizes: {shape}")
    try:
        zeros = np.broadcast_to(np.zeros((), dtype), shape)
    except ValueError:  # more bytes, or more axes, than NumPy counts
        raise ShapeError(f"inputs={shape}: no array can be that large; give the sizes of a real call") from None
    return NDArray.from_host(zeros, resolve(None))


def update_graphs(parameters: Sequence[Parameter]) -> dict[str, Graph]:
    """The step of an optimizer for all values of these parameters, one graph for each dtype; {} if it has none."""
    from hybrid_lab import optimizer as optimizers
    from hybrid_lab.optimizer.fused import update_graph

    own = set(map(id, parameters))
    trainer = next((each for each in trainers if any(id(item) in own for item in each._params)), None)
    optimizer = trainer._optimizer if trainer is not None else optimizers.create("sgd")
    op = optimizer.operator()
    if op is None:
        return {}
    sizes: dict[np.dtype, int] = {}
    for item in parameters:
        dtype = np.dtype(item.dtype)
        sizes[dtype] = sizes.get(dtype, 0) + prod(item.shape or ())
    graphs = {}
    for dtype, size in sizes.items():
        half = dtype if optimizer.multi_precision and is_narrow(dtype) else None
        kind = np.dtype("float32") if half is not None else dtype
        numbers = optimizer.scaled_numbers(optimizer.learning_rate, optimizer.wd, 1, kind)
        names = tuple(name for name, number in numbers.items() if name != "wd" or number)
        label = "update" if len(sizes) == 1 else f"update of {dtype.name}"
        graphs[label] = update_graph(op, kind, names, size, half)
    return graphs
