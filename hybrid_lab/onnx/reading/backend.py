"""Backend: onnx's interface for running models (onnx.backend.base), by imported Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.gluon import access
from hybrid_lab.hybridize.structure import unflatten
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.errors import OnnxError, OpenValueError
from hybrid_lab.onnx.reading.block import ImportedGraph
from hybrid_lab.onnx.reading.compose import compose
from hybrid_lab.onnx.reading.model_file import require_onnx

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MOST_KEPT = 8
"""How many Blocks a prepared model keeps for different values of inputs that decide shapes."""


class BackendRep:
    """A prepared model. Inputs that decide shapes are constants of the Block that runs; another value, another Block.

    hybridize : run the compiled graph; else the graph is run operator by operator
    """

    def __init__(self, model: ModelProto, hybridize: bool | str = False) -> None:
        self.model, self.hybridize = model, hybridize
        initialized = {item.name for item in model.graph.initializer}
        self.inputs = [item for item in model.graph.input if item.name not in initialized]
        self.outputs = list(model.graph.output)
        self._deciding: list[str] = []
        self._blocks: dict[Any, ImportedGraph] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Import the model already now, if no value is needed for it: errors are raised by `prepare`."""
        try:
            self._blocks[()] = self._imported({})
        except OpenValueError as error:
            self._deciding += error.inputs

    def _imported(self, values: Mapping[str, Any]) -> ImportedGraph:
        block = ImportedGraph(compose(self.model, values=values))
        if self.hybridize:
            block.hybridize(engine=self.hybridize if isinstance(self.hybridize, str) else None)
        return block

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for arrays in the order of the model's inputs, or by name."""
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            given = {item.name: value for item, value in zip(self.inputs, inputs, strict=False)}
        block = self._block(given)
        names = [item.name for item in self.inputs if item.name in given]
        arguments = [
            _argument(given[name])
            for name in names
            if name not in self._deciding or isinstance(given[name], (list, tuple))
        ]
        results = self._run(block, arguments)
        return tuple(_result(value, item) for value, item in zip(results, self.outputs, strict=False))

    def _block(self, given: Mapping[str, Any]) -> ImportedGraph:
        while True:
            values = {name: given[name] for name in self._deciding}
            key = tuple((name, _key(value)) for name, value in values.items())
            try:
                if key not in self._blocks:
                    if len(self._blocks) >= MOST_KEPT:
                        self._blocks.pop(next(iter(self._blocks)))
                    self._blocks[key] = self._imported({name: _constant(value) for name, value in values.items()})
                return self._blocks[key]
            except OpenValueError as error:
                new = [name for name in error.inputs if name in given and name not in self._deciding]
                if not new:
                    raise
                self._deciding += new

    def _run(self, block: ImportedGraph, arguments: list[Any]) -> list[Any]:
        if arguments:
            result = block(*arguments)
            return list(result) if isinstance(result, (list, tuple)) and len(self.outputs) > 1 else [result]
        neutral = next(iter(access.graphs(block).pinned.values()))
        values = interpret(neutral.graph, [parameter.data() for parameter in neutral.parameters])
        result = unflatten(neutral.out_spec, iter(values))
        return result if len(self.outputs) > 1 else [result]


def _key(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple((np.shape(item), np.asarray(item).dtype.str) for item in value)
    if value is None:
        return None
    array = np.asarray(value)
    return array.shape, array.dtype.str, array.tobytes()


def _constant(value: Any) -> Any:
    return value if value is None or isinstance(value, (list, tuple)) else _carried(np.asarray(value))


def _carried(array: np.ndarray) -> np.ndarray:
    """The array in a dtype that arrays have."""
    name = array.dtype.name
    for kind, dtype in element_types.CARRIERS.items():
        if name == _numpy_name(kind):
            return array.astype(dtype)
    return array


def _numpy_name(kind: str) -> str:
    return {"FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz", "FLOAT8E5M2": "float8_e5m2",
            "FLOAT8E5M2FNUZ": "float8_e5m2fnuz", "FLOAT4E2M1": "float4_e2m1fn", "FLOAT8E8M0": "float8_e8m0fnu"}.get(
        kind, kind.lower()
    )  # fmt: skip


def _argument(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_argument(part) for part in value]
    return NDArray.wrap(np.array(_carried(np.asarray(value))))


def _result(value: Any, item: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_result(part, None) for part in value]
    array = value.asnumpy()
    if item is not None and item.type.WhichOneof("value") == "tensor_type":
        import onnx

        wanted = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        if array.dtype != wanted:
            kind = element_types.type_name(item.type.tensor_type.elem_type)
            if kind not in element_types.CARRIERS or array.dtype != element_types.dtype_for(kind):
                raise OnnxError(f"the output {item.name!r} is {array.dtype}, the file says {wanted}")
            array = array.astype(wanted)
    return array


def _make() -> Any:
    require_onnx()
    from onnx.backend.base import Backend as Base
    from onnx.backend.base import BackendRep as Rep

    class Prepared(BackendRep, Rep):
        __doc__ = BackendRep.__doc__

    class Backend(Base):
        """onnx.backend.base.Backend over this package: models run as imported HybridBlocks."""

        @classmethod
        def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
            """Whether the model can be imported."""
            try:
                cls.prepare(model, device, **kwargs)
            except OnnxError:
                return False
            return True

        @classmethod
        def prepare(cls, model: ModelProto, device: str = "CPU", hybridize: bool | str = False, **kwargs: Any) -> Any:
            """Import a model; `run(inputs)` of the result gives its outputs. Raises OnnxError."""
            return Prepared(model, hybridize)

        @classmethod
        def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
            """The outputs of a model."""
            result: tuple[Any, ...] = cls.prepare(model, device, **kwargs).run(inputs)
            return result

        @classmethod
        def run_node(
            cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
        ) -> tuple[Any, ...]:
            """The outputs of one node. kwargs : opset_version, the newest by default"""
            return cls.run_model(_model_of(node, inputs, kwargs.pop("opset_version", None)), inputs, device)

        @classmethod
        def supports_device(cls, device: str) -> bool:
            """Whether models run there: on "CPU"."""
            return device.split(":")[0] == "CPU"

    return Backend


def _model_of(node: NodeProto, inputs: Any, opset: int | None) -> Any:
    """A model of one node, with inputs of the types of these arrays."""
    import onnx

    arrays = [np.asarray(item) for item in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
    names = [name for name in node.input if name]
    types = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=False)
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", types, outputs)
    opsets = [onnx.helper.make_opsetid(node.domain, opset or onnx.defs.onnx_opset_version())]
    return onnx.helper.make_model(graph, opset_imports=opsets)


Backend = _make()
