"""Zip files made to confuse readers: every one is a typed error that names the file, quickly and with little memory."""

import hashlib
import io
import struct
import tracemalloc
import zipfile
import zlib
from functools import cache

import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.archive.container import Container, ContainerWriter
from hybrid_lab.formats.archive.zip_layout import Entry, central_header, end_records, local_header


def good():
    file = io.BytesIO()
    writer = ContainerWriter(file)
    writer.add("tree.json", b"{}")
    writer.add("graphs/a.json", b"{}")
    writer.finish({})
    return file.getvalue()


def zipped(members, comment=b"hlab sha256=" + b"0" * 64, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name) if isinstance(name, str) else name, data, method)
    return file.getvalue()


def raw(names, contents=b""):
    """A zip of our own layout but with any member names."""
    entries, offset = [], 0
    for name in names:
        entries.append(Entry(name, zlib.crc32(contents), len(contents), offset))
        offset = entries[-1].stop
    directory = b"".join(map(central_header, entries))
    tail = end_records(min(len(entries), 0xFFFF), offset, len(directory), b"hlab sha256=" + b"0" * 64)
    return b"".join(local_header(e) + contents for e in entries) + directory + tail


def symlink():
    info = zipfile.ZipInfo("tree.json", (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o120777 << 16
    return zipped([(info, "/etc/passwd")])


def changed(offset, data, base=None):
    base = good() if base is None else base
    return base[:offset] + data + base[offset + len(data) :]


def central(field, data):
    return changed(good().index(b"PK\1\2") + field, data)


def bad_manifest(text):
    content = text if isinstance(text, bytes) else text.encode()
    entry = Entry("manifest.json", zlib.crc32(content), len(content), 0)
    comment = b"hlab sha256=" + hashlib.sha256(content).hexdigest().encode()
    directory = central_header(entry)
    return local_header(entry) + content + directory + end_records(1, entry.stop, len(directory), comment)


def wrong_manifest_crc():
    """Both headers of the manifest agree on a checksum that its contents do not have."""
    data = bytearray(good())
    for field in (data.index(b"manifest.json") - 30 + 14, data.rindex(b"manifest.json") - 46 + 16):
        data[field : field + 4] = b"\0" * 4
    return bytes(data)


def overlapping():
    first, second = Entry("a", 0, 40, 0), Entry("b", 0, 3, 31)
    directory = central_header(first) + central_header(second)
    body = local_header(first) + local_header(second) + b"abc" + b"\0" * 6
    return body + directory + end_records(2, len(body), len(directory), b"hlab sha256=" + b"0" * 64)


@cache
def million_entries():
    return raw(f"{i:x}" for i in range(70_000))


#: Contents, or a function that makes them: collecting the tests makes no large file.
HOSTILE = {
    "empty": b"",
    "not a zip": b"\x89PNG" * 100,
    "end record only": end_records(0, 0, 0, b"hlab sha256=" + b"0" * 64),
    "a plain zip": zipped([("tree.json", "{}")]),
    "another comment": zipped([("tree.json", "{}")], b""),
    "traversal": raw(["../../etc/passwd"]),
    "traversal inside": raw(["graphs/../../x"]),
    "absolute": raw(["/etc/passwd"]),
    "backslash": raw(["..\\x"]),
    "drive": raw(["C:x"]),
    "nul": raw(["tree.json\0.exe"]),
    "newline": raw(["tree\n.json"]),
    "directory": raw(["graphs/"]),
    "duplicates": raw(["tree.json", "tree.json"]),
    "no manifest": raw(["tree.json"]),
    "manifest first": raw(["manifest.json", "tree.json"]),
    "symlink": symlink(),
    "prepended": b"#!/bin/sh\n" + good(),
    "trailing": good() + b"x",
    "compressed": zipped([("tree.json", "{}" * 99)], method=zipfile.ZIP_DEFLATED),
    "bomb": zipped([("tree.json", "\0" * 10_000_000)], method=zipfile.ZIP_DEFLATED),
    "overlap": overlapping(),
    "million entries": million_entries,
    "local name": changed(30, b"true.json"),
    "local size": changed(22, b"\3"),
    "local crc": changed(14, b"\0"),
    "local encrypted": changed(6, b"\1"),
    "local method": changed(8, b"\x08"),
    "central encrypted": central(8, b"\1"),
    "central method": central(10, b"\x08"),
    "central crc": central(16, b"\0"),
    "central size": central(24, b"\xff\xff\xff\x7f"),
    "central size zip64": central(24, b"\xff\xff\xff\xff"),
    "central offset": central(42, b"\7"),
    "central offset zip64": central(42, b"\xff\xff\xff\xff"),
    "central name length": central(28, b"\xff\xff"),
    "central extra": central(30, b"\xff\xff"),
    "entries": changed(len(good()) - 76 - 12, b"\xff\xff"),
    "directory size": changed(len(good()) - 76 - 10, b"\xff\xff\xff\x7f"),
    "directory offset": changed(len(good()) - 76 - 6, b"\xff\xff\xff\x7f"),
    "directory offset zip64": changed(len(good()) - 76 - 6, b"\xff\xff\xff\xff"),
    "manifest crc": wrong_manifest_crc(),
    "manifest not json": bad_manifest("{"),
    "manifest a list": bad_manifest("[]"),
    "manifest of another format": bad_manifest('{"format": "x"}'),
    "manifest without members": bad_manifest('{"format": "hlab", "schema": "1.0", "reader": "1.0"}'),
    "manifest of nothing": bad_manifest('{"format": "hlab", "schema": "1.0", "reader": "1.0", "members": {"x": {}}}'),
    "manifest twice": bad_manifest('{"format": "hlab", "format": "hlab"}'),
    "manifest deep": bad_manifest("[" * 100_000),
    "manifest NaN": bad_manifest('{"format": NaN}'),
    "manifest surrogate": bad_manifest('{"format": "\\ud800"}'),
    "manifest not utf-8": bad_manifest(b'{"\xff": 1}'),
}


def contents(name):
    data = HOSTILE[name]
    return data() if callable(data) else data


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_by_name(name, tmp_path):
    path = tmp_path / "bad.hlab"
    path.write_bytes(contents(name))
    with pytest.raises(ArchiveError) as caught:
        Container.open(path).verify()
    assert str(path) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.hlab"]


@pytest.mark.parametrize("name", ["bomb", "million entries", "manifest deep", "central size zip64"])
def test_memory_stays_below_twice_the_file(name):
    data = contents(name)
    tracemalloc.start()
    with pytest.raises(ArchiveError):
        Container(data).verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(data) + 1_000_000


def test_the_reason_is_the_readers_own():
    for name, reason in {
        "symlink": "symbolic link",
        "compressed": "compressed",
        "local encrypted": "encrypted",
        "central encrypted": "encrypted",
        "duplicates": "twice",
        "traversal": "relative path",
        "overlap": "overlaps",
        "prepended": "central directory is damaged",
        "trailing": "appended",
        "local name": "name",
        "backslash": "a backslash or a colon",
        "drive": "a backslash or a colon",
        "newline": "control characters",
        "directory": "not a plain relative path",
        "manifest crc": "do not match their CRC",
    }.items():
        with pytest.raises(ArchiveError, match=reason):
            Container(contents(name))


def test_zip64_end_records_of_nonsense():
    base = good()
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2**63, 2**63, 2**63, 2**63)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, 2**63, 1)
    tail = bytearray(base[-98:])
    tail[16:20] = b"\xff" * 4
    with pytest.raises(ArchiveError):
        Container(base[:-98] + end + locator + bytes(tail))
