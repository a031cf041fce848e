"""ONNX files to and from a Symbol and its arrays: MXNet's `mx.onnx.export_model` and `mx.contrib.onnx`.

`mx.onnx.export` and `mx.onnx.imports` do the work; they take and give Blocks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.symbol_block import SymbolBlock
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.symbol import Symbol

from .block import ImportedGraph, imports
from .compose import compose
from .exporting import export
from .model_file import OnnxFile

if TYPE_CHECKING:
    from onnx import ValueInfoProto

Params = dict[str, NDArray]


def export_model(
    sym: Symbol | str | PathLike[str],
    params: Mapping[str, NDArray] | Sequence[Mapping[str, NDArray]] | str | PathLike[str],
    in_shapes: Sequence[Sequence[int]] | None = None,
    in_types: DTypeLike | Sequence[DTypeLike] = "float32",
    onnx_file_path: str | PathLike[str] = "model.onnx",
    verbose: bool = False,
    dynamic: bool = False,
    dynamic_input_shapes: Sequence[Sequence[int | str | None]] | None = None,
    run_shape_inference: bool = False,
    input_type: DTypeLike | Sequence[DTypeLike] | None = None,
    input_shape: Sequence[Sequence[int]] | None = None,
) -> str:
    """Write a Symbol with its arrays to an ONNX file, as it predicts; returns the path.

    sym, params : the Symbol and its arrays: a dict, or a list of arg_params and aux_params. Or the paths of both files
    in_shapes, in_types : of the inputs that are no parameters, in the order of `sym.list_inputs()`. The label of the
        last operator needs no shape
    dynamic : with open sizes: those that are None or a name in dynamic_input_shapes; without it, all. The batch is open
        in any case, where the network lets it be
    input_shape, input_type : older names of in_shapes and in_types
    verbose, run_shape_inference : without effect; files always have the shapes of their outputs

    The file may have other operators, names of parameters and opset than MXNet's: see `mx.onnx.export`.
    """
    net = symbol.load(os.fspath(sym)) if isinstance(sym, (str, PathLike)) else sym
    arrays = _joined(nd.load(os.fspath(params)) if isinstance(params, (str, PathLike)) else params)
    net = _without_labels(net, arrays)
    names = [name for name in net.list_inputs() if name not in arrays]
    shapes = _for_each(names, in_shapes if input_shape is None else input_shape, "in_shapes")
    types = in_types if input_type is None else input_type
    dtypes = _for_each(names, types if isinstance(types, (list, tuple)) else [types] * len(names), "in_types")
    block = SymbolBlock(net, [symbol.var(name) for name in names])
    for name, parameter in block.collect_params().items():
        access.load_values(parameter, arrays[name].copy())
    inputs: list[Any] = [nd.zeros(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    if dynamic:
        block.hybridize()
        block(*inputs)  # from here on the Block knows the dtypes of its inputs
        opened = [[None] * len(shape) for shape in shapes] if dynamic_input_shapes is None else dynamic_input_shapes
        inputs = [_open(name, shape) for name, shape in zip(names, _for_each(names, opened, "dynamic_input_shapes"))]
    return export(block, onnx_file_path, inputs).path


def import_model(model_file: str | PathLike[str]) -> tuple[Symbol, Params, Params]:
    """The model in an ONNX file as (sym, arg_params, aux_params), which Modules and `SymbolBlock` take.

    The inputs and the arrays have the names of the file. Raises OnnxError as `mx.onnx.imports`.
    """
    composed = compose(model_file)
    net = ImportedGraph(composed)
    outputs = net(*[symbol.var(name) for name in composed.inputs])
    sym = symbol.Group(list(outputs)) if isinstance(outputs, (list, tuple)) else outputs
    states = set(sym.list_auxiliary_states())
    arrays = {name: parameter.data() for name, parameter in net.collect_params().items()}
    return (
        sym,
        {name: value for name, value in arrays.items() if name not in states},
        {name: value for name, value in arrays.items() if name in states},
    )


def import_to_gluon(model_file: str | PathLike[str], ctx: Context | Sequence[Context] | None = None) -> HybridBlock:
    """The model in an ONNX file as a Block: `mx.onnx.imports`. ctx : where the parameters go"""
    return imports(model_file, ctx)


def get_model_metadata(model_file: str | PathLike[str]) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Names and shapes of the inputs and outputs of an ONNX file, with 0 for sizes that the file leaves open:
    {'input_tensor_data': [(name, shape)], 'output_tensor_data': [(name, shape)]}.
    """
    graph = OnnxFile(model_file).model.graph
    arrays = {tensor.name for tensor in graph.initializer}
    return {
        "input_tensor_data": [_described(item) for item in graph.input if item.name not in arrays],
        "output_tensor_data": [_described(item) for item in graph.output],
    }


def _described(item: ValueInfoProto) -> tuple[str, tuple[int, ...]]:
    return item.name, tuple(size.dim_value for size in item.type.tensor_type.shape.dim)


def _joined(params: object) -> Params:
    """Arrays by name, from one dict or from several; names may have the prefixes of files, `arg:` and `aux:`."""
    parts = [params] if isinstance(params, Mapping) else list(params) if isinstance(params, (list, tuple)) else [params]
    joined: Params = {}
    for part in parts:
        if not isinstance(part, Mapping):
            raise SettingError("params must be a dict of arrays, or a list of arg_params and aux_params")
        joined |= {name.removeprefix("arg:").removeprefix("aux:"): value for name, value in part.items()}
    return joined


def _without_labels(net: Symbol, arrays: Params) -> Symbol:
    """The Symbol without the labels of its loss operators, which its predictions do not depend on."""
    labels: dict[str, Any] = {}
    for output in net.outputs:
        values = dict(zip(output.node.op.signature.inputs, output.node.values_in)) if output.node.op else {}
        label = values.get("label")
        if label is not None and label.is_input and label.node.name not in arrays:
            labels[label.node.name] = symbol.zeros_like(Symbol([values["data"]]))
    return net(**labels) if labels else net


def _for_each(names: Sequence[str], given: Sequence[Any] | None, argument: str) -> Sequence[Any]:
    """The items of an argument that has one for each input. Raises SettingError for another number."""
    if given is None or len(given) != len(names):
        found = "none was given" if given is None else f"not {len(given)}"
        raise SettingError(f"{argument} needs one item for each of the inputs {', '.join(names)}; {found}")
    return given


def _open(name: str, shape: Sequence[int | str | None]) -> tuple[int | str, ...]:
    """A shape in which each open size has a name."""
    return tuple(f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape))
