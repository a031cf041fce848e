"""`hybrid-lab inspect`, `verify` and `diff`: looking at .hlab archives without loading a model, and at other files."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.formatting import count

from . import model_files
from .command import CommandError, Commands, archive_file

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.formats.archive.container import Container
    from hybrid_lab.formats.archive.tree import BlockRecord


def add_commands(commands: Commands) -> None:
    """Register `inspect`, `verify` and `diff`."""
    inspect = commands.add_parser(
        "inspect",
        help="blocks, graphs and tensors of a .hlab, -symbol.json, .params, .onnx or .safetensors file",
        description="Lists the blocks, graphs and tensors of a .hlab archive; inputs, outputs and operators of a "
        "-symbol.json or an .onnx file; the arrays of a .params or .safetensors file. No code of the file is run. Exit "
        "status: 0, or 2 for a file that cannot be read.",
        allow_abbrev=False,
    )
    inspect.add_argument("archive", metavar="FILE", type=Path, help="the ending of its name decides what it is")
    inspect.add_argument("--tensors", action="store_true", help="also list every tensor")
    inspect.add_argument("--json", action="store_true", help="print JSON: of an archive its manifest and tree")
    inspect.set_defaults(run=run_inspect)

    verify = commands.add_parser(
        "verify",
        help="check every byte of archives against their digests",
        description="Reads every byte of .hlab archives and compares it with the digests in them. Exit status: 0 all "
        "archives are intact, 1 one is damaged, 2 a file that cannot be read.",
        allow_abbrev=False,
    )
    verify.add_argument("archives", nargs="+", metavar="FILE", type=Path, help="a .hlab archive")
    verify.set_defaults(run=run_verify)

    diff = commands.add_parser(
        "diff",
        help="what differs between two model files",
        description="Blocks, operators of their graphs, tensors with the size of their change, and training state of "
        ".hlab archives; operators and tensors of -symbol.json with .params and of .onnx; arrays of .params and "
        ".safetensors. Exit status: 0 equal, 1 different, 2 a file that cannot be read.",
        allow_abbrev=False,
    )
    diff.add_argument("first", metavar="FIRST", type=Path, help="a model file, such as the earlier one")
    diff.add_argument("second", metavar="SECOND", type=Path, help="a model file")
    diff.add_argument("--json", action="store_true", help="print the differences as JSON")
    diff.set_defaults(run=run_diff)


def printable(text: str) -> str:
    """Text from a file as one line: control characters, which could steer a terminal, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def run_inspect(arguments: Namespace) -> int:
    """Print what an archive holds; of the contents only the tree and the tensors' headers are read."""
    from hybrid_lab.formats.archive import layout
    from hybrid_lab.formats.archive.container import Container

    if model_files.is_other(arguments.archive):
        found = model_files.described(arguments.archive)
        text = [json.dumps(found, indent=2)] if arguments.json else model_files.lines(found, arguments.tensors)
        print("\n".join(text) if arguments.json else "\n".join(map(printable, text)))
        return 0
    if arguments.tensors and arguments.json:
        raise CommandError(
            "--tensors: the JSON of an archive is its manifest and its tree, which have no list of tensors; leave out "
            "--json or --tensors"
        )
    archive = Container.open(archive_file(arguments.archive))
    if arguments.json:
        print(json.dumps({"manifest": archive.manifest, "tree": archive.read_json(layout.TREE)}, indent=2))
    else:
        for line in describe(archive, arguments.tensors):
            print(printable(line))
    return 0


