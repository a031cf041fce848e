"""The reply to `summary`: `mx.summary` of a model for its last call, or for inputs that the user typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, count
from hybrid_lab.gluon import access
from hybrid_lab.gluon.ahead import arguments, weight_dtype
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.call_record import last_record
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.printer import format_type
from hybrid_lab.hybridize.structure import LEAF, Spec, unflatten
from hybrid_lab.insight.model_summary import BlockSummary, ModelSummary, summary
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.models import BlockWork, SummaryReply
from hybrid_lab.lab.models.tree import tensor
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.system.memory import without_collecting

Types = Sequence[tuple[tuple[int, ...], Any]]
"""(shape, dtype) of each input."""

_HOW = "Write shapes such as 32 x 3 x 224 x 224, or (8, 10) int32, (8, 3) for two inputs."
_NOT_CALLED = "Shapes are unknown until the model is called. Type the shape of an input, or call it once."


@dataclass(frozen=True)
class Inputs:
    """What a model is called with. spec : the structure of the arguments"""

    spec: Spec
    types: Types

    @property
    def text(self) -> str:
        """`f32[8,3,224,224], i32[8]`"""
        return ", ".join(format_type(shape, np.dtype(dtype)) for shape, dtype in self.types)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arrays that take no memory in the place of the inputs."""
        return unflatten(self.spec, iter(arguments(list(self.types)) if self.types else ()))

    def with_batch(self, batch: int) -> Inputs:
        """The same with another first axis, in all inputs whose first axis is as long as the first input's."""
        size = next((shape[0] for shape, _ in self.types if shape), None)
        changed = [((batch, *shape[1:]) if shape[:1] == (size,) else shape, dtype) for shape, dtype in self.types]
        return replace(self, types=tuple(changed))


def block_work(net: Block, asked: Mapping[str, Any], busy: bool) -> SummaryReply:
    """The reply to `summary`.

    asked : the request; busy : a cell is running, so no code of the user's may be traced
    Raises RequestError for text that is no shape, for unsuitable inputs, and while a cell runs.
    """
    with without_collecting(collect=False):  # a trace makes many objects, few of them in cycles
        return _block_work(net, asked, busy)


def _block_work(net: Block, asked: Mapping[str, Any], busy: bool) -> SummaryReply:
    typed = str(asked["inputs"]).strip()
    own = last_inputs(net)
    inputs = parsed(typed, net) if typed else own
    if asked["batch"] > 0 and inputs is not None:
        inputs = inputs.with_batch(asked["batch"])
    dtype = _dtype(asked["dtype"]) if asked["dtype"] else None
    is_what_if = inputs is not None and (inputs != own or dtype is not None)
    if busy and not has_graph(net):
        raise RequestError(
            "busy", "a cell is running: counting traces the model's code, which would disturb it", "It is counted then."
        )
    found: ModelSummary | None = None
    if inputs is not None:
        try:
            found = summary(net, inputs.arguments, dtype=dtype)
        except HybridLabError as error:
            raise RequestError("failed", f"{inputs.text} does not fit {called(net)}: {error}") from error
    if (found is None or found.missing) and not typed and not isinstance(net, HybridBlock):
        parts = _of_parts(net, asked["batch"], dtype)
        if parts is not None:
            return parts
    if found is None:
        return _reply([], [], "", _NOT_CALLED, False)
    missing = next(iter(found.missing.splitlines()), "")
    return _reply(found.blocks if found.total.calls else [], found.inputs, found.headline, missing, is_what_if)


def has_graph(net: Block) -> bool:
    """Whether a model has a graph of which its work can be told without running its code."""
    return isinstance(net, HybridBlock) and bool(access.graphs(net).variants or access.graphs(net).pinned)


def last_inputs(net: Block) -> Inputs | None:
    """The inputs of a model's last call; None if unknown."""
    if isinstance(net, HybridBlock):
        known = [call for call in access.calls(net).known_calls() if call.types is not None]
        if known:
            return Inputs(known[-1].spec, tuple([(tuple(shape), dtype_of(dtype)) for shape, dtype in known[-1].types]))  # type: ignore[union-attr]
        return None
    record = last_record(net)
    if record is None or not record.inputs or record.error:
        return None
    return Inputs(("tuple", (LEAF,) * len(record.inputs)), tuple(record.inputs))


