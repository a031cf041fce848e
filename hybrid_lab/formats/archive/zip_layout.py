"""The one byte layout of a stored zip that an archive may have: what to write, and a reader that accepts nothing else.

Members lie one after another from offset 0, uncompressed, without extra fields (but zip64 sizes from 4 GiB), all dated
1980-01-01; the central directory follows, then the end record whose comment carries the root digest. Every byte outside
the members' contents follows from the list of (name, crc, size) and the comment, so the reader parses that list,
lays it out again and compares: prepended, trailing, overlapping or disagreeing headers cannot survive.
Format: PKWARE APPNOTE 6.3.9.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from hybrid_lab.diagnostics import ArchiveError

from ..source import Source

MEMBER_LIMIT = 65_534
NAME_LIMIT = 2_048
ZIP64 = 0xFFFFFFFF
"""Sizes and offsets from here on are written in zip64 fields."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_SHARED = struct.Struct("<5H3I2H")
"""Fields that both headers of a member have: "version needed" to "extra length"."""
_CENTRAL_START, _CENTRAL_REST = struct.Struct("<4sH"), struct.Struct("<3H2I")
"""Fields of a central header before and behind the shared ones."""
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_ZIP64_SIZES = 20
"""Bytes of the extra field with both sizes in a local header."""
_LOCAL_FIELDS = (
    "signature",
    "version needed",
    "flags",
    "compression method",
    "time",
    "date",
    "CRC",
    "compressed size",
    "size",
    "name length",
    "extra length",
)
_CENTRAL_FIELDS = (
    "signature",
    "version made by",
    *_LOCAL_FIELDS[1:],
    "comment length",
    "disk number",
    "internal attributes",
    "external attributes",
    "header offset",
)
_DATE = 0x21
_UTF8 = 0x800
_REGULAR_FILE = 0o100644 << 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters and surrogates."""
_PART = r"(?!\.{1,2}(?:/|\Z))[^/\\:\x00-\x1f\x7f\ud800-\udfff]+"
_PLAIN = re.compile(f"{_PART}(?:/{_PART})*")
"""Plain relative paths with forward slashes."""


class Entry(NamedTuple):
    """One member: `offset` of its local header, `start` of its contents."""

    name: str
    crc: int
    size: int
    offset: int

    @property
    def start(self) -> int:
        """Position of the member's first byte, behind its local header."""
        wide = _ZIP64_SIZES if self.size >= ZIP64 else 0
        return self.offset + _LOCAL.size + len(self.name.encode("utf-8")) + wide

    @property
    def stop(self) -> int:
        """Position behind the member's last byte."""
        return self.start + self.size


def check_name(name: str) -> str:
    """The name, if it is a plain relative path with forward slashes; raises ArchiveError."""
    if _PLAIN.fullmatch(name) and len(name) <= NAME_LIMIT and len(name.encode("utf-8")) <= NAME_LIMIT:
        return name
    if not name or len(name.encode("utf-8", "surrogatepass")) > NAME_LIMIT:
        problem = "is empty or too long"
    elif _CONTROL.search(name):
        problem = "has control characters"
    elif "\\" in name or ":" in name:
        problem = "has a backslash or a colon"
    else:
        problem = "is not a plain relative path"
    raise ArchiveError(f"the member name {name[:200]!r} {problem}")


def _shared(entry: Entry, far: bool = False) -> tuple[int, bytes, bytes]:
    """The part that both headers of a member have: version needed, shared fields, name with extra field.

    far : whether the extra field has the offset, too
    """
    name, size, extra, version = entry.name.encode("utf-8"), entry.size, b"", 20
    if far or size >= ZIP64:
        values = [size] * 2 * (size >= ZIP64) + [entry.offset] * far
        extra, version = struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values), 45
        size = min(size, ZIP64)
    flags = 0 if len(name) == len(entry.name) else _UTF8
    fields = _SHARED.pack(version, flags, 0, 0, _DATE, entry.crc, size, size, len(name), len(extra))
    return version, fields, name + extra


def headers(entry: Entry) -> tuple[bytes, bytes]:
    """The bytes before a member's contents, and its entry in the central directory."""
    version, fields, tail = _shared(entry)
    local = b"PK\3\4" + fields + tail
    if entry.offset >= ZIP64:
        version, fields, tail = _shared(entry, far=True)
    start = _CENTRAL_START.pack(b"PK\1\2", 3 << 8 | version)
    return local, start + fields + _CENTRAL_REST.pack(0, 0, 0, _REGULAR_FILE, min(entry.offset, ZIP64)) + tail


def local_header(entry: Entry) -> bytes:
    """The bytes before a member's contents."""
    return headers(entry)[0]


def central_header(entry: Entry) -> bytes:
    """A member's entry in the central directory."""
    return headers(entry)[1]


def end_records(count: int, offset: int, size: int, comment: bytes) -> bytes:
    """The end of the file, for a central directory of `size` bytes at `offset`."""
    head = b""
    if offset >= ZIP64:
        head = _END64.pack(b"PK\6\6", _END64.size - 12, 3 << 8 | 45, 45, 0, 0, count, count, size, offset)
        head += _LOCATOR.pack(b"PK\6\7", 0, offset + size, 1)
    return head + _END.pack(b"PK\5\6", 0, 0, count, count, size, min(offset, ZIP64), len(comment)) + comment