def describe(archive: Container, with_tensors: bool = False) -> Iterator[str]:
    """An archive in lines of text: its header, the tree of blocks, the graphs, the tensors."""
    from hybrid_lab.engines.report import format_bytes
    from hybrid_lab.formats.archive import graphs, layout, tree

    blocks = tree.from_json(archive.read_json(layout.TREE), archive.path)
    size = sum(record["size"] for record in archive.manifest["members"].values())
    yield f"{archive.path}: schema {archive.manifest['schema']}, {len(archive.names)} members, {format_bytes(size)}"
    for key, value in archive.manifest.items():
        if key not in ("format", "schema", "reader", "members") and isinstance(value, str | int | float):
            yield f"  {key}: {value}"
    yield ""
    seen: set[int] = set()
    for path, block in blocks.places():
        depth = path.count(".") + 1 if path else 0
        yield "  " * depth + _block(path, block, shared=block.id in seen)
        seen.add(block.id)
    members = [name for name in archive.names if name.startswith("graphs/")]
    yield ""
    yield count(len(members), "graph")
    for name in members:
        operators = graphs.count_operators(archive, name)
        yield f"  {name.removeprefix('graphs/').removesuffix('.json')}: {count(operators, 'operator')}"
    for member in archive.names:
        if member.endswith(".safetensors"):
            tensors = archive.tensors(member)
            values = sum(math.prod(info.shape) for info in tensors.infos.values())
            yield f"{member}: {count(len(tensors), 'tensor')}, {count(values, 'value')}"
            if with_tensors:
                for name, info in tensors.infos.items():
                    yield f"  {name}  {info.dtype.name}{list(info.shape)}"


def _block(path: str, block: BlockRecord, shared: bool) -> str:
    name = path.rpartition(".")[2] or block.prefix.rstrip("_") or "the model"
    notes = [{"plain": "not hybrid", "hybrid": "hybrid", "symbol": "from a graph"}[block.kind]]
    notes += ["hybridized"] if block.hybridized else []
    notes += [f"shared with {block.path or 'the root'}"] if shared else []
    notes += [count(len(block.graphs), "graph")] if block.graphs else []
    return f"{name}: {block.class_} ({', '.join(notes)})"


def run_verify(arguments: Namespace) -> int:
    """Check archives completely; all of them are reported. Status 1 if any is damaged, 2 if there is no such file."""
    from hybrid_lab.diagnostics import ArchiveError, FileError
    from hybrid_lab.formats.archive.container import Container

    status = 0
    for path in arguments.archives:
        try:
            archive = Container.open(archive_file(path))
            archive.verify()
            print(f"{path}: intact, {len(archive.names)} members, every byte matches its digest")
        except ArchiveError as error:
            print(printable(f"{path}: {error}"))
            status = max(status, 1)
        except FileError as error:
            print(printable(str(error)))
            status = 2
    return status


def run_diff(arguments: Namespace) -> int:
    """Print what differs, Block by Block."""
    from hybrid_lab.formats.archive.container import Container
    from hybrid_lab.formats.archive.difference import diff

    paths = arguments.first, arguments.second
    if any(path.suffix in (".params", ".safetensors") for path in paths):
        return _diff_arrays(_arrays(paths[0]), _arrays(paths[1]), arguments.json)
    sides = [
        model_files.model_of(path) if model_files.is_other(path) else Container.open(archive_file(path))
        for path in paths
    ]
    difference = diff(*sides)
    if any(map(model_files.is_other, paths)):
        difference = replace(difference, first=str(paths[0]), second=str(paths[1]))
    if arguments.json:
        print(json.dumps(difference.data(), indent=2))
    elif difference:
        print("\n".join(map(printable, str(difference).splitlines())))
    else:
        print("\n".join(["no differences", *(printable(f"note: {note}") for note in difference.notes)]))
    return 1 if difference else 0


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    """The arrays of a model file of any kind, by name."""
    from hybrid_lab.formats.archive import layout
    from hybrid_lab.formats.archive.container import Container

    if path.suffix in (".params", ".safetensors"):
        return model_files.read_arrays(path)
    if model_files.is_other(path):
        parameters = model_files.model_of(path).collect_params()
        return {parameter.name: parameter.data().asnumpy() for parameter in parameters.values()}
    archive = Container.open(archive_file(path))
    return archive.read_tensors(layout.WEIGHTS) if layout.WEIGHTS in archive else {}


def _diff_arrays(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], as_json: bool) -> int:
    rows = model_files.array_differences(first, second)
    if as_json:
        print(json.dumps([{"name": row.name, "kind": row.kind, "text": row.text} for row in rows], indent=2))
    else:
        signs = {"added": "+", "removed": "-", "changed": "~"}
        print("\n".join(printable(f"{signs[row.kind]} {row.name}: {row.text}") for row in rows) or "no differences")
    return 1 if rows else 0
