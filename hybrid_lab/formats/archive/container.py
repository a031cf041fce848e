"""The .hlab container: named members in one zip, each with its digest, and a root digest over all of them.

The last member, `manifest.json`, lists size and SHA-256 of every other member (of a safetensors member: of its header
and of each tensor, which together make up the member); the zip's comment holds the SHA-256 of the manifest. With the
fixed zip layout every byte of the file is covered: a change of any byte is detected.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from hybrid_lab.diagnostics import ArchiveError

from .. import strict_json
from ..atomic import write_early
from ..background import BLOCK, WORTH_A_TASK, WORTH_THREADS, Hashing, in_threads
from ..kinds import other_kind
from ..safetensors import Encoded, SafetensorsFile, begun_digest, encode, little_bytes
from ..source import Source
from .zip_layout import ZIP64, Entry, check_name, directory, local_header, read_layout

MANIFEST = "manifest.json"
FORMAT = "hlab"
SCHEMA = (1, 4)
"""The version written: readers of the same major number read every minor one, unless `reader` asks for more."""
READER = (1, 0)
"""The oldest reader that understands what is written."""
MANIFEST_LIMIT = 256 << 20
_COMMENT = b"hlab sha256="
_COMMENT_SIZE = len(_COMMENT) + 64


class ContainerWriter:
    """Writes members one after another into an open, seekable file at position 0; `finish` writes the manifest."""

    def __init__(self, file: BinaryIO, written: Callable[[int], object] = int) -> None:
        """written : is told how many bytes of tensors have been written, again and again."""
        self._file, self._written = file, written
        self._bytes = 0
        self._entries: list[Entry] = []
        self._records: dict[str, dict[str, Any]] = {}

    def add(self, name: str, content: bytes) -> None:
        """Add a member of these bytes. Raises ArchiveError for a bad or repeated name."""
        self._write(name, content)
        self._records[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def add_json(self, name: str, value: object) -> None:
        """Add a member holding `value` as deterministic JSON."""
        self.add(name, strict_json.render(value))

    def add_tensors(
        self, name: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Add a safetensors member; its tensors start at a multiple of 64 in the file and get digests of their own.

        Other threads may write to the arrays meanwhile: CRC and digests are computed from the bytes in the file.
        """
        encoded = encode(arrays, metadata, position=self._entry(name, 0, 0).start)
        if encoded.size >= ZIP64:  # the header before the member is longer then
            encoded = encode(arrays, metadata, position=self._entry(name, 0, encoded.size).start)
        entry = self._entry(name, 0, encoded.size)
        self._file.write(local_header(entry))
        digests = {tensor: begun_digest(array.dtype, array.shape) for tensor, array in encoded.tensors.items()}
        crc = written = 0
        with Hashing(encoded.size) as hashing:
            for piece in write_early(self._file, _copied_blocks(encoded, digests, hashing), encoded.size):
                crc = zlib.crc32(piece, crc)
                written += len(piece)
                self._written(self._bytes + written)
        record = {
            "size": encoded.size,
            "header": hashlib.sha256(encoded.header).hexdigest(),
            "tensors": {tensor: digest.hexdigest() for tensor, digest in digests.items()},
        }
        if written != encoded.size:
            raise ArchiveError(
                f"{written} bytes were written, but {encoded.size} were announced; did the data change while saving?",
                member=name,
            )
        self._bytes += written
        entry = self._entry(name, crc, encoded.size)
        self._file.seek(entry.offset)
        self._file.write(local_header(entry))
        self._file.seek(entry.stop)
        self._entries.append(entry)
        self._records[name] = record

    def finish(self, fields: Mapping[str, Any]) -> None:
        """Write the manifest (the container's own fields first, then `fields`) and the directory."""
        manifest = {
            "format": FORMAT,
            "schema": "{}.{}".format(*SCHEMA),
            "reader": "{}.{}".format(*READER),
            **fields,
            "members": self._records,
        }
        content = strict_json.render(manifest)
        self._write(MANIFEST, content)
        self._file.write(directory(self._entries, _COMMENT + hashlib.sha256(content).hexdigest().encode()))

    def _write(self, name: str, content: bytes) -> None:
        entry = self._entry(name, zlib.crc32(content), len(content))
        self._file.write(local_header(entry) + content)
        self._entries.append(entry)

    def _entry(self, name: str, crc: int, size: int) -> Entry:
        """The next member. Raises ArchiveError for a bad or repeated name."""
        if name in self._records:
            raise ArchiveError("a member of this name was already written", member=name)
        return Entry(check_name(name), crc, size, self._entries[-1].stop if self._entries else 0)


