"""What is in the archives beside a notebook, read without loading a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.archive import layout, tree
from hybrid_lab.formats.archive.container import Container
from hybrid_lab.lab import files


@dataclass(frozen=True)
class Contents:
    """class_name : of the top Block; graphs : (path of the Block, operators) per graph; blocks, parameters : numbers"""

    class_name: str
    blocks: int
    parameters: int
    graphs: list[tuple[str, int]]


def contents(path: Path, operators: bool = False) -> Contents:
    """What an archive holds. Only the tree is read, and checked; operators : count them, which reads the graphs too.

    Raises ArchiveError for a damaged file, OSError.
    """
    archive = Container.open(path)
    found = tree.from_json(archive.read_json(layout.TREE), archive.path)
    graphs = []
    for block in found.blocks:
        for member in block.graphs:
            nodes = archive.read_json(member).get("nodes", []) if operators else []
            graphs.append((block.path, sum(node.get("op") != "null" for node in nodes)))
    return Contents(found.blocks[0].class_name, len(found.blocks), len(found.parameters), graphs)


def listing() -> list[dict[str, Any]]:
    """The protocol's data of the archives beside the notebook, newest first; one that cannot be read says why."""
    rows: list[dict[str, Any]] = []
    for path in files.folder().glob("*.hlab"):
        try:
            if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                continue
            state = path.stat()
        except OSError:  # it went away meanwhile
            continue
        row = {"file": path.name, "bytes": state.st_size, "modified": state.st_mtime}
        row |= {"class": "", "blocks": 0, "graphs": 0, "problem": ""}
        try:
            found = contents(path)
            row |= {"class": found.class_name, "blocks": found.blocks, "graphs": len(found.graphs)}
        except (HybridLabError, OSError) as error:
            row["problem"] = str(error).splitlines()[0]
        except Exception as error:  # a file that lies in a way nobody thought of
            row["problem"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    rows.sort(key=lambda row: row["modified"], reverse=True)
    return rows
