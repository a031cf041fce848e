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
from functools import lru_cache

#: The functions that round correctly.
DIVIDE, SQUARE_ROOT = "divide", "square_root"
_WANTED = re.compile(r"(?<!/)/(?!/)|tl\.sqrt\b")


def exact(lines: Sequence[str]) -> list[str]:
    """The lines, of one block, with divisions and square roots that round correctly. Numbers divided by numbers stay,
    and so does `//`.
    """
    wanted = [number for number, line in enumerate(lines) if _WANTED.search(line)]
    edited = list(lines)
    if all(map(_is_balanced, lines)):
        for number in wanted:
            if (line := _exact_line(lines[number])) is None:
                break
            edited[number] = line
        else:
            return edited
    return _exact_block(lines) if wanted else edited


def _is_balanced(line: str) -> bool:
    """Whether no statement goes on in the next line."""
    return all(line.count(opening) == line.count(closing) for opening, closing in ("()", "[]", "{}"))


@lru_cache(1 << 14)
def _exact_line(line: str) -> str | None:
    """`exact` of one line if the line is a whole statement, else None. Few lines differ among the kernels that the
    fusion of operators tries.
    """
    statement = line.lstrip()
    try:
        return line[: len(line) - len(statement)] + _exact_text(statement)
    except SyntaxError:
        return None


def _exact_block(lines: Sequence[str]) -> list[str]:
    return _exact_text("\n".join(["if True:", *(f" {line}" for line in lines)])).split("\n ")[1:]


def _exact_text(text: str) -> str:
    """`exact` of whole statements."""
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
    return _edited(text, [*reversed(closings), *openings])


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