def _copied_blocks(encoded: Encoded, digests: Mapping[str, hashlib._Hash], hashing: Hashing) -> Iterator[bytes]:
    """Copy a safetensors file block by block; the digest of each tensor is computed from its blocks."""
    yield encoded.header
    for number, (name, array) in enumerate(encoded.tensors.items()):
        content = little_bytes(array)
        for start in range(0, len(content), BLOCK):
            block = bytes(content[start : start + BLOCK])
            if len(content) < WORTH_A_TASK:
                digests[name].update(block)
            else:
                hashing.update(number, digests[name], block)
            yield block


class Container:
    """An archive's members, read when asked for.

    Opening checks every zip header and the manifest; a member's contents are checked while they are read, and all of
    them by `verify`. manifest : the parsed manifest, with fields unknown to this version left unchanged.
    """

    def __init__(self, data: bytes | Source) -> None:
        self._source = data if isinstance(data, Source) else Source(data)
        self.path = self._source.path
        try:
            entries, comment = read_layout(self._source, _COMMENT_SIZE)
        except ArchiveError as error:
            other = other_kind(self._source, ".hlab")
            if other is not None:
                raise self.error(f"not a .hlab archive but {other}") from None
            raise self.error(f"damaged archive: {error.reason}", error.member) from None
        self._entries = {entry.name: entry for entry in entries}
        self.manifest = self._read_manifest(comment)
        self._records: dict[str, dict[str, Any]] = self.manifest["members"]

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Container:
        """Open the archive at `path`. Raises ArchiveError for anything but an intact .hlab file, FileError."""
        source = Source.open(path)
        if not len(source):
            raise ArchiveError("damaged archive: the file is empty", path=path)
        return cls(source)

    @property
    def digest(self) -> str:
        """The root digest: SHA-256 of the manifest, which has the digests of everything else."""
        return self._digest

    @property
    def names(self) -> list[str]:
        """The members' names in order, without the manifest."""
        return list(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def error(self, message: str, member: str | None = None) -> ArchiveError:
        """An ArchiveError that names this file."""
        return ArchiveError(message, path=self.path, member=member)

    def holds_tensors(self, name: str) -> bool:
        """Whether the manifest lists a member's tensors: it is a safetensors member then."""
        return "tensors" in self._records[name]

    def read(self, name: str) -> bytes:
        """A member's contents, checked against its digest and CRC. Raises ArchiveError if it is missing or damaged."""
        content = self._part(name)[:]
        if self.holds_tensors(name):
            deque(map(self.tensors(name, Source(content, self.path)).read, self._records[name]["tensors"]), maxlen=0)
        elif hashlib.sha256(content).hexdigest() != self._records[name]["sha256"]:
            raise self.error("damaged archive: the contents do not match their digest", name)
        self._check_crc(name, zlib.crc32(content))
        return content

    def read_json(self, name: str) -> object:
        """A member's JSON value, checked against its digest."""
        return strict_json.parse(self.read(name), path=self.path, member=name)

    def tensors(self, name: str, content: Source | None = None) -> SafetensorsFile:
        """A safetensors member, of which the header was checked; each tensor is checked when it is read.

        content : its bytes, if they were read already
        """
        content = self._part(name) if content is None else content
        digests = self._records[name].get("tensors")
        if not isinstance(digests, dict):
            raise self.error("damaged archive: the manifest lists no tensors for it", name)
        file = SafetensorsFile(content, member=name, digests=digests)
        if hashlib.sha256(file.header).hexdigest() != self._records[name].get("header"):
            raise self.error("damaged archive: the tensors' header does not match its digest", name)
        if file.infos.keys() != digests.keys():
            raise self.error("damaged archive: the manifest lists other tensors", name)
        return file

    def read_tensors(self, name: str) -> dict[str, np.ndarray]:
        """All tensors of a member as arrays of their own, checked against their digests.

        A digest says more than the CRC, which takes half as long to compute and is for other readers of zip files.
        """
        return dict(self._all_tensors(name, with_crc=False))

    def verify(self) -> None:
        """Check every member's CRC, SHA-256 and tensors' digests. Raises ArchiveError naming the first damage."""
        for name in self._records:
            if self.holds_tensors(name):
                deque(self._all_tensors(name, with_crc=True), maxlen=0)
            else:
                self.read(name)

    def _all_tensors(self, name: str, with_crc: bool) -> Iterator[tuple[str, np.ndarray]]:
        content = self._part(name)
        if len(content) < WORTH_THREADS:
            content = Source(content[:], self.path)  # one read instead of one for each tensor
        file = self.tensors(name, content)
        crc = zlib.crc32(file.header)
        sizes = [info.stop - info.start for info in file.infos.values()]
        with in_threads(file.read, file.infos, sizes) as results:
            for tensor, (array, raw) in zip(file.infos, results, strict=True):
                if with_crc:
                    crc = zlib.crc32(raw, crc)
                yield tensor, array
        if with_crc:
            self._check_crc(name, crc)

    def _part(self, name: str) -> Source:
        if name not in self._records:
            raise self.error("the archive has no such member", name)
        entry = self._entries[name]
        return self._source.part(entry.start, entry.stop)

    def _check_crc(self, name: str, crc: int) -> None:
        if crc != self._entries[name].crc:
            raise self.error("damaged archive: the contents do not match their CRC", name)

    def _read_manifest(self, comment: bytes) -> dict[str, Any]:
        entry = self._entries.get(MANIFEST)
        if entry is None or list(self._entries)[-1] != MANIFEST:
            raise self.error("not a .hlab archive: its last member must be the manifest", MANIFEST)
        if entry.size > MANIFEST_LIMIT:
            raise self.error(f"damaged archive: a manifest of {entry.size} bytes", MANIFEST)
        content = self._source[entry.start : entry.stop]
        self._digest = hashlib.sha256(content).hexdigest()
        if comment != _COMMENT + self._digest.encode():
            raise self.error("damaged archive: the manifest does not match the root digest", MANIFEST)
        self._check_crc(MANIFEST, zlib.crc32(content))
        manifest = strict_json.parse(content, path=self.path, member=MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise self.error("not a .hlab archive: the manifest does not say so", MANIFEST)
        self._check_version(manifest)
        self._check_members(manifest.get("members"))
        return manifest

    def _check_version(self, manifest: dict[str, object]) -> None:
        schema, reader = (self._version(manifest.get(key), key) for key in ("schema", "reader"))
        if schema[0] != SCHEMA[0] or reader > SCHEMA:
            raise self.error(
                "the archive has schema {}.{} and asks for a reader of {}.{}; this hybrid_lab reads up to {}.{}: "
                "install a newer one".format(*schema, *reader, *SCHEMA),
                MANIFEST,
            )

    def _version(self, text: object, key: str) -> tuple[int, int]:
        match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text, re.ASCII) if isinstance(text, str) else None
        if match is None:
            raise self.error(
                f"damaged archive: the manifest's {key!r} is {str(text)[:40]!r}, not major.minor", MANIFEST
            )
        return int(match[1]), int(match[2])

    def _check_members(self, records: object) -> None:
        names = list(self._entries)[:-1]
        if not isinstance(records, dict) or list(records) != names:
            listed = set(records) if isinstance(records, dict) else set()
            odd = sorted(listed.symmetric_difference(names))
            raise self.error(f"damaged archive: manifest and zip list different members: {odd[:5]}", MANIFEST)
        for name, record in records.items():
            if not isinstance(record, dict) or record.get("size") != self._entries[name].size:
                raise self.error("damaged archive: the manifest gives another size", name)
            if not isinstance(record.get("header" if "tensors" in record else "sha256"), str):
                raise self.error("damaged archive: the manifest gives no digest", name)


def why_no_archive(path: str | PathLike[str]) -> str | None:
    """Why the file at `path` is no archive, in words; None if it is one.

    Read are the zip headers and the manifest, which must match the root digest. Members may be damaged.
    """
    if not os.path.isfile(path):
        return "it is not a regular file"
    try:
        Container.open(path)
    except ArchiveError as error:
        return error.reason.removeprefix("damaged archive: ")
    except OSError as error:
        return error.strerror or type(error).__name__
    return None
