"""The .hlab container: deterministic, readable by any zip tool, and strict about every byte."""

import io
import os
import subprocess
import sys
import threading
import zipfile
import zlib

import numpy as np
import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.archive.container import SCHEMA, Container, ContainerWriter
from hybrid_lab.formats.archive.zip_layout import (
    Entry,
    central_header,
    directory,
    end_records,
    local_header,
    read_layout,
)
from hybrid_lab.formats.atomic import atomic_write
from hybrid_lab.formats.safetensors import digest_of
from hybrid_lab.formats.source import Source

ARRAYS = {"0.weight": np.arange(6, dtype="float32").reshape(2, 3), "0.bias": np.zeros(2, "float64")}


def archive(**fields):
    file = io.BytesIO()
    writer = ContainerWriter(file)
    writer.add_json("tree.json", {"class": "Net"})
    writer.add_json("graphs/größe.json", {"nodes": []})
    writer.add_tensors("weights.safetensors", ARRAYS)
    writer.finish(fields)
    return file.getvalue()


def test_members_come_back():
    container = Container(archive(writer="test"))
    container.verify()
    assert container.names == ["tree.json", "graphs/größe.json", "weights.safetensors"]
    assert container.read_json("tree.json") == {"class": "Net"}
    weights = container.tensors("weights.safetensors")
    for name, array in ARRAYS.items():
        assert np.array_equal(weights[name], array)
    assert container.manifest["writer"] == "test"


def test_any_zip_tool_reads_it(tmp_path):
    with zipfile.ZipFile(io.BytesIO(archive())) as file:
        assert file.testzip() is None
        assert file.namelist() == ["tree.json", "graphs/größe.json", "weights.safetensors", "manifest.json"]
        assert {info.compress_type for info in file.infolist()} == {zipfile.ZIP_STORED}


def test_equal_content_gives_equal_bytes():
    assert archive() == archive()


def test_weights_are_aligned_in_the_file_and_arrays_of_their_own_in_memory(tmp_path):
    data = archive()
    (tmp_path / "a.hlab").write_bytes(data)
    weights = Container.open(tmp_path / "a.hlab").tensors("weights.safetensors")
    assert data.index(ARRAYS["0.bias"].tobytes() + ARRAYS["0.weight"].tobytes()) % 64 == 0
    assert weights["0.bias"].flags.owndata and weights["0.bias"].flags.writeable


def test_every_flipped_byte_is_refused():
    good = bytearray(archive())
    for position in range(len(good)):
        for bit in (0, 7):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            with pytest.raises(ArchiveError):
                Container(bytes(bad)).verify()


def test_truncation_at_every_offset():
    good = archive()
    for length in range(len(good)):
        with pytest.raises(ArchiveError):
            Container(good[:length])


def test_lazy_reading_checks_what_it_reads():
    good = archive()
    at = good.index(ARRAYS["0.weight"].tobytes())
    container = Container(good[:at] + b"\1" + good[at + 1 :])
    weights = container.tensors("weights.safetensors")
    assert weights["0.bias"].tolist() == [0, 0]
    with pytest.raises(ArchiveError, match="0.weight"):
        weights["0.weight"]


def test_unknown_fields_survive_and_a_newer_minor_version_is_read():
    container = Container(archive(schema="1.7", mood="sunny"))
    assert container.manifest["mood"] == "sunny"


def test_an_archive_may_ask_for_a_reader_of_this_schema():
    assert Container(archive(reader="{}.{}".format(*SCHEMA))).names


@pytest.mark.parametrize(
    "fields", [{"schema": "2.0"}, {"schema": "1.9", "reader": "1.9"}, {"schema": "one"}, {"reader": 1}]
)
def test_a_newer_archive_says_what_to_do(fields):
    with pytest.raises(ArchiveError, match="newer|major.minor"):
        Container(archive(**fields))


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/./b", "c:x", "a\\b", "a\0", "", "x/", "n" * 3000])
def test_a_bad_member_name_is_never_written(name):
    with pytest.raises(ArchiveError, match="name"):
        ContainerWriter(io.BytesIO()).add(name, b"")


def test_a_member_is_read_once():
    first = Entry("a", zlib.crc32(b"12"), 2, 0)
    entries = [first, Entry("a", zlib.crc32(b"34"), 2, first.stop)]
    data = b"".join(local_header(entry) + content for entry, content in zip(entries, (b"12", b"34"), strict=True))
    with pytest.raises(ArchiveError, match="twice"):
        read_layout(data + directory(entries, b""), 0)


def test_a_member_is_written_once():
    writer = ContainerWriter(io.BytesIO())
    writer.add("a", b"")
    with pytest.raises(ArchiveError, match="already"):
        writer.add("a", b"")


