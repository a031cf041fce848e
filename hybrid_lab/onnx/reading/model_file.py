"""An ONNX file as data: parsed, checked before memory is taken, its tensors as arrays. Nothing in it is executed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.file_errors import open_regular, reading
from hybrid_lab.formats.kinds import other_kind
from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.errors import OnnxError

if TYPE_CHECKING:
    from types import ModuleType

    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

OLDEST_OPSET = 7
_LARGEST = 2 << 30
"""Bytes of the largest file that protobuf reads; larger models have their arrays in files of their own."""
_FOLDERS_UP = ("..", "")


def require_onnx() -> ModuleType:
    """The package onnx. Raises OnnxError if it is missing."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise HybridLabError("ONNX files need the package onnx: pip install onnx") from None
    return onnx


class OnnxFile:
    """A model of the package onnx, or the file that holds one.

    nodes : how many nodes the main graph and the functions have
    functions : (domain, name, overload) -> FunctionProto
    opsets : domain -> version; the domain of ONNX's own operators is ""
    """

    def __init__(self, source: str | PathLike[str] | ModelProto) -> None:
        onnx = require_onnx()
        self.path: str | None = None
        if isinstance(source, (str, PathLike)):
            self.path = os.fspath(source)
            self.model = _parsed(onnx, self.path)
        else:
            self.model = source
        if self.model.ir_version > onnx.IR_VERSION:
            raise OnnxError(
                f"the file has IR version {self.model.ir_version}, this onnx knows versions up to {onnx.IR_VERSION}: "
                "pip install -U onnx"
            )
        self.opsets = self._opsets(onnx)
        self.functions = self._functions()
        self.nodes = len(self.model.graph.node) + sum(len(item.node) for item in self.model.functions)
        self._check(self.model.graph, set())

    def _opsets(self, onnx: ModuleType) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in self.model.opset_import:
            domain = "" if item.domain == "ai.onnx" else item.domain
            newest = onnx.defs.onnx_opset_version() if not domain else None
            if domain in found and found[domain] != item.version:
                raise OnnxError(f"the file imports two opsets of the domain {domain!r}")
            if newest is not None and not 1 <= item.version <= newest:
                raise OnnxError(
                    f"the file has opset {item.version}, opsets {OLDEST_OPSET} to {newest} are known here; "
                    "pip install -U onnx, or export the model again"
                )
            if not 0 < item.version < 2**31:
                raise OnnxError(f"the file has version {item.version} of the domain {domain[:80]!r}")
            if newest is not None and item.version < OLDEST_OPSET:
                raise OnnxError(f"the file has opset {item.version}; {OLDEST_OPSET} is the oldest that is read")
            found[domain] = item.version
        return found

    def _functions(self) -> dict[tuple[str, str, str], FunctionProto]:
        found: dict[tuple[str, str, str], FunctionProto] = {}
        for item in self.model.functions:
            key = "" if item.domain == "ai.onnx" else item.domain, item.name, getattr(item, "overload", "")
            if key in found:
                raise OnnxError(f"the function {item.name!r} is defined twice")
            found[key] = item
            check_names(item.node, set(item.input), f"the function {item.name!r}")
        self._check_recursion(found)
        return found

    @staticmethod
    def _check_recursion(functions: Mapping[tuple[str, str, str], FunctionProto]) -> None:
        """Raise OnnxError if a function calls itself, directly or through other functions."""
        calls = {
            key: {
                called
                for node in item.node
                if (
                    called := (
                        "" if node.domain == "ai.onnx" else node.domain,
                        node.op_type,
                        getattr(node, "overload", ""),
                    )
                )
                in functions
            }
            for key, item in functions.items()
        }
        left = dict(calls)
        while left:
            done = [key for key, called in left.items() if not called & left.keys()]
            if not done:
                raise OnnxError(f"the function {next(iter(left))[1]!r} calls itself")
            for key in done:
                del left[key]

    def _check(self, graph: GraphProto, outer: set[str]) -> None:
        names = [item.name for item in graph.initializer] + [item.values.name for item in graph.sparse_initializer]
        repeated = _first_repeated(names)
        if repeated is not None:
            raise OnnxError(f"the initializer {repeated!r} appears twice")
        inputs = [item.name for item in graph.input]
        repeated = _first_repeated(inputs)
        if repeated is not None:
            raise OnnxError(f"the input {repeated!r} appears twice")
        known = {*names, *inputs}
        check_names(graph.node, known, f"the graph {graph.name!r}", outer)

    # -- tensors -----------------------------------------------------------------------------------------------

    @cached_property
    def folder(self) -> Path | None:
        """Where external data may lie."""
        return None if self.path is None else Path(self.path).resolve().parent

    def array(self, tensor: TensorProto, owner: str) -> tuple[np.ndarray, str]:
        """The elements of a TensorProto, and its element type. Raises OnnxError if they do not fit its shape."""
        import onnx

        try:
            kind = element_types.type_name(tensor.data_type)
        except ValueError:
            raise OnnxError(f"{owner}: there is no element type {tensor.data_type}") from None
        dims = tuple(tensor.dims)
        dtype = element_types.dtype_for(kind)
        if dtype is None and kind != "STRING":
            raise OnnxError(f"{owner}: elements of type {kind} are not supported")
        if any(size < 0 for size in dims):
            raise OnnxError(f"{owner}: the shape {dims} has a negative size")
        count = prod(dims)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return self._external(tensor, owner, kind, dims, count), kind
        bits = element_types.STORED_BITS.get(kind, 8)
        stored = len(tensor.raw_data) if tensor.HasField("raw_data") else None
        if stored is not None and stored != (count * bits + 7) // 8:
            raise OnnxError(f"{owner}: {stored} bytes are no array of shape {dims} and type {kind}")
        if stored is None and not _typed_fits(tensor, kind, count):
            raise OnnxError(f"{owner}: its elements do not fit the shape {dims}")
        if stored is not None and dtype is not None and dtype.kind in "fiu" and kind in element_types.OWN:
            # The bytes themselves, without a copy: the message is still there beside them.
            return np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).reshape(dims).astype(dtype, copy=False), kind
        try:
            found = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise OnnxError(f"{owner}: not a readable array: {str(error)[:200]}") from None
        if dtype is None:
            return found, kind
        return found if found.dtype == dtype else found.astype(dtype), kind

    def _external(self, tensor: TensorProto, owner: str, kind: str, dims: tuple[int, ...], count: int) -> np.ndarray:
        entries = {item.key: item.value for item in tensor.external_data}
        location = entries.get("location", "")
        dtype = element_types.dtype_for(kind)
        if self.folder is None:
            raise OnnxError(f"{owner}: external data are read for a file, not for a model in memory")
        if dtype is None or kind not in element_types.OWN:
            raise OnnxError(f"{owner}: external data of type {kind} are not supported")
        parts = location.replace("\\", "/").split("/")
        path = self.folder / location
        if not location or "\0" in location or ":" in parts[0] or any(part in _FOLDERS_UP for part in parts):
            raise OnnxError(f"{owner}: external data at {location[:80]!r}; they must lie in the file's own folder")
        links = [*path.parents][: len(parts) - 1]
        if path.is_symlink() or any(item.is_symlink() for item in links) or not path.is_file():
            raise OnnxError(f"{owner}: the external data {location[:80]!r} are no file in the file's own folder")
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
        except ValueError:
            raise OnnxError(f"{owner}: offset and length of external data must be numbers") from None
        wanted = count * dtype.itemsize
        size = path.stat().st_size
        if length not in (-1, wanted) or offset < 0 or offset + wanted > size:
            raise OnnxError(
                f"{owner}: {wanted} bytes at {offset} are needed, {location[:80]!r} has {size} and states {length}"
            )
        array = np.empty(count, dtype)
        with path.open("rb") as stream:
            stream.seek(offset)
            if stream.readinto(array.view(np.uint8) if count else bytearray()) != wanted:
                raise OnnxError(f"{owner}: {location[:80]!r} is shorter than it was")
        return array.reshape(dims)

    def attribute(self, item: AttributeProto) -> Any:
        """An attribute of a node as Python data: numbers, texts, tuples; tensors are (array, element type)."""
        import onnx

        kinds = onnx.AttributeProto
        if item.type == kinds.TENSOR:
            return self.array(item.t, f"the attribute {item.name!r}")
        if item.type in (kinds.GRAPH, kinds.GRAPHS, kinds.SPARSE_TENSOR, kinds.TYPE_PROTO):
            return onnx.helper.get_attribute_value(item)
        try:
            value = onnx.helper.get_attribute_value(item)
        except ValueError:
            raise OnnxError(f"the attribute {item.name[:80]!r} has no type") from None
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            return tuple(_plain(each, item.name) for each in value)
        return _plain(value, item.name)


