"""Binaries: kernels compiled for one target, kept in the store by a digest of everything that went into them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hybrid_lab.engines.store import Store
from hybrid_lab.engines.triton.build.resources import Resources, resources_of

#: Version of the entries and of the way binaries are made; a binary of another version is compiled again.
FORMAT = 5
#: The kept stages of Triton, by file suffix. The GPU's file comes last.
KINDS = ("json", "ttir", "ttgir", "amdgcn", "ptx", "hsaco", "cubin")


@dataclass(frozen=True)
class Binary:
    """A kernel compiled for one target.

    key : of all that went into it; name : of the function; target : "gfx942", "sm90" ...
    files : suffix -> contents: "json" is Triton's metadata, "ttir" and "ttgir" its stages, then assembly and binary
    log : the output of the vendor's assembler; seconds : that compiling took
    """

    key: str
    name: str
    target: str
    files: Mapping[str, bytes]
    log: str
    seconds: float

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
        """The file that the GPU loads: an hsaco or a cubin."""
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

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target}, {self.binary_bytes} bytes: {self.resources}>"


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def key_of(request: Mapping[str, Any], version: str) -> str:
    """The key of a binary: a digest of everything that is compiled, and of the compiler."""
    parts = {name: item for name, item in request.items() if name not in ("file", "key")}
    parts["signature"], parts["constants"] = list(parts["signature"].items()), sorted(parts["constants"].items())
    return digest(json.dumps([FORMAT, version, parts], sort_keys=True).encode())


class Binaries:
    """Binaries on disk; binaries that could not be written there, in memory."""

    def __init__(self, disk: Store):
        self.disk = disk
        self._memory: dict[str, Binary] = {}

    def find(self, key: str) -> Binary | None:
        content = self.disk.get(key)
        return self._memory.get(key) if content is None else _unpacked(key, content)

    def add(self, binary: Binary) -> None:
        if not self.disk.put(binary.key, _packed(binary)):
            self._memory[binary.key] = binary


BINARIES = Binaries(Store("binaries", lambda: str(FORMAT), 2 << 30))


def _packed(binary: Binary) -> bytes:
    """A line of JSON - name, target, log, seconds, size of each file - and the files, one after the other."""
    sizes = {kind: len(content) for kind, content in binary.files.items()}
    head = json.dumps([binary.name, binary.target, binary.log, binary.seconds, sizes]).encode()
    return b"\n".join([head, b"".join(binary.files.values())])


def _unpacked(key: str, content: bytes) -> Binary:
    head, _, rest = content.partition(b"\n")
    name, target, log, seconds, sizes = json.loads(head)
    ends = list(accumulate(sizes.values()))
    files = {kind: rest[end - size : end] for (kind, size), end in zip(sizes.items(), ends, strict=True)}
    return Binary(key, name, target, files, log, seconds)
