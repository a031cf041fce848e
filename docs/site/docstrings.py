"""Docstrings of this project as Markdown.

A docstring has paragraphs, code that is indented by four spaces, and lines such as `name : what it is` with a
continuation, of which several may stand in one line, separated by semicolons.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAMES = re.compile(r"[*\w][^:;`]{0,70}")
_SPECIAL = re.compile(r"([*_<>\[\]|#$~{}\\])")


def escape(text: str) -> str:
    """Plain text with code in backticks, as Markdown."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if index % 2 else _SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts))


def markdown(text: str, session: Callable[[str], str | None] = lambda code: None) -> str:
    """The docstring as Markdown. session : code -> what an interactive session shows of it, or None"""
    return "\n\n".join(_block(lines, session) for lines in _blocks(text.splitlines()))


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, as Markdown in one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    sentence = re.match(r"(?:`[^`]*`|[^`])*?[.;](?=\s|$)|", paragraph)
    return escape((sentence and sentence[0] or paragraph).rstrip(":;"))


def examples(text: str) -> list[str]:
    """The indented code of a docstring."""
    blocks = _blocks(text.splitlines())
    return ["\n".join(line[4:] for line in lines) for lines in blocks if lines[0].startswith("    ")]


def _blocks(lines: list[str]) -> list[list[str]]:
    """Paragraphs and blocks of code, which is indented or fenced and may have empty lines."""
    blocks: list[list[str]] = []
    fresh, fenced = True, False
    for line in lines:
        if fenced or line.startswith("```"):
            if line.startswith("```") and not fenced:
                blocks.append([])
                fresh, fenced = True, True
            elif line.startswith("```"):
                fenced = False
            else:
                blocks[-1].append("    " + line if line.strip() else "")
            continue
        if not line.strip():
            fresh = True
            continue
        code = line.startswith("    ")
        if fresh and blocks and code and blocks[-1][0].startswith("    "):
            blocks[-1] += ["", line]
        elif fresh or not blocks:
            blocks.append([line])
        else:
            blocks[-1].append(line)
        fresh = False
    return blocks


def _block(lines: list[str], session: Callable[[str], str | None]) -> str:
    if lines[0].startswith("    "):
        code = "\n".join(line[4:] for line in lines)
        shown = session(code)
        return f"```python\n{code}\n```" if shown is None else f"```pycon\n{shown}\n```"
    if lines[0].startswith("- "):
        return "\n".join(
            "- " + escape(line[2:]) if line.startswith("- ") else "  " + escape(line.strip()) for line in lines
        )
    parts: list[str] = []
    for line in _whole_lines(lines):
        if not _begins_item(line):
            prose, _, rest = re.sub(r"(?<=[.;]) (?=[*\w][\w*, ]{0,30} : )", "\0", line, count=1).partition("\0")
            parts.append(escape(prose.removesuffix(";") + "." * prose.endswith(";")))
            if not rest:
                continue
            line = rest
        items = [_item(piece) for piece in re.split(r"(?:;|\.) (?=[*\w][^:;`.]{0,70} : )", line)]
        if parts and parts[-1].startswith("- "):
            parts[-1] += "\n" + "\n".join(items)
        else:
            parts.append("\n".join(items))
    return "\n\n".join(parts)


def _begins_item(line: str) -> bool:
    names, colon, _ = line.partition(" : ")
    return bool(colon) and not line.startswith(" ") and _NAMES.fullmatch(names) is not None


def _item(line: str) -> str:
    names, _, text = line.partition(" : ")
    if names in ("returns", "Returns"):
        return f"- returns {escape(text)}"
    pieces = [f"`{name}`" if re.fullmatch(r"[*]*[\w.]+=?", name) else escape(name) for name in names.split(", ")]
    return f"- {', '.join(pieces)}: {escape(text)}"


def _whole_lines(lines: list[str]) -> list[str]:
    """The lines of a paragraph, each item and each run of prose with its continuation."""
    whole: list[str] = []
    for line in lines:
        if whole and not _begins_item(line):
            whole[-1] += " " + line.strip()
        else:
            whole.append(line.strip())
    return whole
