"""DOT text of a picture."""

from __future__ import annotations

from collections.abc import Iterator

from hybrid_lab.lab.messages import GraphBox, GraphNode
from hybrid_lab.lab.picture import Picture

_SHAPES = {"output": "plain", "input": "ellipse", "parameter": "ellipse", "aux": "ellipse"}
"""Graphviz's shapes by the node's kind; a box for all others."""
_LABEL = 40
"""Characters of the attributes that a node shows."""
_LARGEST = 1500
"""Nodes of the largest static picture: Graphviz takes seconds for more."""


def dot(picture: Picture) -> str:
    """The picture as DOT text, all boxes open, without colours, fonts, links or HTML: the browser styles it by class.
    "" of a picture that is too large to be looked at as a whole.
    """
    if len(picture.nodes) > _LARGEST:
        return ""
    members: dict[str, list[GraphBox | GraphNode]] = {}
    for box in picture.boxes:
        members.setdefault(box["parent"], []).append(box)
    for node in picture.nodes:
        members.setdefault(node["box"], []).append(node)
    return "\n".join(["digraph graph_ {", *_layer("", members, "  "), *_edges(picture), "}"])


def _layer(box: str, members: dict[str, list[GraphBox | GraphNode]], indent: str) -> Iterator[str]:
    """The nodes and clusters directly in a box, and what is inside these."""
    for member in members.get(box, ()):
        if "box" in member:
            yield f"{indent}{_node(member)}"  # type: ignore[arg-type]
            continue
        head = f'id="{member["id"]}"; class="{member["kind"]}"; label="{_escape(_title(member))}";'
        yield f"{indent}subgraph cluster_{member['id']} {{ {head}"
        yield from _layer(member["id"], members, f"{indent}  ")
        yield f"{indent}}}"


def _node(row: GraphNode) -> str:
    label = _escape(row["label"])
    detail = ", ".join(f"{key}={value}" for key, value in row["attributes"].items() if " " not in key)
    for line in (detail, ", ".join(badge["name"] for badge in row["badges"])):
        if line:
            label += "\\n" + _escape(line if len(line) <= _LABEL else line[: _LABEL - 1] + "…")
    shape = _SHAPES.get(row["kind"], "box")
    return f'{row["id"]} [id="{row["id"]}", class="{row["kind"]}", shape={shape}, label="{label}"];'


def _title(box: GraphBox) -> str:
    title = f"{box['label']}: {box['class']}" if box["class"] else box["label"]
    title += f" x{box['copies']}" if box["copies"] > 1 else ""
    return title if len(title) <= _LABEL else f"{title[: _LABEL - 1]}…"


def _edges(picture: Picture) -> Iterator[str]:
    """Each value once for each of its readers, with its type as the label."""
    outputs = {row["id"]: row["outputs"] for row in picture.nodes}
    for row in picture.nodes:
        for source, number in dict.fromkeys((read["node"], read["output"]) for read in row["inputs"]):
            value = outputs[source][number]
            sizes = None if value["shape"] is None else ",".join("?" if n is None else str(n) for n in value["shape"])
            label = "" if sizes is None else f' [label="{_escape(value["dtype"])}[{sizes}]"]'
            yield f"  {source} -> {row['id']}{label};"


def _escape(text: str) -> str:
    """Text inside a quoted string of the DOT language."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
