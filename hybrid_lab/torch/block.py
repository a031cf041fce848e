"""HybridBlocks made from modules of torch: what `imports` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.onnx.block import ImportedGraph
from hybrid_lab.torch.composing import compose
from hybrid_lab.torch.errors import TorchError
from hybrid_lab.torch.exported import exported
from hybrid_lab.torch.memory import tensor_on

if TYPE_CHECKING:
    pass


def imports(
    source: Any, example_inputs: Any = (), ctx: Context | Sequence[Context] | None = None, *,
    example_kwargs: Mapping[str, object] | None = None, dynamic_shapes: Any = "batch", copy: bool = False,
) -> HybridBlock:  # fmt: skip
    """A module of torch as a HybridBlock of this package's operators: it runs, trains, saves and exports without torch.

    source : a torch.nn.Module, or the ExportedProgram of one
    example_inputs : a tensor, or a tuple of arguments; torch tensors, NDArrays or NumPy arrays, of which shapes and
        types are used. Other values are fixed
    example_kwargs : further arguments by name; the Block takes them by position, behind the others
    ctx : where the parameters go, the CPU by default
    dynamic_shapes : which sizes stay open, as of torch.export; "batch" opens the first size of the tensors, {} none
    copy : True gives the Block memory of its own. By default parameters on the CPU stay in the module's memory, and
        belong to both: a training step on one side changes the other
    Raises TorchError for a module that cannot be exported, UnsupportedOperatorError naming operator and module.
    """
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
    graphs = [compose(program) for program in exported(source, args, kwargs, dynamic_shapes)]
    modules = list(source.named_modules()) if isinstance(source, torch.nn.Module) else []
    for graph in graphs:
        if copy:
            graph.buffers.clear()
        graph.classes.update({path: type(module).__name__ for path, module in modules if path not in graph.classes})
    return ImportedGraph(graphs[0], ctx, *graphs[1:])


def _tensor(item: Any) -> Any:
    """An example input as torch has it. One that is given twice becomes two tensors: torch would make it one input."""
    if isinstance(item, NDArray):
        return tensor_on(item.asnumpy())
    if hasattr(item, "detach"):
        return item.detach()
    return tensor_on(item) if hasattr(item, "__array_interface__") else item