def _of_parts(net: Block, batch: int, dtype: np.dtype | None) -> SummaryReply | None:
    """The sum of the last calls of the outermost HybridBlocks, for a plain Block whose own code gives no graph; None if
    no part was called.
    """
    rows: dict[str, BlockSummary] = {}
    inputs: list[str] = []
    below = [(path, block) for path, block in blocks_below(net) if isinstance(block, HybridBlock)]
    hybrid = {path for path, _ in below}
    outer = [(path, block) for path, block in below if not any(above in hybrid for above in _above(path))]
    uncounted = 0
    for path, block in outer:
        called = last_inputs(block)
        if called is not None and batch > 0:
            called = called.with_batch(batch)
        found = None if called is None else summary(block, called.arguments, dtype=dtype)
        if called is None or found is None or found.missing:
            uncounted += 1
            continue
        inputs += found.inputs
        for row in found.blocks:
            own = f"{path}.{row.path}" if row.path else path
            same = row.same_as if row.same_as is None else f"{path}.{row.same_as}".rstrip(".")
            rows[own] = replace(row, path=own, same_as=same)
        for above in (*_above(path), *([""] if path else [])):
            total = rows.setdefault(above, BlockSummary(above, "", parameters=None, calls=1))
            total.multiply_adds += found.total.multiply_adds
            total.flop += found.total.flop
            total.activations += found.total.activations
    if not rows:
        return None
    missing = "One call of each HybridBlock is counted: the code around them cannot become a graph."
    if uncounted:
        missing += f" {count(uncounted, 'HybridBlock')} without a call or a graph left out."
    return _reply(list(rows.values()), list(dict.fromkeys(inputs)), "", missing, batch > 0 or dtype is not None)


def _above(path: str) -> list[str]:
    """The paths above a path, the top left out."""
    names = path.split(".")
    return [".".join(names[:depth]) for depth in range(1, len(names))]


def _reply(
    blocks: Sequence[BlockSummary], inputs: Sequence[str], headline: str, missing: str, is_what_if: bool
) -> SummaryReply:
    return {
        "inputs": ", ".join(inputs),
        "what_if": is_what_if,
        "headline": headline,
        "missing": missing,
        "blocks": [_work(row) for row in blocks],
    }


def _work(row: BlockSummary) -> BlockWork:
    is_counted = row.calls > 0
    return {
        "path": row.path,
        "counted_at": row.same_as,
        "calls": row.calls,
        "parameters": row.parameters if row.same_as is None else None,
        "multiply_adds": row.multiply_adds if is_counted else None,
        "flop": row.flop if is_counted else None,
        "activations": row.activations if is_counted else None,
        "outputs": [tensor(shape, dtype) for shape, dtype in row.shapes],
    }


# -- what the user types -----------------------------------------------------------------------------------------------

_SIZES = r"\d+(?:\s*[x×*,]\s*\d+)*\s*,?"
_DTYPE = r"[a-z]+\d*"
_INPUT = re.compile(
    rf"(?P<before>{_DTYPE})?\s*[\[(]\s*(?P<inner>{_SIZES})\s*[\])]\s*(?P<after>{_DTYPE})?"
    rf"|(?:batch\s+)?(?P<plain>{_SIZES})\s*(?P<type>{_DTYPE})?",
    re.IGNORECASE,
)
_LONG = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat"}


def parsed(text: str, net: Block) -> Inputs:
    """The inputs that a text names. Raises RequestError."""
    types: list[tuple[tuple[int, ...], Any]] = []
    place = 0
    while place < len(text):
        match = _INPUT.match(text, place)
        if match is None:
            raise RequestError("failed", f"{text[place:][:40]!r} is no shape", _HOW)
        sizes = tuple(map(int, re.findall(r"\d+", match["inner"] or match["plain"])))
        name = match["before"] or match["after"] or match["type"]
        types.append((sizes, weight_dtype(net) if name is None else _dtype(name)))
        place = match.end()
        separator = re.compile(r"[\s,;]*").match(text, place)
        assert separator is not None
        place = separator.end()
    if not types:
        raise RequestError("failed", "no shape is given", _HOW)
    return Inputs(("tuple", (LEAF,) * len(types)), tuple(types))


def _dtype(name: str) -> np.dtype:
    short = re.fullmatch(r"(bf|f|i|u)(\d+)", name.lower())
    try:
        return dtype_of(_LONG[short[1]] + short[2] if short else name.lower())
    except (TypeError, HybridLabError):
        raise RequestError("failed", f"{name!r} is no dtype", "Use float32, float16, int32 and the like.") from None
