"""The sentences of docstrings, comments, error messages and documents that a reader is likely to parse twice.

    python scripts/list_sentences.py                        hybrid_lab/, the worst first
    python scripts/list_sentences.py --in docs              one folder or file
    python scripts/list_sentences.py --parameters           parameters in another notation than "name : meaning"

A sentence is listed if it has two or more of the marks in `MARKS`. tests/test_imports.py keeps the number from
growing. A mark is no error in itself: one "what" reads well, two clauses without a noun do not.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_NOUNLESS = "it|its|them|their|those|these|that|this|one|ones|others?|which|whom|each|all|any|some|none"
#: What follows "those" when no noun does, and what follows "what" in a clause that stands for a noun.
_AFTER_THOSE = "that|which|who|with|without|whose|in|for|from|by|to|are|it|they|is|not|have|has|alone|then|the|a"
_AFTER_WHAT = (
    "is|are|was|were|has|have|had|a|an|the|it|its|they|one|nobody|each|every|no|none|this|these|those|other|stands|"
    "comes|goes|can|cannot|would|does|needs|else|there|[a-z]+ed"
)
_CLAUSE = r"\b(that|which|whose|where|what|who)\b[^,;:.]*"
#: What makes a reader go back, each with the form that reads well.
MARKS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE if name != "fragment" else 0)
    for name, pattern in {
        # "those of it" -> the noun again: "the nodes of the graph"
        "pronoun of": rf"\b(those|that|these|this|ones?|one|each|all|any|some|none|most|both|which) of "
        rf"({_NOUNLESS}|the other|another)\b|\b(those|that) of\b",
        "those": rf"\b(those|these|others|ones)(?= ({_AFTER_THOSE})\b|[,.;:)]|$)",
        # "so many" -> the number's name
        "such": r"\b(such|so) (a|an|one|ones|many|much|few|long|is|are|does|do|has|have|was)\b"
        r"|\bas (many|much|few) as\b",
        # "where a group reads it" -> "if", "when"
        "where": r"(?<![-`./\w])where (?!to\b)(?=\w)",
        # "What is kept ..." -> the noun
        "what": rf"(?<![-`./\w])what ({_AFTER_WHAT})\b",
        # "the array that is not dense" -> "the sparse array"
        "relative": r"\b(that|which) (it|they|one|nobody|is|are|was|were|has|have|had|does|do|can|cannot|may|no|none)"
        r"\b",
        "nobody": r"\b(nobody|somebody|whoever|the one that|the one of|one that|the latter|the former)\b"
        r"|\bwhich of\b",
        "but for": r"\b(but for|save for|for (it|them|this|that|these|those|one) (alone|only)|goes by|go by|let be|"
        r"lets? it|as they are|as it is|as it was|at all (?!sizes)|for certain|besides)\b",
        "to be": r"\b(is|are|was|were) (then )?to (be|have)\b|\bbe made for\b|\bthere is to\b|\bhas to be\b",
        "nested": _CLAUSE + _CLAUSE + _CLAUSE,
        "fragment": r"^(And|Or|But|Of|Nor|Then|Else|Those|These|That of|Neither)\b",
    }.items()
}
_ENTRY = re.compile(r"[*`\w][\w*`., /|\[\]]{0,60}? : ")
_BULLET = re.compile(r"([-*]|\d+\.) +")
#: A comment that fills its line, or one behind code without a quote or another # behind it.
_COMMENT = re.compile(r"(\s*|[^#]*\S  )(#:? ?)(?!.*\")")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=[`\"'(A-Z])")
#: Another notation for parameters than "name : meaning": fields of reStructuredText, headings and colons of Google's.
PARAMETER = re.compile(
    r":(param|type|return|returns|rtype|raises)\b|(Args|Arguments|Returns|Raises|Parameters):?( -+)?$"
    r"|(?P<name>[a-z]\w*)(?: ?\([^)]*\))?: (?=\w)"
)


_WIDTH = 120


@dataclass(frozen=True)
class Paragraph:
    """Lines `first` to `last` (from 1) of a file, whose text is `text` without the prefixes of its lines."""

    path: Path
    first: int
    last: int
    prefix: str
    indent: str
    text: str
    suffix: str = ""
    kind: str = "docstring"


@dataclass(frozen=True)
class Sentence:
    paragraph: Paragraph
    text: str
    marks: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.paragraph.path.relative_to(ROOT)}:{self.paragraph.first}"


def _blocks(path: Path, lines: list[tuple[int, str]], kind: str, closing: str = "") -> Iterator[Paragraph]:
    """The paragraphs of numbered lines that have one indentation each: a list's entry is a paragraph."""
    start: list[tuple[int, str]] = []

    def paragraph() -> Iterator[Paragraph]:
        if start:
            text = " ".join(line.strip() for _, line in start)
            indent = re.match(r"\s*", start[1][1])[0] if len(start) > 1 else None  # type: ignore[index]
            first = re.match(r"\s*", start[0][1])[0]  # type: ignore[index]
            last = start[-1][0]
            yield Paragraph(path, start[0][0], last, first, first if indent is None else indent, text, "", kind)
            start.clear()

    base: str | None = None
    for number, line in lines:
        stripped = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        if not stripped:
            yield from paragraph()
            base = None
            continue
        if start and (
            _ENTRY.match(stripped)
            or _BULLET.match(stripped)
            or len(indent) < len(base or "")
            or (kind != "document" and _ends(start[-1][1].rstrip(), stripped))
        ):
            yield from paragraph()
        if not start:
            base = indent
        start.append((number, line))
    yield from paragraph()


