"""The static picture of a graph: a small SVG that needs no browser, no script and no kernel, for HTML that is saved;
below it the operators as a table, for pages that show no picture.

By hand, because there may be neither a browser, nor Node, nor Graphviz's `dot` program. Libraries that lay out layers
without these (igraph, grandalf: both GPL) would replace some 90 lines; what is shown and the drawing stay.

The boxes of the picture are opened from outside as long as there is room; the rest stay closed. Nodes stand in layers,
each below what it reads (Sugiyama's method: layers by longest path, order by the mean position of the neighbours).
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from hybrid_lab.diagnostics.formatting import count, visible
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.table import Column, Row, Table, code, folded
from hybrid_lab.lab.messages.common import Tensor
from hybrid_lab.lab.messages.graphs import GraphNode, GraphReply

MOST = 40
"""Nodes and closed boxes that a picture shows at most."""
LARGEST = 300_000
"""Characters of the largest picture from a browser that goes into a notebook."""
_ROWS = 100
"""Operators that the table lists at most."""
_COLUMNS = (
    Column("#", right=True),
    Column("operator", flexible=True),
    Column("result", flexible=True),
    Column("reads", flexible=True),
    Column("Block", flexible=True),
)
_LABEL = 34
"""Characters of a line of text."""
_SWEEPS = 8
_CHARACTER, _LINE, _PAD = 6.4, 14.0, 10.0
"""Width of a character of 11 pixels in any font, height of a line, space around the text."""
_APART, _BELOW, _BEND = 18.0, 26.0, 8.0
"""Space between neighbours, between layers, and the width of an edge that passes a layer."""
# An image has no theme: a light ground of its own, as figures in a notebook have.
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#1f2328;text-anchor:middle}.d{fill:#57606a}"
    "rect{fill:#f6f8fa;stroke:#8c959f}.block{fill:#ddf4ff;stroke:#218bff}.fold{fill:#ddf4ff;stroke:#218bff}"
    ".kernel,.session{fill:#fff8c5;stroke:#bf8700}.prologue,.part{fill:#eaeef2}"
    ".input,.output{fill:#dafbe1;stroke:#2da44e}.parameter,.aux,.constant{fill:#fff;stroke-dasharray:3 2}"
    "path{fill:none;stroke:#8c959f}.e{fill:#8c959f;stroke:none}.g{fill:#fff;stroke:#d0d7de}"
)


@dataclass(eq=False)
class _NodeBox:
    """What stands in a layer: a node, a closed box, or a bend of an edge that passes the layer.

    above, below : neighbours in the layers next to it; x : of the middle, y : of the top
    """

    lines: Sequence[str] = ()
    kind: str = ""
    layer: int = 0
    above: list[_NodeBox] = field(default_factory=list)
    below: list[_NodeBox] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * _CHARACTER + 2 * _PAD if self.lines else _BEND

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _PAD if self.lines else _LINE + _PAD


def picture_html(reply: GraphReply, name: str, drawn: str = "") -> str:
    """The picture as an image that HTML of any notebook may hold, with what it shows in words above and a table of the
    operators below; or why there is none.

    name : of the Block shown; drawn : a picture drawn by the browser, cleaned, which is used unless it is larger than
    LARGEST

    An `<img>`, as sanitizers drop `<svg>` from notebooks that are not trusted, and an image can neither run nor load
    anything. Some pages drop images, and all styles, as GitHub does; words and tables stay.
    """
    drawn = drawn if len(drawn) <= LARGEST else ""
    if not reply["nodes"] and not drawn:
        return f'<div style="opacity:.7">{html.escape(reply["missing"])}</div>' if reply["missing"] else ""
    svg, note = (_whole(drawn), "") if drawn else picture_svg(reply)
    program = next((entry["label"] for entry in reply["programs"] if entry["id"] == reply["program"]), "")
    words = f"Graph of {name}: {program}; {reply['summary']}" if not drawn else f"Graph of {name}"
    caption = html.escape(visible(f"{words}. {note}".strip()))
    return (
        '<figure style="margin:8px 0 0;max-width:100%;max-height:520px;overflow:auto">'
        f'<figcaption style="font-size:12px;opacity:.8">{caption}</figcaption><img src="{image_source(svg)}" '
        f'alt="picture of the graph" style="max-width:100%"></figure>{_table(reply)}'
    )


def _table(reply: GraphReply) -> str:
    """The operators in the order of execution, each with its result, what it reads, and its Block; closed at first. As
    in the picture, the prologue is left out.
    """
    hidden = _prologues(reply)
    for box in reply["boxes"]:  # parents come before children
        if box["parent"] in hidden:
            hidden.add(box["id"])
    shown = [node for node in reply["nodes"] if node["kind"] == "operator" and node["box"] not in hidden]
    if not shown:
        return ""
    names = {node["id"]: node["label"] for node in reply["nodes"]}
    names |= {node["id"]: f"#{number}" for number, node in enumerate(shown, 1)}
    rows = []
    for number, node in enumerate(shown[:_ROWS], 1):
        reads = [names[read["node"]] + f":{read['output']}" * bool(read["output"]) for read in node["inputs"]]
        reads += [badge["name"] for badge in node["badges"]]
        results = ", ".join(map(_type, node["outputs"][:2]))
        cells = (str(number), node["label"], results, ", ".join(reads), node["block"])
        rows.append(Row([visible(cell) for cell in cells]))
    lines = Table(_COLUMNS, rows).lines("")
    lines += [f"and {count(len(shown) - _ROWS, 'more operator')}"] if len(shown) > _ROWS else []
    inside = folded(f"{count(len(shown), 'operator')} as a table", code(lines))
    return f'<div style="font-size:12px">{inside}</div>'


def _whole(drawn: str) -> str:
    """A cleaned picture as a file of its own: HTML needs no namespace and knows names of characters, XML does not."""
    named = "" if "xmlns=" in drawn[:200] else ' xmlns="http://www.w3.org/2000/svg"'
    return drawn.replace("<svg", f"<svg{named}", 1).replace("&nbsp;", "&#160;")


def image_source(svg: str) -> str:
    """An SVG as the address of an image, shorter than base64 is."""
    return "data:image/svg+xml," + quote(svg.replace('"', "'"), safe=" !$'()*+,-./:;=?@[]^_`{|}~", errors="replace")


def graph_svg(net: Block, path: str = "", program: str = "") -> str:
    """The static picture of a Block's graph, as a file of its own; it takes the arguments of `viz.plot_graph`."""
    from hybrid_lab.lab.picture.graph_view import graph_view

    return _whole(picture_svg(graph_view(net, path, program))[0])


