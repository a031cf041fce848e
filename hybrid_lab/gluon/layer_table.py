"""The table that `net.summary(x)` prints: one line per layer with its output shape and its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hybrid_lab.hybridize import events
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import tracing

if TYPE_CHECKING:
    from .block import Block

_LINE = "{:>20}  {:>42} {:>15}"


@dataclass
class LayerTable:
    """The lines of a summary and their totals. `str(table)` is the text MXNet prints."""

    rows: list[tuple[str, str, int]] = field(default_factory=list)
    total: int = 0
    trainable: int = 0
    shared: int = 0

    def __str__(self) -> str:
        lines = ["-" * 80, _LINE.format("Layer (type)", "Output Shape", "Param #"), "=" * 80]
        lines += [_LINE.format(*row) for row in self.rows]
        lines += [
            "=" * 80,
            "Parameters in forward computation graph, duplicate included",
            f"   Total params: {self.total}",
            f"   Trainable params: {self.trainable}",
            f"   Non-trainable params: {self.total - self.trainable}",
            f"Shared params in forward computation graph: {self.shared}",
            f"Unique parameters in model: {self.total - self.shared}",
            "-" * 80,
        ]
        return "\n".join(lines)


def layer_table(net: Block, inputs: tuple[object, ...]) -> LayerTable:
    """Call `net(*inputs)` eagerly and note every layer, in the order in which they finish.

    Containers (Sequential, HybridSequential) have no line. Hybridized blocks keep their graphs. A block that runs a
    graph from a file does not call its children; its line has their parameters.
    """
    table = LayerTable([("Input", _shapes(inputs), 0)])
    seen: set[int] = set()

    def note(block: Block, _inputs: object, outputs: object) -> None:
        if tracing.current() is not None:
            return  # the shapes of deferred parameters are being found; the call itself follows
        count = 0
        for parameter in (block.collect_params() if _runs_a_file(block) else block.params).values():
            size = parameter.data().size
            count += size
            table.trainable += 0 if parameter.grad_req == "null" else size
            table.shared += size if id(parameter) in seen else 0
            seen.add(id(parameter))
        table.total += count
        table.rows.append((f"{type(block).__name__}-{len(table.rows)}", _shapes(outputs), count))

    blocks = list(dict.fromkeys(_walk(net)))
    layers = [block for block in blocks if not block._is_container or _runs_a_file(block)]
    handles = [block.register_forward_hook(note) for block in layers]
    try:
        with _eager(blocks):
            net(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    return table


def are_shapes(inputs: tuple[object, ...]) -> bool:
    """Whether a summary is asked for shapes, or a dict of shapes, and not for arguments of the Block."""

    def is_shape(item: object) -> bool:
        return isinstance(item, tuple) and bool(item) and all(type(size) is int for size in item)

    return any(is_shape(item) or (isinstance(item, dict) and any(map(is_shape, item.values()))) for item in inputs)


@contextmanager
def _eager(blocks: list[Block]) -> Iterator[None]:
    """Run hybridized blocks layer by layer, so that the inner hooks fire."""
    active: list[Any] = [block for block in blocks if getattr(block, "_active", False)]
    for block in active:
        block._let_code_run(True)
    try:
        with events.tool_runs():
            yield
    finally:
        for block in active:
            block._let_code_run(False)


def _runs_a_file(block: Block) -> bool:
    graphs = getattr(block, "_graphs", None)
    return graphs is not None and bool(graphs.pinned)


def _walk(block: Block) -> Iterator[Block]:
    yield block
    for child in block._children.values():
        yield from _walk(child)


def _shapes(values: object) -> str:
    if isinstance(values, (list, tuple)):
        shapes = [_shape(value) for value in values]
        return str(shapes[0]) if len(shapes) == 1 else str(shapes)[1:-1]
    return str(_shape(values))


def _shape(value: object) -> Any:
    if isinstance(value, (list, tuple)):
        return [_shape(each) for each in value]
    return value.shape if isinstance(value, NDArray) else value
