"""MXNet's symbol JSON as a neutral Graph; every irregularity is an ArchiveError that names the node."""

from __future__ import annotations

import ast
import difflib
import functools
import json
import re
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, AttributeSpecError, HybridLabError
from hybrid_lab.graph.custom import Custom
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, constant_node, input_node
from hybrid_lab.graph.scope import MOST_BLOCKS, ReadScopes
from hybrid_lab.ops.framework.dtypes import TYPE_FLAGS, dtype_of
from hybrid_lab.ops.framework.operator import Operator, find, registered_names
from hybrid_lab.system.provided import Provided

from . import control_flow, fused
from .graph_writer import CALLS, CONSTANT, DRAW, EMPTY, IMMEDIATES, SCOPE, comparable
from .operator_names import HIDDEN_KEYS, IGNORED_ATTRIBUTES, POSITIVE_ATTRIBUTES, SCALAR_NAMES

custom_of_file: Provided[[str, Mapping[str, str]], Operator] = Provided("custom_of_file")

ATTRIBUTE_LIMIT = 4096
"""Longest attribute text of an operator that is parsed."""
_HIDDEN = re.compile(r"__\w+__")
_QUANTIZED = ("_contrib_quantized_", "_sg_mkldnn_")
"""How the names of operators of quantized models begin; those that run here have records."""
_OWN = (DRAW, SCOPE, CALLS, IMMEDIATES, EMPTY, control_flow.DRAWS)
_LAYOUTS = {"NCHW", "NCW", "NCDHW", "None"}


_DTYPES = {str(number): name for name, number in TYPE_FLAGS.items()}
"""The text of a type flag -> the dtype's name."""


Result = TypeVar("Result")
_Read = tuple[Operator | None, str, dict[str, str], list[Any]]
"""A node of the file: the operator (None for a variable), the name, all attributes, the inputs as written."""


@functools.lru_cache(maxsize=4096)
def _shape(text: str) -> tuple[int | None, ...] | None:
    """The shape in the attribute `__shape__`, 0 and -1 as None; a model has few different shapes."""
    shape = ast.literal_eval(text) if len(text) <= ATTRIBUTE_LIMIT else None
    if shape is None:
        return None
    if not isinstance(shape, tuple) or not all(type(size) is int and -1 <= size < 2**31 for size in shape):
        raise ValueError
    return tuple(size if size > 0 else None for size in shape)


def _scalar(text: str) -> int | float:
    """The number in the attribute `scalar`."""
    if text in ("True", "False"):
        return text == "True"
    if len(text) > 64:
        raise ValueError
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else float(text)


def _immediates(text: str) -> list[tuple[int, Any]]:
    """(position among the inputs, number) in order."""
    numbers = {int(place): number for place, number in json.loads(text).items()}
    if not all(isinstance(number, (int, float)) for number in numbers.values()):
        raise ValueError
    return sorted(numbers.items())


def _calls(text: str) -> tuple[int, ...]:
    numbers = text.split(".")
    if len(numbers) > MOST_BLOCKS or not all(re.fullmatch(r"[1-9]\d{0,8}", number, re.ASCII) for number in numbers):
        raise ValueError
    return tuple(map(int, numbers))


