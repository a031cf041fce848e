"""The shapes of parameters of a HybridBlock that wait for the first inputs: they follow from a graph of its code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.partial import PartialShapes, is_complete
from hybrid_lab.hybridize.block import Part
from hybrid_lab.hybridize.structure import flatten

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid, Tree
    from hybrid_lab.hybridize.neutral import NeutralGraph
    from hybrid_lab.ndarray.ndarray import NDArray


def infer_shapes(block: Hybrid, args: tuple[object, ...], part: Part) -> None:
    """As `HybridBlock.infer_shape`. part : the part of the code that gets the arguments"""
    leaves, spec = flatten(args, f"the input of {block.name}")
    try:
        graph = block._graph_calls.for_shapes(spec, leaves, part)
    except HybridizeError as error:
        if not block._graph_calls.failures.keeps(error):
            raise
        unknown = [item.name for item in block.collect_params().values() if not item.shape_is_known]
        if not unknown:
            return
        raise HybridLabError(
            f"{block.name}: the shapes of {', '.join(unknown)} cannot be inferred, because the code computes with "
            "arrays that it keeps on the Block. Call initialize() and then the Block: layers take their shapes "
            f"from what they are called with. Other parameters need a shape when they are made.\n{error}"
        ) from None
    set_shapes(block, graph, leaves)


def set_shapes(block: Tree, neutral: NeutralGraph, leaves: Sequence[NDArray]) -> None:
    """Infer the unknown shapes of a graph's parameters. Raises HybridLabError naming the parameters whose shapes stay
    unknown.

    block : whose graph it is; leaves : the arrays of its inputs
    """
    graph = neutral.graph
    variables = graph.inputs[neutral.num_data :]
    shapes: dict[Any, Any] = {value: leaf.shape for value, leaf in zip(graph.inputs, leaves, strict=False)}
    shapes |= {value: each.partial_shape for value, each in zip(variables, neutral.parameters, strict=True)}
    if neutral.unused:
        graph = Graph(graph.inputs, [*graph.outputs, *neutral.unused])
    inferred = PartialShapes(graph, shapes).shapes
    missing = []
    for value, parameter in zip(variables, neutral.parameters, strict=True):
        shape: Any = inferred.get(value)
        if not is_complete(shape):
            missing.append(parameter.name)
        elif not parameter.shape_is_known:
            parameter.shape = shape
    if missing:
        raise HybridLabError(
            f"{block.name}: the shapes of {', '.join(missing)} do not follow from the inputs; "
            "give them when creating the parameters"
        )
