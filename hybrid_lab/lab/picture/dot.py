"""DOT text of a picture."""

from __future__ import annotations

from collections.abc import Iterator

from hybrid_lab.lab.messages.graphs import GraphBox, GraphNode
from hybrid_lab.lab.picture.nodes import Picture
from hybrid_lab.lab.picture.plain_block import Whole

_SHAPES = {"output": "plain", "input": "ellipse", "parameter": "ellipse", "aux": "ellipse"}
"""Graphviz's shapes by the node's kind; a box for all others."""
_COLORS = {"input": "#8dd3c7", "output": "#8dd3c7", "operator": "#d9e8f6", "parameter": "#fdd9b5", "aux": "#fdd9b5"}
"""Colours by the node's kind, where no browser chooses them."""
_CLOSED = "#e6e0f2"
_LABEL = 40
"""Characters of the attributes that a node shows."""
_LARGEST = 1500
"""Nodes and closed boxes of the largest static picture: Graphviz takes seconds for more."""


def dot(picture: Picture | Whole, depth: int | None = None, colors: bool = False) -> str:
    """The picture as DOT text, boxes as clusters inside one another, without fonts, links or HTML.

    depth : number of open levels of boxes; deeper boxes are drawn as one node each; by default all levels, or as many
        as give a picture of at most 1500 nodes
    colors : whether nodes are filled; by default the browser styles them by class
    """
    levels: dict[str, int] = {"": 0}
    for box in picture.boxes:
        levels[box["id"]] = levels[box["parent"]] + 1
    if depth is None:
        depth = _largest_depth(picture, levels)
    return "\n".join(_Dot(picture, levels, depth, colors).lines())


def _largest_depth(picture: Picture | Whole, levels: dict[str, int]) -> int:
    """The largest number of open levels with which Graphviz lays out the picture; 0 if one open level is too large."""
    added: dict[int, int] = {}  # by opening a level: its members take the place of its boxes
    for box in picture.boxes:
        level = levels[box["parent"]]
        added[level] = added.get(level, 0) + 1
        added[level + 1] = added.get(level + 1, 0) - 1
    for node in picture.nodes:
        added[levels[node["box"]]] = added.get(levels[node["box"]], 0) + 1
    total, depth = added.get(0, 0), 0
    while depth < max(levels.values()) and total + added.get(depth + 1, 0) <= _LARGEST:
        depth += 1
        total += added.get(depth, 0)
    return depth


class _Dot:
    """Writes the text of one picture."""

    def __init__(self, picture: Picture | Whole, levels: dict[str, int], depth: int, colors: bool):
        self.picture, self.levels, self.depth, self.colors = picture, levels, depth, colors
        self.shown: dict[str, str] = {}  # an undrawn box or a node -> the box or node drawn for it
        self.members: dict[str, list[GraphBox | GraphNode]] = {}
        for box in picture.boxes:
            self.shown[box["id"]] = self.shown.get(box["parent"], "") or (box["id"] if self._closed(box) else "")
            self.members.setdefault(box["parent"], []).append(box)
        for node in picture.nodes:
            self.shown[node["id"]] = self.shown.get(node["box"], "") or node["id"]
            self.members.setdefault(node["box"], []).append(node)

    def _closed(self, box: GraphBox) -> bool:
        return self.levels[box["id"]] > self.depth

    def lines(self) -> Iterator[str]:
        """The text, line by line."""
        yield "digraph graph_ {"
        if self.colors:
            yield '  node [style="filled", fontname="sans-serif"]; graph [style="rounded", fontname="sans-serif"];'
        yield from self._layer("", "  ")
        yield from self._edges()
        yield "}"

    def _layer(self, box: str, indent: str) -> Iterator[str]:
        """The nodes and clusters directly in a box, and their contents."""
        for member in self.members.get(box, ()):
            if "box" in member:
                yield indent + self._node(member)  # type: ignore[arg-type]
            elif self._closed(member):
                yield indent + self._one(member["id"], member["kind"], "box3d", _title(member), _CLOSED)
            else:
                head = f'id="{member["id"]}"; class="{member["kind"]}"; label="{_escape(_title(member))}";'
                yield f"{indent}subgraph cluster_{member['id']} {{ {head}"
                yield from self._layer(member["id"], f"{indent}  ")
                yield f"{indent}}}"

    def _node(self, row: GraphNode) -> str:
        detail = ", ".join(f"{key}={value}" for key, value in row["attributes"].items() if " " not in key)
        badges = ", ".join(badge["name"] for badge in row["badges"])
        shape, color = _SHAPES.get(row["kind"], "box"), _COLORS.get(row["kind"], "#ffffff")
        return self._one(row["id"], row["kind"], shape, row["label"], color, detail, badges)

    def _one(self, identity: str, kind: str, shape: str, label: str, color: str, *details: str) -> str:
        lines = [label, *(_cut(line) for line in details if line)]
        text = "\\n".join(map(_escape, lines))
        fill = f', fillcolor="{color}"' if self.colors else ""
        return f'{identity} [id="{identity}", class="{kind}", shape={shape}, label="{text}"{fill}];'

    def _edges(self) -> Iterator[str]:
        """Each value once for each of its readers, with its type as the label."""
        outputs = {row["id"]: row["outputs"] for row in self.picture.nodes}
        seen = set()
        for row in self.picture.nodes:
            reader = self.shown[row["id"]]
            for read in row["inputs"]:
                source, value = self.shown[read["node"]], outputs[read["node"]][read["output"]]
                key = source, reader, read["node"], read["output"]
                if source == reader or key in seen:
                    continue
                seen.add(key)
                sizes = (
                    None if value["shape"] is None else ",".join("?" if n is None else str(n) for n in value["shape"])
                )
                label = "" if sizes is None else f' [label="{_escape(value["dtype"])}[{sizes}]"]'
                yield f"  {source} -> {reader}{label};"


def _title(box: GraphBox) -> str:
    title = f"{box['label']}: {box['class']}" if box["class"] else box["label"]
    return _cut(title + (f" x{box['copies']}" if box["copies"] > 1 else ""))


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def _escape(text: str) -> str:
    """Text inside a quoted string of the DOT language."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
