"""Pictures and tables of graphs: a Graphviz digraph, and one printed line per operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.symbol import Symbol, var
from hybrid_lab.system.provided import Provided

if TYPE_CHECKING:
    from graphviz import Digraph, Source

    from hybrid_lab.gluon.block import Block

Picture = TypeVar("Picture")

__all__ = ["plot_graph", "plot_network", "print_summary"]

graph_dot: Provided[[Block, str, str, int | None], str] = Provided("graph_dot")
graph_svg: Provided[[Block, str, str], str] = Provided("graph_svg")

_COLORS = {
    "input": "#8dd3c7",
    "Convolution": "#fb8072",
    "FullyConnected": "#fb8072",
    "Activation": "#ffffb3",
    "LeakyReLU": "#ffffb3",
    "BatchNorm": "#bebada",
    "LayerNorm": "#bebada",
    "Pooling": "#80b1d3",
    "Concat": "#fdb462",
    "Flatten": "#fdb462",
    "Reshape": "#fdb462",
    "softmax": "#b3de69",
    "log_softmax": "#b3de69",
}
_OTHER_COLOR = "#fccde5"
_WEIGHTS = ("_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean", "_running_var", "_running_mean")


def _graph(symbol: object, shape: Mapping[str, Sequence[int]] | None) -> Graph:
    """The graph of a Symbol or of a called HybridBlock; with shapes if the shapes of the inputs are given."""
    known: dict[str, Any] = {}
    if not isinstance(symbol, Symbol):
        from hybrid_lab.gluon import HybridBlock
        from hybrid_lab.gluon.files.graphs_of_calls import predicting

        if not isinstance(symbol, HybridBlock):
            raise HybridLabError(
                f"a Symbol is needed to draw a graph, or a HybridBlock that was called once, not {symbol!r:.60}"
            )
        neutral = predicting(symbol)
        variables = neutral.graph.inputs[neutral.num_data :]
        known = {value.node.name: each.shape for value, each in zip(variables, neutral.parameters, strict=True)}
        symbol = Symbol(neutral.graph.outputs)
    if shape is None:
        return symbol.graph()
    return symbol.inferred(**known, **{name: tuple(size) for name, size in shape.items()})


def _is_weight(node: Node) -> bool:
    return isinstance(node.op, Input) and (node.op.role != "data" or node.name.endswith(_WEIGHTS))


def _by(sizes: Sequence[int] | None) -> str:
    return "x".join(map(str, sizes)) if sizes else "1"


def _label(node: Node) -> str:
    """The text of a node: the operator with its main attributes, or the name of an input."""
    op = node.op
    if isinstance(op, Input):
        return node.name
    attributes = op.attributes
    if op.name == "Convolution":
        return f"Convolution\n{_by(attributes['kernel'])}/{_by(attributes['stride'])}, {attributes['num_filter']}"
    if op.name == "FullyConnected":
        return f"FullyConnected\n{attributes['num_hidden']}"
    if op.name in ("Activation", "LeakyReLU"):
        return f"{op.name}\n{attributes['act_type']}"
    if op.name == "Pooling":
        size = "global" if attributes["global_pool"] else f"{_by(attributes['kernel'])}/{_by(attributes['stride'])}"
        return f"Pooling\n{attributes['pool_type']}, {size}"
    return node.name or op.name


def plot_network(
    symbol: object,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: Mapping[str, object] | None = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Digraph:
    """The graph as a `graphviz.Digraph`: `.source` is its DOT text, `.render()` needs Graphviz's `dot` program. Without
    that program a notebook shows the lab's own picture of the graph.

    symbol : a Symbol, or a HybridBlock that was called after hybridize()
    shape : input name -> shape; edges are then labelled with the shapes that flow, without the batch
    dtype : input name -> dtype; edges then show float32 or the input's dtype too
    node_attrs : Graphviz attributes of all nodes
    hide_weights : leave parameters out
    """
    check_switches("plot_network", hide_weights=hide_weights)
    from graphviz import Digraph

    graph = _graph(symbol, shape)
    style = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
    style.update(node_attrs or {})
    dot = drawn(Digraph, lambda: graph_svg(_block_of(symbol), "", ""))(name=title, format=save_format)
    names = _unique_names(graph)
    hidden = {node for node in graph.nodes if hide_weights and _is_weight(node)}
    for node in graph.nodes:
        if node in hidden:
            continue
        own = dict(style)
        if isinstance(node.op, Input):
            own["shape"] = "oval"
        own["fillcolor"] = _COLORS.get("input" if isinstance(node.op, Input) else node.op.name, _OTHER_COLOR)
        dot.node(name=names[node], label=_label(node), **own)
    for node in graph.nodes:
        for value in node.values_in:
            if value.node not in hidden:
                label = _edge_label(value, shape is not None, dtype)
                dot.edge(names[node], names[value.node], dir="back", arrowtail="open", label=label)
    return dot


def plot_graph(
    net: Block, path: str = "", program: str = "", depth: int | None = None, save_format: str = "svg"
) -> Source:
    """A Block's graph as the lab draws it, as a `graphviz.Source`: nested Blocks, kernels and sessions are frames.
    `.source` is its DOT text, `.render()` needs Graphviz's `dot` program. Without that program a notebook shows the
    lab's own picture of the graph.

    path : of the Block in `net`, "features.0"; "" for `net` itself
    program : what to draw: "traced", "p0:forward", "p0:backward" ...; "" for the latest compiled call, else the traced
        graph
    depth : number of open levels of frames; by default as many as Graphviz can lay out
    save_format : of the file that `.render()` writes

    Raises HybridLabError if there is no graph yet, with the reason.
    """
    from graphviz import Source

    own = drawn(Source, lambda: graph_svg(net, path, program))
    return own(graph_dot(net, path, program, depth), format=save_format)


def drawn(kind: type[Picture], svg: Callable[[], str]) -> type[Picture]:
    """A subclass of Graphviz's Digraph or Source that a notebook shows as `svg()` if there is no `dot` program."""
    from graphviz import ExecutableNotFound

    class Drawn(kind):  # type: ignore[misc, valid-type]
        def _repr_mimebundle_(self, *args: Any, **keywords: Any) -> dict[str, Any]:
            try:
                bundle: dict[str, Any] = super()._repr_mimebundle_(*args, **keywords)
                return bundle
            except ExecutableNotFound:
                text = f"{kind.__name__} for Graphviz, whose program `dot` is not installed; .source is the text"
                try:
                    return {"image/svg+xml": svg(), "text/plain": text}
                except HybridLabError as error:  # as of a Symbol with loops whose inputs are not known
                    return {"text/plain": f"{text}. There is no picture: {error}"}

    Drawn.__name__, Drawn.__qualname__, Drawn.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Drawn