def _ends(line: str, following: str) -> bool:
    """Whether a line ends early, at the end of a sentence: the next line's first word would have fitted."""
    fits = len(line) + len(following.split()[0]) < _WIDTH - 8
    return fits and (line[-1:] in ".:;!?" or following[0].isupper())


def _paragraphs(path: Path) -> Iterator[Paragraph]:
    source = path.read_text()
    lines = source.splitlines()
    if path.suffix == ".md":
        fenced, kept = False, []
        for number, line in enumerate(lines, 1):
            fence = line.lstrip().startswith("```")
            fenced ^= fence
            skip = fenced or fence or line.lstrip().startswith(("|", "#", "!", "<")) or line.startswith("    ")
            kept.append((number, "" if skip else line))
        yield from _blocks(path, kept, "document")
        return
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield from _docstring(path, lines, first.lineno, first.end_lineno or first.lineno)
        elif isinstance(node, ast.Raise) and node.exc is not None:
            yield from _message(path, node.exc)
    yield from _comments(path, lines)


@functools.cache
def paragraphs(path: Path) -> tuple[Paragraph, ...]:
    """The paragraphs of docstrings, comments and error messages of a module, or of a document."""
    return tuple(_paragraphs(path))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A node and the statements in it; expressions are left out, which are most of a tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("handlers", "cases", "finalbody", "orelse", "body"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                waiting += reversed(inner)


def _docstring(path: Path, lines: list[str], first: int, last: int) -> Iterator[Paragraph]:
    opening = re.match(r"\s*[rR]?\"\"\"", lines[first - 1])
    if opening is None:
        return
    body = lines[first - 1 : last]
    indent = re.match(r"\s*", body[0])[0]  # type: ignore[index]
    body[0] = indent + body[0][len(opening[0]) :]
    closed = body[-1].endswith('"""')
    alone = body[-1].strip() == '"""'
    if closed:
        body[-1] = body[-1][:-3]
    kept, example = [], False
    for line in body:
        deeper = len(line) - len(line.lstrip()) >= len(indent) + 4
        example = (
            bool(line.strip())
            and (example or line.lstrip().startswith((">>>", ".. ", "::")))
            or (deeper and bool(line.strip()) and (not kept or not kept[-1].strip() or kept[-1] == "\0"))
        )
        kept.append("" if example else line)
        if example:
            kept[-1] = "\0"
    numbered = [(first + i, "" if line == "\0" else line) for i, line in enumerate(kept)]
    for paragraph in _blocks(path, numbered, "docstring"):
        if paragraph.first == first:
            paragraph = replace(
                paragraph, prefix=opening[0], indent=indent if paragraph.last == first else paragraph.indent
            )
        if paragraph.last == last and not alone and closed:
            paragraph = replace(paragraph, suffix='"""')
        yield paragraph


def _message(path: Path, error: ast.expr) -> Iterator[Paragraph]:
    """The strings of a raised error, with "…" for the values in them."""
    for node in ast.walk(error):
        if isinstance(node, ast.Call):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    text = argument.value
                elif isinstance(argument, ast.JoinedStr):
                    text = "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "…" for part in argument.values
                    )
                else:
                    continue
                if " " in text:
                    yield Paragraph(path, argument.lineno, argument.end_lineno or 0, "", "", text, "", "message")


