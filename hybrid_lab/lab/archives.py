"""The contents of the archives beside a notebook, read without loading a model."""

from __future__ import annotations

from pathlib import Path

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.archive import Container, graphs, inspect, layout, tree
from hybrid_lab.lab import files
from hybrid_lab.lab.messages import Archive, SavedGraph


def graphs_in(path: Path) -> list[SavedGraph]:
    """The graphs of an archive as the reply of `save` has them: path of the Block, number of operators.

    Raises ArchiveError for a damaged file, OSError.
    """
    archive = Container.open(path)
    saved: list[SavedGraph] = []
    for block in tree.from_json(archive.read_json(layout.TREE), archive.path).blocks:
        for member in block.graphs:
            saved.append({"path": block.path, "operators": graphs.count_operators(archive, member)})
    return saved


def listing() -> list[Archive]:
    """The protocol's data of the archives beside the notebook, newest first; one that cannot be read says why."""
    rows: list[Archive] = []
    for path in files.folder().glob("*.hlab"):
        try:
            if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                continue
            state = path.stat()
        except OSError:  # it went away meanwhile
            continue
        row: Archive = {
            "file": path.name,
            "bytes": state.st_size,
            "modified": state.st_mtime,
            "class": "",
            "blocks": 0,
            "graphs": 0,
            "problem": "",
        }
        try:
            contents = inspect(path)
            row |= {"class": contents["class"], "blocks": contents["blocks"], "graphs": contents["graphs"]}
        except (HybridLabError, OSError) as error:
            row["problem"] = str(error).splitlines()[0]
        except Exception as error:  # a damaged file may fail in any parser; the others are listed all the same
            row["problem"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    rows.sort(key=lambda row: row["modified"], reverse=True)
    return rows
