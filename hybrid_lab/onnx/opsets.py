"""Differences between the versions of ONNX's operators: records write their forms for one opset, files have other
opsets.

A node that a record wrote for `onnx_emit.OPSET` is translated to another opset by `translated`. `output_types` then
asks the schemas of the package `onnx` whether that opset has the operator, with these attributes, for these types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.libraries import import_library
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES

from .package import import_onnx

OLDEST = 13
"""The first opset in which the axes of Squeeze, Unsqueeze and ReduceSum are inputs, as the records write them."""

#: Functions of an ONNX file came with this version of the file format.
IR_OF_FUNCTIONS = 8

#: ONNX' TensorProto.DataType -> how schemas write the type.
TYPE_NAMES = {
    1: "tensor(float)",
    2: "tensor(uint8)",
    3: "tensor(int8)",
    6: "tensor(int32)",
    7: "tensor(int64)",
    9: "tensor(bool)",
    10: "tensor(float16)",
    11: "tensor(double)",
}
TYPES = {name: TYPE_NAMES[number] for name, number in DATA_TYPES.items()}
"""NumPy name of a dtype -> how schemas write it."""


#: ONNX operator -> the opset from which on ONNX Runtime 1.32 has no kernel for it.
WITHOUT_KERNEL = {
    "MaxRoiPool": 22, "RandomNormal": 22, "RandomNormalLike": 22, "RandomUniform": 22, "RandomUniformLike": 22,
    "RoiAlign": 22,
}  # fmt: skip


class NotInOpset(Unmappable):
    """An ONNX operator, or one of its types or attributes, that the opset of the file does not have."""


@functools.cache
def newest() -> int:
    """The newest opset that the installed onnx knows, and the installed ONNX Runtime if there is one."""
    onnx = import_onnx()
    known: int = onnx.defs.onnx_opset_version()
    try:
        onnxruntime = import_library("onnxruntime")
    except ImportError:
        return known
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])], "probe", [value("x", 1, [1])], [value("y", 1, [1])]
    )
    for opset in range(known, OLDEST, -1):
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=ir_version(opset)
        )
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 - ONNX Runtime has errors of its own for each reason
            continue
        return opset
    return OLDEST


def newest_that_runs(op_types: Iterable[str]) -> int:
    """The newest opset in which ONNX Runtime has kernels for these operators."""
    return min([newest(), *(WITHOUT_KERNEL[name] - 1 for name in op_types if name in WITHOUT_KERNEL)])


def ir_version(opset: int) -> int:
    """The oldest version of the file format for an opset, and for functions."""
    versions: Mapping[tuple[str, int], int] = import_onnx().helper.OP_SET_ID_VERSION_MAP
    return max(versions["ai.onnx", opset], IR_OF_FUNCTIONS)


# -- translations ----------------------------------------------------------------------------------------------------

#: A translation takes the node's inputs and attributes, and a function that makes a constant of whole numbers.
Constants = Callable[[Sequence[int]], str]
Translation = Callable[[list[str], dict[str, Any], Constants], None]


def _axes_become_an_input(inputs: list[str], attributes: dict[str, Any], constant: Constants) -> None:
    if "axes" in attributes:
        inputs.append(constant(attributes.pop("axes")))


def _modes_of_grid_sample(inputs: list[str], attributes: dict[str, Any], constant: Constants) -> None:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    attributes["mode"] = names.get(attributes.get("mode", "bilinear"), attributes.get("mode"))


#: ONNX operator -> (the opset from which on the records' form is written otherwise, how).
NEWER: dict[str, tuple[int, Translation]] = {
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), (18, _axes_become_an_input)),
    "GridSample": (20, _modes_of_grid_sample),
}


def _corners_of_pixels(inputs: list[str], attributes: dict[str, Any], constant: Constants) -> None:
    # Before opset 16 RoiAlign had no such attribute, and did the same as output_half_pixel since.
    if attributes.get("coordinate_transformation_mode") == "output_half_pixel":
        del attributes["coordinate_transformation_mode"]
    elif "coordinate_transformation_mode" not in attributes:
        raise NotInOpset("RoiAlign with coordinate_transformation_mode='half_pixel'")


#: ONNX operator -> (the opset before which it is written otherwise, how).
OLDER: dict[str, tuple[int, Translation]] = {"RoiAlign": (16, _corners_of_pixels)}


def translated(
    op_type: str, inputs: Sequence[str], attributes: Mapping[str, Any], opset: int, constant: Constants
) -> tuple[list[str], dict[str, Any]]:
    """Inputs and attributes of a node that a record wrote, for this opset."""
    inputs, attributes = list(inputs), dict(attributes)
    first, translation = NEWER.get(op_type, (opset + 1, None))
    if translation is not None and opset >= first:
        translation(inputs, attributes, constant)
    last, translation = OLDER.get(op_type, (0, None))
    if translation is not None and opset < last:
        translation(inputs, attributes, constant)
    return inputs, attributes


# -- schemas ---------------------------------------------------------------------------------------------------------


@functools.cache
def _schema(op_type: str, opset: int) -> Any:
    onnx = import_onnx()
    try:
        return onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        raise NotInOpset(f"ONNX' {op_type} is not in opset {opset}") from None


def output_types(
    op_type: str, types: Sequence[str | None], attributes: Mapping[str, Any], opset: int, count: int
) -> list[str | None]:
    """The types of a node's outputs, as schemas write them; None for an unknown type.

    types : of its inputs; None for an unknown or omitted input
    Raises NotInOpset if the opset has no such operator, attribute or type.
    """
    schema = _schema(op_type, opset)
    strange = attributes.keys() - schema.attributes.keys()
    if strange:
        raise NotInOpset(f"ONNX' {op_type} has no {', '.join(sorted(strange))} in opset {opset}")
    allowed = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}
    bound: dict[str, str] = {}
    for place, found in enumerate(types):
        if found is None:
            continue
        variable = schema.inputs[min(place, len(schema.inputs) - 1)].type_str
        if found not in allowed.get(variable, (variable,)):
            raise NotInOpset(f"ONNX' {op_type} does not take {found} in opset {opset}")
        bound.setdefault(variable, found)
    outputs = [schema.outputs[min(place, len(schema.outputs) - 1)].type_str for place in range(count)]
    if "to" in attributes:
        return [TYPE_NAMES.get(attributes["to"])] * count
    return [bound.get(name, name if name.startswith("tensor(") else None) for name in outputs]
