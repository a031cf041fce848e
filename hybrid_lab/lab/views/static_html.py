"""The static block tree: script-free HTML that stays readable in a notebook without a kernel and survives nbconvert."""

from __future__ import annotations

import html

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.states import STATES
from hybrid_lab.lab.messages.common import Tensor
from hybrid_lab.lab.messages.models import BlockNode
from hybrid_lab.lab.models.tree import block_tree

# Inline, because front ends drop style sheets from notebooks that are not trusted. Colours are inherited: dark themes.
_TREE = "font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:13px;line-height:1.5;color:inherit"
_LIST = "list-style:none;margin:0;padding-left:1.4em"
_LEAF = "padding-left:1.05em"
_DIM = "opacity:.7"
_STATE = "border:1px solid currentColor;border-radius:3px;padding:0 .35em;font-size:11px;opacity:.8"

_OPENED = 2
"""Levels of the tree that are open at first."""
_ROWS = 2000
"""Blocks that are shown; the rest is counted."""


def block_html(net: Block, name: str | None = None) -> str:
    """The tree of `net` as self-contained HTML without scripts; text is escaped. name : what to call it"""
    return f'<div style="{_TREE}">{_Rows().node(block_tree(net, name or net.name), 0)}</div>'


class _Rows:
    """Writes the rows of one tree and counts them."""

    def __init__(self) -> None:
        self.left = _ROWS

    def node(self, node: BlockNode, depth: int) -> str:
        """One Block and what is below it."""
        self.left -= 1
        line = _line(node, depth)
        if not node["children"]:
            return f'<div style="{_LEAF}">{line}</div>'
        rows, children = [], node["children"]
        for index, child in enumerate(children):
            if self.left <= 0:
                rows.append(f'<li style="{_LEAF};{_DIM}">and {len(children) - index} more</li>')
                break
            rows.append(f"<li>{self.node(child, depth + 1)}</li>")
        opened = " open" if depth < _OPENED else ""
        inner = f'<ul style="{_LIST}">{"".join(rows)}</ul>'
        return f'<details{opened}><summary style="cursor:pointer">{line}</summary>{inner}</details>'


def _line(node: BlockNode, depth: int) -> str:
    say = html.escape
    head = f"<b>{say(node['attr'])}</b>: {say(node['class'] if node['children'] else node['repr'])}"
    if node["shared_with"] is not None:
        return f"{head} {_dim('the same Block as ' + (node['shared_with'] or 'the top'))}"
    parts = [head]
    if node["output"]:
        parts.append(_dim(", ".join(_tensor(item) for item in node["output"])))
    if node["parameter_count"]:
        parts.append(_dim(f"{node['parameter_count']:,} parameter{'s' if node['parameter_count'] != 1 else ''}"))
    elif node["parameter_count"] is None:
        parts.append(_dim("shapes not known yet"))
    if not node.get("group") and (depth == 0 or node["state"] in ("refused", "failed", "file", "imported", "plain")):
        word, meaning = STATES[node["state"]]
        why = say(f"{meaning}. {node['why']}".rstrip(". "), quote=True)
        parts.append(f'<span style="{_STATE}" title="{why}">{word}</span>')
        if depth == 0 and node["graphs"]:
            parts.append(_dim(count(node["graphs"], "graph")))
    return " ".join(parts)


def _dim(text: str) -> str:
    return f'<span style="{_DIM}">{html.escape(text)}</span>'


def _tensor(item: Tensor) -> str:
    shape = "?" if item["shape"] is None else " x ".join("?" if size is None else str(size) for size in item["shape"])
    return f"({shape}) {item['dtype']}"
