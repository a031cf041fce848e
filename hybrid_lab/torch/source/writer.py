"""A graph as the source of a PyTorch module: one line for each layer in `__init__`, one for each call in `forward`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.ops.framework.dtypes import is_floating, name_of

from . import detection, functions, layers  # noqa: F401 - they fill the table
from .helpers import FUNCTIONS, needed_by, source_of
from .paths import OF_MODULES, UniqueNames, identifier, tree
from .rules import RULES, weights_of

_SUFFIXES = ("_fwd", "_output")
_WIDTH = 120
_NOT_FINITE = re.compile(r"\b(inf|nan)\b")
_KEY = re.compile("\0(\\d+)\0")


@dataclass(frozen=True)
class ModuleSource:
    """The source of a module. text : of the .py file; state : its state_dict, which `load()` reads from a file"""

    text: str
    state: Mapping[str, np.ndarray]


@dataclass
class _Line:
    """One call. values : the visible outputs; texts : one for each, or a single one that gives all"""

    node: Node
    values: Sequence[Value]
    texts: list[str]


class SourceWriter:
    """Writes one graph. Rules ask it for layers, weights, buffers and helper functions.

    graph : of a prediction, with shapes; its first inputs are the data, the remaining inputs have arrays
    arrays : (name, array) of each parameter, by its Value; begun : names of nodes whose first size is the batch
    """

    reserved: Sequence[str] = ("self", "torch", "nn", "F", "Model", "load", "x", "inf", "nan", "Path", *FUNCTIONS)
    """Names that no variable of the file may have."""
    members: Collection[str] = OF_MODULES
    """Names that no layer may have."""
    group = "nn.Module()"
    """What makes an inner node of the tree of layers."""

    def __init__(
        self,
        graph: Graph,
        data: Sequence[str],
        arrays: Mapping[Value, tuple[str, np.ndarray]],
        begun: Collection[str] = (),
    ) -> None:
        self.graph, self.arrays, self.begun = graph, arrays, begun
        self.state: dict[str, np.ndarray] = {}
        self._layers: dict[str, str] = {}
        self._weights: dict[str, str] = {}
        self._made: dict[Any, str] = {}
        self._helpers: dict[str, None] = {}
        self._texts: dict[Value, str] = {}
        self._operators = [node for node in graph.nodes if node.inputs or not _is_input(node)]
        self._paths = self._all_paths()
        self._names = UniqueNames(self.reserved)
        self.data: list[str] = []
        for name, value in zip(data, graph.inputs, strict=False):
            self._texts[value] = text = self._names.new(identifier(name))
            self.data.append(text)

    # -- what rules ask for --------------------------------------------------------------------------------------

    def array(self, item: object) -> np.ndarray | None:
        """The numbers of an input that is a parameter of the model, or None."""
        known = self.arrays.get(item) if isinstance(item, Value) else None
        return None if known is None else known[1]

    def layer(self, node: Node, made: str, state: Mapping[str, Any]) -> str:
        """`self.path` of a new layer. made : the call that makes it; state : key of its state_dict -> Value or array

        Nodes with the same weights and the same layer share it.
        """
        key = (made, *((name, id(item)) for name, item in state.items()), "" if state else node.name)
        if key not in self._made:
            path = self._free(self._paths[node])
            self._layers[path] = made
            for name, item in state.items():
                array = item if isinstance(item, np.ndarray) else self.array(item)
                assert array is not None
                self.state[f"{path}.{name}"] = array
            self._made[key] = f"self.{path}"
        return self._made[key]

    def is_read(self, value: Value) -> bool:
        """Whether a node or the caller reads an output."""
        return value in self._read

    def weight(self, value: Value) -> str:
        """`self.path` of a parameter that no layer has."""
        if value not in self._texts:
            name, array = self.arrays[value]
            self._texts[value] = self.own(self._new_array(self._parameter_paths[name], array, is_floating(array.dtype)))
        return self._texts[value]

    def buffer(self, name: str, array: np.ndarray) -> str:
        """`self.path` of an array that is not trained."""
        return self.own(self._new_array(identifier(name), array, False))

    def own(self, path: str) -> str:
        """The expression in a call for an array that belongs to no layer."""
        return f"self.{path}"

    def helper(self, name: str) -> str:
        """The name of a function of helpers.py, which the file then has."""
        for needed in needed_by(name):
            self.helper(needed)
        self._helpers[name] = None
        return name

    # -- the text ------------------------------------------------------------------------------------------------

    def source(self, title: str, weights: str) -> ModuleSource:
        """The file. title : the first line of its docstring; weights : name of the file with the state_dict"""
        body = self._body()
        assign = ", assign=True" if self._is_narrow() else ""  # the dtypes of the file, layer by layer
        imports = ["from pathlib import Path", "", "import torch", "from torch import nn"]
        imports.append("from torch.nn import functional as F")
        signature = f"    def forward(self, {', '.join(self.data)}):"
        model = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        model += [f"        {line}" for line in self._construction()]
        load = (
            "def load(path=None):\n"
            '    """The model with its weights, for prediction. path : of the weights; default: beside this file"""\n'
            "    from safetensors.torch import load_file\n\n"
            "    model = Model()\n"
            f"    weights = load_file(path or Path(__file__).with_name({weights!r}))\n"
            f"    model.load_state_dict(weights{assign})\n"
            "    return model.eval()"
        )
        parts = [source_of(name) for name in self._helpers]
        parts += ["\n".join([*model, "", signature, *(f"        {line}" for line in body)]), load]
        head = [docstring(title, self._shapes()), "\n".join([*self._numbers(body), *imports])]
        return self._checked("\n\n".join(head), parts, weights)

    def _body(self) -> list[str]:
        """The lines of the method that computes."""
        made = [self._line(node) for node in self._operators if not isinstance(node.op, Constant)]
        return self._assignments([line for line in made if line is not None])

    def _shapes(self) -> str:
        return ", ".join(
            f"{text} {'x'.join(map(str, value.shape)) or 'a number'}"
            for text, value in zip(self.data, self.graph.inputs, strict=False)
        )

    def _numbers(self, body: Sequence[str]) -> list[str]:
        return ["from math import inf, nan"] if any(_NOT_FINITE.search(line) for line in body) else []

    def _is_narrow(self) -> bool:
        return any(is_floating(array.dtype) and array.dtype != np.float32 for array in self.state.values())

    def _checked(self, head: str, parts: Sequence[str], weights: str) -> ModuleSource:
        joined = "\n\n\n".join(parts)
        whole = f"{head}\n\n\n{joined}\n"
        compile(whole, weights, "exec")  # nothing is written that Python does not read
        return ModuleSource(whole, self.state)

    def _construction(self) -> list[str]:
        lines: list[str] = []
        begun: set[str] = set()
        for path, made in [*self._layers.items(), *self._weights.items()]:
            parts = path.split(".")
            for depth in range(1, len(parts)):
                group = ".".join(parts[:depth])
                if group not in begun:
                    begun.add(group)
                    lines.append(f"self.{group} = {self.group}")
            lines.append(made if made.startswith("self.") else f"self.{path} = {made}")
        return lines

    def _line(self, node: Node) -> _Line | None:
        """The call, or None if its output is the text of an input."""
        visible = node.op.signature.visible
        if any(value in self._read for value in node.outputs[visible:]):
            raise Unmappable(
                f"{node.op.name} {node.name!r}: reading its hidden outputs has no source here; convert to .onnx"
            )
        whole = any(isinstance(item, Value) and not is_floating(item.dtype) for item in node.inputs[:2])
        inputs = [
            _key(item)
            if self._is_computed(item)
            else self._text(item if isinstance(item, Value) or not whole else int(item))
            for item in node.inputs
        ]
        made = self.write(node, inputs)
        texts = [made] if isinstance(made, str) else list(made)
        if visible == 1 and texts[0] in inputs:
            self._texts[node.outputs[0]] = texts[0]
            return None
        return _Line(node, node.outputs[:visible], texts)

    def write(self, node: Node, inputs: Sequence[str]) -> str | Sequence[str]:
        """The text of the output, or one for each visible output. Raises Unmappable, naming the operator."""
        rule = RULES.get(node.op.name)
        if rule is None:
            raise Unmappable(
                f"{node.op.name} {node.name!r}: this operator has no PyTorch source here; convert to .onnx, or wrap "
                "the model with mx.torch.module(net)"
            )
        return rule(self, node, node.op, inputs)

    def _is_computed(self, item: object) -> bool:
        return isinstance(item, Value) and item not in self._texts and item not in self.arrays and not _held(item)

    def _text(self, item: object) -> str:
        """An input that no line of `forward` computes: data, a weight, a constant or a number."""
        if not isinstance(item, Value):
            return repr(item)
        if item in self._texts:
            return self._texts[item]
        if isinstance(item.node.op, Constant):
            self._texts[item] = self.buffer(item.node.name or "constant", item.node.op.array)
            return self._texts[item]
        return _key(item)  # of a weight, which is written only if the text of a rule names it

    def _assignments(self, lines: Sequence[_Line]) -> list[str]:
        """The lines of `forward`. A value that only the next line reads is called x."""
        lines, readers = self._needed(lines)
        names: dict[str, str] = {}
        out: list[str] = []

        def filled(text: str) -> str:
            return _KEY.sub(lambda found: names.get(found[0]) or self.weight(self._by_id[int(found[1])]), text)

        for place, line in enumerate(lines):
            texts = [filled(text) for text in line.texts]
            targets = []
            for value in line.values:
                reading = readers.get(_key(value), [])
                alone = sum(_key(each) in readers for each in line.values) == 1 and len(line.texts) == len(line.values)
                if not reading:
                    targets.append("_")
                    continue
                if alone and reading == [place + 1]:
                    names[_key(value)] = "x"
                else:
                    names[_key(value)] = self._names.new(self._name(line.node, value))
                targets.append(names[_key(value)])
            if len(texts) == len(targets):
                out += [f"{target} = {text}" for target, text in zip(targets, texts, strict=True)
                        if target not in ("_", text)]  # fmt: skip
            else:
                names_of_outputs = ", ".join(targets)
                if len(names_of_outputs) > _WIDTH // 2:
                    names_of_outputs = f"({names_of_outputs})"
                out.append(f"{names_of_outputs} = {texts[0]}")
        out.append(f"return {', '.join(filled(text) for text in self._results)}")
        return [line for text in out for line in _wrapped(text)]

    def _needed(self, lines: Sequence[_Line]) -> tuple[list[_Line], dict[str, list[int]]]:
        """The lines that the outputs depend on, and the numbers of the lines that read each value; the return is one
        more line.
        """
        self._results = [_key(value) if self._is_computed(value) else self._text(value) for value in self.graph.outputs]
        wanted = {key for text in self._results for key in _keys(text)}
        kept: list[_Line] = []
        for line in reversed(lines):
            if wanted.intersection(map(_key, line.values)):
                kept.append(line)
                wanted.update(key for text in line.texts for key in _keys(text))
        kept.reverse()
        readers: dict[str, list[int]] = {}
        for place, texts in enumerate([*(line.texts for line in kept), self._results]):
            for key in dict.fromkeys(key for text in texts for key in _keys(text)):
                readers.setdefault(key, []).append(place)
        return kept, readers

    # -- names ---------------------------------------------------------------------------------------------------

    def _all_paths(self) -> dict[Node, str]:
        """A path for the layer of each node: the common beginning of its weights' names, else its own name."""
        self._read = {item for node in self._operators for item in node.inputs if isinstance(item, Value)}
        self._read.update(self.graph.outputs)
        self._by_id = {id(item): item for item in self._read}
        names = {node: self._layer_name(node) for node in self._operators}
        own = {name: name for name, _ in self.arrays.values()}
        paths = tree([*names.values(), *own], self.members)
        self._parameter_paths = {name: paths[name] for name in own}
        return {node: paths[name] for node, name in names.items()}

    def _layer_name(self, node: Node) -> str:
        items = weights_of(node.inputs[1]) if node.op.name == "RNN" else node.values_in
        known = [self.arrays[item][0] for item in items if item in self.arrays]
        common = os.path.commonprefix(known) if len(known) > 1 else known[0] if known else ""
        stem = common[: common.rfind("_")] if "_" in common else ""
        return stem or _plain(node.name) or node.op.name.lower()

    def _name(self, node: Node, value: Value) -> str:
        name = identifier(self._paths[node].rpartition(".")[2].lstrip("_") or "value")
        return f"{name}_{value.index}" if node.op.signature.visible > 1 else name

    def _free(self, path: str) -> str:
        free, number = path, 2
        while free in self._layers or free in self._weights or any(k.startswith(f"{free}.") for k in self._layers):
            free, number = f"{path}_{number}", number + 1
        return free

    def _new_array(self, path: str, array: np.ndarray, trained: bool) -> str:
        path = self._free(path)
        holder, _, name = path.rpartition(".")
        owner = f"self.{holder}" if holder else "self"
        dtype = "" if array.dtype == np.float32 else f", dtype=torch.{name_of(array.dtype)}"
        empty = f"torch.empty({tuple(array.shape)}{dtype})"
        if trained:
            self._weights[path] = f"{owner}.{name} = nn.Parameter({empty})"
        else:
            self._weights[path] = f"{owner}.register_buffer({name!r}, {empty})"
        self.state[path] = array
        return path


