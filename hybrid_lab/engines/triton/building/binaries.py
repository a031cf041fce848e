"""Binaries on disk: one folder for each, named by all that went into it, checked whenever it is read.

A folder comes into being by one rename, complete, and never changes: any number of processes may write and read at
once. A file that does not match its digest makes its folder worth nothing: it goes, and the kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid_lab import forks
from hybrid_lab.engines.cache import (
    UntrustedFileError,
    cache_folder,
    create_file,
    new_folder,
    read_file,
    why_untrusted,
)
from hybrid_lab.engines.triton.building.resources import Resources, resources_of
from hybrid_lab.log import logger
from hybrid_lab.temporary import temporary_path

#: Of the folders and of how binaries are made; one that says another number is made anew.
FORMAT = 4
#: What is kept of Triton's stages, by file suffix. What a GPU loads comes last.
KINDS = ("json", "ttir", "ttgir", "amdgcn", "ptx", "hsaco", "cubin")
ENTRY = "entry.json"
#: So many binaries are kept on disk; then those go that were not used for longest.
MOST = 8192


@dataclass(frozen=True)
class Binary:
    """A kernel compiled for one target.

    key : of all that went into it; name : of the function; target : "gfx942", "sm90" ...
    files : suffix -> contents: "json" is Triton's metadata, "ttir" and "ttgir" its stages, then assembly and binary
    log : what the vendor's assembler printed; seconds : that compiling took; folder : where the files lie
    """

    key: str
    name: str
    target: str
    files: Mapping[str, bytes]
    log: str
    seconds: float
    folder: Path

    @property
    def ttir(self) -> str:
        """Triton's own form of the kernel, for any GPU."""
        return self.files["ttir"].decode()

    @property
    def assembly(self) -> str:
        """AMD's instructions as text, or NVIDIA's PTX."""
        return self.files["amdgcn" if "amdgcn" in self.files else "ptx"].decode()

    @property
    def code(self) -> bytes:
        """What the GPU loads: an hsaco or a cubin."""
        return self.files["hsaco" if "hsaco" in self.files else "cubin"]

    @property
    def binary_bytes(self) -> int:
        return len(self.code)

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """What Triton notes: warps, shared memory, options ..."""
        return json.loads(self.files["json"])

    @functools.cached_property
    def resources(self) -> Resources:
        return resources_of(self.assembly, self.log, self.metadata, self.binary_bytes)

    @property
    def paths(self) -> dict[str, str]:
        """file name -> path, as Triton's loader takes them."""
        return {f"kernel.{kind}": str(self.folder / f"kernel.{kind}") for kind in self.files}

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target}, {self.binary_bytes} bytes: {self.resources}>"


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def key_of(request: Mapping[str, Any], version: str) -> str:
    """What tells a binary from all others: everything that is compiled, and the compiler."""
    parts = {name: item for name, item in request.items() if name not in ("file", "key")}
    parts["signature"], parts["constants"] = list(parts["signature"].items()), sorted(parts["constants"].items())
    return digest(json.dumps([FORMAT, version, parts], sort_keys=True).encode())