def _comments(path: Path, lines: list[str]) -> Iterator[Paragraph]:
    full, trailing = [], []
    in_string = False
    for number, line in enumerate(lines, 1):
        if line.count('"""') % 2:
            in_string = not in_string
        match = _COMMENT.match(line) if "#" in line and not in_string else None
        if match:
            (trailing if match[1].strip() else full).append((number, match[1] + match[2], line[match.end() :]))
    for number, prefix, text in trailing:
        yield Paragraph(path, number, number, prefix, prefix, text, "", "trailing")
    run: list[tuple[int, str, str]] = []
    for entry in [*full, (0, "", "")]:
        if run and (entry[0] != run[-1][0] + 1 or entry[1] != run[-1][1]):
            numbered = [(number, text) for number, _, text in run]
            for paragraph in _blocks(path, numbered, "comment"):
                start = run[0][1]
                yield Paragraph(
                    path, paragraph.first, paragraph.last, start + paragraph.prefix, start + paragraph.indent,
                    paragraph.text, "", "comment",
                )  # fmt: skip
            run = []
        run.append(entry)


def marks(text: str) -> tuple[str, ...]:
    """The marks of a sentence, each as often as it occurs."""
    plain = re.sub(r"``?[^`]*``?|\"[^\"]{1,60}\"", "`x`", text)
    return tuple(name for name, pattern in MARKS.items() for _ in pattern.finditer(plain))


def sentences(path: Path) -> Iterator[Sentence]:
    for paragraph in paragraphs(path):
        for text in _SENTENCE.split(paragraph.text):
            yield Sentence(paragraph, text, marks(text))


def files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".md"))


def listed(folder: Path, least: int = 2) -> list[Sentence]:
    """The sentences of two marks or more, the worst first."""
    found = [sentence for path in files(folder) for sentence in sentences(path) if len(sentence.marks) >= least]
    return sorted(found, key=lambda sentence: -len(sentence.marks))


def other_parameters(folder: Path) -> list[str]:
    """The places of parameters in another notation. A name before a colon counts if a function has the parameter."""
    found = []
    for path in files(folder):
        source = path.read_text()
        for paragraph in paragraphs(path):
            match = PARAMETER.match(paragraph.text) if paragraph.kind == "docstring" and paragraph.first > 1 else None
            if match and (match["name"] is None or re.search(rf"[(, *]{match['name']}(: [\w|\[]|[,=)])", source)):
                found.append(f"{paragraph.path.relative_to(ROOT)}:{paragraph.first} {paragraph.text[:90]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in", dest="folder", default="hybrid_lab", help="a folder or a file")
    parser.add_argument("--least", type=int, default=2, help="marks from which a sentence is listed")
    parser.add_argument("--parameters", action="store_true")
    arguments = parser.parse_args()
    folder = (ROOT / arguments.folder).resolve()
    if arguments.parameters:
        print("\n".join(other_parameters(folder)))
        return
    found = listed(folder, arguments.least)
    for sentence in found:
        print(f"{sentence.where} [{', '.join(sentence.marks)}] {sentence.text}")
    print(f"{len(found)} sentences")


if __name__ == "__main__":
    main()