def _parsed(onnx: ModuleType, path: str) -> ModelProto:
    """The ModelProto in a file."""
    from google.protobuf.message import DecodeError

    with reading(path), open_regular(path) as stream:
        size = os.path.getsize(path)
        if size > _LARGEST:
            raise OnnxError(f"{path!r} has {size} bytes; files of up to 2 GB are read, with larger arrays beside them")
        data = stream.read(size)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError, RecursionError, UnicodeDecodeError) as error:
        other = other_kind(data, ".onnx")
        if other is not None:
            raise OnnxError(f"not an ONNX file but {other}", path=path) from None
        raise OnnxError(f"not an ONNX file, or a damaged one: {type(error).__name__}", path=path) from None
    if not model.HasField("graph"):
        raise OnnxError("not an ONNX file: it has no graph", path=path)
    return model


def _plain(value: Any, name: str) -> Any:  # noqa: ANN401
    """A value of the attribute `name`. Attributes are float32: of all decimals that round to the value, the shortest
    is meant, 0.9 and not 0.8999999761581421. Raises OnnxError for a text that is not UTF-8.
    """
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeError as error:
            raise OnnxError(f"the attribute {name[:80]!r} is not UTF-8 text: {str(error)[-80:]}") from None
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _first_repeated(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_names(nodes: Sequence[NodeProto], known: set[str], where: str, outer: Iterable[str] = ()) -> None:
    """Raise OnnxError if a name is given twice (ONNX's graphs are in SSA form)."""
    seen = {*known, *outer}
    for node in nodes:
        for name in node.output:
            if name and name in seen:
                raise OnnxError(f"node {node.name or name!r} ({node.op_type}): {where} has the name {name!r} twice")
            seen.add(name)


def _typed_fits(tensor: TensorProto, kind: str, count: int) -> bool:
    """Whether the fields of numbers hold the elements of a tensor without raw bytes."""
    lengths = {
        len(field)
        for field in (
            tensor.float_data, tensor.int32_data, tensor.string_data, tensor.int64_data, tensor.double_data,
            tensor.uint64_data,
        )
    }  # fmt: skip
    bits = element_types.STORED_BITS.get(kind, 8)
    packed = -(-count * bits // 8) if bits < 8 else count
    return max(lengths) in (count, packed)
