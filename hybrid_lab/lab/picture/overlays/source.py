"""The inputs of an overlay: a shown program, its picture, and the data to measure on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import visible
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight.calls import Compiled, running_call
from hybrid_lab.insight.random_inputs import random_inputs, reads_whole_numbers
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.graphs import GraphProgram
from hybrid_lab.lab.messages.measured import MeasuredOn
from hybrid_lab.lab.picture.kept_inputs import KeptInputs
from hybrid_lab.lab.picture.nodes import Picture
from hybrid_lab.ndarray.ndarray import NDArray


@dataclass(frozen=True)
class Data:
    """The data to measure on. names : variables, such as `x, y`; "" for kept inputs, else random numbers."""

    names: str = ""
    namespace: Mapping[str, object] = field(default_factory=dict)
    kept: KeptInputs | None = None


@dataclass
class OverlaySource:
    """The inputs of an overlay. entry : the shown program; measured_on : the kind of data that `leaves` took"""

    net: Block
    path: str
    block: HybridBlock
    entry: GraphProgram
    picture: Picture
    data: Data
    measured_on: MeasuredOn = ""

    @property
    def part(self) -> str:
        """The part of a compiled call that is shown: "forward", "backward", or "" for other graphs."""
        half = self.entry["half"]
        return {"predict": "forward", "forward": "forward", "backward": "backward"}.get(half, "")

    def program(self) -> CompiledCall | None:
        """The compiled program that is shown, or the latest one of the traced graph; None if it is gone."""
        compilations = [item for item in access.calls(self.block).compilations if item.program is not None]
        if self.part:
            number = int(self.entry["id"].partition(":")[0][1:])
            compilations = [item for item in compilations if item.number == number]
        return compilations[-1].program if compilations else None

    def call(self) -> Compiled | str:
        """A call of the program on the data, or the reason why the program cannot be called."""
        if self.entry["half"] == "update":
            return "Updates are measured by mx.profile of a whole step, not here."
        program = self.program()
        if program is None:
            return "This graph was not compiled, or its program is gone: call the model once after hybridize()."
        return running_call(self.path, self.block, program, self.leaves(program))

    def leaves(self, program: CompiledCall) -> list[NDArray]:
        """The inputs of the call: variables of the user, the kept inputs of a call of this kind, or random numbers."""
        wanted = program.special.inputs[: program.neutral.num_data]
        types = [(tuple(value.shape), np.dtype(value.dtype)) for value in wanted]
        if not self.data.names:
            kept = None if self.data.kept is None else self.data.kept.of(self.block, tuple(types))
            self.measured_on = "random" if kept is None else "kept"
            return kept or [NDArray.wrap(array) for array in random_inputs(with_shapes(program), types)]
        self.measured_on = "variables"
        arrays: list[Any] = []
        for name in self.data.names.split(","):
            name = name.strip()
            if name not in self.data.namespace:
                raise RequestError("failed", f"there is no variable {visible(name)}", "Give names like x, or x, y.")
            arrays += flatten(self.data.namespace[name], f"the variable {name}")[0]
        given = [(tuple(item.shape), np.dtype(item.dtype)) for item in arrays if isinstance(item, NDArray)]
        if given != types:
            raise RequestError(
                "failed",
                f"{visible(self.data.names)} is {_types(given)}; this program takes {_types(types)}",
                "Choose the program of these shapes, or other variables.",
            )
        return arrays

    @property
    def data_in_words(self) -> str:
        """Words for the data of the measurement, such as `on x, y`."""
        if self.measured_on == "variables":
            return f"on {visible(self.data.names)}"
        if self.measured_on == "kept":
            return "on the kept inputs of a call"
        missing = "" if self.data.kept is None else " (no inputs of such a call are kept yet: call the model)"
        return f"on random numbers of the call's shapes{missing}"

    def neutral_ids(self, graph: Graph) -> dict[Node, str]:
        """Id by node of the traced graph, of which the picture may show a copy with shapes."""
        drawn = self.picture.drawn_graph.graph.operators
        pairs = zip(graph.operators, drawn, strict=True) if len(drawn) == len(graph.operators) else ()
        found = ((node, self.picture.id_of(copy)) for node, copy in pairs if node.op.name == copy.op.name)
        return {node: identity for node, identity in found if identity is not None}


def with_shapes(program: CompiledCall) -> Graph:
    """The traced graph of a program with the shapes that it was compiled for, if random inputs depend on them."""
    graph, inputs = program.neutral.graph, program.special.inputs
    if not reads_whole_numbers(graph):
        return graph
    pairs = list(zip(graph.inputs, inputs, strict=True))
    try:
        return infer(graph, {own: known.shape for own, known in pairs}, {own: known.dtype for own, known in pairs})
    except HybridLabError:  # sizes that only a call knows
        return graph


def _types(types: Sequence[tuple[tuple[int, ...], np.dtype]]) -> str:
    return ", ".join(f"{dtype.name}{list(shape)}" for shape, dtype in types) or "no array"
