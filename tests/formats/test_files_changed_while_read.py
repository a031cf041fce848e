"""Files that another process changes while they are read: a typed error, and nothing is half loaded."""

import os
import shutil

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats import source
from hybrid_lab.formats.mxnet import read_params
from hybrid_lab.formats.safetensors import SafetensorsFile, write_safetensors
from hybrid_lab.formats.source import Source
from hybrid_lab.gluon import nn

UNITS = 160
"""A weight of 100 KiB, more than a file's buffer."""


def model():
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(UNITS, in_units=UNITS), nn.Dense(UNITS, in_units=UNITS))
    net.initialize()
    net.hybridize(engine="numpy")
    trainer = gluon.Trainer(net.collect_params(), "adam")
    with autograd.record():
        loss = net(nd.ones((2, UNITS))).sum()
    loss.backward()
    trainer.step(2)
    return net, trainer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    net, trainer = model()
    net.save(folder / "m.hlab")
    net.save_parameters(folder / "m.params")
    write_safetensors(
        folder / "m.safetensors", {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}
    )
    trainer.save_states(folder / "m.states")
    return folder


READERS = {
    "m.hlab": lambda path, net, trainer: net.load(path),
    "m.params": lambda path, net, trainer: net.load_parameters(path),
    "m.safetensors": lambda path, net, trainer: net.load_parameters(path),
    "m.states": lambda path, net, trainer: trainer.load_states(path),
}


def values(net, trainer):
    states = trainer.get_states()[1]
    return [p.data().asnumpy().copy() for p in net.collect_params().values()] + [states[key] for key in sorted(states)]


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_a_file_cut_off_before_any_read_of_its_bytes(name, in_threads, files, tmp_path, monkeypatch):
    """Before its first read, its second one, and so on until a load needs no more reads."""
    if in_threads:
        monkeypatch.setattr("hybrid_lab.formats.background.WORTH_THREADS", 0)
        monkeypatch.setattr("hybrid_lab.formats.background.WORTH_A_TASK", 0)
        monkeypatch.setattr("hybrid_lab.formats.archive.container.WORTH_THREADS", 0)
    path, refused, real = tmp_path / name, 0, source._File._read
    net, trainer = model()
    for fatal in range(1, 1000):
        shutil.copy(files / name, path)
        reads = []

        def read(self, buffer, position, fatal=fatal, reads=reads):
            reads.append(position)
            if len(reads) == fatal:
                os.truncate(path, 50)
            return real(self, buffer, position)

        monkeypatch.setattr(source._File, "_read", read)
        before = values(net, trainer)
        try:
            READERS[name](path, net, trainer)
        except ArchiveError as error:
            assert "became shorter while it was read" in str(error) and str(path) in str(error)
            assert all(map(np.array_equal, before, values(net, trainer)))
            refused += 1
        if len(reads) < fatal:
            break
    assert 2 <= refused < fatal < 999


def test_a_file_cut_off_during_a_read_that_returns_zeros_for_the_rest(tmp_path, monkeypatch):
    """The operating system may have counted the bytes before another process shortened the file."""
    path = tmp_path / "a"
    path.write_bytes(bytes(range(200)))
    source_of_file = Source.open(path)

    def read(self, buffer, position):
        os.truncate(path, 50)
        buffer[:] = bytes(len(buffer))
        return len(buffer)

    monkeypatch.setattr(source._File, "_read", read)
    with pytest.raises(ArchiveError, match="shorter .*130 bytes at offset 50"):
        source_of_file.read_into(memoryview(bytearray(170)), 10)


def test_what_was_checked_is_what_is_loaded(files, tmp_path, monkeypatch):
    """The file is overwritten with other weights after they were compared with their digests."""
    from hybrid_lab.formats.archive import archive

    path, real = tmp_path / "m.hlab", archive.tree.from_json
    shutil.copy(files / "m.hlab", path)
    wanted = gluon.load(path)[0].weight.data().asnumpy()

    def overwrite(*args):
        path.write_bytes(bytes(path.stat().st_size))
        return real(*args)

    monkeypatch.setattr(archive.tree, "from_json", overwrite)
    net, _ = model()
    net.load(path)
    assert np.array_equal(net[0].weight.data().asnumpy(), wanted)


def test_listing_an_archive_reads_no_parameters(files, monkeypatch):
    from hybrid_lab.cli.archive import describe
    from hybrid_lab.formats.archive import Container

    size, read = (files / "m.hlab").stat().st_size, []
    real = source._File._read
    monkeypatch.setattr(
        source._File, "_read", lambda self, buffer, at: read.append(len(buffer)) or real(self, buffer, at)
    )
    assert any("51,520" in line or "51520" in line for line in describe(Container.open(files / "m.hlab"), True))
    assert sum(read) < size // 5


@pytest.mark.parametrize("positioned", [True, False])
def test_parts_of_a_file_and_of_bytes(positioned, tmp_path, monkeypatch):
    if not positioned:
        monkeypatch.delattr(os, "preadv", raising=False)
    data = np.arange(100_000, dtype="<f4").tobytes()
    (tmp_path / "a").write_bytes(data)
    for whole in (Source.open(tmp_path / "a"), Source(data)):
        part = whole.part(8, len(data) - 8)
        assert len(part) == len(data) - 16
        assert part[:4] == data[8:12] and part[-4:] == data[-12:-8] and part[5:2] == b""
        assert part.array(4, (300, 300), np.dtype("<f4")).tobytes() == data[12 : 12 + 360_000]
        assert part.array(0, (0, 3), np.dtype("<f8")).shape == (0, 3)


def test_files_are_closed_with_their_last_reader(files):
    opened = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0
    for _ in range(3):
        read_params(files / "m.params")
        SafetensorsFile.open(files / "m.safetensors")["0.weight"]
    assert not opened or len(os.listdir("/dev/fd")) == opened


def test_a_read_behind_the_end_of_a_file_that_was_cut_off(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(200))
    source_of_file = Source.open(path)
    os.truncate(path, 50)
    with pytest.raises(ArchiveError, match="10 bytes at offset 100 are missing"):
        source_of_file[100:110]
