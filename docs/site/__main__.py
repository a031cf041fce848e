"""Build the site.

python -m docs.site                       into build/docs/html
python -m docs.site --notebooks FOLDER    with executed notebooks from there; others are shown without outputs
python -m docs.site --quick               without the reference: to look at pages while writing
python -m docs.site --examples            run the examples of the reference, and name the callables without one
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import sources

OWN = Path(__file__).parent
#: Documents that list the pages beside them -> those pages.
LISTS = {"rules/index": "HL*", "errors/index": "[a-z]*-*"}


def assemble(folder: Path, notebooks: Path | None, quick: bool) -> None:
    """Write Sphinx's sources into a new folder: copies of the documents with links of the site, and generated pages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source, page in sources.pages().items():
        path = sources.ROOT / source
        executed = notebooks / path.name if notebooks else path
        if path.suffix == ".ipynb" and executed.exists():
            path = executed
        text = path.read_text(encoding="utf-8")
        rewritten = (sources.rewrite_notebook if path.suffix == ".ipynb" else sources.rewrite)(text, source, page)
        if page in LISTS:
            rewritten += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{LISTS[page]}\n```\n"
        _write(folder / f"{page}{path.suffix}", rewritten)
    for path in sorted((OWN / "pages").rglob("*.md")):
        name = path.relative_to(OWN / "pages").as_posix()
        _write(folder / name, _included(path.read_text(encoding="utf-8"), name.removesuffix(".md")))
    shutil.copytree(sources.ROOT / "docs" / "images", folder / "images")
    if not quick:
        from . import api, operators

        for name, text in (*operators.pages(), *api.pages()):
            _write(folder / f"{name}.md", text)


def _included(text: str, page: str) -> str:
    """A page with its lines `<!-- section FILE: HEADING -->` replaced by that part of the file."""
    lines = []
    for line in text.splitlines():
        if line.startswith("<!-- section "):
            source, _, heading = line.removeprefix("<!-- section ").removesuffix(" -->").partition(": ")
            line = sources.rewrite(sources.section(source, heading), source, page)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Assemble, run Sphinx, check the links of what it wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=sources.ROOT / "build" / "docs", help="default: build/docs")
    parser.add_argument("--notebooks", type=Path, help="folder of executed notebooks")
    parser.add_argument("--quick", action="store_true", help="without the reference")
    parser.add_argument("--examples", action="store_true", help="run the examples of the reference alone")
    arguments = parser.parse_args()
    os.environ.setdefault("HYBRID_LAB_CPU", "numpy")  # the same bits on every machine
    if arguments.examples:
        from .api import without_example

        print(*without_example(), sep="\n")
        return 0
    assemble(arguments.out / "source", arguments.notebooks, arguments.quick)
    strict = [] if arguments.quick else ["--fail-on-warning", "--keep-going"]
    html = arguments.out / "html"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "html",
        "-c",
        str(OWN),
        "-d",
        str(arguments.out / "doctrees"),
        "-q",
    ]
    done = subprocess.run([*command, *strict, str(arguments.out / "source"), str(html)])
    if done.returncode or arguments.quick:
        return done.returncode
    from .check_links import faults

    found = faults(html)
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{sum(1 for _ in html.rglob('*.html'))} pages in {html}, {len(found)} dead links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
