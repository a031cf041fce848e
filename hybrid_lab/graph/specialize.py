"""Specialize: the passes in order, from a neutral graph to the forward and backward graphs of one call signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_lab.graph.bind_mode import bind_mode
from hybrid_lab.graph.differentiate import differentiate
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.infer import infer
from hybrid_lab.graph.simplify import simplify
from hybrid_lab.graph.split import Split, split


@dataclass(frozen=True)
class Specialized:
    """What one call signature runs.

    forward : outputs, then the values kept for the backward
    backward : None for a call that records nothing
    sources : where each input of `backward` comes from (see graph.split)
    wrt : indices of the graph's inputs whose gradients `backward` returns, in this order
    """

    forward: Graph
    backward: Graph | None
    sources: tuple[tuple[str, int], ...]
    wrt: tuple[int, ...]


def specialize(
    graph: Graph, shapes: Sequence[Any], dtypes: Sequence[Any], train: bool, wrt: Sequence[int] = ()
) -> Specialized:
    """Run the passes for inputs of these shapes and dtypes (in the order of graph.inputs).

    train : the mode
    wrt : indices of the inputs that need gradients; empty means inference
    """
    given_shapes = dict(zip(graph.inputs, shapes, strict=True))
    given_dtypes = dict(zip(graph.inputs, dtypes, strict=True))
    inferred = dump("infer", infer(dump("neutral", graph), given_shapes, given_dtypes))
    bound = dump("bind_mode", bind_mode(inferred, train))
    if not wrt:
        return Specialized(dump("simplify", simplify(bound)), None, (), ())
    joint = dump("differentiate", differentiate(bound, [bound.inputs[index] for index in wrt]))
    joint = dump("simplify", simplify(joint))
    parts: Split = dump("split", split(joint, len(bound.inputs), len(bound.outputs)))
    return Specialized(parts.forward, parts.backward, parts.sources, tuple(wrt))