def _key(item: object) -> str:
    """The placeholder in a rule's text for a value that has no name yet."""
    return f"\0{id(item)}\0"


def _keys(text: str) -> list[str]:
    return [found[0] for found in _KEY.finditer(text)]


def docstring(title: str, shapes: str) -> str:
    """The docstring of the file."""
    return f'"""{_plain_text(title)}\n\nWritten for {shapes}.\n"""'


def _plain_text(text: str) -> str:
    """A text, such as the name of a file, without characters that could end the string around it."""
    return "".join(letter if letter.isprintable() and letter not in '"\\\\' else "'" for letter in text)


def _plain(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _is_input(node: Node) -> bool:
    return node.outputs[0].is_input if node.outputs else False


def _held(item: Value) -> bool:
    return isinstance(item.node.op, Constant)


def _wrapped(line: str) -> list[str]:
    """A long line, broken behind commas and before operators that stand inside brackets."""
    if len(line) + 8 <= _WIDTH:
        return [line]
    depth, start, last, lines = 0, 0, 0, []
    for place, letter in enumerate(line):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if place - start > _WIDTH - 12 and last > start:
            lines.append(line[start:last])
            start = last
        if letter == " " and depth:
            last = place + 1
    return [
        text.rstrip() if number == 0 else f"    {text.rstrip()}" for number, text in enumerate([*lines, line[start:]])
    ]