class Store:
    """The folder of all binaries, and those that this process has read."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._known: dict[str, Binary] = {}
        self._told = False

    def find(self, key: str) -> Binary | None:
        """The binary, if it is there and as it was when it was written."""
        known = self._known.get(key)
        if known is not None and known.folder.is_dir():
            return known
        try:
            found = _read(self.folder / key, key)
        except FileNotFoundError:
            if (self.folder / key).is_dir():
                self._discard(key)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._discard(key)
            return None
        self._known[key] = found
        return found

    def add(self, binary: Binary) -> Binary:
        """Write one, unless it is there. Returns what is there.

        Where the folder cannot be written to, binaries go to one that lasts as long as this process, and a warning says
        so, once. Raises OSError where that cannot be written to either.
        """
        try:
            return self._add(binary)
        except OSError as error:
            aside = _temporary_store()
            if aside is self:
                raise
            if not self._told:
                self._told = True
                logger.warning(
                    f"compiled kernels cannot be kept in {self.folder} ({error.strerror or error}): they last as long "
                    "as this process. HYBRID_LAB_CACHE names another folder"
                )
            self._known[binary.key] = found = aside.add(binary)
            return found

    def _add(self, binary: Binary) -> Binary:
        contents = {f"kernel.{kind}": content for kind, content in binary.files.items()}
        for _ in range(3):
            there = self.find(binary.key)
            if there is not None:
                return there
            publish(self.folder, binary.key, binary.name, binary.target, contents, binary.log, binary.seconds)
        found = self.find(binary.key)
        if found is None:
            raise OSError(f"what was written to {self.folder / binary.key} cannot be read")
        return found

    def trim(self) -> None:
        """Let those go that were not used for longest, where there are too many."""
        with contextlib.suppress(OSError):
            folders = [entry for entry in os.scandir(self.folder) if len(entry.name) == 64]
            if len(folders) > MOST:
                for entry in sorted(folders, key=lambda entry: entry.stat().st_mtime)[: len(folders) - MOST // 2]:
                    self._discard(entry.name)

    def _discard(self, key: str) -> None:
        self._known.pop(key, None)
        aside = Path(temporary_path(os.fspath(self.folder / key)))
        with contextlib.suppress(OSError):  # another process was quicker
            os.rename(self.folder / key, aside)
        with contextlib.suppress(OSError):
            aside.unlink()  # no folder but a file
        shutil.rmtree(aside, ignore_errors=True)


def publish(
    folder: Path, key: str, name: str, target: str, contents: Mapping[str, bytes], log: str, seconds: float
) -> None:
    """Write the folder of a binary aside and rename it; nothing happens where somebody else was quicker."""
    with new_folder(folder / key) as aside:
        for file, content in contents.items():
            _write(aside / file, content)
        entry = {
            "format": FORMAT,
            "key": key,
            "name": name,
            "target": target,
            "log": log,
            "seconds": seconds,
            "files": {file: digest(content) for file, content in contents.items()},
        }
        text = json.dumps(entry, indent=1).encode()
        _write(aside / ENTRY, digest(text).encode() + b"\n" + text)


def _write(path: Path, content: bytes) -> None:
    with open(create_file(path), "wb") as file:
        file.write(content)


def _read(folder: Path, key: str) -> Binary:
    """Raises ValueError where anything is not as it was written, OSError."""
    reason = why_untrusted(folder)
    if reason is not None:
        raise UntrustedFileError(None, reason, os.fspath(folder))
    head, _, text = read_file(folder / ENTRY).partition(b"\n")
    if head.decode() != digest(text):
        raise ValueError("the entry does not match its digest")
    entry = json.loads(text)
    if entry["format"] != FORMAT or entry["key"] != key:
        raise ValueError("an entry of another kind")
    files: dict[str, bytes] = {}
    for file, expected in entry["files"].items():
        try:
            content = read_file(folder / file)
        except FileNotFoundError:
            raise ValueError(f"{file} is missing") from None
        if digest(content) != expected:
            raise ValueError(f"{file} does not match its digest")
        files[file.removeprefix("kernel.")] = content
    with contextlib.suppress(OSError):
        os.utime(folder)
    return Binary(key, entry["name"], entry["target"], files, entry["log"], entry["seconds"], folder)


_lock = forks.lock()
_stores: dict[Path, Store] = {}
_temporary: tuple[Any, Store] | None = None


def store() -> Store:
    """The store in the project's cache folder; a folder that goes with this process where nothing is kept on disk."""
    folder = cache_folder("binaries")
    if folder is None:
        return _temporary_store()
    with _lock:
        if folder not in _stores:
            _stores[folder] = Store(folder)
        return _stores[folder]


def _temporary_store() -> Store:
    """Raises OSError where no folder can be made."""
    global _temporary
    with _lock:
        if _temporary is None:
            folder = tempfile.TemporaryDirectory(prefix="hybrid_lab_binaries_", ignore_cleanup_errors=True)
            _temporary = folder, Store(Path(folder.name))
        return _temporary[1]
