"""The reply of the request `values`: numbers, histogram and picture of one array of a model."""

from __future__ import annotations

from typing import Any, Literal, cast

from hybrid_lab.diagnostics.formatting import called, visible, visible_lines
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight.capture import last_captured
from hybrid_lab.insight.facets import facets
from hybrid_lab.insight.states import block_at
from hybrid_lab.lab.messages.measured import ValuesReply
from hybrid_lab.ndarray.ndarray import NDArray


def values_of(net: Block, path: str, name: str, what: Literal["data", "grad", "output"]) -> ValuesReply:
    """A parameter of the Block at `path`, its gradient, or output number `name` of the Block as `mx.capture` read it.

    Raises KeyError for an unknown path.
    """
    block = block_at(net, path)
    found = _output(block, path, name) if what == "output" else _parameter(block, name, what == "grad")
    if isinstance(found, str):
        empty: ValuesReply = {
            "title": visible(name),
            "type": "",
            "facts": [],
            "finite": True,
            "bars": [],
            "low": "",
            "high": "",
            "picture": "",
            "caption": "",
            "text": "",
            "missing": visible(found),
        }
        return empty
    title = {"data": name, "grad": f"gradient of {name}", "output": f"output {name}".rstrip()}[what]
    data = facets(found, visible(title)).data()
    return cast(ValuesReply, data | {"text": visible_lines(data["text"]), "missing": ""})


def _parameter(block: Block, name: str, gradient: bool) -> NDArray | str:
    parameter = access.own_parameters(block).get(name)
    if parameter is None:
        return f"{called(block)} has no parameter {name}"
    arrays = access.arrays(parameter)
    if not arrays:
        return f"{name} has no values yet: its shape is completed by the first call"
    if not gradient:
        return arrays[0]
    own = arrays[0].grad
    return f"{name} has no gradient: its grad_req is {parameter.grad_req!r}" if own is None else own


def _output(block: Block, path: str, name: str) -> NDArray | str:
    seen: Any = last_captured(block)
    if seen is None:
        inside = path or block.name  # what mx.capture takes
        return f"no values of {inside} were captured: with mx.capture(net, {inside!r}) as seen: net(x)"
    leaves = flatten(seen)[0]
    number = int(name) if name.isdecimal() else 0
    return leaves[number] if number < len(leaves) else f"there is no output {number}: {len(leaves)} were captured"
