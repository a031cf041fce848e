"""HybridBlocks made from modules of torch: what `imports` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.equal import equal
from hybrid_lab.graph.input_checks import without_checks
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.onnx.reading.block import ImportedGraph
from hybrid_lab.onnx.reading.compose import Composed
from hybrid_lab.system.logger import logger
from hybrid_lab.system.progress import shows_work
from hybrid_lab.torch.composing import compose
from hybrid_lab.torch.errors import TorchError, UnsupportedOperatorError
from hybrid_lab.torch.exported import Exported, exported, exported_for_all_sizes, written_shapes
from hybrid_lab.torch.memory import tensor_on
from hybrid_lab.torch.stages import shown, stage


@shows_work("importing")
def imports(
    source: Any, example_inputs: Any = (), ctx: Context | Sequence[Context] | None = None, *,
    example_kwargs: Mapping[str, object] | None = None, dynamic_shapes: Any = "batch", copy: bool = False,
) -> HybridBlock:  # fmt: skip
    """A module of torch as a HybridBlock of this package's operators: it runs, trains, saves and exports without torch.

    source : a torch.nn.Module, or the ExportedProgram of one
    example_inputs : a tensor, or a tuple of arguments; torch tensors, NDArrays or NumPy arrays, of which shapes and
        types are used. Other values are fixed
    example_kwargs : further arguments by name; the Block takes them by position, behind the other arguments
    ctx : where the parameters go, the CPU by default
    dynamic_shapes : which sizes stay open, as of torch.export; "batch" opens the first size of the tensors, and the
        others if the graph does not depend on them; "auto" opens all that the code does not need as numbers, {} none
    copy : True gives the Block memory of its own. By default parameters on the CPU stay in the module's memory, and
        belong to both: a training step on either side changes both
    A call with other sizes than the graph holds for is a DeclaredSizeError.
    Raises TorchError for a module that cannot be exported, UnsupportedOperatorError naming operator and module.
    """
    check_switches("imports", copy=copy)
    import torch
    from torch.utils import _pytree as pytree

    if not isinstance(source, (torch.nn.Module, torch.export.ExportedProgram)):
        given = f"the class {source.__name__}" if isinstance(source, type) else type(source).__name__
        made = "; make a module of the class first" if isinstance(source, type) else ""
        raise TorchError(
            f"mx.torch.imports takes a torch.nn.Module or a torch.export.ExportedProgram, not {given}{made}"
        )
    args = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    args, kwargs = pytree.tree_map(_tensor, (args, dict(example_kwargs or {})))
    with shown(source):
        graphs = _composed(source, args, kwargs, dynamic_shapes)
    modules = list(source.named_modules()) if isinstance(source, torch.nn.Module) else []
    for graph in graphs:
        if copy:
            graph.buffers.clear()
        graph.classes.update({path: type(module).__name__ for path, module in modules if path not in graph.classes})
    return ImportedGraph(graphs[0], ctx, *graphs[1:])


def _composed(source: Any, args: Sequence[object], kwargs: Mapping[str, object], dynamic_shapes: Any) -> list[Composed]:
    """The graphs of a module: one for both modes, or one for prediction and one for training."""
    found = exported(source, args, kwargs, dynamic_shapes)
    stage("writing its operators")
    try:
        graphs = [compose(found[0])]
    except UnsupportedOperatorError as error:
        if not isinstance(dynamic_shapes, str) or not isinstance(source, torch_module()):
            raise
        narrower = "batch" if dynamic_shapes == "auto" else {}
        try:
            graphs = _composed(source, args, kwargs, narrower)
        except UnsupportedOperatorError:
            raise error from None
        which = "the batch is" if dynamic_shapes == "batch" else "all sizes but the batch are"
        logger.warning(f"{type(source).__name__}: {which} fixed, as it has no form here that is open: {error}")
        return graphs
    try:
        graphs += [compose(each) for each in found[1:]]
    except UnsupportedOperatorError as error:
        logger.warning(
            f"{type(source).__name__}: its operators in training are not all supported, so training is the same as "
            f"prediction: {error}"
        )
    if dynamic_shapes == "batch" and len(found) == 1 and isinstance(source, torch_module()):
        wider = _wider(source, args, kwargs, found[0], graphs[0])
        graphs = [graphs[0] if wider is None else wider]
    return graphs


def torch_module() -> type:
    """torch.nn.Module"""
    import torch

    return torch.nn.Module


_MANY_SHAPES, _MANY_CONDITIONS = 4, 100
"""With more operators that shapes are written out for, a graph depends on its sizes, or torch takes minutes to say so;
with more conditions, few sizes satisfy them."""


def _wider(
    module: Any, args: Sequence[object], kwargs: Mapping[str, object], closed: Exported, composed: Composed
) -> Composed | None:
    """The same graph for all sizes that it does not depend on: the module is exported with all sizes open, and gives
    the same operators. None if it gives other operators, or if there is nothing to open.
    """
    shapes = [composed.shapes[value] for value in composed.graph.inputs[: len(composed.inputs)]]
    if not any(isinstance(size, int) and size > 1 for shape in shapes for size in shape):
        return None
    if written_shapes(closed.program) > _MANY_SHAPES:
        return None
    opened = exported_for_all_sizes(module, args, kwargs)
    if opened is None:
        return None
    try:
        wider = compose(opened, tell=False)
    except TorchError:
        return None
    same = equal(without_checks(wider.graph), without_checks(composed.graph))
    return wider if same and len(wider.conditions) <= _MANY_CONDITIONS else None


def _tensor(item: Any) -> Any:
    """An example input as torch has it. An array that is given twice becomes two tensors: torch would make it one
    input.
    """
    if isinstance(item, NDArray):
        return tensor_on(item.asnumpy())
    if hasattr(item, "detach"):
        return item.detach()
    return tensor_on(item) if hasattr(item, "__array_interface__") else item
