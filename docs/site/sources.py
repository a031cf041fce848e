"""Which file of the repository is which page of the site, and links between them.

The documents stay where they are, readable on GitHub. The site has copies of them. Their links lead to pages of the
site if the target is a page, else to the file in the repository if its address is known, and are plain text otherwise.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
RULES = "hybrid_lab/diagnostics/rules"

#: Files of the repository -> pages of the site, without ".md".
_SINGLE = {
    "README.md": "index",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
    "CODE_OF_CONDUCT.md": "code-of-conduct",
    "tests/README.md": "tests",
    f"{RULES}/README.md": "rules/index",
    "docs/errors/README.md": "errors/index",
    # Folders that documents link to.
    "docs/rooms": "architecture",
    "docs/errors": "errors/index",
    RULES: "rules/index",
}
#: Folders of the repository -> folders of the site.
_FOLDERS = {
    "docs": "",
    "docs/guide": "guide",
    "docs/errors": "errors",
    "docs/rooms": "rooms",
    RULES: "rules",
    "benchmarks/results": "results",
    "notebooks": "tutorials",
}
_ENDS = {".md", ".ipynb"}
#: Beginning of the types of outputs that only the lab's front end reads; HTML of the same is beside them.
_FOR_THE_LAB = ("application/vnd.hybrid-lab", "application/vnd.jupyter")

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
#: A name of a document or notebook. Notebooks name them so, because a copy of the tutorial has no documents beside it.
_NAMED = re.compile(r"(?<!\[)`([\w./-]+\.(?:md|ipynb))`")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")


def pages() -> dict[str, str]:
    """Path of each document in the repository -> name of its page, for all files that the site copies."""
    found = {name: page for name, page in _SINGLE.items() if (ROOT / name).is_file() and page != "index"}
    for folder, place in _FOLDERS.items():
        for path in sorted((ROOT / folder).iterdir()):
            name = f"{folder}/{path.name}"
            if path.suffix in _ENDS and name not in _SINGLE:
                found[name] = f"{place}/{path.stem}".lstrip("/")
    return found


@cache
def repository() -> str | None:
    """Address of the repository, from the project's `urls`, or None where there is none yet."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        urls: dict[str, str] = tomllib.load(file)["project"].get("urls", {})
    return next((url.rstrip("/") for name, url in urls.items() if name.lower() in ("repository", "source")), None)


@cache
def title(source: str) -> str:
    """The first heading of a document, which a link shows in place of the file's name; that of a folder is its name."""
    path = ROOT / source
    match = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.suffix == ".md" else None
    return match[1] if match else path.name


def links(text: str) -> Iterator[re.Match[str]]:
    """Every link and image of a Markdown text, outside of code."""
    for start, part in _prose(text):
        for match in _LINK.finditer(text, start, start + len(part)):
            if not _in_code(text[start : match.start()]):
                yield match


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs outside of fenced and indented code, with their places."""
    place, fence, begin = 0, "", None
    for line in text.splitlines(keepends=True):
        opening = _FENCE.match(line)
        code = bool(fence) or opening is not None or line.startswith("    ") or not line.strip()
        if opening is not None and not fence:
            fence = opening[1]
        elif opening is not None and opening[1].startswith(fence):
            fence = ""
        if code and begin is not None:
            yield begin, text[begin:place]
            begin = None
        elif not code and begin is None:
            begin = place
        place += len(line)
    if begin is not None:
        yield begin, text[begin:]


def _in_code(before: str) -> bool:
    return len(re.findall(r"`+", before)) % 2 == 1


def target_of(source: str, link: str) -> tuple[str, str] | None:
    """(path in the repository, "#anchor" or "") that a link in the file `source` names; None for other addresses."""
    path, mark, anchor = link.partition("#")
    if re.match(r"[a-z]+:", link) or link.startswith("//"):
        return None
    if not path:
        return source, mark + anchor
    whole = os.path.normpath(PurePosixPath(source).parent / path).replace(os.sep, "/")
    return whole, mark + anchor


def rewrite(text: str, source: str, page: str) -> str:
    """The text of the document `source` with the links that hold on the site's page `page`.

    Raises ValueError for a link to a file that is not there.
    """
    every = pages() | _SINGLE

    def replace(match: re.Match[str]) -> str:
        target = target_of(source, match["target"])
        if target is None:
            return match[0]
        path, anchor = target
        if not (ROOT / path).exists():
            raise ValueError(f"{source}: the link to {match['target']} leads nowhere")
        if match["image"]:
            return f"![{match['text']}]({_relative(PurePosixPath(path).relative_to('docs').as_posix(), page)})"
        if path == source and anchor:
            return match[0]
        if path in every:
            end = ".ipynb" if path.endswith(".ipynb") else ".md"
            text = title(path) if match["text"] in (path, PurePosixPath(path).name) else match["text"]
            return f"[{text}]({_relative(every[path] + end, page)}{anchor})"
        address = repository()
        if address is None:
            return match["text"]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{match['text']}]({address}/{kind}/main/{path}{anchor})"

    return substitute(text, replace)


def substitute(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """The text with every link replaced."""
    parts, place = [], 0
    for match in links(text):
        parts += [text[place : match.start()], replace(match)]
        place = match.end()
    return "".join([*parts, text[place:]])


def absolute(text: str, source: str) -> str:
    """The text of a document for a place outside of the repository, such as a package index.

    Links are addresses in the repository. While it has none (`project.urls`), they are plain text, and pictures are
    left out.
    """

    def replace(match: re.Match[str]) -> str:
        target = target_of(source, match["target"])
        if target is None:
            return match[0]
        address = repository()
        if address is None:
            return "" if match["image"] else match["text"]
        kind = "raw" if match["image"] else "tree" if (ROOT / target[0]).is_dir() else "blob"
        return f"{match['image']}[{match['text']}]({address}/{kind}/main/{target[0]}{target[1]})"

    return substitute(text, replace)


def _link(match: re.Match[str], page: str) -> str:
    """A link to the page of a document or notebook that a text names; other names stay."""
    every = pages()
    name = match[1] if match[1] in every else f"notebooks/{match[1]}"
    if name not in every:
        return match[0]
    end = PurePosixPath(name).suffix
    return f"[{match[0]}]({_relative(every[name] + end, page)})"


def _relative(path: str, page: str) -> str:
    return os.path.relpath(path, PurePosixPath(page).parent).replace(os.sep, "/")


def section(source: str, heading: str) -> str:
    """The part of a document under one `## heading`, without the heading."""
    text = (ROOT / source).read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(f"{source} has no section {heading!r}")
    return match[1].strip() + "\n"


def rewrite_notebook(text: str, source: str, page: str) -> str:
    """A notebook with links to the documents that its text names, and of its outputs what a page can show."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            shown = {kind: data for kind, data in output.get("data", {}).items() if not kind.startswith(_FOR_THE_LAB)}
            if "data" in output:
                output["data"] = shown
        if cell["cell_type"] == "markdown":
            text = rewrite("".join(cell["source"]), source, page)
            cell["source"] = _NAMED.sub(partial(_link, page=page), text)
    return json.dumps(notebook)
