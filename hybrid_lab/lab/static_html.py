"""The static block tree: script-free HTML that stays readable in a notebook without a kernel and survives nbconvert."""

from __future__ import annotations

import html
from typing import Any

from hybrid_lab.gluon.block import Block
from hybrid_lab.lab.tree import block_tree

_STYLE = """
.hybrid-lab-tree{font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:13px;line-height:1.5;color:inherit}
.hybrid-lab-tree ul{list-style:none;margin:0;padding-left:1.4em}
.hybrid-lab-tree summary{cursor:pointer}
.hybrid-lab-tree .leaf{padding-left:1.05em}
.hybrid-lab-tree .dim{opacity:.7}
.hybrid-lab-tree .state{border:1px solid currentColor;border-radius:3px;padding:0 .35em;font-size:11px;opacity:.8}
""".replace("\n", "")

_STATE_WORDS = {
    "plain": "not hybrid",
    "eager": "eager",
    "waiting": "hybridized, not called",
    "active": "graph",
    "inlined": "in its parent's graph",
    "failed": "does not hybridize",
    "file": "graph from file",
}


def block_html(net: Block, name: str | None = None) -> str:
    """The tree of `net` as self-contained HTML without scripts; text is escaped."""
    root = block_tree(net, name or net.name)
    return f'<div class="hybrid-lab-tree"><style>{_STYLE}</style>{_node(root, 0)}</div>'


def _node(node: dict[str, Any], depth: int) -> str:
    line = _line(node, depth)
    if not node["children"]:
        return f'<div class="leaf">{line}</div>'
    inner = "".join(f"<li>{_node(child, depth + 1)}</li>" for child in node["children"])
    opened = " open" if depth < 2 else ""
    return f"<details{opened}><summary>{line}</summary><ul>{inner}</ul></details>"


def _line(node: dict[str, Any], depth: int) -> str:
    say = html.escape
    head = f"<b>{say(node['attr'])}</b>: {say(node['class'] if node['children'] else node['repr'])}"
    if node["shared_with"] is not None:
        return f"{head} <span class='dim'>the same Block as {say(node['shared_with'] or 'the top')}</span>"
    parts = [head]
    if node["output"]:
        parts.append("<span class='dim'>" + say(", ".join(_tensor(item) for item in node["output"])) + "</span>")
    if node["parameter_count"]:
        parts.append(f"<span class='dim'>{node['parameter_count']:,} parameters</span>")
    elif node["parameter_count"] is None:
        parts.append("<span class='dim'>shapes not known yet</span>")
    if depth == 0 or node["state"] in ("failed", "file", "plain"):
        parts.append(f"<span class='state' title='{say(node['why'], quote=True)}'>{say(_STATE_WORDS[node['state']])}</span>")
    return " ".join(parts)


def _tensor(item: dict[str, Any]) -> str:
    shape = "?" if item["shape"] is None else " x ".join("?" if size is None else str(size) for size in item["shape"])
    return f"({shape}) {item['dtype']}"
