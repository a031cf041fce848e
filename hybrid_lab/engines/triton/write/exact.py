"""Divisions and square roots of a kernel's text, made to round correctly.

Triton compiles `/` of float32 for NVIDIA's GPUs to `div.full.f32`, which is off by up to 2 units in the last place, and
`tl.sqrt` to `sqrt.approx.ftz.f32`: `floor(x / y)` would differ from an eager call. Records and writers print `/` and
`tl.sqrt`; here both become calls of `divide` and `square_root` (functions.py). If an error of 2 units does no harm and
an exact division would be slow, a writer prints `tl.fdiv`, which is not replaced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

#: The functions that round correctly.
DIVIDE, SQUARE_ROOT = "divide", "square_root"
_WANTED = re.compile(r"(?<!/)/(?!/)|tl\.sqrt\b")


def exact(lines: Sequence[str]) -> list[str]:
    """The lines, of one block, with divisions and square roots that round correctly. Numbers divided by numbers stay,
    and so does `//`.
    """
    if not any(map(_WANTED.search, lines)):
        return list(lines)
    text = "\n".join(["if True:", *(f" {line}" for line in lines)])
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    openings: list[tuple[int, int, str]] = []
    closings: list[tuple[int, int, str]] = []
    for node in ast.walk(ast.parse(text)):  # outer expressions come before inner expressions
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
                continue
            (start, end), left, right = (_span(item, starts) for item in (node, node.left, node.right))
            # Between these places stand brackets that the commas of the call make needless.
            openings.append((start, left[0], f"{DIVIDE}("))
            openings.append((left[1], right[0], ", "))
            closings.append((right[1], end, ")"))
        elif isinstance(node, ast.Attribute) and node.attr == "sqrt" and ast.unparse(node) == "tl.sqrt":
            openings.append((*_span(node, starts), SQUARE_ROOT))
    return _edited(text, [*reversed(closings), *openings]).split("\n ")[1:]


def _span(node: ast.expr, starts: Sequence[int]) -> tuple[int, int]:
    """The bytes of the text that a node stands in."""
    assert node.end_lineno is not None and node.end_col_offset is not None, "nodes of a text know where they end"
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with other bytes at these places, of which those at equal places come in the given order."""
    content, pieces, done = text.encode(), [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:1]):
        pieces += [content[done:start], new.encode()]
        done = end
    return b"".join([*pieces, content[done:]]).decode()
