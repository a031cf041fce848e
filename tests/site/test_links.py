"""Every link of the documents and of the site's own pages leads to a file, and to a heading of it."""

import json
import re
from pathlib import PurePosixPath

import pytest

from docs.site import sources

ROOT = sources.ROOT
DOCUMENTS = sorted(name for name in sources.pages() if name.endswith(".md"))
NOTEBOOKS = sorted(name for name in sources.pages() if name.endswith(".ipynb"))


def anchors(text):
    """The anchors of a document's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(1 for each in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", each))
        found.add(anchor if not count else f"{anchor}-{count}")
    return found


def dead_links(source, text):
    for link in sources.links(text):
        target = sources.target_of(source, link["target"])
        if target is None:
            continue
        path, anchor = target
        if not (ROOT / path).exists():
            yield link[0]
        elif anchor and path.endswith(".md"):
            if anchor[1:] not in anchors((ROOT / path).read_text(encoding="utf-8")):
                yield link[0]


@pytest.mark.parametrize("source", [*DOCUMENTS, "README.md"])
def test_a_document_has_no_dead_link(source):
    assert list(dead_links(source, (ROOT / source).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("source", NOTEBOOKS)
def test_a_notebook_names_documents_that_are_there_and_links_to_none(source):
    """A copy of the tutorial has no documents beside it; the site makes links of the names."""
    cells = json.loads((ROOT / source).read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert [link[0] for link in sources.links(text) if sources.target_of(source, link["target"])] == []
    named = re.findall(r"`([\w./-]+\.(?:md|ipynb))`", text)
    assert [name for name in named if not {name, f"notebooks/{name}"} & sources.pages().keys()] == []
    site = sources.rewrite_notebook((ROOT / source).read_text(encoding="utf-8"), source, sources.pages()[source])
    assert site.count(".md)") + site.count(".ipynb)") == len(named)


def test_dead_links_are_found():
    text = "[a](gone.md) [b](limits.md#no-such-heading) [c](limits.md) ![d](images/gone.png)\n\n"
    text += "    [e](code.md)\n\n`[f](g.md)`\n"
    assert list(dead_links("docs/x.md", text)) == [
        "[a](gone.md)",
        "[b](limits.md#no-such-heading)",
        "![d](images/gone.png)",
    ]


def test_every_page_is_in_a_list_of_contents():
    """Without one, a page is only found by the search."""
    pages = ROOT / "docs" / "site" / "pages"
    listed = set()
    for path in pages.rglob("*.md"):
        folder = path.parent.relative_to(pages).as_posix()
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {str(PurePosixPath(folder) / name) for name in names}
    known = {*sources.pages().values()} | {path.relative_to(pages).as_posix()[:-3] for path in pages.rglob("*.md")}
    gathered = ("rules/", "errors/", "rooms/", "results/", "tutorials/")
    assert {page for page in known if page not in listed and not page.startswith(gathered)} == {"index"}
    assert {page for page in listed if "*" not in page and page.partition("/")[0] not in ("api", "operators")} <= known


def test_links_of_the_sites_own_pages():
    pages = ROOT / "docs" / "site" / "pages"
    known = {*sources.pages().values()} | {path.relative_to(pages).as_posix()[:-3] for path in pages.rglob("*.md")}
    made = {"api/index", "operators/index"}
    for path in pages.rglob("*.md"):
        for link in sources.links(path.read_text(encoding="utf-8")):
            target = sources.target_of(path.relative_to(pages).as_posix(), link["target"])
            assert target is None or target[0].removesuffix(".md") in known | made, (path, link[0])


def test_links_are_rewritten_for_the_site(monkeypatch):
    text = (
        "[a](limits.md#gpu) [b](../hybrid_lab/diagnostics/rules/HL101.md) [c](../pyproject.toml) [d](https://x.org)\n"
    )
    monkeypatch.setattr(sources, "repository", lambda: None)
    rewritten = sources.rewrite(text, "docs/guide/../lab.md".replace("guide/../", ""), "lab")
    assert rewritten == "[a](limits.md#gpu) [b](rules/HL101.md) c [d](https://x.org)\n"
    monkeypatch.setattr(sources, "repository", lambda: "https://example.org/lab")
    assert "[c](https://example.org/lab/blob/main/pyproject.toml)" in sources.rewrite(text, "docs/lab.md", "lab")
    with pytest.raises(ValueError, match=r"gone\.md"):
        sources.rewrite("[a](gone.md)", "docs/lab.md", "lab")
