"""Wrap the paragraphs of docs/, README.md and other pages at 100 columns: `python scripts/wrap_docs.py`.

With --check only say which pages differ.

Tables, code, headings and HTML stay as they are; code spans and links that fit on a line are not
broken. The pages that another script writes are left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
#: Characters of the longest code span or link that is not broken.
LONG = 80
#: Written by scripts/write_coverage_doc.py, write_kernels_doc.py and write_operators_doc.py.
GENERATED = {"coverage.md", "kernels.md", "triton-operators.md"}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
    *(
        path
        for folder in ("", "rooms", "guide", "errors")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
        if path.name not in GENERATED
    ),
]

_ITEM = re.compile(r"( *)([-*+]|\d+[.)])( +)(?=\S)")
_FENCE = re.compile(r" *(```|~~~)")
_WHOLE = re.compile(r" {0,3}(#{1,6} |\||<|>|\[[^\]]+\]: |([-*_] ?){3,}$|:::|\$\$)")
#: A word of a paragraph: code spans and links with the characters around them, else what is between spaces.
_WORD = re.compile(r"(?:(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|!?\[(?:`[^`]*`|[^\[\]`])*\](?:\([^()\s]*\))?|\S)+")
#: What begins another block if it stands at the beginning of a line, and so stays beside the word before it.
_BEGINS = re.compile(r"(([-+=]+|\*|#{1,6}|\d+[.)])$|[>|<]|:::|```|~~~|\[[^\]]+\]:)")


def _words(paragraph: str) -> list[str]:
    """What must not be broken: words, code spans, links, and what would begin a block together with the word before."""
    words: list[str] = []
    for match in _WORD.finditer(paragraph):
        for word in [match[0]] if len(match[0]) <= LONG else match[0].split():
            if words and _BEGINS.match(word):
                words[-1] += f" {word}"
            else:
                words.append(word)
    return words


def wrapped(text: str) -> str:
    """The page with its paragraphs wrapped."""
    out: list[str] = []
    paragraph: list[str] = []
    first = rest = ""  # what the first and the further lines of the paragraph begin with
    inside: list[int] = []  # columns at which the contents of the open list items begin
    fence = ""

    def flush(end: str = "") -> None:
        line, begun = first, False
        for word in _words(" ".join(paragraph)):
            if begun and len(line) + 1 + len(word) > WIDTH:
                out.append(line)
                line, begun = rest, False
            line += (" " if begun else "") + word
            begun = True
        if begun:
            out.append(line + end)
        paragraph.clear()

    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if fence:
            out.append(line)
            fence = "" if line.strip().startswith(fence) else fence
            continue
        if not line.strip():
            flush()
            out.append("")
            continue
        if match := _FENCE.match(line):
            flush()
            out.append(line)
            fence = match[1]
            continue
        if not paragraph:
            while inside and indent < inside[-1]:
                inside.pop()
        start = inside[-1] if inside else 0
        if (not paragraph and indent >= start + 4) or _WHOLE.match(line[min(start, indent) :]):
            flush()
            out.append(line)
            continue
        if item := _ITEM.match(line):
            flush()
            while inside and len(item[1]) < inside[-1]:
                inside.pop()
            inside.append(item.end())
            first, rest, line = item[0], " " * item.end(), line[item.end() :]
        elif not paragraph:
            first = rest = " " * indent
        paragraph.append(line.strip())
        if line.endswith(("  ", "\\")):
            flush("  " if line.endswith("  ") else "")
            first = rest
    flush()
    return "\n".join(out) + "\n"


def main() -> None:
    """Wrap all pages, or with --check fail if one is not wrapped."""
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    differing = [path for path, text in texts.items() if wrapped(text) != text]
    if "--check" in sys.argv[1:]:
        names = ", ".join(str(path.relative_to(ROOT)) for path in differing)
        sys.exit(f"not wrapped: {names}; python scripts/wrap_docs.py wraps them" if differing else None)
    for path in differing:
        path.write_text(wrapped(texts[path]), encoding="utf-8")


if __name__ == "__main__":
    main()
