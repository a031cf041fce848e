"""Initializers of parameters in ONNX files: the distributions of a parameter's first values, both ways.

Xavier() of a weight (20, 10)   <->   RandomUniform(low=-0.447, high=0.447, shape=(20, 10))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import initializer
from hybrid_lab.gluon import access
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.ndarray import NDArray
from hybrid_lab.onnx.errors import OnnxError
from hybrid_lab.onnx.reading.importers.functions import Attributes
from hybrid_lab.ops.framework.dtypes import name_of
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES, OnnxNode

if TYPE_CHECKING:
    from onnx import NodeProto


class _DrawRecorder:
    """Stands for a random generator: each draw is recorded, and gives numbers that tell whether they were changed.

    draws : (operator of ONNX, its attributes)
    """

    def __init__(self) -> None:
        self.draws: list[tuple[str, dict[str, float]]] = []
        self.drawn: Any = None

    def _sample(self, op_type: str, size: Any, **attributes: float) -> np.ndarray:
        self.draws.append((op_type, attributes))
        self.drawn = np.arange(1, 1 + int(np.prod(size)), dtype=np.float64).reshape(size)
        return np.array(self.drawn)

    def uniform(self, low: float, high: float, size: Any) -> np.ndarray:
        """As NumPy's."""
        return self._sample("RandomUniform", size, low=float(low), high=float(high))

    def normal(self, mean: float, scale: float, size: Any) -> np.ndarray:
        """As NumPy's."""
        return self._sample("RandomNormal", size, mean=float(mean), scale=float(scale))


def _is_known(item: object) -> bool:
    """Whether an initializer belongs to this package, whose initializers draw from the recorded generator only."""
    if isinstance(item, str):
        item = initializer.create(item)
    if isinstance(item, initializer.Mixed):
        return all(_is_known(each) for _, each in item.map)
    return type(item).__module__ == initializer.__name__


def written(parameter: Parameter, output: str) -> tuple[OnnxNode, dict[str, np.ndarray]] | None:
    """A node that gives the parameter its first values, and its constants; None if they were loaded, or come from an
    initializer that ONNX has no operators for.
    """
    used = access.initializers(parameter)
    if used is None or not all(map(_is_known, used)):
        return None
    recorder = _DrawRecorder()
    data = NDArray.wrap(np.zeros(parameter.shape or (), parameter.dtype))
    with initializer.drawing_from(recorder):
        access.initialize_as(parameter, data, used)
    array = data.asnumpy()
    if not recorder.draws:
        return constant(array, output)
    if len(recorder.draws) > 1 or not np.array_equal(array, recorder.drawn.astype(array.dtype)):
        return None
    op_type, attributes = recorder.draws[0]
    shape = {"shape": [int(size) for size in array.shape], "dtype": DATA_TYPES[name_of(array.dtype)]}
    return OnnxNode(op_type, (), (output,), {**attributes, **shape}, output), {}


def constant(array: np.ndarray, output: str) -> tuple[OnnxNode, dict[str, np.ndarray]]:
    """A node that gives these values, and its constants."""
    if array.ndim and array.size and (array == array.reshape(-1)[0]).all():
        number = array.reshape(-1)[0]
        shape, value = f"shape.{'x'.join(map(str, array.shape))}", f"{array.dtype.name}.{number!s}"
        constants = {shape: np.array(array.shape, np.int64), value: np.array(number)}
        return OnnxNode("Expand", (value, shape), (output,), {}, output), constants
    values = f"{output}.values"
    return OnnxNode("Identity", (values,), (output,), {}, output), {values: array}


def read(node: NodeProto, attributes: Attributes, constants: Mapping[str, np.ndarray]) -> Any:
    """The initializer equal to a node. Raises OnnxError for a node that no initializer equals."""
    if node.op_type == "RandomUniform":
        low, high = attributes.get("low", 0.0), attributes.get("high", 1.0)
        if low == -high:
            return initializer.Uniform(high)
    elif node.op_type == "RandomNormal":
        if attributes.get("mean", 0.0) == 0:
            return initializer.Normal(attributes.get("scale", 1.0))
    elif node.op_type in ("Expand", "Identity", "Constant", "ConstantOfShape"):
        array = _constant_of(node, attributes, constants)
        if array is not None:
            return initializer.Constant(array.item() if array.size == 1 else NDArray.wrap(np.array(array)))
    raise OnnxError(
        f"node {node.name or next(iter(node.output), '')!r} ({node.op_type}): the initialization graph has values that "
        "no initializer gives; those known are RandomUniform around 0, RandomNormal with mean 0, and constants"
    )


def _constant_of(node: NodeProto, attributes: Attributes, constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
    if node.op_type == "Constant":
        found = attributes.get("value")
        return found[0] if isinstance(found, tuple) and isinstance(found[0], np.ndarray) else None
    if node.op_type == "ConstantOfShape":
        found = attributes.get("value")
        return np.zeros(1, np.float32) if found is None else found[0]
    return constants.get(next(iter(node.input), ""))