def _differing(fields: tuple[str, ...], form: struct.Struct, found: bytes, expected: bytes) -> str:
    if len(found) < form.size:
        return "it is cut off"
    pairs = zip(fields, form.unpack(found[: form.size]), form.unpack(expected[: form.size]), strict=True)
    for field, value, wanted in pairs:
        if value != wanted:
            if field == "compression method":
                return f"it is compressed (method {value}); members must be stored"
            if field == "flags" and value & 1:
                return "it is encrypted"
            if field == "external attributes" and value >> 28 == 0o12:
                return "it is a symbolic link"
            return f"{field} is {value!r}, must be {wanted!r}"
    return "its name or extra field differs"


def _central_entry(directory: bytes, position: int) -> tuple[str, int, int, int, int]:
    """name, crc, size, header offset and the position after one central header, as they stand."""
    if position + _CENTRAL.size > len(directory):
        raise ArchiveError("the central directory is cut off")
    signature, *_, crc, _, size, name_size, extra_size, comment_size, _, _, _, offset = _CENTRAL.unpack_from(
        directory, position
    )
    if signature != b"PK\1\2":
        raise ArchiveError("the central directory is damaged")
    begin = position + _CENTRAL.size
    name_stop = begin + name_size
    stop = name_stop + extra_size + comment_size
    if stop > len(directory):
        raise ArchiveError("the central directory is cut off")
    raw = directory[begin:name_stop]
    try:
        name = check_name(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise ArchiveError(f"the member name {raw[:200]!r} is not UTF-8") from None
    wanted = 16 * (size == ZIP64) + 8 * (offset == ZIP64)
    if wanted and extra_size == wanted + 4:
        values = struct.unpack_from(f"<{wanted // 8}Q", directory, name_stop + 4)
        size = values[0] if size == ZIP64 else size
        offset = values[-1] if offset == ZIP64 else offset
    return name, crc, size, offset, stop


def _find_end(data: bytes | Source, comment_size: int) -> tuple[int, int, int, bytes]:
    """count, central directory's offset and size, and the comment, from the end record."""
    at = len(data) - _END.size - comment_size
    if at < 0 or data[at : at + 4] != b"PK\5\6":
        raise ArchiveError(
            "its end record is missing: the file is truncated, or bytes were appended, or it is not an archive"
        )
    _, _, _, count, _, size, offset, length = _END.unpack(data[at : at + _END.size])
    if length != comment_size:
        raise ArchiveError(f"the zip comment has {length} bytes instead of {comment_size}")
    if offset == ZIP64:
        locator = at - _LOCATOR.size
        if locator < _END64.size or data[locator : locator + 4] != b"PK\6\7":
            raise ArchiveError("its zip64 end record is missing")
        offset = _END64.unpack(data[locator - _END64.size : locator])[-1]
    return count, offset, size, data[at + _END.size :]


def read_layout(data: bytes | Source, comment_size: int) -> tuple[list[Entry], bytes]:
    """The members and the comment of an archive's bytes. Raises ArchiveError unless every header is canonical."""
    count, directory_at, directory_size, comment = _find_end(data, comment_size)
    if count > MEMBER_LIMIT:
        raise ArchiveError(f"the archive has {count} members, of which at most {MEMBER_LIMIT} can be read")
    if directory_at + directory_size > len(data):
        raise ArchiveError("the central directory lies outside the file")
    directory = data[directory_at : directory_at + directory_size]
    entries: list[Entry] = []
    seen: set[str] = set()
    position = offset = 0
    for _ in range(count):
        name, crc, size, stated, stop = _central_entry(directory, position)
        if name in seen:
            raise ArchiveError("the member appears twice", member=name)
        seen.add(name)
        entry = Entry(name, crc, size, offset)
        local, central = headers(entry)
        if directory[position:stop] != central:
            raise _central_error(entry, stated, directory[position:stop], central)
        content_at = offset + len(local)
        if data[offset:content_at] != local:
            found = data[offset:content_at]
            raise ArchiveError(f"local header: {_differing(_LOCAL_FIELDS, _LOCAL, found, local)}", member=name)
        offset = content_at + size
        if offset > directory_at:
            raise ArchiveError(f"the member of {size} bytes reaches into the central directory", member=name)
        entries.append(entry)
        position = stop
    if position != directory_size or offset != directory_at:
        raise ArchiveError("bytes that belong to no member")
    end = end_records(count, directory_at, directory_size, comment)
    if data[directory_at + directory_size :] != end:
        raise ArchiveError("the end record disagrees with the central directory")
    return entries, comment


def _central_error(entry: Entry, stated: int, found: bytes, expected: bytes) -> ArchiveError:
    """The error in the central header `found`; stated : the header's offset."""
    if stated != entry.offset and found[:42] == expected[:42]:
        kind = "overlaps the one before" if stated < entry.offset else "does not follow the one before"
        return ArchiveError(f"the member {kind} (at {stated}, must be at {entry.offset})", member=entry.name)
    return ArchiveError(f"central header: {_differing(_CENTRAL_FIELDS, _CENTRAL, found, expected)}", member=entry.name)


def directory(entries: Sequence[Entry], comment: bytes) -> bytes:
    """All bytes that follow the last member's contents."""
    if len(entries) > MEMBER_LIMIT:
        raise ArchiveError(f"{len(entries)} members; an archive holds at most {MEMBER_LIMIT}")
    central = b"".join(central_header(entry) for entry in entries)
    return central + end_records(len(entries), entries[-1].stop, len(central), comment)
