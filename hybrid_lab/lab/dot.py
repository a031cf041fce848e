"""DOT text of a picture."""

from __future__ import annotations

from hybrid_lab.lab.picture import Picture

_SHAPES = {"block": "box3d", "output": "plain", "input": "ellipse", "parameter": "ellipse", "aux": "ellipse"}
"""Graphviz's shapes by the node's kind; a box for all others."""
_LABEL = 40
"""Characters of the attributes that a node shows."""


def dot(picture: Picture) -> str:
    """The picture as DOT text, without colours, fonts, links or HTML: the browser styles it by class."""
    lines = ["digraph graph_ {"]
    for row in picture.nodes:
        label = _escape(row["label"])
        detail = ", ".join(f"{key}={value}" for key, value in row["attributes"].items() if " " not in key)
        if detail:
            label += "\\n" + _escape(detail if len(detail) <= _LABEL else detail[: _LABEL - 1] + "…")
        shape = _SHAPES.get(row["kind"], "box")
        lines.append(f'  {row["id"]} [id="{row["id"]}", class="{row["kind"]}", shape={shape}, label="{label}"];')
    for group in picture.groups:
        label = group["name"] if len(group["name"]) <= _LABEL else f"{group['name'][: _LABEL - 1]}…"
        inside = " ".join(f"{row['id']};" for row in picture.nodes if row["group"] == group["name"])
        head = f'id="{group["id"]}"; class="{group["kind"]}"; label="{_escape(label)}";'
        lines.append(f"  subgraph cluster_{group['id']} {{ {head} {inside} }}")
    for source, target, label in picture.edges:
        lines.append(f'  {source} -> {target} [label="{_escape(label)}"];' if label else f"  {source} -> {target};")
    lines.append("}")
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Text inside a quoted string of the DOT language."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
