"""The reply of the request `graph`: which graph of a Block is shown, or why there is none."""

from __future__ import annotations

import inspect
from collections import Counter

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.words import count
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.hybridized.neutral import NeutralGraph, trace_block
from hybrid_lab.gluon.hybridized.recompiles import Compilation
from hybrid_lab.gluon.hybridized.structure import LEAF
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.infer import infer
from hybrid_lab.insight.silent import silent
from hybrid_lab.insight.states import block_at, class_name
from hybrid_lab.lab.dot import dot
from hybrid_lab.lab.messages import Form, GraphReply
from hybrid_lab.lab.picture import Picture
from hybrid_lab.lab.units import units_of


def graph_view(net: Block, path: str, form: Form) -> GraphReply:
    """The reply of the request `graph`. Raises KeyError for an unknown path."""
    block = block_at(net, path)
    if not isinstance(block, HybridBlock):
        children = [name for name, child in access.children(block).items() if isinstance(child, HybridBlock)]
        hint = f": select one of its children, {', '.join(children[:4])}" if children else ""
        kind = class_name(block)
        return _reply(path, form, missing=f"{block.name} is a {kind}, not a HybridBlock, and has no graph{hint}.")
    cache = access.graphs(block)
    graphs = cache.graphs()
    if not graphs:
        traced = neutral_without_inputs(block)
        if isinstance(traced, str):
            return _reply(path, form, missing=traced)
        graphs = [traced]
    latest = cache.compilations[-1] if cache.compilations else None
    compiled = latest.program if latest is not None else None
    if form == "compiled" and compiled is not None:
        units, neutral = units_of(compiled.forward, compiled.engine), compiled.neutral
        graph, prologue = units.graph, compiled.special.prologue
        kinds = Counter(group["kind"] for group in units.groups)
        several = "".join(f"{count(number, kind)}, " for kind, number in kinds.items())
        once = ""
        if prologue is not None:
            units.add_prologue(prologue, compiled.engine)
            once = f"{len(prologue.operators)} more when parameters change, "
        states = frozenset(value.node.name for value in neutral.graph.states)
        scope = root_scope(net, path, graph)
        picture = Picture(graph, neutral.num_data, None, path, scope, units, prologue, states)
        summary = f"{count(len(graph.operators), 'operator')}, {several}{once}{compiled.where}"
    else:
        form, neutral = "neutral", graphs[0]
        graph = with_shapes(neutral.graph, latest)
        picture = Picture(graph, neutral.num_data, block, path, root_scope(net, path, graph))
        summary = count(len(graph.operators), "operator") + (", from a file" if neutral.source == "file" else "")
    return _reply(path, form, picture, repr(graph), summary, len(graphs), compiled is not None)


def _reply(
    path: str,
    form: Form,
    picture: Picture | None = None,
    text: str = "",
    summary: str = "",
    variants: int = 0,
    has_compiled: bool = False,
    missing: str = "",
) -> GraphReply:
    """The reply with a picture, or with the reason why there is none."""
    forms = ["neutral"] * (picture is not None) + ["compiled"] * has_compiled
    return {
        "path": path,
        "form": form,
        "forms": forms,
        "dot": dot(picture) if picture is not None else "",
        "missing": missing,
        "nodes": picture.nodes if picture is not None else [],
        "groups": picture.groups if picture is not None else [],
        "text": text,
        "summary": summary,
        "variants": variants,
    }


def with_shapes(graph: Graph, latest: Compilation | None) -> Graph:
    """A neutral graph with the shapes of the last compile; unchanged if they do not fit."""
    if latest is None:
        return graph
    known = {value.node.name: value for value in latest.special.inputs}
    compiled_inputs = {value: known[value.node.name] for value in graph.inputs if value.node.name in known}
    shapes = {value: same.shape for value, same in compiled_inputs.items()}
    if len(compiled_inputs) < len(graph.inputs) or None in shapes.values():
        return graph
    try:
        return infer(graph, shapes, {value: same.dtype for value, same in compiled_inputs.items()})
    except HybridLabError:  # another variant of the graph was compiled
        return graph


def neutral_without_inputs(block: HybridBlock) -> NeutralGraph | str:
    """A graph traced from the signature alone, without shapes, which nothing keeps; or the reason why there is none."""
    if access.graphs(block).failure is not None:
        return f"{block.name} does not hybridize: {str(access.graphs(block).failure).splitlines()[0]}"
    advice = "Call it once on data and its graph appears here."
    old_style = access.style(block) == "1.x"
    try:
        method = block.hybrid_forward if old_style else block.forward
        names = list(inspect.signature(method).parameters.values())[1 if old_style else 0 :]
        required = [item for item in names if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]
        count = max(sum(item.name not in access.own_parameters(block) for item in required), 1)
        with silent():
            return trace_block(block, ("tuple", (LEAF,) * count), [(None, None)] * count, False, keep=False)
    except HybridLabError as error:
        return f"{block.name} has no graph yet: {str(error).splitlines()[0]} {advice}"
    except Exception as error:  # the user's code, which may raise anything when it is called on Symbols
        return f"{block.name} has no graph yet ({type(error).__name__} without data). {advice}"


def root_scope(net: Block, path: str, graph: Graph) -> str:
    """The scope of the Block itself in its graph.

    A trace names scopes after the Block it began with, which may be any Block above: `net0.features.0`, or `dense0`.
    """
    scopes = {node.scope for node in graph.operators if node.scope}
    names = path.split(".") if path else []
    block, above = net, [net]
    for name in names:
        block = access.children(block)[name]
        above.append(block)
    for depth in range(len(above) - 1, -1, -1):
        root = ".".join([above[depth].name, *names[depth:]])
        if all(f"{scope}.".startswith(f"{root}.") for scope in scopes):
            return root
    # It was called under another path, as a shared Block is: what all scopes begin with.
    common = min(scopes, key=len).split(".") if scopes else []
    while common and not all(scope.split(".")[: len(common)] == common for scope in scopes):
        common.pop()
    return ".".join(common)
