"""GraphImporter: the nodes of an ONNX graph, one after the other, as compositions of this package's operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.node import Node, Scope
from hybrid_lab.graph.scope import MOST_BLOCKS
from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.errors import OnnxError, UnsupportedOperatorError
from hybrid_lab.onnx.reading import control
from hybrid_lab.onnx.reading.control import Outputs
from hybrid_lab.onnx.reading.importers import ROWS_LOADED, sizes, table
from hybrid_lab.onnx.reading.importers.functions import Attributes, Functions, Item, Tensor
from hybrid_lab.onnx.reading.model_file import OnnxFile
from hybrid_lab.ops.framework.sizes import NeedsNumber

if TYPE_CHECKING:
    from onnx import FunctionProto, NodeProto, TypeProto

assert ROWS_LOADED  # imported so that the functions of all operators are in the table
Environment = dict[str, Any]
"""Name in the file -> Tensor, or a list of them for a sequence."""

MOST_NODES = 20_000
"""Nodes that a small file may become by its functions and loops; a large file four times its own."""
_UNTYPED = frozenset({"Shape", "Size", "ArgMax", "ArgMin", "Cast", "CastLike", "TopK", "BitCast", "NonZero", "IsNaN"})
"""Operators whose results do not have the element type of their first input."""
_BROKEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, MemoryError, RecursionError)
"""What Python and NumPy raise for attributes and shapes that make no sense."""


class GraphImporter:
    """Composes the graph of one file.

    file : the imported file; F : where the nodes are made
    """

    def __init__(self, file: OnnxFile, F: Functions) -> None:
        self.file, self.F = file, F
        self.opsets = file.opsets
        self.running: list[Any] = []
        self.left = max(MOST_NODES, 4 * file.nodes)
        self.attributes: Attributes = {}
        self.names: dict[Node, str] = {}
        self.root = F.scope = Scope("model")
        self.scopes: dict[str, Scope] = {}
        self.classes: dict[str, str] = {}

    # -- graphs ------------------------------------------------------------------------------------------------

    def run(self, nodes: Sequence[NodeProto], known: Environment) -> None:
        """Import nodes in the file's order; `known` gets their outputs."""
        for node in nodes:
            self.left -= 1
            if self.left < 0:
                raise OnnxError("the file's functions and loops unfold to more nodes than a model has")
            inputs = [self._input(node, name, known) for name in node.input]
            before = self.F.node_name, self.F.operator
            scope = self.F.scope
            if node.metadata_props:
                self.F.scope = self._namespace(node)
            self.F.node_name, self.F.operator = node.name or next(iter(node.output), ""), node.op_type
            made = len(self.F.made)
            outputs = self._guarded_call(node, inputs, known)
            for composed in self.F.made[made:]:
                self.names.setdefault(composed, self.F.node_name)
            self.F.node_name, self.F.operator = before
            self.F.scope = scope
            if len(node.output) > len(outputs):
                raise self.error(node, f"it has {len(node.output)} outputs, the operator gives {len(outputs)}")
            for name, item in zip(node.output, outputs, strict=False):
                if name:
                    known[name] = item

    def _namespace(self, node: NodeProto) -> Scope:
        """The scope of a node as torch's exporter says it: "path: class" for each Block, `layer1: Sequential/layer1.0:
        Block/conv2d`; the last part is the operator.
        """
        text = _namespace_text(node)
        scope = self.root
        _note_classes(text, self.classes)
        if self.running:
            return self.F.scope
        for part in text.split("/")[:-1][:MOST_BLOCKS]:
            name = part.rpartition(": ")[0].rsplit(".", 1)[-1].strip()
            if name:
                key = f"{scope}.{name}"
                scope = self.scopes.setdefault(key, Scope(key, scope))
        return scope

    def _input(self, node: NodeProto, name: str, known: Environment) -> Item:
        if not name:
            return None
        if name not in known:
            raise self.error(node, f"the input {name!r} is no output of an earlier node (a cycle, or an unsorted file)")
        return known[name]

    def error(self, node: NodeProto, message: str) -> OnnxError:
        """The error for a node."""
        return OnnxError(f"node {node.name or next(iter(node.output), '')!r} ({node.op_type}): {message}")

    # -- nodes -------------------------------------------------------------------------------------------------

    def _guarded_call(self, node: NodeProto, inputs: list[Item], known: Environment) -> Outputs:
        """The outputs of a node; whatever goes wrong is an OnnxError that names it."""
        try:
            return self.call(node, inputs, known)
        except OnnxError:
            raise
        except HybridLabError as error:
            text = f"node {self.F.node_name!r} ({node.op_type}): {error}"
            raise UnsupportedOperatorError(text, node.op_type) from error
        except NeedsNumber as error:
            raise self.F.unsupported(f"needs a size as a number that is open; {self.F.close_sizes}") from error
        except _BROKEN as error:
            raise self.error(node, f"its attributes or shapes make no sense: {str(error)[:200]}") from error

    def call(self, node: NodeProto, inputs: list[Item], known: Environment) -> Outputs:
        """The outputs of a node."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        function = self.file.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        attributes = self._attributes(node)
        if function is not None:
            return self._call_function(node, function, inputs, attributes)
        opset = self.opsets.get(domain)
        if opset is None:
            raise self.error(node, f"the file imports no opset of the domain {domain!r}")
        self.F.version = opset
        if not domain and node.op_type in control.FUNCTIONS:
            return control.FUNCTIONS[node.op_type](control.ControlFlowNode(self, node, inputs, attributes, known))
        row = table.find(domain, node.op_type, opset)
        if any(isinstance(item, list) for item in inputs) and row is not None:
            raise self.error(node, "a sequence of tensors is no input of this operator here")
        folded = self._fold_sizes(node, inputs, attributes) if row is not None else None
        if folded is not None:
            return [folded]
        if row is None:
            outputs = self._call_schema(node, domain, opset, inputs, attributes)
            if outputs is not None:
                return outputs
            raise table.unknown(domain, node.op_type, node.name, opset)
        return self._call_row(node, row, inputs, attributes)

    def _call_row(self, node: NodeProto, row: table.Row, inputs: list[Item], attributes: Attributes) -> Outputs:
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if len(inputs) < row.fewest_inputs or (row.most_inputs is not None and len(inputs) > row.most_inputs):
            raise self.error(node, f"it has {len(inputs)} inputs, the operator takes {_count(row)}")
        if None in inputs[: row.fewest_inputs]:
            raise self.error(node, "an input that the operator needs is left out")
        unknown = attributes.keys() - row.attributes
        if unknown:
            raise self.error(node, f"the attribute {sorted(unknown)[0]!r} is not known")
        if "outputs" in row.attributes:
            attributes = {**attributes, "outputs": len(node.output)}
        outputs = row.function(self.F, *inputs, **attributes)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        if node.op_type not in _UNTYPED and inputs and isinstance(inputs[0], Tensor) and inputs[0].carries:
            for item in outputs:
                if not item.carries and item.dtype == inputs[0].dtype:
                    item.carries = inputs[0].carries
        return outputs

    def _fold_sizes(self, node: NodeProto, inputs: Sequence[Item], attributes: Attributes) -> Tensor | None:
        """The result, if an operator computes with sizes of which some are open."""
        if any(isinstance(item, list) for item in inputs):
            return None
        tensors = [item if isinstance(item, Tensor) else None for item in inputs]
        arrays = [None if item is None else item.array for item in tensors]
        if not any(array is not None and array.dtype == object for array in arrays):
            return None
        function = sizes.FUNCTIONS.get(node.op_type)
        given = [item for item in tensors if item is not None]
        if function is None or any(item.array is None for item in given):
            return None
        if node.op_type == "Expand" and arrays[0] is not None and arrays[0].dtype != object:
            return None  # numbers for an open size, such as the zeros that a recurrent layer begins with
        return Tensor(self.F, array=sizes.packed(function(*arrays, **attributes)))

    def _attributes(self, node: NodeProto) -> Attributes:
        found: dict[str, Any] = {}
        for item in node.attribute:
            if item.name in found:
                raise self.error(node, f"it has the attribute {item.name!r} twice")
            if item.ref_attr_name:
                if item.ref_attr_name in self.attributes:
                    found[item.name] = self.attributes[item.ref_attr_name]
                continue
            found[item.name] = self.file.attribute(item)
        return found

    # -- functions ---------------------------------------------------------------------------------------------

    def _call_function(
        self, node: NodeProto, function: FunctionProto, inputs: list[Item], attributes: Attributes
    ) -> Outputs:
        """A function of the file: its nodes, in a scope of their own."""
        scope = self.F.scope
        outer = self.running[-1][1] if self.running else ""
        # Functions that are named by the path of a Block, as this package writes them, have the last name of it.
        name = node.op_type.removeprefix(f"{outer}.") if outer else node.op_type
        self.F.scope = Scope(f"{scope}.{name.replace('.', '_')}", scope)
        try:
            opsets = {("" if item.domain == "ai.onnx" else item.domain): item.version for item in function.opset_import}
            return self.unfold(node, function, inputs, attributes, opsets)
        finally:
            self.F.scope = scope

    def unfold(
        self, node: NodeProto, function: FunctionProto, inputs: list[Item], attributes: Attributes,
        opsets: Mapping[str, int],
    ) -> Outputs:  # fmt: skip
        """The outputs of a function's nodes."""
        key = function.domain, function.name, getattr(function, "overload", "")
        if key in self.running or len(self.running) > 60:
            raise self.error(node, f"the function {function.name!r} calls itself")
        if len(inputs) > len(function.input):
            raise self.error(node, f"it has {len(inputs)} inputs, the function takes {len(function.input)}")
        defaults = {item.name: self.file.attribute(item) for item in getattr(function, "attribute_proto", ())}
        known: Environment = dict(zip(function.input, [*inputs, *[None] * len(function.input)], strict=False))
        before = self.opsets, self.attributes
        self.opsets, self.attributes = {**self.opsets, **opsets}, {**defaults, **attributes}
        self.running.append(key)
        try:
            self.run(function.node, known)
        finally:
            self.running.pop()
            self.opsets, self.attributes = before
        wanted = [name for name, item in zip(function.output, node.output, strict=False) if item]
        missing = [name for name in wanted if name not in known]
        if missing:
            raise self.error(node, f"the function {function.name!r} does not compute its output {missing[0]!r}")
        return [known.get(name) for name in function.output]

    def _call_schema(
        self, node: NodeProto, domain: str, opset: int, inputs: list[Item], attributes: Attributes
    ) -> Outputs | None:
        """The outputs by the function that ONNX itself defines an operator by; None if there is none."""
        import onnx

        try:
            schema = onnx.defs.get_schema(node.op_type, opset, domain)
        except onnx.defs.SchemaError:
            return None
        body = self._schema_body(schema, node, opset, inputs)
        if body is None:
            return None
        missing = {
            name: self.file.attribute(item.default_value)
            for name, item in schema.attributes.items()
            if name not in attributes and item.default_value.name
        }
        opsets = {("" if item.domain == "ai.onnx" else item.domain): item.version for item in body.opset_import}
        outputs = self.unfold(node, body, inputs, {**missing, **attributes}, opsets or {domain: opset})
        return outputs

    def _schema_body(self, schema: Any, node: NodeProto, opset: int, inputs: list[Item]) -> FunctionProto | None:
        import onnx

        if schema.has_function:
            versions = [version for version in schema.function_opset_versions if version <= opset]
            text = schema.get_function_with_opset_version(versions[-1]) if versions else b""
        elif schema.has_context_dependent_function:
            versions = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
            if not versions:
                return None
            types = [self._type_of(item).SerializeToString() for item in inputs]
            whole = self._resolved(node).SerializeToString()
            text = schema.get_context_dependent_function_with_opset_version(versions[-1], whole, types)
        else:
            return None
        if not text:
            return None
        return onnx.FunctionProto.FromString(text) if isinstance(text, bytes) else text

    def _resolved(self, node: NodeProto) -> NodeProto:
        """The node with the attributes that it takes from the function around it."""
        import onnx

        if not any(item.ref_attr_name for item in node.attribute):
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        own = [item for item in node.attribute if not item.ref_attr_name]
        taken = [
            onnx.helper.make_attribute(item.name, self.attributes[item.ref_attr_name])
            for item in node.attribute
            if item.ref_attr_name in self.attributes
        ]
        del copy.attribute[:]
        copy.attribute.extend([*own, *taken])
        return copy

    def _type_of(self, item: Item) -> TypeProto:
        import onnx

        found = onnx.TypeProto()
        if isinstance(item, list):
            found.sequence_type.elem_type.CopyFrom(self._type_of(item[0] if item else None))
        if isinstance(item, Tensor):
            number = onnx.TensorProto.DataType.Value(element_types.name_for(item))
            found.tensor_type.elem_type = number
            for size in item.shape:
                dimension = found.tensor_type.shape.dim.add()
                if isinstance(size, (int, np.integer)):
                    dimension.dim_value = int(size)
        return found


def _namespace_text(node: NodeProto) -> str:
    return str(next((item.value for item in node.metadata_props if item.key == "namespace"), ""))


def _note_classes(text: str, classes: dict[str, str]) -> None:
    for part in text.split("/")[:MOST_BLOCKS]:
        path, colon, kind = part.rpartition(": ")
        if colon:
            classes.setdefault(path.strip(), kind)


def block_classes(file: OnnxFile) -> dict[str, str]:
    """Path of a Block -> name of its class, as the nodes of a file say."""
    classes: dict[str, str] = {}
    for nodes in (file.model.graph.node, *(function.node for function in file.model.functions)):
        for node in nodes:
            _note_classes(_namespace_text(node), classes)
    return classes


def _count(row: table.Row) -> str:
    if row.most_inputs is None:
        return f"at least {row.fewest_inputs}"
    return str(row.most_inputs) if row.most_inputs == row.fewest_inputs else f"{row.fewest_inputs} to {row.most_inputs}"