def picture_svg(reply: GraphReply, most: int = MOST) -> tuple[str, str]:
    """The picture as SVG, and a sentence about what it leaves out, or ""."""
    shown = _opened(reply, most)
    closed = [item.operators for item in shown if item.operators is not None]
    layers = _layers(_boxes(reply, shown))
    _order(layers)
    width, height = _arrange(layers)
    boxes = "1 box is" if len(closed) == 1 else f"{len(closed)} boxes are"
    note = f"{boxes} closed here, with {count(sum(closed), 'operator')} inside." if closed else ""
    return _draw(layers, width, height), note


# -- what is shown -----------------------------------------------------------------------------------------------------


class _DrawnItem(NamedTuple):
    """A node or a box of the picture. around : id of the box around it; operators : inside of a box, None of a node"""

    id: str
    around: str
    kind: str
    lines: list[str]
    operators: int | None


def _items(reply: GraphReply) -> Iterator[_DrawnItem]:
    """The boxes and nodes of a reply, each with its text: its name, its contents, and the shape of its results."""
    for box in reply["boxes"]:
        title = f"{box['label']}: {box['class']}" if box["class"] else box["label"]
        title += f" x{box['copies']}" if box["copies"] > 1 else ""
        lines = _lines([title, count(box["operators"], "operator")], box["outputs"])
        yield _DrawnItem(box["id"], box["parent"], box["kind"], lines, box["operators"])
    for node in reply["nodes"]:
        yield _DrawnItem(node["id"], node["box"], node["kind"], _lines([node["label"]], node["outputs"]), None)


