"""`net.export(path)`: the graph and the parameters of a HybridBlock in MXNet's two files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.formats.mxnet import save_model
from hybrid_lab.gluon import access
from hybrid_lab.gluon.files.graphs_of_calls import predicting
from hybrid_lab.gluon.files.observed_shapes import with_checks
from hybrid_lab.graph.passes.mixed_precision import without_conversions
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.ops.framework.dtypes import is_narrow
from hybrid_lab.symbol.symbol import Symbol
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid


def export(block: Hybrid, path: str | None, epoch: int, remove_amp_cast: bool) -> tuple[Any, Any]:
    """As `HybridBlock.export`: the names of the two files, or without a path the Symbol and its parameters.

    Raises MissingGraphError for a Block without a call, HybridLabError as `_without_conversions`.
    """
    neutral = predicting(block).without_unused()
    if remove_amp_cast:
        neutral = _without_conversions(block, neutral)
    neutral = with_checks(neutral)
    variables = neutral.graph.inputs[neutral.num_data :]
    values = {
        value: access.mean(parameter).asnumpy() for value, parameter in zip(variables, neutral.parameters, strict=True)
    }
    if path is None:
        kinds = {value: "aux" if value in neutral.graph.states else "arg" for value in variables}
        arrays = {f"{kinds[value]}:{value.node.name}": NDArray.wrap(array) for value, array in values.items()}
        return Symbol(tuple(neutral.graph.outputs)), arrays
    return save_model(path, epoch, neutral.graph, values, is_np_shape())


def _without_conversions(block: Hybrid, neutral: NeutralGraph) -> NeutralGraph:
    """The graph without its mixed-precision conversions; the log gives their number.

    Raises HybridLabError if the graph without them would not fit float16 or bfloat16 parameters.
    """
    graph = without_conversions(neutral.graph)
    gone = len(neutral.graph.operators) - len(graph.operators)
    if not gone:
        return neutral
    dtypes = {parameter.name: np.dtype(parameter.dtype) for parameter in neutral.parameters}
    narrow = [name for name, dtype in dtypes.items() if is_narrow(dtype)]
    if narrow:
        kind = dtypes[narrow[0]].name
        raise HybridLabError(
            f"{called(block)}: {', '.join(narrow)} {'is' if len(narrow) == 1 else 'are'} {kind}, so that the graph "
            "needs its conversions; export(..., remove_amp_cast=False) keeps them"
        )
    logger.info(f"{called(block)}: exported without {gone} conversions of amp; remove_amp_cast=False keeps them")
    return replace(neutral, graph=graph)
