"""The block tree of a model as the protocol's BlockNode data (docs/protocol.md)."""

from __future__ import annotations

import inspect
from typing import Any

from hybrid_lab.diagnostics.location import Location, cell_number, display_file
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.insight.states import block_state

#: file name of a notebook cell -> the notebook's id of that cell; kept by the hooks.
cell_ids: dict[str, str] = {}


def block_tree(net: Block, name: str, findings: dict[str, int] | None = None) -> dict[str, Any]:
    """The tree of `net`, known to the user as `name`. findings : path -> number of findings of the Block there."""
    seen: dict[int, str] = {}
    owners: dict[int, int] = {}
    for parameter in _own_parameters_below(net, set()):
        owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    return _node(net, "", name, seen, owners, findings or {})


def _own_parameters_below(block: Block, seen: set[int]) -> list[Parameter]:
    if id(block) in seen:
        return []
    seen.add(id(block))
    found = list(block._reg_params.values())
    for child in block._children.values():
        found += _own_parameters_below(child, seen)
    return found


def _node(block: Block, path: str, attr: str, seen: dict[int, str], owners: dict[int, int], findings: dict[str, int]) -> dict[str, Any]:
    state = block_state(block)
    shared = seen.get(id(block))
    seen.setdefault(id(block), path)
    children = [] if shared is not None else list(block._children.items())
    graphs: Any = block._graphs if isinstance(block, HybridBlock) else None
    return {
        "path": path,
        "attr": attr,
        "name": block.name,
        "class": type(block).__name__,
        "hybrid": isinstance(block, HybridBlock),
        "state": state.state,
        "why": state.why,
        "repr": short_repr(block),
        "parameters": [parameter_row(key, parameter, owners) for key, parameter in block._reg_params.items()],
        "parameter_count": count_parameters(block),
        "output": [tensor(shape, dtype) for shape, dtype in block._last_outputs],
        "graphs": len(graphs.graphs()) if graphs is not None else 0,
        "engine": graphs.compilations[-1].program.engine if graphs is not None and graphs.compilations else "",
        "findings": findings.get(path, 0),
        "shared_with": shared,
        "location": class_location(type(block)),
        "children": [
            _node(child, f"{path}.{key}" if path else key, key, seen, owners, findings) for key, child in children
        ],
    }


def short_repr(block: Block) -> str:
    """One line: `Dense(84 -> 10, linear)`; the class with an ellipsis where the repr would list children."""
    if block._children:
        return f"{type(block).__name__}(...)"
    return " ".join(repr(block).split())


def parameter_row(key: str, parameter: Parameter, owners: dict[int, int]) -> dict[str, Any]:
    shape = parameter.partial_shape
    return {
        "name": key,
        "shape": None if shape is None else list(shape),
        "dtype": str(_dtype_name(parameter.dtype)),
        "grad_req": parameter.grad_req,
        "shared": owners.get(id(parameter), 0) > 1,
    }


def count_parameters(block: Block) -> int | None:
    """Elements of all parameters below, shared ones once; None while a shape is unknown."""
    total = 0
    for parameter in {id(p): p for p in _own_parameters_below(block, set())}.values():
        if not parameter.shape_is_known:
            return None
        size = 1
        for length in parameter.shape or ():
            size *= length
        total += size
    return total


def tensor(shape: Any, dtype: Any) -> dict[str, Any]:
    return {"shape": None if shape is None else list(shape), "dtype": _dtype_name(dtype)}


def _dtype_name(dtype: Any) -> str:
    import numpy as np

    return "" if dtype is None else np.dtype(dtype).name


def location_data(location: Location | None) -> dict[str, Any] | None:
    """The protocol's Location."""
    if location is None:
        return None
    return place(location.file, location.line, location.col, location.end_line, location.end_col)


def place(file: str, line: int, col: int, end_line: int, end_col: int) -> dict[str, Any]:
    return {
        "file": file,
        "label": f"{display_file(file)}, line {line}",
        "cell": cell_number(file),
        "cell_id": cell_ids.get(file, ""),
        "line": line,
        "col": col,
        "end_line": end_line,
        "end_col": end_col,
    }


def class_location(kind: type) -> dict[str, Any] | None:
    """Where the class is defined, if that is a notebook cell or the user's own file."""
    if kind.__module__.split(".")[0] == "hybrid_lab":
        return None
    for name in ("hybrid_forward", "forward", "__init__"):
        function = kind.__dict__.get(name)
        code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
        if code is not None:
            line = code.co_firstlineno
            return place(code.co_filename, line, 0, line, 0)
    return None
