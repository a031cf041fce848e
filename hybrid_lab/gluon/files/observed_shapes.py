"""A trace's observations of its inputs as a check in the graph, for files that hold a graph and no Observation."""

from __future__ import annotations

from dataclasses import replace

from hybrid_lab.graph.input_checks import checked
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.ops.framework.declared_shapes import DeclaredInput, DeclaredShapes


def with_checks(neutral: NeutralGraph) -> NeutralGraph:
    """The graph with a check of its inputs, if the code that it was traced from read their shapes or dtypes."""
    observation = neutral.observation
    observed = observation.types or observation.layout
    if not observed or len(observed) != neutral.num_data:
        return neutral
    names = [value.node.name for value in neutral.graph.inputs[: neutral.num_data]]
    sizes = observation.types is not None and observation.includes("shape")
    ranks = observation.types is None
    kinds = observation.includes("dtype") or observation.includes("layout")
    declared = [
        DeclaredInput(
            name,
            tuple(map(int, shape)) if sizes else (None,) * shape[0] if ranks else None,
            dtype if kinds else None,
        )
        for name, (shape, dtype) in zip(names, observed, strict=True)
    ]
    return replace(neutral, graph=checked(neutral.graph, DeclaredShapes(tuple(declared)), "code"))