def _draw(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError
    return int(text)


class GraphReader:
    """Builds the graph of one parsed symbol JSON. constants : arrays of variables that were constants, by name."""

    def __init__(
        self,
        document: object,
        constants: Mapping[str, np.ndarray] | None = None,
        *,
        path: str | PathLike[str] | None = None,
        member: str | None = None,
        depth: int = 0,
    ) -> None:
        self.document: dict[str, Any] = document if isinstance(document, dict) else {}
        self.depth = depth
        self._decisions: dict[Operator, Graph] = {}
        self._scopes = ReadScopes()
        self.constants = constants or {}
        self.path = path
        self.member = member

    def error(self, message: str) -> ArchiveError:
        """The error for a file whose JSON is not a symbol."""
        return ArchiveError(f"not a readable symbol JSON: {message}", path=self.path, member=self.member)

    def _parsed(self, attributes: Mapping[str, str], key: str, parse: Callable[[str], Result], owner: str) -> Result:
        """The value of an attribute of a node or variable."""
        text = attributes.get(key, "")
        try:
            return parse(text)
        except (ValueError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError):
            raise self.error(f"{owner}: {key} is {text[:60]!r}") from None

    def graph(self, name: str = "") -> Graph:
        """The graph; its inputs are the variables in the file's order."""
        nodes = self.document.get("nodes")
        if not isinstance(nodes, list) or not nodes:
            raise self.error("it has no list of nodes")
        read = [self._node(index, node) for index, node in enumerate(nodes)]
        states = self._states(read)
        values: list[Node] = []
        extra: list[Value] = []
        draws = 0
        self._check_names(read)
        for index, (op, label, attributes, _) in enumerate(read):
            if op is None:
                values.append(self._variable(label, attributes, "aux" if index in states else "data"))
                continue
            operator_node, missing = self._operator(index, op, read[index], values, draws)
            draws = max(draws, operator_node.draw + 1) if operator_node.draw is not None else draws
            extra += missing
            values.append(operator_node)
        heads = self.document.get("heads")
        if not isinstance(heads, list) or not heads:
            raise self.error("it has no heads (outputs)")
        outputs = [self._value(entry, values, len(values), "a head") for entry in heads]
        variables = [node.outputs[0] for node, item in zip(values, read, strict=True) if item[0] is None]
        inputs = [value for value in variables if value.node.op.name == "null"]
        return Graph([*inputs, *extra], outputs, draws=draws, name=name)

    # -- nodes -------------------------------------------------------------------------------------------------

    def _node(self, index: int, node: object) -> _Read:
        if not isinstance(node, dict):
            raise self.error(f"node {index} is not an object")
        kind, name, inputs = node.get("op"), node.get("name"), node.get("inputs", [])
        if not isinstance(kind, str) or not isinstance(name, str) or not isinstance(inputs, list):
            raise self.error(f"node {index} needs the texts op and name and the list inputs")
        attributes: dict[str, str] = {}
        for key in ("param", "attr", "attrs"):  # of MXNet 0.8, up to 1.1, and later
            if key not in node:
                continue
            part = node[key]
            if not isinstance(part, dict) or not {*map(type, part.values())} <= {str}:
                raise self.error(f"node {name!r}: {key} must map texts to texts")
            attributes |= part
        if kind == "null":
            if inputs or not name:
                raise self.error(f"node {index} is a variable {'with inputs' if inputs else 'without a name'}")
            return None, name, attributes, inputs
        if kind == fused.CONVOLUTION and "subgraphs" in node:
            return self._fused(name, kind, attributes, node["subgraphs"]), name, attributes, inputs
        if "subgraphs" in node:
            loop = self._control_flow(name, kind, attributes, node["subgraphs"], len(inputs))
            return loop.op, name, attributes, [inputs[place] for place in loop.inputs]
        op = self._custom(name, attributes) if kind == Custom.name else self._bind(name, kind, attributes)
        return op, name, attributes, inputs

    def _custom(self, name: str, attributes: Mapping[str, str]) -> Operator:
        """An operator in Python. The file has the name under which its code is registered, never the code."""
        keywords = {key: value for key, value in attributes.items() if not _HIDDEN.fullmatch(key)}
        op_type = keywords.pop("op_type", "")
        try:
            return custom_of_file(op_type, keywords)
        except (HybridLabError, TypeError, ValueError) as error:
            raise self.error(
                f"node {name!r}: the operator in Python with op_type {op_type!r} cannot be made ({error}). Run the "
                "code that calls mx.operator.register before loading"
            ) from None

    def _fused(self, name: str, kind: str, attributes: Mapping[str, str], subgraphs: object) -> Operator:
        """The operator of a node whose subgraph has the fused operators."""
        if not isinstance(subgraphs, list) or len(subgraphs) != 1 or self.depth:
            raise self.error(f"node {name!r} ({kind}) has no subgraph of its own, or lies in one")
        reader = GraphReader(subgraphs[0], self.constants, path=self.path, member=self.member, depth=self.depth + 1)
        try:
            return fused.read(attributes, reader.graph(name))
        except (ValueError, AttributeSpecError) as error:
            raise self.error(f"node {name!r} ({kind}): {error}") from None

    def _control_flow(
        self, name: str, kind: str, attributes: Mapping[str, str], subgraphs: object, count: int
    ) -> control_flow.FileOperator:
        if kind not in control_flow.KINDS or not isinstance(subgraphs, list):
            raise self.error(f"node {name!r} ({kind}) has subgraphs: no such control flow is known")
        if self.depth >= control_flow.MAX_DEPTH:
            raise self.error(f"node {name!r}: subgraphs lie more than {control_flow.MAX_DEPTH} deep")
        readers = [
            GraphReader(part, self.constants, path=self.path, member=self.member, depth=self.depth + 1)
            for part in subgraphs
        ]
        try:
            loop = control_flow.read(kind, attributes, [reader.graph(name) for reader in readers], count)
        except ValueError as error:
            raise self.error(f"node {name!r} ({kind}): {error}") from None
        if loop.decides is not None:
            self._decisions[loop.op] = loop.decides
        return loop

    def _bind(self, name: str, kind: str, attributes: Mapping[str, str]) -> Operator:
        record = find(SCALAR_NAMES[kind][0] if kind in SCALAR_NAMES else kind)
        if record is None:
            if kind.startswith(_QUANTIZED):
                raise self.error(
                    f"node {name!r}: {kind!r} belongs to a model that MXNet has quantized to 8 bits, whose "
                    "operators are not supported here; load the float model that it was made from"
                )
            near = difflib.get_close_matches(kind, registered_names(), n=3)
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise self.error(f"node {name!r}: the operator {kind!r} is not known here{hint}")
        visible = {key: value for key, value in attributes.items() if self._is_attribute(key, record)}
        if kind in SCALAR_NAMES:
            visible.pop("scalar", None)
        visible = {key: value for key, value in visible.items() if key not in record.scalars}
        if "layout" in visible and "layout" not in record.fields and visible["layout"] in _LAYOUTS:
            del visible["layout"]
        for key, value in visible.items():
            if len(value) > ATTRIBUTE_LIMIT:
                raise self.error(f"node {name!r}: {key} has {len(value)} characters")
        try:
            op = record.bind(**visible)
        except (AttributeSpecError, RecursionError, MemoryError) as error:
            raise self.error(f"node {name!r}: {str(error)[:400] or type(error).__name__}") from None
        for key, value in op.changed.items():
            self._check_size(name, key, value)
        if "_open" in op.attributes and 0 in op.attributes["shape"] and attributes.get(EMPTY) in (None, "open"):
            return op.variant(_open=True, _or_empty=EMPTY in attributes)
        return op

    @staticmethod
    def _is_attribute(key: str, record: type[Operator]) -> bool:
        if _HIDDEN.fullmatch(key) or (key not in record.fields and key in IGNORED_ATTRIBUTES):
            return False
        return key in record.fields or not any(key == hidden or key.endswith("_" + hidden) for hidden in HIDDEN_KEYS)

    def _check_size(self, name: str, key: str, value: object) -> None:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and not isinstance(number, bool):
                low, high = (1, 2**31 - 1) if key in POSITIVE_ATTRIBUTES else (-(2**63), 2**63 - 1)
                if not low <= number <= high:
                    raise self.error(f"node {name!r}: {key}={str(value)[:60]} is out of range")

    def _check_names(self, read: list[_Read]) -> None:
        seen: dict[str, str] = {}
        for op, name, _, _ in read:
            if op is not None:
                continue
            key = comparable(name)
            if key in seen:
                same = "appears twice" if seen[key] == name else f"can be taken for {seen[key]!r}"
                raise self.error(f"the variable {name!r} {same}")
            seen[key] = name

    # -- variables ---------------------------------------------------------------------------------------------

    def _states(self, read: list[_Read]) -> set[int]:
        """Indices of the variables that some operator uses as auxiliary state."""
        states: set[int] = set()
        for op, _, _, inputs in read:
            if op is not None and op.signature.aux:
                for name, entry in zip(op.signature.inputs, inputs, strict=False):
                    if name in op.signature.aux and isinstance(entry, list) and entry and type(entry[0]) is int:
                        states.add(entry[0])
        return states

    def _variable(self, name: str, attributes: dict[str, str], role: str) -> Node:
        hinted = "__shape__" in attributes
        shape = self._parsed(attributes, "__shape__", _shape, f"variable {name!r}") if hinted else None
        flag = attributes.get("__dtype__", "-1")
        dtype = _DTYPES.get(flag)
        if CONSTANT in attributes and (name in self.constants or "__init__" in attributes):
            own_attributes = {
                key: value
                for key, value in attributes.items()
                if key not in (CONSTANT, "__shape__", "__dtype__", "__init__")
            }
            array = self._constant(name, shape, dtype, attributes)
            return constant_node(array, name=name, attrs=own_attributes or None).node
        return input_node(name, role, shape=shape, dtype=dtype, attrs=attributes or None).node

    def _constant(self, name: str, shape: object, dtype: str | None, attributes: dict[str, str]) -> np.ndarray:
        array = self.constants.get(name)
        if array is None:
            try:
                kind, options = json.loads(attributes.get("__init__", "null"))
                array = np.array(options["value"], dtype=dtype and dtype_of(dtype))
                if kind != "constant":
                    raise ValueError
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                raise self.error(f"the constant {name!r} has no value") from None
        stated = ast.literal_eval(attributes.get("__shape__", "None"))
        if array.shape != stated or array.dtype != dtype_of(dtype or "float32"):
            raise self.error(f"the constant {name!r} is {array.dtype}{list(array.shape)}, not {dtype}{stated}")
        return array

    # -- operators ---------------------------------------------------------------------------------------------

    def _operator(
        self, index: int, op: Operator, read: _Read, values: list[Node], draws: int
    ) -> tuple[Node, list[Value]]:
        _, name, attributes, entries = read
        inputs: list[Any] = [self._value(entry, values, index, f"node {name!r}") for entry in entries]
        if op in self._decisions:
            count = len(self._decisions[op].inputs)
            inputs = [control_flow.decided(self._decisions[op], inputs[:count]), *inputs[count:]]
        kind = self.document["nodes"][index]["op"]
        if kind in SCALAR_NAMES:
            if len(inputs) != 1:
                raise self.error(f"node {name!r} ({kind}) has {len(inputs)} inputs, needs 1")
            number = self._parsed(attributes, "scalar", _scalar, f"node {name!r}")
            inputs = [number, *inputs] if SCALAR_NAMES[kind][1] else [*inputs, number]
        if IMMEDIATES in attributes:
            for place, number in self._parsed(attributes, IMMEDIATES, _immediates, f"node {name!r}"):
                inputs.insert(place, number)
        if op.scalars and IMMEDIATES not in attributes:
            inputs = self._scalars(name, op, inputs, attributes)
        inputs, missing = self._complete(name, op, inputs)
        draw = draws if op.random or op.subgraphs else None
        if draw is not None and DRAW in attributes:
            draw = self._parsed(attributes, DRAW, _draw, f"node {name!r}")
        own_attributes = {
            key: value
            for key, value in attributes.items()
            if key.startswith("__") and _HIDDEN.fullmatch(key) and key not in _OWN and key not in IGNORED_ATTRIBUTES
        }
        numbers = self._parsed(attributes, CALLS, _calls, f"node {name!r}") if CALLS in attributes else ()
        scope = self._scopes.scope(attributes.get(SCOPE, ""), numbers)
        node = Node(op, inputs, name=name, scope=scope, draw=draw, attrs=own_attributes or None)
        return node, missing

    def _complete(self, name: str, op: Operator, inputs: list[object]) -> tuple[list[Any], list[Value]]:
        """Check the number of inputs; files of MXNet 0.8 leave the auxiliary states out."""
        if op.variadic:
            if not inputs:
                raise self.error(f"node {name!r} ({op.name}) has no inputs")
            return inputs, []
        names = op.signature.inputs
        missing: list[Value] = []
        if len(inputs) < len(names) and set(names[len(inputs) :]) <= set(op.signature.aux):
            missing = [input_node(f"{name}_{state}", "aux") for state in names[len(inputs) :]]
            inputs = [*inputs, *missing]
        if len(inputs) != len(names):
            raise self.error(f"node {name!r} ({op.name}) has {len(inputs)} inputs, needs {', '.join(names) or 'none'}")
        return inputs, missing

    def _value(self, entry: object, values: list[Node], before: int, reader: str) -> Value:
        """The output that an entry [node, output, version] means; only nodes that come earlier can be read."""
        if not isinstance(entry, list) or len(entry) not in (2, 3) or {*map(type, entry)} != {int}:
            raise self.error(f"{reader} has the input {str(entry)[:60]}, which is not [node, output, version]")
        index, output = entry[:2]
        if not 0 <= index < before:
            kind = (
                "a later node (a cycle?)" if 0 <= index < len(self.document["nodes"]) else "a node that does not exist"
            )
            raise self.error(f"{reader} reads node {index}, {kind}")
        node = values[index]
        visible = node.op.signature.visible
        if not 0 <= output < visible:
            raise self.error(f"{reader} reads output {output} of {node.name!r}, which has {visible}")
        return node.outputs[output]

    def _scalars(self, name: str, op: Operator, inputs: list[object], attributes: Mapping[str, str]) -> list[Any]:
        """The inputs with the numbers that the file has as attributes behind them."""
        if len(inputs) + len(op.scalars) != len(op.signature.inputs):
            return inputs
        texts = {key: value for key, value in attributes.items() if key in op.scalars and len(value) <= 64}
        try:
            return list(op.split_scalars(inputs, texts)[0])
        except AttributeSpecError as error:
            raise self.error(f"node {name!r}: {error}") from None


def read_graph(
    document: object,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    name: str = "",
    path: str | PathLike[str] | None = None,
    member: str | None = None,
) -> Graph:
    """The graph of a parsed symbol JSON. Raises ArchiveError; see GraphReader."""
    reader = GraphReader(document, constants, path=path, member=member)
    try:
        return reader.graph(name)
    except ArchiveError:
        raise
    except HybridLabError as error:
        raise reader.error(str(error)) from None
