"""compiled/: kernels of the model as binaries for some GPUs, so that another machine need not compile them.

`compiled/<target>/kernels.json` says what made them and names them by key - a digest of everything that went into a
binary, the compiler's version too -, `compiled/<target>/<key>.<kind>` are their files. A model does not need them, and
no load uses them: a binary is code for a GPU, and nobody can tell from it whether it computes the graph. `use_compiled`
loads the binaries of an archive that the user made or trusts, if they were compiled by the installed version of Triton.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.formatting import count

from ..atomic import atomic_write
from .container import Container, ContainerWriter
from .layout import existing_path

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.build.binaries import Binary

FOLDER = "compiled/"
_OWN = ("format", "schema", "reader", "members")
_KEY = re.compile(r"[0-9a-f]{64}")


def binaries_of(model: object) -> list[Binary]:
    """The binaries of what net.compile_for() gave. Raises HybridLabError for anything else."""
    kernels = getattr(model, "kernels", None)
    if kernels is None:
        raise HybridLabError(f"compiled= takes the result of net.compile_for(), not {type(model).__name__}")
    return [kernel.binary for kernel in kernels if kernel.binary is not None]


def write_binaries(writer: ContainerWriter, binaries: Iterable[Binary]) -> int:
    """Add the members; returns how many binaries there are. Equal binaries give equal bytes."""
    from hybrid_lab.engines.triton.build import binaries as stored
    from hybrid_lab.engines.triton.build import internals

    by_target: dict[str, dict[str, Binary]] = {}
    for binary in binaries:
        by_target.setdefault(binary.target, {})[binary.key] = binary
    for target in sorted(by_target):
        found = dict(sorted(by_target[target].items()))
        kernels = {key: {"name": each.name, "log": each.log, "files": list(each.files)} for key, each in found.items()}
        head = {"binaries": stored.FORMAT, "triton": internals.version(), "kernels": kernels}
        writer.add_json(f"{FOLDER}{target}/kernels.json", head)
        for key, each in found.items():
            for kind, content in each.files.items():
                writer.add(f"{FOLDER}{target}/{key}.{kind}", content)
    return sum(map(len, by_target.values()))


def add_binaries(path: str | PathLike[str], binaries: Sequence[Binary]) -> int:
    """Write the archive at `path` once more, atomically, with these binaries in place of its own.

    Returns how many there are. Raises ArchiveError for a damaged archive, which is not changed, and FileError.
    """
    archive = Container.open(path)
    fields = {name: value for name, value in archive.manifest.items() if name not in _OWN}
    with atomic_write(path) as file:
        writer = ContainerWriter(file)
        for name in archive.names:
            if name.startswith(FOLDER):
                continue
            if archive.holds_tensors(name):
                writer.add_tensors(name, archive.read_tensors(name), archive.tensors(name).metadata)
            else:
                writer.add(name, archive.read(name))
        made = write_binaries(writer, binaries)
        writer.finish(fields)
    return made


@dataclass
class Taken:
    """What `use_compiled` did. taken : binaries by target; left : target -> why its binaries were not taken"""

    taken: dict[str, int]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{target}: {count(number, 'kernel')} put into the cache" for target, number in self.taken.items()]
        lines += [f"{target}: left in the archive, {reason}" for target, reason in self.left.items()]
        return "\n".join(lines) or "the archive has no binaries"

    __repr__ = __str__


def use_compiled(path: str | PathLike[str]) -> Taken:
    """Put the binaries of an archive into this machine's cache, where compiling finds them.

    For an archive that you made or trust: they run on the GPU unchecked. Binaries of another version of Triton are
    left. Raises ArchiveError for a damaged archive, FileError.
    """
    from hybrid_lab.engines.triton.build import binaries as stored
    from hybrid_lab.engines.triton.build import internals
    from hybrid_lab.engines.triton.build.compiling import check_triton

    check_triton()
    archive = Container.open(existing_path(path))
    result = Taken({}, {})
    for target, head in _heads(archive):
        if head.get("binaries") != stored.FORMAT or head.get("triton") != internals.version():
            result.left[target] = f"made with Triton {head.get('triton')}, installed is {internals.version()}"
            continue
        found = [_binary(archive, target, key, entry) for key, entry in head["kernels"].items()]
        for binary in found:
            stored.BINARIES.add(binary)
        result.taken[target] = len(found)
    return result


def _heads(archive: Container) -> Iterator[tuple[str, dict[str, Any]]]:
    """(target, what kernels.json says), checked for its form."""
    for name in archive.names:
        match = re.fullmatch(rf"{FOLDER}([\w.\-]+)/kernels\.json", name)
        if match is None:
            continue
        head = archive.read_json(name)
        if not isinstance(head, dict):
            raise archive.error("damaged archive: not a list of kernels", name)
        kernels = head.get("kernels")
        if not isinstance(kernels, dict) or not all(map(_is_entry, kernels.items())):
            raise archive.error("damaged archive: not a list of kernels", name)
        yield match[1], head


def _is_entry(item: tuple[str, object]) -> bool:
    from hybrid_lab.engines.triton.build.binaries import KINDS

    key, entry = item
    if _KEY.fullmatch(key) is None or not isinstance(entry, dict) or not isinstance(entry.get("files"), list):
        return False
    texts = isinstance(entry.get("name"), str) and isinstance(entry.get("log"), str)
    return texts and all(kind in KINDS for kind in entry["files"])


def _binary(archive: Container, target: str, key: str, entry: dict[str, Any]) -> Binary:
    from hybrid_lab.engines.triton.build.binaries import Binary

    files = {kind: archive.read(f"{FOLDER}{target}/{key}.{kind}") for kind in entry["files"]}
    return Binary(key, entry["name"], target, files, entry["log"], 0.0)
