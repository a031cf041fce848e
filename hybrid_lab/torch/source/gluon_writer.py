"""A graph as the source of a HybridBlock: one line for each layer in `__init__`, and for each call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache

import numpy as np

from hybrid_lab import ndarray, symbol
from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.node import Node
from hybrid_lab.ops.framework.dtypes import name_of

from .gluon_layers import LAYERS
from .paths import identifier
from .rules import AnyOperator, infix
from .writer import ModuleSource, SourceWriter, docstring

_PREFIXES = {"_contrib_": "contrib", "_linalg_": "linalg", "_image_": "image"}
"""Beginnings of operators' names -> the namespace of F that has them under the rest of the name."""
_INFIX = {
    "broadcast_add": "+", "broadcast_sub": "-", "broadcast_mul": "*", "broadcast_div": "/", "broadcast_power": "**",
}  # fmt: skip
_ACTIVATIONS = ("relu", "sigmoid", "tanh", "softsign")


class GluonWriter(SourceWriter):
    """Writes one graph as a HybridBlock of `gluon.nn` and `gluon.rnn` layers.

    Operators that are no layer, or one with computed weights, are calls of `F`. The arguments are Writer's.
    """

    reserved = ("self", "F", "gluon", "nn", "rnn", "Model", "load", "x", "inf", "nan", "Path", "net")
    members = frozenset(dir(HybridBlock))
    group = "gluon.HybridBlock()"

    def source(self, title: str, weights: str) -> ModuleSource:
        """The file. title : the first line of its docstring; weights : name of the file that `load()` reads"""
        body = self._body()
        signature = f"    def hybrid_forward(self, F, {', '.join([*self.data, *self._own])}):"
        made = [f"        {line}" for line in self._construction()]
        layers = ", ".join(name for name in ("nn", "rnn") if any(f"= {name}." in line for line in made))
        imports = ["from pathlib import Path", "", "from hybrid_lab import gluon"]
        if layers:
            imports.append(f"from hybrid_lab.gluon import {layers}")
        options = ', cast_dtype=True, dtype_source="saved"' if self._is_narrow() else ""
        model = [
            "class Model(gluon.HybridBlock):",
            "    def __init__(self, **kwargs):",
            "        super().__init__(**kwargs)",
            *made,
            "",
            signature,
            *(f"        {line}" for line in body),
        ]
        load = [
            "def load(path=None, ctx=None):",
            '    """The net with its weights. path : of the weights; default: beside this file"""',
            "    net = Model()",
            f"    path = path or Path(__file__).with_name({weights!r})",
            f"    net.load_parameters(path, ctx=ctx{options})",
            "    return net",
        ]
        head = [docstring(title, self._shapes()), "\n".join([*self._numbers(body), *imports])]
        return self._checked("\n\n".join(head), ["\n".join(model), "\n".join(load)], weights)

    # -- one call ------------------------------------------------------------------------------------------------

    def write(self, node: Node, inputs: Sequence[str]) -> str | Sequence[str]:
        """The call of a layer, an infix operator, or a call of F."""
        op: AnyOperator = node.op
        rule = LAYERS.get(op.name)
        made = rule(self, node, op, inputs) if rule else None
        if made is not None:
            return made
        if op.name in _INFIX:
            return f" {_INFIX[op.name]} ".join(map(infix, inputs))
        if op.name == "Activation" and op.act_type in _ACTIVATIONS:
            return f"F.{op.act_type}({inputs[0]})"
        if node.name in self.begun and (text := self._begun(node)):
            return text
        settings = [f"{name}={_literal(node, name, value)}" for name, value in op.written.items()]
        return f"F.{_function(node)}({', '.join([*_named(op, inputs), *settings])})"

    def _begun(self, node: Node) -> str:
        """The zeros or ones of a first state, (batch, size), for any batch; "" for anything but such a state."""
        shape, data = node.outputs[0].shape, self.graph.inputs[0].shape
        if node.op.name not in ("_zeros", "_ones") or len(shape) != 2 or not data or data[0] != shape[0]:
            return ""
        flat = self.data[0] if len(data) == 2 else f"F.Flatten({self.data[0]})"
        column = f"F.slice_axis({flat}, axis=1, begin=0, end=1)"
        return f"F.broadcast_axis(F.{node.op.name[1:]}_like({column}), axis=1, size={shape[1]})"

    # -- parameters of the Block itself --------------------------------------------------------------------------

    def own(self, path: str) -> str:
        """The argument of `hybrid_forward` that a parameter of the Block is."""
        return path

    def _new_array(self, path: str, array: np.ndarray, trained: bool) -> str:
        layers = {each.partition(".")[0] for each in self._paths.values()}
        wanted = identifier(path.replace(".", "_")).lstrip("_") or "value"
        name = self._names.new(f"{wanted}_" if wanted in self.members else wanted)
        while name in layers or name in self.members:
            name = self._names.new(name)
        dtype = "" if array.dtype == np.float32 else f", dtype={name_of(array.dtype)!r}"
        fixed = "" if trained else ', grad_req="null"'
        self._weights[name] = f"self.{name} = self.params.get({name!r}, shape={tuple(array.shape)}{dtype}{fixed})"
        self.state[name] = array
        return name

    @property
    def _own(self) -> list[str]:
        return list(self._weights)


def _named(op: AnyOperator, inputs: Sequence[str]) -> list[str]:
    """The inputs as F takes them: by name if an optional one before them is missing, and for numbers."""
    if op.variadic:
        return list(inputs)
    names = op.signature.inputs
    return [
        text if name == usual and name not in op.scalars else f"{name}={text}"
        for text, name, usual in zip(inputs, names, op.input_names, strict=False)
    ]


def _literal(node: Node, name: str, value: object) -> str:
    """An attribute as Python writes it. Raises Unmappable for an attribute other than data, such as a graph."""
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError):
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            return repr(name_of(np.dtype(value)))
        if isinstance(value, (float, tuple, list)):
            return text  # inf and nan, which the file imports
        raise Unmappable(
            f"{node.op.name} {node.name!r}: its {name} is no number or text and has no Gluon source; convert to .hlab"
        ) from None
    return text


@cache
def _called(name: str) -> str | None:
    """The name that both namespaces of F have for an operator."""
    for prefix, group in _PREFIXES.items():
        rest = name.removeprefix(prefix)
        if rest != name and all(hasattr(getattr(module, group, None), rest) for module in (ndarray, symbol)):
            return f"{group}.{rest}"
    return name if all(hasattr(module, name) for module in (ndarray, symbol)) else None


def _function(node: Node) -> str:
    name = _called(node.op.name)
    if name is None:
        raise Unmappable(f"{node.op.name} {node.name!r}: F has no such function; convert to .hlab or .onnx")
    return name