def _block_of(symbol: object) -> Block:
    """The Block that the lab draws for the argument of `plot_network`: a HybridBlock itself, a Symbol as a
    SymbolBlock.
    """
    from hybrid_lab.gluon import SymbolBlock
    from hybrid_lab.gluon.block import Block

    if isinstance(symbol, Block):
        return symbol
    assert isinstance(symbol, Symbol)
    data = [name for name in symbol.list_inputs() if not name.endswith(_WEIGHTS)] or symbol.list_inputs()[:1]
    return SymbolBlock(symbol, [var(name) for name in data])


def _unique_names(graph: Graph) -> dict[Node, str]:
    """Names of nodes; if one is missing or taken, with a number."""
    names: dict[Node, str] = {}
    taken: set[str] = set()
    for node in graph.nodes:
        name = base = node.name or node.op.name
        number = 1
        while name in taken:
            name = f"{base}_{number}"
            number += 1
        taken.add(name)
        names[node] = name
    return names


def _edge_label(value: Value, with_shape: bool, dtype: Mapping[str, object] | None) -> str:
    parts = []
    if with_shape and value.shape is not None:
        parts.append("x".join(str(size or "?") for size in value.shape[1:]))
    if dtype is not None and value.dtype is not None:
        parts.append(f"({value.dtype.name})")
    return "".join(parts)


def print_summary(
    symbol: object,
    shape: Mapping[str, Sequence[int]] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of the operators: output shape without the batch, number of parameters, and operands.

    symbol : a Symbol, or a HybridBlock that was called after hybridize()
    shape : input name -> shape; without it shapes and numbers are shown as far as the variables carry them
    line_length, positions : width of the table and where its columns end, as parts of it
    """
    print(summary(symbol, shape, line_length, positions))


def summary(
    symbol: object,
    shape: Mapping[str, Sequence[int]] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> str:
    """The table that `print_summary` prints."""
    graph = _graph(symbol, shape)
    ends = [int(line_length * position) if position <= 1 else int(position) for position in positions]
    columns = ("Layer (type)", "Output Shape", "Param #", "Previous Layer")
    lines = ["_" * line_length, _row(columns, ends), "=" * line_length]
    counted: set[Value] = set()
    total: int | None = 0
    for node in graph.nodes:
        if _is_weight(node):
            continue
        weights = [value for value in dict.fromkeys(node.values_in) if _is_weight(value.node) and value not in counted]
        counted.update(weights)
        known = all(value.shape_is_known for value in weights)
        count = sum(math.prod(value.shape) for value in weights) if known else None
        total = None if total is None or count is None else total + count
        kind = "null" if isinstance(node.op, Input) else node.op.name
        size = "" if node.shapes is None else "x".join(str(part or "?") for part in node.shapes[0][1:])
        before = [value.node.name for value in node.values_in if not _is_weight(value.node)]
        lines.append(
            _row(
                (f"{node.name}({kind})", size, "?" if count is None else str(count), before[0] if before else ""), ends
            )
        )
        lines += [_row(("", "", "", name), ends) for name in before[1:]]
        lines.append("_" * line_length)
    lines[-1] = "=" * line_length
    return "\n".join([*lines, f"Total params: {'?' if total is None else total}", "_" * line_length])


def _row(cells: Sequence[str], ends: Sequence[int]) -> str:
    line = ""
    for cell, end in zip(cells, ends, strict=True):
        line = (line + cell)[:end].ljust(end)
    return line.rstrip()


_suggest_names(__name__)
