"""Reading and writing graphs as MXNet's `-symbol.json`, text and files."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.file_errors import open_regular, reading
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.input_checks import without_checks

from .. import strict_json
from ..atomic import atomic_write
from ..kinds import other_kind
from . import input_checks
from .graph_reader import read_graph
from .graph_writer import GraphWriter


def dumps(
    graph: Graph,
    *,
    portable: bool = True,
    constants: dict[str, np.ndarray] | None = None,
    attrs: Mapping[str, Any] | None = None,
    in_program_order: bool = False,
) -> str:
    """The graph as symbol JSON that MXNet 1.9 loads.

    portable=False keeps what MXNet lacks (our own operators, draw numbers, block paths).
    constants : a dict that takes the arrays inside the graph, which `loads(..., constants=)` puts back; without it they
    are written as numbers. attrs : further attributes of the graph, in MXNet's form {key: ["str", text]}.
    in_program_order : the nodes stand as the program runs, not depth-first from the outputs as MXNet has them.
    Raises Unmappable naming the operator, its block and line.
    """
    notes = input_checks.noted(graph) if portable else {}
    graph = without_checks(graph) if portable else graph
    document = GraphWriter(graph, portable, constants, in_program_order).document()
    document["attrs"] |= notes | dict(attrs or {})
    nodes = ",\n".join("    " + _line(node) for node in document.pop("nodes"))
    rest = "".join(f',\n  "{key}": {_line(value)}' for key, value in document.items())
    return f'{{\n  "nodes": [\n{nodes}\n  ]{rest}\n}}\n'


_line = json.JSONEncoder(ensure_ascii=False).encode


def loads(
    text: str | bytes,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    path: str | PathLike[str] | None = None,
    member: str | None = None,
) -> Graph:
    """The graph in a symbol JSON text of MXNet 0.8 to 1.9; its inputs are all variables in the file's order.

    Variables used as auxiliary state have the role "aux", all others "data". Raises ArchiveError.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else _in_utf8(text, path, member)
    document = strict_json.parse(data, path=path, member=member)
    graph = read_graph(document, constants, path=path, member=member)
    return input_checks.restored(graph, document, path)


def _in_utf8(text: bytes, path: str | PathLike[str] | None, member: str | None) -> bytes:
    """A text without its byte order mark: editors and shells of Windows write one, and UTF-16. Raises ArchiveError."""
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return text.decode("utf-16").encode("utf-8")
        except UnicodeError as error:
            raise ArchiveError(f"not UTF-16 text: {str(error)[-80:]}", path=path, member=member) from None
    return text.removeprefix(codecs.BOM_UTF8)


def save(path: str | PathLike[str], graph: Graph, attrs: Mapping[str, Any] | None = None) -> None:
    """Write `dumps(graph, attrs=attrs)` to a file, atomically."""
    text = dumps(graph, attrs=attrs).encode("utf-8")
    with atomic_write(path) as file:
        file.write(text)


def load(path: str | PathLike[str], constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph in a `-symbol.json` file; `constants` as in `loads`. Raises ArchiveError, FileError."""
    with reading(path), open_regular(path) as file:
        text = file.read()
    other = other_kind(text, "JSON")
    if other is not None:
        raise ArchiveError(f"not a -symbol.json file but {other}", path=path)
    return loads(text, constants, path=fspath(path))