def _lines(texts: list[str], outputs: list[Tensor]) -> list[str]:
    types = ", ".join(map(_type, outputs[:2]))
    lines = [visible(line) for line in [*texts, types] if line]
    return [line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…" for line in lines]


def _type(tensor: Tensor) -> str:
    shape = tensor["shape"]
    return "" if shape is None else f"{tensor['dtype']}[{', '.join('?' if n is None else str(n) for n in shape)}]"


def _opened(reply: GraphReply, most: int) -> list[_DrawnItem]:
    """The nodes and closed boxes to show, in the order of execution. Siblings are opened together, outer ones first. A
    prologue is left out: it runs only when a parameter changed, and feeds nearly everything.
    """
    left_out = _prologues(reply)
    members: dict[str, list[_DrawnItem]] = {}
    for item in _items(reply):
        if item.id not in left_out:
            members.setdefault(item.around, []).append(item)
    shown = members.get("", [])
    waiting = [shown]
    while waiting:
        inner = {item.id: members[item.id] for item in waiting.pop(0) if item.id in members}
        if inner and len(shown) + sum(len(each) - 1 for each in inner.values()) <= most:
            shown = [each for item in shown for each in inner.get(item.id, [item])]
            waiting += inner.values()
    return shown


def _prologues(reply: GraphReply) -> set[str]:
    """The prologues, and the boxes that hold nothing else."""
    prologues = {box["id"] for box in reply["boxes"] if box["kind"] == "prologue"}
    full = {node["box"] for node in reply["nodes"]}
    for box in reversed(reply["boxes"]):  # inner ones before those around them
        if box["id"] in prologues or box["id"] not in full:
            prologues.add(box["id"])
        else:
            full.add(box["parent"])
    return prologues


def _boxes(reply: GraphReply, shown: list[_DrawnItem]) -> list[_NodeBox]:
    """A box for each item, joined by the edges between them, in layers below what they read."""
    parents = {box["id"]: box["parent"] for box in reply["boxes"]}
    boxes = {item.id: _NodeBox(item.lines, item.kind) for item in shown}

    def box_of(node: GraphNode) -> _NodeBox | None:
        identity = node["id"] if node["id"] in boxes else node["box"]
        while identity and identity not in boxes:
            identity = parents.get(identity, "")
        return boxes.get(identity)

    where = {node["id"]: box_of(node) for node in reply["nodes"]}
    first: dict[int, int] = {}  # the box's first node: edges against this order would be circles
    for number, node in enumerate(reply["nodes"]):
        first.setdefault(id(where[node["id"]]), number)
    edges: dict[tuple[int, int], tuple[_NodeBox, _NodeBox]] = {}
    for node in reply["nodes"]:
        reader = where[node["id"]]
        for read in node["inputs"]:
            source = where.get(read["node"])
            if source is not None and reader is not None and first[id(source)] < first[id(reader)]:
                edges[id(source), id(reader)] = (source, reader)
    for source, reader in sorted(edges.values(), key=lambda edge: first[id(edge[1])]):
        reader.layer = max(reader.layer, source.layer + 1)
    everything = [box for box in boxes.values() if id(box) in first]  # a box without nodes is not drawn
    for source, reader in edges.values():
        above = source
        for layer in range(source.layer + 1, reader.layer):
            bend = _NodeBox(layer=layer, above=[above])
            above.below.append(bend)
            everything.append(bend)
            above = bend
        above.below.append(reader)
        reader.above.append(above)
    for box in boxes.values():  # an input stands right above its first reader
        if not box.above and box.below and all(each.lines for each in box.below):
            box.layer = min(each.layer for each in box.below) - 1
    return everything


# -- where it stands ---------------------------------------------------------------------------------------------------


def _layers(boxes: Iterable[_NodeBox]) -> list[list[_NodeBox]]:
    by_layer: dict[int, list[_NodeBox]] = {}
    for box in boxes:
        by_layer.setdefault(box.layer, []).append(box)
    return [by_layer[number] for number in sorted(by_layer)]


def _order(layers: list[list[_NodeBox]]) -> None:
    """Order each layer by the mean position of the neighbours, down and up in turn, so that few edges cross."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            at = {id(box): number for other in layers for number, box in enumerate(other)}

            def mean(box: _NodeBox, at: dict[int, int] = at, down: bool = down) -> float:
                near = box.above if down else box.below
                return sum(at[id(each)] for each in near) / len(near) if near else at[id(box)]

            layer.sort(key=mean)


def _arrange(layers: list[list[_NodeBox]]) -> tuple[float, float]:
    """Set the x and y of each box; returns the size of the picture. Boxes move towards the mean of their neighbours."""
    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = []
            for box in layer:
                near = (box.above if down else box.below) or [box]
                if box.lines:  # the straight way for nodes, the bent one for edges that pass
                    near = [each for each in near if each.lines] or near
                wanted.append(sum(each.x for each in near) / len(near))
            _spread(layer, wanted)
    left = min(box.x - box.width / 2 for layer in layers for box in layer) - _PAD
    y = _PAD
    for layer in layers:
        height = max(box.height for box in layer)
        for box in layer:
            box.x -= left
            box.y = y + (height - box.height) / 2
        y += height + _BELOW
    width = max(box.x + box.width / 2 for layer in layers for box in layer) + _PAD
    return width, y - _BELOW + _PAD


def _spread(layer: list[_NodeBox], wanted: list[float]) -> None:
    """Place a layer as near as possible to the wanted middles, in order and without overlap (least squares, by pooling
    neighbours that would overlap).
    """
    offsets, total = [], 0.0
    for number, box in enumerate(layer):
        if number:
            total += (layer[number - 1].width + box.width) / 2 + _APART
        offsets.append(total)
    pools: list[tuple[float, int]] = []  # (mean, size) of boxes that stand as close as they may
    for want, offset in zip(wanted, offsets, strict=True):
        mean, size = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, number = pools.pop()
            mean, size = (mean * size + other * number) / (size + number), size + number
        pools.append((mean, size))
    means = [mean for mean, size in pools for _ in range(size)]
    for box, mean, offset in zip(layer, means, offsets, strict=True):
        box.x = mean + offset


# -- the drawing -------------------------------------------------------------------------------------------------------


def _draw(layers: list[list[_NodeBox]], width: float, height: float) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}">',
        f'<style>{_STYLE}</style><rect class="g" {size} rx="6"/>',
    ]
    for box in (box for layer in layers for box in layer if box.lines):
        parts += [_edge(box, after) for after in box.below]
    for box in (box for layer in layers for box in layer if box.lines):
        x, y = box.x - box.width / 2, box.y
        extent = f'x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'
        round_ = box.height / 2 if box.kind in ("input", "output", "parameter", "aux") else 4
        parts.append(f'<rect class="{box.kind}" {extent} rx="{round_:.0f}"/>')
        for number, line in enumerate(box.lines):
            dim = ' class="d"' if number else ""
            top = y + _PAD / 2 + _LINE * (number + 0.8)
            parts.append(f'<text{dim} x="{box.x:.0f}" y="{top:.0f}">{html.escape(line)}</text>')
    return "".join([*parts, "</svg>"])


def _edge(source: _NodeBox, after: _NodeBox) -> str:
    """A line down to the reader, through the bends between, with an arrow at its end."""
    x, y = source.x, source.y + source.height
    path = f"M{x:.0f} {y:.0f}"
    while True:
        half = (after.y - y) / 2
        path += f"C{x:.0f} {y + half:.0f} {after.x:.0f} {after.y - half:.0f} {after.x:.0f} {after.y:.0f}"
        if after.lines:
            break
        x, y = after.x, after.y + after.height
        path += f"V{y:.0f}"
        after = after.below[0]
    x, y = after.x, after.y
    return f'<path d="{path}"/><path class="e" d="M{x:.0f} {y:.0f}l-3 -5h6z"/>'