def test_members_over_4_gib(tmp_path):
    """A file with a hole of 5 GiB: nothing is written there, both readers see the same members."""
    big = Entry("w", 7, 5 << 30, 0)
    far = Entry("x", zlib.crc32(b"far"), 3, big.stop)
    directory = central_header(big) + central_header(far)
    with open(tmp_path / "sparse", "wb") as file:
        file.write(local_header(big))
        file.seek(far.offset)
        file.write(local_header(far) + b"far" + directory + end_records(2, far.stop, len(directory), b"c" * 76))
    assert read_layout(Source.open(tmp_path / "sparse"), 76)[0] == [big, far]
    with zipfile.ZipFile(tmp_path / "sparse") as zipped:
        assert [(i.filename, i.file_size, i.header_offset) for i in zipped.infolist()] == [
            ("w", 5 << 30, 0),
            ("x", 3, far.offset),
        ]
        assert zipped.read("x") == b"far"


class FullDisk(io.FileIO):
    """A file that fails after so many bytes."""

    def __init__(self, path, room):
        super().__init__(path, "w+b")
        self.room = room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_failure_at_any_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.hlab"
    path.write_bytes(b"old")
    size = len(archive())
    for room in range(0, size, 97):
        monkeypatch.setattr("hybrid_lab.formats.atomic._create", lambda name, room=room: FullDisk(name, room))
        with pytest.raises(OSError, match="No space"), atomic_write(path) as file:
            writer = ContainerWriter(file)
            writer.add_json("tree.json", {"class": "Net"})
            writer.add_tensors("weights.safetensors", ARRAYS)
            writer.finish({"pad": "x" * size})
        assert path.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["m.hlab"]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_failure_at_the_end_leaves_the_old_file(call, tmp_path, monkeypatch):
    path = tmp_path / "m.hlab"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError("injected")

    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError, match="injected"), atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlab"]


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.hlab"
    path.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        with atomic_write(path) as file:
            file.write(b"half")
            file.flush()
            os._exit(9)
    os.waitpid(child, 0)
    assert path.read_bytes() == b"old"


WRITER = """
import sys, time
from hybrid_lab.formats.atomic import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


def writer(path):
    """A process that is in the middle of writing `path`; a line on its standard input lets it finish."""
    command = [sys.executable, "-c", WRITER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_what_killed_writers_left_goes_with_the_next_save_and_live_ones_go_on(tmp_path):
    path, other = tmp_path / ("long" * 20 + ".hlab"), tmp_path / "other.hlab"
    with writer(path) as killed, writer(path) as alive, writer(other) as elsewhere:
        killed.kill()
        killed.wait()
        elsewhere.kill()
        elsewhere.wait()
        (tmp_path / ".mine.tmp").touch()
        assert len(list(tmp_path.glob(".*.tmp"))) == 4
        with pytest.raises(OSError, match="injected"), atomic_write(path) as file:
            raise OSError("injected")
        assert len(list(tmp_path.glob(".*.tmp"))) == 4
        with atomic_write(path) as file:
            file.write(b"new")
        assert len(list(tmp_path.glob(".*.tmp"))) == 3  # the user's, the live one, the other target's
        alive.communicate("go\n")
        assert alive.returncode == 0 and path.read_bytes() == b"half"
        with atomic_write(other) as file:
            file.write(b"new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".mine.tmp", path.name, other.name]


def test_names_of_240_bytes_have_room_for_a_temporary_name(tmp_path):
    for name in ("\U0001f600" * 60, "x" * 240):
        with atomic_write(tmp_path / name) as file:
            file.write(b"new")
        assert (tmp_path / name).read_bytes() == b"new"


def test_a_link_keeps_pointing_at_the_new_file(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_container_is_intact_though_a_thread_writes_to_the_arrays():
    arrays = {str(number): np.zeros(size, "float32") for number, size in enumerate([9, 30_000, 700_000, 2_500_000])}
    arrays["transposed"] = np.zeros((300, 400), "float32").T
    ended = threading.Event()

    def write():
        while not ended.is_set():
            for array in arrays.values():
                array += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        files = []
        for _ in range(3):
            file = io.BytesIO()
            writer = ContainerWriter(file)
            writer.add_tensors("weights.safetensors", arrays)
            writer.finish({})
            files.append(file.getvalue())
    finally:
        ended.set()
        thread.join()
    for content in files:
        Container(content).verify()


def test_digests_of_tensors_of_many_blocks_are_those_of_their_bytes(monkeypatch):
    monkeypatch.setattr("hybrid_lab.formats.archive.container.BLOCK", 1 << 17)
    arrays = {str(number): np.random.rand(600_000 + number).astype("float32") for number in range(5)}
    file = io.BytesIO()
    writer = ContainerWriter(file)
    writer.add_tensors("weights.safetensors", arrays)
    writer.finish({})
    container = Container(file.getvalue())
    container.verify()
    assert container.manifest["members"]["weights.safetensors"]["tensors"] == {
        name: digest_of(array) for name, array in arrays.items()
    }
