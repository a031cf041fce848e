"""Models whose graphs hold the conversions of mixed precision themselves, so that they run without `amp.init()`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.gluon import HybridBlock, SymbolBlock, access
from hybrid_lab.gluon.files.graphs_of_calls import predicting
from hybrid_lab.gluon.files.loading import load_parameters
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.mixed_precision import mixed_precision
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ops.framework.precision import SINGLE, Precision
from hybrid_lab.symbol import Group, Symbol

from .mode import low_dtype


def convert_hybrid_block(
    block: HybridBlock,
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Sequence[Any]] | None = None,
    excluded_sym_names: Collection[str] | None = None,
    ctx: Context | Sequence[Context] | None = None,
    cast_optional_params: bool = False,
) -> SymbolBlock:
    """A SymbolBlock that computes what `block` does, in mixed precision; `block` is not changed.

    block : called once, hybridized or not
    target_dtype_ops, fp32_ops, conditional_fp32_ops : as for `amp.init`
    excluded_sym_names : names of nodes that take their inputs as they come
    ctx : the contexts of its parameters; None means the contexts of the parameters of `block`
    cast_optional_params : keep parameters that nothing reads in float32 in the low precision

    Raises MissingGraphError if the block was never called or its code has no graph; SettingError for unknown operators,
    nodes or dtypes.
    """
    if not isinstance(block, HybridBlock):
        raise TypeError(f"amp.convert_hybrid_block takes a HybridBlock, not {type(block).__name__}")
    neutral = predicting(block).without_unused()
    graph, count = neutral.graph, neutral.num_data
    types = [np.dtype(dtype) for _, dtype in neutral.types or ()] or [SINGLE] * count
    types += [np.dtype(parameter.dtype) for parameter in neutral.parameters]
    precision = _precision(target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops)
    converted = _converted(graph, types, precision, excluded_sym_names)
    names = {value.node.name for value in converted.inputs[count:]}
    if cast_optional_params:
        converted = _narrowed(converted, names, precision)
    outputs = [Symbol((value,)) for value in converted.outputs]
    result = SymbolBlock(outputs, [Symbol((value,)) for value in converted.inputs[:count]])
    # In the arguments' and results' own arrangement, for the calls that the graph holds for.
    (pinned,) = access.graphs(result).pinned.values()
    arrangement = {name: getattr(neutral, name) for name in ("types", "in_spec", "out_spec", "observation")}
    access.calls(result).pin([replace(pinned, **arrangement)])
    arrays, targets = {}, {}
    narrow = {value.node.name for value in converted.inputs if cast_optional_params and value.dtype == precision.target}
    for parameter in neutral.parameters:
        twin = result.params[parameter.name]
        array = parameter.data().raw()
        arrays[parameter.name] = array.astype(precision.target) if parameter.name in narrow else array.copy()
        targets[parameter.name] = [(parameter.name, twin)]
        twin.grad_req = parameter.grad_req
    contexts = ctx if ctx is not None or not neutral.parameters else neutral.parameters[0].list_ctx()
    load_parameters(targets, arrays, None, contexts, cast_dtype=True, dtype_source="saved")
    return result


def convert_symbol(
    sym: Symbol,
    target_dtype: object = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Sequence[object]] | None = None,
    excluded_sym_names: Collection[str] | None = None,
    data_names: Collection[str] | None = None,
    cast_optional_params: bool = False,
) -> Symbol:
    """The Symbol with an `amp_cast` at each conversion of mixed precision; its variables are float32 unless they say
    otherwise.

    data_names : the variables that are data; None means all but auxiliary states and what ends like a parameter's name
    cast_optional_params : give variables that are no data, and that nothing reads in float32, the low dtype
    """
    if not isinstance(sym, Symbol):
        raise TypeError(f"amp.convert_symbol takes a Symbol, not {type(sym).__name__}")
    graph = sym.graph()
    types = [value.dtype or SINGLE for value in graph.inputs]
    precision = _precision(target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops)
    converted = _converted(graph, types, precision, excluded_sym_names)
    if cast_optional_params:
        names = {value.node.name for value in converted.inputs}
        data = data_names if data_names is not None else [name for name in names if not name.endswith(_OF_LAYERS)]
        converted = _narrowed(converted, names - set(data) - set(sym.list_auxiliary_states()), precision)
    return Group([Symbol((value,)) for value in converted.outputs])


def convert_model(
    sym: Symbol,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    target_dtype: object = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Sequence[object]] | None = None,
    excluded_sym_names: Collection[str] | None = None,
    cast_optional_params: bool = False,
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """`convert_symbol` with the parameters by name, converted if their variables are in the low precision."""
    known = {*arg_params, *aux_params}
    data = [name for name in sym.list_inputs() if name not in known]
    converted = convert_symbol(
        sym,
        target_dtype,
        target_dtype_ops,
        fp32_ops,
        conditional_fp32_ops,
        excluded_sym_names,
        data,
        cast_optional_params,
    )
    target = low_dtype(target_dtype, "amp")
    narrow = {value.node.name for value in converted.graph().inputs if value.dtype == target}
    arguments = {name: array.astype(target) if name in narrow else array for name, array in arg_params.items()}
    return converted, arguments, dict(aux_params)


_OF_LAYERS = ("_weight", "_bias", "_gamma", "_beta")


def _precision(target_dtype: Any, low: Any, float32: Any, conditional: Any) -> Precision:
    return Precision(low_dtype(target_dtype, "amp"), low, float32, conditional)


def _converted(graph: Graph, types: Sequence[Any], precision: Precision, excluded: Any) -> Graph:
    if isinstance(excluded, str):
        raise SettingError(f"excluded_sym_names must be a list of names, such as [{excluded!r}], not {excluded!r}")
    excluded = set(excluded or ())
    unknown = excluded - {node.name for node in graph.nodes}
    if unknown:
        raise SettingError(f"excluded_sym_names: the graph has no node {', '.join(map(repr, sorted(unknown)))}")
    return mixed_precision(graph, dict(zip(graph.inputs, types, strict=True)), precision, excluded, written=True)


def _narrowed(graph: Graph, names: Collection[str], precision: Precision) -> Graph:
    """The variables of these names in the low precision, if every reader converts them to it."""
    fresh: dict[Value, Any] = {}
    readers = graph.users()
    for value in graph.inputs:
        nodes: list[Node] = readers.get(value, [])
        if value.node.name in names and nodes and all(_narrows(node, precision) for node in nodes):
            role, attrs = value.node.op.role, value.node.attrs  # type: ignore[attr-defined]
            fresh[value] = input_node(value.node.name, role, shape=value.shape, dtype=precision.target, attrs=attrs)
    return graph.substitute(fresh)


def _narrows(node: Node, precision: Precision) -> bool:
    return node.op.name == "amp_cast" and np.dtype(node.op.attributes["dtype"]) == precision.target
