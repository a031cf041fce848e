"""One Block's graph as a picture: DOT text and the protocol's GraphNode data, nested Blocks as one node each."""

from __future__ import annotations

from typing import Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.neutral import NeutralGraph
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.infer import infer
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.printer import format_type
from hybrid_lab.lab.tree import location_data, tensor


def graph_view(net: Block, path: str, form: str) -> dict[str, Any]:
    """The reply of the request `graph`. Raises KeyError for an unknown path."""
    block = block_at(net, path)
    reply: dict[str, Any] = {
        "path": path, "form": form, "forms": [], "dot": "", "missing": "", "nodes": [], "text": "", "summary": "", "variants": 0,
    }  # fmt: skip
    if not isinstance(block, HybridBlock):
        children = [name for name, child in block._children.items() if isinstance(child, HybridBlock)]
        hint = f": select one of its children, {', '.join(children[:4])}" if children else ""
        return {**reply, "missing": f"{block.name} is a {type(block).__name__}, not a HybridBlock, and has no graph{hint}."}
    cache: Any = block._graphs
    graphs: list[NeutralGraph] = cache.graphs()
    if not graphs:
        found = neutral_without_inputs(block)
        if isinstance(found, str):
            return {**reply, "missing": found}
        graphs = [found]
    compiled = cache.compilations[-1].program if cache.compilations else None
    forms = ["neutral"] + (["compiled"] if compiled is not None else [])
    form = form if form in forms else "neutral"
    if form == "compiled":
        graph, engine = compiled.special.forward, compiled.engine
        picture = Picture(graph, None, "", engine)
        summary = f"{len(graph.operators)} operators, {compiled.where}"
    else:
        graph = graphs[0].graph
        picture = Picture(with_shapes(graph, compiled), block, _root_scope(graph), "")
        for row in picture.nodes:
            if row["block"] is not None and path:
                row["block"] = f"{path}.{row['block']}"
        summary = f"{len(graph.operators)} operators" + (", from a file" if graphs[0].source == "file" else "")
    return {
        **reply,
        "form": form,
        "forms": forms,
        "dot": picture.dot(),
        "nodes": picture.nodes,
        "text": repr(graph),
        "summary": summary,
        "variants": len(graphs),
    }


def with_shapes(graph: Graph, compiled: Any) -> Graph:
    """A neutral graph with the shapes of the last compile on it, so that the picture can tell them; else as it was."""
    if compiled is None:
        return graph
    known = {value.node.name: value for value in compiled.special.forward.inputs}
    inputs = {value: known.get(value.node.name) for value in graph.inputs}
    given = {value: same for value, same in inputs.items() if same is not None and same.shape is not None}
    if len(given) < len(graph.inputs):
        return graph
    try:
        return infer(
            graph,
            {value: same.shape for value, same in given.items()},
            {value: same.dtype for value, same in given.items()},
        )
    except HybridLabError:
        return graph


def block_at(net: Block, path: str) -> Block:
    """The Block at a path of attribute names. Raises KeyError."""
    block = net
    for name in path.split(".") if path else ():
        block = block._children[name]
    return block


