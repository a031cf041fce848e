"""`hybrid-lab inspect` and `diff` of files that are no archives: MXNet's, ONNX's, safetensors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import count

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.gluon import Block

ENDINGS = (".json", ".params", ".onnx", ".safetensors")


def is_other(path: Path) -> bool:
    """Whether a file name has the ending of a model file that is no archive."""
    return path.name.endswith(ENDINGS)


def described(path: Path) -> dict[str, Any]:
    """The contents of a model file: format, size in bytes, inputs, outputs, operators by name, tensors with their
    types.
    """
    size = path.stat().st_size
    found: dict[str, Any] = {"path": str(path), "bytes": size}
    if path.name.endswith(".json"):
        return found | _symbol(path)
    if path.name.endswith(".onnx"):
        return found | _onnx(path)
    arrays = read_arrays(path)
    kind = "MXNet's arrays" if path.name.endswith(".params") else "safetensors"
    return found | {"format": kind, "tensors": {name: _type(array) for name, array in arrays.items()}}


def _symbol(path: Path) -> dict[str, Any]:
    from hybrid_lab.gluon.symbol_block import data_inputs, without_unknown_labels
    from hybrid_lab.symbol import load

    net = load(str(path))
    labels = without_unknown_labels(net, ())[1]
    attributes = json.loads(path.read_bytes()).get("attrs")
    version = attributes.get("mxnet_version") if isinstance(attributes, dict) else None
    version = version[1] if isinstance(version, list) and len(version) == 2 else None
    inputs = [name for name in data_inputs(net, _names_of_parameters(path)) if name not in labels]
    return {
        "format": "MXNet's symbol" + (f", version {_version(version)}" if isinstance(version, int) else ""),
        "inputs": inputs,
        "labels": labels,
        "outputs": net.list_outputs(),
        "parameters": [name for name in net.list_inputs() if name not in {*inputs, *labels}],
        "operators": _counted(node.op.name for node in net.graph().operators),
    }


def _names_of_parameters(symbol_file: Path) -> list[str]:
    """The names in the .params file beside the file of a graph; none if no file there is its own."""
    from hybrid_lab.diagnostics.errors import HybridLabError
    from hybrid_lab.formats.mxnet import load_params

    from .command import CommandError
    from .convert_model import of_epoch

    try:
        return list(load_params(of_epoch(symbol_file, None)))
    except (CommandError, HybridLabError, OSError):
        return []


def _version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _onnx(path: Path) -> dict[str, Any]:
    from hybrid_lab.onnx.reading.model_file import OnnxFile

    model = OnnxFile(path).model
    arrays = {tensor.name for tensor in model.graph.initializer}
    return {
        "format": f"ONNX, opset {', '.join(f'{item.domain} {item.version}'.strip() for item in model.opset_import)}",
        "inputs": [item.name for item in model.graph.input if item.name not in arrays],
        "outputs": [item.name for item in model.graph.output],
        "operators": _counted(node.op_type for node in model.graph.node),
        "tensors": {
            tensor.name: f"{_data_type(tensor.data_type)}{list(tensor.dims)}" for tensor in model.graph.initializer
        },
    }


def _data_type(number: int) -> str:
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(number)).lower()


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _type(array: np.ndarray) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def lines(found: Mapping[str, Any], with_tensors: bool) -> list[str]:
    """A description as text."""
    from hybrid_lab.engines.report import format_bytes

    text = [f"{found['path']}: {found['format']}, {format_bytes(found['bytes'])}"]
    for key in ("inputs", "labels", "outputs"):
        if found.get(key):
            text.append(f"{key}: {', '.join(found[key])}")
    if "parameters" in found:
        text.append(count(len(found["parameters"]), "parameter"))
        text += [f"  {name}" for name in found["parameters"]] if with_tensors else []
    if "operators" in found:
        text.append(count(sum(found["operators"].values()), "operator"))
        text += [f"  {number} {name}" for name, number in found["operators"].items()]
    if "tensors" in found:
        text.append(count(len(found["tensors"]), "tensor"))
        text += [f"  {name}  {kind}" for name, kind in found["tensors"].items()] if with_tensors else []
    return text


# -- diff ------------------------------------------------------------------------------------------------------------


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .params or .safetensors file, by name."""
    from hybrid_lab.formats.mxnet import read_params
    from hybrid_lab.formats.safetensors import read_safetensors

    if path.name.endswith(".safetensors"):
        return read_safetensors(path)
    arrays = read_params(path)
    named = arrays if isinstance(arrays, Mapping) else {str(place): array for place, array in enumerate(arrays)}
    return {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in named.items() if array is not None}


def model_of(path: Path) -> Block:
    """The model of a -symbol.json, with the parameters of its last epoch, or of an .onnx file."""
    from hybrid_lab.formats.mxnet import load_params
    from hybrid_lab.gluon import SymbolBlock
    from hybrid_lab.gluon.symbol_block import without_unknown_labels
    from hybrid_lab.onnx.reading.block import imports
    from hybrid_lab.symbol import load

    from .convert_model import of_epoch

    if path.name.endswith(".onnx"):
        return imports(path)
    params = of_epoch(path, None)
    known = load_params(params)
    there = without_unknown_labels(load(str(path)), known)[0]
    inputs = [name for name in there.list_inputs() if name not in known]
    return SymbolBlock.imports(str(path), inputs, str(params), ignore_extra=True)


def array_differences(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> Sequence[Any]:
    """What differs between two files of arrays: one TensorDifference for each array that does."""
    from hybrid_lab.insight.difference import diff_tensors

    if not first.keys() & second.keys():  # a Block's prefix is a part of the names in MXNet's files alone
        if (prefix := _prefix(first, second)) is not None:
            second = {prefix + name: array for name, array in second.items()}
        elif (prefix := _prefix(second, first)) is not None:
            first = {prefix + name: array for name, array in first.items()}
    names = dict.fromkeys([*first, *second])
    rows = [diff_tensors(name, first.get(name), second.get(name)) for name in names]
    return [row for row in rows if row is not None]


def _prefix(names: Mapping[str, Any], ends: Mapping[str, Any]) -> str | None:
    """The prefix with which all `ends` are `names`, or None."""
    end = max(ends, key=len, default="")
    candidates = [name.removesuffix(end) for name in names if end and name.endswith(end)]
    return next((prefix for prefix in candidates if all(prefix + each in names for each in ends)), None)
