"""Errors of torch.export as TorchErrors: which module, which line of the user's code, and what to do next."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.location import Location
from hybrid_lab.torch.errors import TorchError

if TYPE_CHECKING:
    import torch

_BY_DATA = ("data-dependent", "DataDependent", "unbacked")
"""Words in the text or the type of torch's errors about branches on values of tensors."""
_NEXT = (
    "Call the module itself with the example inputs: if it fails there too, mend that first. Else write this line with "
    "other operators of torch, or import the parts of the module that do without it"
)


def export_error(module: torch.nn.Module, error: Exception) -> TorchError:
    """The error of a module that torch.export could not trace."""
    place, first = _place(module, error), _first_line(error)
    if place is None:
        return TorchError(
            f"{type(module).__name__}: torch.export refuses it ({type(error).__name__}: {first}). Change the module, "
            "the example inputs or dynamic_shapes so"
        )
    if any(word in str(error) or word in type(error).__name__ for word in _BY_DATA):
        return TorchError(
            f"{place}: its code branches on the data, which no graph holds ({first}). Compute with torch.where, or "
            "import the parts before and behind the branch by themselves"
        )
    if type(error).__name__ == "UnsupportedOperatorException" and not first.startswith("aten."):
        return TorchError(
            f"{place}: torch.export does not know the shapes that the operator {first} returns. Tell it with "
            "torch.library.register_fake, or import the parts of the module that do without it"
        )
    return TorchError(f"{place}: torch.export cannot trace it ({type(error).__name__}: {first}). {_NEXT}")


def decomposition_error(program: torch.export.ExportedProgram, error: Exception) -> TorchError:
    """The error of an exported program whose operators torch could not decompose into core ATen."""
    what = "the exported program"
    failed = re.search(r"While executing %(\w+)", str(error))
    for node in program.graph.nodes if failed else ():
        if failed and node.name == failed[1]:
            stack = list((node.meta.get("nn_module_stack") or {}).values())
            path = stack[-1][0] if stack and isinstance(stack[-1], tuple) else ""
            what = f"{path or 'the module'} ({node.target}, node {node.name!r}{line_of(node)})"
    return TorchError(
        f"{what}: torch cannot write it in core ATen operators ({type(error).__name__}: {_first_line(error)}). Write "
        "this part with other operators of torch, or export and import the parts of the module that do without it"
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def line_of(node: torch.fx.Node) -> str:
    """`, cell 3, line 21, in forward: x + y`: the line of the user's code that a node of a graph comes from, or ""."""
    lines = re.findall(r'File "(.+?)", line (\d+), in (.+)', node.meta.get("stack_trace") or "")
    own = [Location.known(file, int(line), function=name) for file, line, name in lines if not _is_library(file)]
    return f", {_with_source(own[-1])}" if own else ""


def _with_source(location: Location) -> str:
    source = location.source_line.strip()
    return f"{location.describe()}{': ' + source if source else ''}"


def _place(module: torch.nn.Module, error: Exception) -> str | None:
    """`blocks.1 of Net (cell 3, line 21, in Part.forward: x + y)`: the innermost module that ran, and the innermost
    line of code that it called outside libraries. None if no module ran.
    """
    paths = {id(part): path for path, part in module.named_modules()}
    innermost, location = None, None
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        code = frame.f_code
        receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if id(receiver) in paths and hasattr(receiver, code.co_name):  # a method of a module
            innermost = paths[id(receiver)]
        if innermost is not None and not _is_library(code.co_filename):
            location = Location(code, step.tb_lasti)
        step = step.tb_next
    if innermost is None:
        return None
    name = f"{innermost} of {type(module).__name__}" if innermost else type(module).__name__
    return name if location is None else f"{name} ({_with_source(location)})"


def _is_library(file: str) -> bool:
    """Whether a file is torch's or Python's own, or code that torch generates."""
    import torch

    if file.startswith((os.path.dirname(torch.__file__) + os.sep, "<frozen ", "<string>", "<eval_with_key>")):
        return True
    return file.startswith(os.path.dirname(os.__file__) + os.sep) and "-packages" not in file