def neutral_without_inputs(block: HybridBlock) -> NeutralGraph | str:
    """A graph traced from the signature alone, without shapes and without keeping anything; or why there is none."""
    import contextlib
    import inspect
    import io

    from hybrid_lab.gluon.neutral import trace_block
    from hybrid_lab.gluon.structure import LEAF

    method = block.hybrid_forward if block._style == "1.x" else block.forward
    names = list(inspect.signature(method).parameters.values())[1 if block._style == "1.x" else 0 :]
    tensors = [p for p in names if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in block._reg_params]
    advice = "Call it once on data and its graph appears here."
    before = [(inner, dict(inner._graphs.variants)) for inner in _hybrid_below(block)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return trace_block(block, ("tuple", (LEAF,) * max(len(tensors), 1)), [(None, None)] * max(len(tensors), 1), False)
    except HybridLabError as error:
        return f"{block.name} has no graph yet: {str(error).splitlines()[0]} {advice}"
    except Exception as error:  # the user's code may do anything with a Symbol
        return f"{block.name} has no graph yet ({type(error).__name__} without data). {advice}"
    finally:
        for inner, variants in before:
            inner._graphs.variants.clear()
            inner._graphs.variants.update(variants)


def _hybrid_below(block: Block) -> list[Any]:
    found = [block] if isinstance(block, HybridBlock) else []
    for child in block._children.values():
        found += _hybrid_below(child)
    return found


def _root_scope(graph: Graph) -> str:
    scopes = [node.scope for node in graph.operators if node.scope]
    if not scopes:
        return ""
    first = min(scopes, key=len).split(".")
    while first and not all(scope.split(".")[: len(first)] == first for scope in scopes):
        first.pop()
    return ".".join(first)


class Picture:
    """Nodes and edges of one graph; operators of nested Blocks are folded into one node per Block call.

    block : whose children may be folded, or None to show every operator; scope : the path of that Block in the graph
    """

    def __init__(self, graph: Graph, block: Block | None, scope: str, engine: str):
        self.graph, self.block, self.scope, self.engine = graph, block, scope, engine
        self.nodes: list[dict[str, Any]] = []
        self._edges: dict[tuple[str, str, str], None] = {}
        self._id_of: dict[Any, str] = {}
        self._by_id: dict[str, dict[str, Any]] = {}
        self._build()

    def _build(self) -> None:
        graph = self.graph
        states = {
            item
            for node in graph.nodes
            for name, item in zip(node.op.names(), node.inputs, strict=False)
            if name in node.op.aux_names
        }
        data = set(graph.inputs)
        runs = self._runs()
        for node in graph.nodes:
            folded = runs.get(node)
            if folded is not None:
                identity = self._folded(folded[0], folded[1], node)
            elif isinstance(node.op, Input):
                if not self._read_outside(node, runs):
                    continue
                role = node.op.role
                kind = "aux" if node.outputs[0] in states else "parameter" if role == "param" or node.name.endswith(("weight", "bias")) else "input"
                identity = self._add(node, kind if node.outputs[0] in data else "parameter", node.name)
            elif isinstance(node.op, Constant):
                identity = self._add(node, "constant", repr(node.op))
            else:
                identity = self._add(node, "operator", node.op.name)
            for value in node.outputs:
                self._id_of[value] = identity
            for item in node.inputs:
                source = self._id_of.get(item) if isinstance(item, Value) else None
                if source is not None and source != identity:
                    self._by_id[identity]["inputs"] = list(dict.fromkeys([*self._by_id[identity]["inputs"], source]))
                    self._edges[(source, identity, format_type(item.shape, item.dtype) if item.shape is not None else "")] = None
        for index, value in enumerate(graph.outputs):
            identity = f"out{index}"
            self._put(identity, "output", f"output {index}" if len(graph.outputs) > 1 else "output", [tensor(value.shape, value.dtype)])
            source = self._id_of.get(value)
            if source is not None:
                self._by_id[identity]["inputs"] = [source]
                self._edges[(source, identity, format_type(value.shape, value.dtype) if value.shape is not None else "")] = None

    def _runs(self) -> dict[Node, tuple[str, int]]:
        """Operator of a nested Block -> (name of the child, number of its call)."""
        if self.block is None:
            return {}
        found: dict[Node, tuple[str, int]] = {}
        calls: dict[str, int] = {}
        last: str | None = None
        for node in self.graph.operators:
            rest = node.scope[len(self.scope) :].lstrip(".") if node.scope.startswith(self.scope) else ""
            child = rest.split(".")[0] if rest else None
            if child is None or child not in self.block._children:
                last = None
                continue
            if child != last:
                calls[child] = calls.get(child, 0) + 1
                last = child
            found[node] = (child, calls[child])
        return found

    def _read_outside(self, node: Node, runs: dict[Node, tuple[str, int]]) -> bool:
        """Whether anything but folded Blocks reads a parameter; data inputs are always shown."""
        if node.op.role != "param":  # type: ignore[attr-defined]
            return True
        value = node.outputs[0]
        readers = self.graph.users().get(value, [])
        return not readers or any(reader not in runs for reader in readers) or value in self.graph.outputs

    def _folded(self, child: str, call: int, node: Node) -> str:
        identity = f"b_{''.join(c if c.isalnum() else '_' for c in child)[:40]}_{call}"
        if identity not in self._by_id:
            block = self.block._children[child] if self.block is not None else None
            kind = type(block).__name__ if block is not None else ""
            self._put(identity, "block", f"{child}: {kind}", [], scope=node.scope, block=child, location=location_data(node.location))
        self._by_id[identity]["outputs"] = [tensor(value.shape, value.dtype) for value in node.outputs[: node.op.num_visible]]
        return identity

    def _add(self, node: Node, kind: str, label: str) -> str:
        identity = f"n{len(self.nodes)}"
        visible = max(node.op.num_visible, 1) if not isinstance(node.op, (Input, Constant)) else 1
        attributes = {} if isinstance(node.op, (Input, Constant)) else {key: str(value) for key, value in node.op.written.items()}
        immediates = {f"input {index}": repr(item) for index, item in enumerate(node.inputs) if not isinstance(item, Value)}
        self._put(
            identity,
            kind,
            label,
            [tensor(value.shape, value.dtype) for value in node.outputs[:visible]],
            op="" if kind != "operator" else node.op.name,
            attributes={**attributes, **immediates},
            scope=node.scope,
            location=location_data(node.location),
            engine=self.engine if kind == "operator" else "",
        )
        return identity

    def _put(self, identity: str, kind: str, label: str, outputs: list[Any], **more: Any) -> None:
        row = {
            "id": identity, "kind": kind, "label": label, "op": "", "attributes": {}, "inputs": [], "outputs": outputs,
            "scope": "", "block": None, "location": None, "group": "", "engine": "", **more,
        }  # fmt: skip
        self.nodes.append(row)
        self._by_id[identity] = row

    def dot(self) -> str:
        """The picture as DOT text, without colours, links or HTML: the browser styles it by class."""
        shapes = {"block": "box3d", "operator": "box", "output": "plain", "input": "ellipse", "parameter": "ellipse", "aux": "ellipse"}
        lines = ["digraph graph_ {"]
        for row in self.nodes:
            shape = shapes.get(row["kind"], "box")
            label = _escape(row["label"])
            detail = ", ".join(f"{key}={value}" for key, value in row["attributes"].items() if not key.startswith("input "))
            if row["kind"] == "operator" and detail:
                label += "\\n" + _escape(detail if len(detail) <= 40 else detail[:39] + "…")
            lines.append(f'  {row["id"]} [id="{row["id"]}", class="{row["kind"]}", shape={shape}, label="{label}"];')
        for source, target, label in self._edges:
            lines.append(f'  {source} -> {target} [label="{_escape(label)}"];' if label else f"  {source} -> {target};")
        lines.append("}")
        return "\n".join(lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
