"""ONNX files to and from a Symbol and its arrays: MXNet's `mx.onnx.export_model` and `mx.contrib.onnx`.

`mx.onnx.export` and `mx.onnx.imports` do the work; they take and give Blocks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.symbol_block import SymbolBlock
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.symbol import Symbol
from hybrid_lab.symbol.predicting import predicting
from hybrid_lab.system.progress import shows_work

from .reading.block import ImportedGraph, imports
from .reading.compose import compose
from .reading.model_file import OnnxFile
from .writing.exporting import export

if TYPE_CHECKING:
    from onnx import ValueInfoProto

Params = dict[str, NDArray]


@shows_work("exporting")
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
    in_shapes, in_types : of the inputs that are no parameters, in the order of `sym.list_inputs()`. Labels of operators
        such as SoftmaxOutput are no inputs of the file, if nothing else reads them
    dynamic : open sizes: the axes with None or a name in dynamic_input_shapes; all axes without dynamic_input_shapes.
        The batch is always open if the network allows it
    input_shape, input_type : older names of in_shapes and in_types
    verbose, run_shape_inference : without effect; files always have the shapes of their outputs

    The inputs and parameters have the Symbol's names. Outputs are called output, or output0, output1 ...; operators and
    opset are as for `mx.onnx.export`.
    """
    check_switches("export_model", verbose=verbose, dynamic=dynamic, run_shape_inference=run_shape_inference)
    given = symbol.load(os.fspath(sym)) if isinstance(sym, (str, PathLike)) else sym
    if not isinstance(given, Symbol):
        raise SettingError(f"export_model takes a Symbol, not {given!r:.60}; mx.onnx.export takes a Block")
    arrays = _joined(nd.load(os.fspath(params)) if isinstance(params, (str, PathLike)) else params)
    names = [name for name in predicting(given).list_inputs() if name not in arrays]
    shapes = _for_each(names, in_shapes if input_shape is None else input_shape, "in_shapes")
    types = in_types if input_type is None else input_type
    dtypes = _for_each(names, types if isinstance(types, (list, tuple)) else [types] * len(names), "in_types")
    inputs: list[Any] = [_zeros(*each) for each in zip(shapes, dtypes, strict=True)]
    net = predicting(given, dict(zip(names, shapes, strict=True)))
    block = SymbolBlock(net, [symbol.var(name) for name in names])
    parameters = block.params
    own = access.own_parameters(block)
    own.clear()  # the file has the Symbol's names, which a Block shortens by their common beginning
    for name, parameter in parameters.items():
        own[name] = parameter
        access.load_values(parameter, arrays[name].copy())
    if dynamic:
        block.hybridize()
        block(*inputs)  # from here on the Block knows the dtypes of its inputs
        opened = [[None] * len(shape) for shape in shapes] if dynamic_input_shapes is None else dynamic_input_shapes
        opened = _for_each(names, opened, "dynamic_input_shapes")
        inputs = [_open(name, shape) for name, shape in zip(names, opened, strict=True)]
    return export(block, onnx_file_path, inputs).path


def import_model(model_file: str | PathLike[str]) -> tuple[Symbol, Params, Params]:
    """The model in an ONNX file as (sym, arg_params, aux_params), which Modules and `SymbolBlock` take.

    The inputs and the arrays have the names of the file. Raises OnnxError as `mx.onnx.imports`.
    """
    composed = compose(os.fspath(model_file))
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
        wrong = next((name for name, value in part.items() if not isinstance(value, NDArray)), None)
        if wrong is not None:
            raise SettingError(
                f"params must hold arrays of mx.nd, not {part[wrong]!r:.60} for {wrong}; of a Block they are "
                "{name: parameter.data() for name, parameter in net.collect_params().items()}"
            )
        joined |= {name.removeprefix("arg:").removeprefix("aux:"): value for name, value in part.items()}
    return joined


def _zeros(shape: Sequence[int], dtype: DTypeLike) -> NDArray:
    if not isinstance(shape, (list, tuple)) or not all(isinstance(size, (int, np.integer)) for size in shape):
        raise SettingError(
            f"in_shapes must list a shape for each input, such as [(1, 3, 224, 224)], not {shape!r}. Open sizes are "
            "given by dynamic=True, dynamic_input_shapes=[(None, 3, 224, 224)]"
        )
    return nd.zeros(shape, dtype=dtype)


def _for_each(names: Sequence[str], given: Sequence[Any] | None, argument: str) -> Sequence[Any]:
    """The items of an argument that has one for each input. Raises SettingError for another number."""
    if given is None and not names:
        return []
    if given is None or len(given) != len(names):
        found = "none was given" if given is None else f"not {len(given)}"
        raise SettingError(
            f"{argument} needs one item for each of the inputs {', '.join(names) or '(there are none)'}; {found}. "
            "Arrays in params and labels of losses are not counted as inputs"
        )
    return given


def _open(name: str, shape: Sequence[int | str | None]) -> tuple[int | str, ...]:
    """A shape in which each open size has a name."""
    if not all(size is None or isinstance(size, str) or (isinstance(size, int) and size >= 0) for size in shape):
        raise SettingError(f"dynamic_input_shapes has None or a name for an open size, not {tuple(shape)}")
    return tuple(f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape))
