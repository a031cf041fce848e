"""The Blocks of an imported graph: one for each path in the scopes of its nodes, as its functions or metadata say."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from hybrid_lab.formats.archive.open import ArchivedBlock
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.graph.graph import extract
from hybrid_lab.graph.input_checks import checked
from hybrid_lab.graph.node import Value
from hybrid_lab.hybridize.neutral import NeutralGraph, Observation, data_names
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.onnx.reading.checked import declared_shapes
from hybrid_lab.onnx.reading.compose import Composed
from hybrid_lab.onnx.writing.calls import BlockCall, calls_of

FUNCTION, HOLDER = "ONNX function", "Blocks"
"""Classes of Blocks of which the file says none: one with nodes, one that only holds others."""
MOST_GRAPHS = 2000
"""Calls of Blocks in a graph for which each Block gets a graph of its own."""


def add_children(
    root: HybridBlock, graphs: Sequence[NeutralGraph], composed: Sequence[Composed], classes: Mapping[str, str]
) -> dict[str, Block]:
    """Add the Blocks below `root`, each with the graph of its first call; returns all by path, "" for root.

    graphs : of root, one for each mode or one for both; composed : their sources
    classes : path -> name of the class in the file
    """
    blocks: dict[str, Block] = {"": root}
    pinned: dict[ArchivedBlock, list[NeutralGraph]] = {}
    for whole, imported in zip(graphs, composed, strict=True):
        variables = whole.graph.inputs[whole.num_data :]
        owners = dict(zip(variables, whole.parameters, strict=True))
        seen = {""}
        pending = deque(_calls(calls_of(whole.graph, set(variables))))
        while pending and len(pinned) < MOST_GRAPHS:
            call = pending.popleft()
            pending += _calls(call)
            neutral = _neutral(call, owners, whole.observation, imported)
            if call.path in seen or neutral is None:
                continue
            seen.add(call.path)
            block = blocks.get(call.path)
            if block is None:
                block = ArchivedBlock(f"{call.path.replace('.', '_')}_", classes.get(call.path, "") or FUNCTION)
                _add(block, call.path, blocks, classes)
            if isinstance(block, ArchivedBlock):
                pinned.setdefault(block, []).append(neutral)
    for block, neutrals in reversed(pinned.items()):
        access.calls(block).pin(neutrals)
    return blocks


def _add(block: Block, path: str, blocks: dict[str, Block], classes: Mapping[str, str]) -> None:
    """Add a Block under its path; Blocks that only hold other Blocks, such as lists, are made on the way."""
    parent, _, name = path.rpartition(".")
    if parent not in blocks:
        holder = ArchivedBlock(f"{parent.replace('.', '_')}_", classes.get(parent, "") or HOLDER)
        _add(holder, parent, blocks, classes)
    blocks[parent].register_child(block, name)
    _set(blocks[parent], name, block)
    blocks[path] = block


def _calls(call: BlockCall) -> list[BlockCall]:
    return [item for item in call.items if isinstance(item, BlockCall)]


def _neutral(
    call: BlockCall, owners: Mapping[Value, Parameter], observation: Observation, imported: Composed
) -> NeutralGraph | None:
    """The graph of a call, with a check of its inputs if their shapes are known; None for one without data."""
    data = [value for value in call.inputs if value not in owners]
    if not data or not call.outputs:
        return None
    graph = extract(data, call.outputs, data_names(len(data)), call.path)
    variables = graph.inputs[len(data) :]
    if any(value not in owners for value in variables):
        return None
    out_spec = LEAF if len(call.outputs) == 1 else ("tuple", (LEAF,) * len(call.outputs))
    parameters = tuple(owners[value] for value in variables)
    if all(value in imported.shapes for value in data):
        names = [value.node.name for value in graph.inputs]
        declared = declared_shapes(
            names[: len(data)], [imported.shapes[value] for value in data], [None] * len(data), imported.conditions
        )  # fmt: skip
        graph = checked(graph, declared, imported.source)
    return NeutralGraph(
        graph, ("tuple", (LEAF,) * len(data)), out_spec, parameters, observation, source="file",
        module=imported.source == "torch",
    )  # fmt: skip


def place(parameter: Parameter, blocks: Mapping[str, Block]) -> None:
    """Register a parameter at the Block that its name is a path to: "features.0.weight" as `weight` of "features.0"."""
    path, _, name = parameter.name.rpartition(".")
    while path and path not in blocks:
        path, _, last = path.rpartition(".")
        name = f"{last}.{name}"
    block = blocks[path]
    block.params.add(parameter)
    access.own_parameters(block)[name] = parameter
    if path:
        _set(block, name, parameter)


def _set(block: Block, name: str, item: object) -> None:
    """As an attribute, if the name can be one and means nothing else."""
    if name.isidentifier() and not hasattr(type(block), name):
        object.__setattr__(block, name, item)
