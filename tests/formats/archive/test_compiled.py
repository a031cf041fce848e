"""Binaries in an archive: written and taken when asked, never by a load, not of another version, not when damaged."""

import pytest

pytest.importorskip("triton")

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.cli import main
from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.engines.triton.build import binaries, compiling, internals
from hybrid_lab.formats.archive import Container, add_binaries
from hybrid_lab.gluon import nn

Process = compiling._Process


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A net with values, and its kernels for two chips."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HYBRID_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        patched.setenv("HYBRID_LAB_CPU", "numpy")
        net = nn.Dense(4, activation="relu", in_units=8, prefix="dense_")
        net.initialize()
        net.hybridize()
        net(nd.ones((16, 8)))
        yield net, net.compile_for("gfx942", "sm90")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Another machine: an empty cache, and no compile processes."""
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HYBRID_LAB_CPU", "numpy")
    monkeypatch.setattr(compiling, "_Process", None)
    monkeypatch.chdir(tmp_path)


def test_binaries_travel_in_the_archive(made):
    net, model = made
    net.save("m.hlab", compiled=model)
    taken = mx.use_compiled("m.hlab")
    assert taken.taken == {"gfx942": 1, "sm90": 1} and not taken.left
    kernels = net.compile_for("gfx942", "sm90").kernels
    assert [kernel.binary.code for kernel in kernels] == [kernel.binary.code for kernel in model.kernels]
    assert [kernel.resources for kernel in kernels] == [kernel.resources for kernel in model.kernels]


def test_a_load_takes_none(made):
    net, model = made
    net.save("m.hlab", compiled=model)
    net.load("m.hlab")
    loaded = gluon.load("m.hlab")
    assert loaded(nd.ones((2, 8))).shape == (2, 4)
    assert not binaries.BINARIES.disk.folder().exists()


def test_other_commands_read_such_an_archive(made, capsys):
    net, model = made
    net.save("m.hlab", compiled=model)
    net.save("plain.hlab")
    assert main(["verify", "m.hlab"]) == 0
    assert main(["inspect", "m.hlab"]) == 0
    assert main(["diff", "plain.hlab", "m.hlab"]) == 1
    assert "compiled/sm90/kernels.json" in capsys.readouterr().out


def test_binaries_are_added_to_an_archive_and_everything_else_stays(made):
    net, model = made
    net.save("m.hlab")
    before = Container.open("m.hlab")
    contents = {name: before.read(name) for name in before.names}
    assert add_binaries("m.hlab", [kernel.binary for kernel in model.kernels]) == 2
    after = Container.open("m.hlab")
    after.verify()
    assert {name: after.read(name) for name in after.names if not name.startswith("compiled/")} == contents
    assert after.manifest["model"] == before.manifest["model"]
    # Once more, with fewer: they replace those that were there.
    assert add_binaries("m.hlab", [model.kernels[0].binary]) == 1
    net.save("again.hlab")
    add_binaries("again.hlab", [model.kernels[0].binary])
    assert open("m.hlab", "rb").read() == open("again.hlab", "rb").read()


def test_binaries_of_another_triton_are_left(made, monkeypatch):
    net, model = made
    net.save("m.hlab", compiled=model)
    monkeypatch.setattr(internals, "version", lambda: "3.4.0")
    taken = mx.use_compiled("m.hlab")
    assert not taken.taken and set(taken.left) == {"gfx942", "sm90"}
    assert "installed is 3.4.0" in str(taken)


def test_a_damaged_binary_is_refused(made):
    net, model = made
    net.save("m.hlab", compiled=model)
    content = bytearray(open("m.hlab", "rb").read())
    place = content.index(model.kernels[0].binary.code)
    content[place + 100] ^= 1
    open("m.hlab", "wb").write(content)
    with pytest.raises(ArchiveError, match="do not match"):
        mx.use_compiled("m.hlab")
    assert not binaries.BINARIES.disk.folder().exists()


def test_only_what_compile_for_gives_is_saved(made):
    with pytest.raises(HybridLabError, match=r"net\.compile_for"):
        made[0].save("m.hlab", compiled=[b"code"])


def test_the_command_writes_and_takes(made, monkeypatch, tmp_path, capsys):
    net, _ = made
    net.save("m.hlab")
    monkeypatch.setattr(compiling, "_Process", Process)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HYBRID_LAB_CACHE", str(tmp_path / "first"))
        assert main(["compile", "m.hlab", "--target", "gfx942", "--into", "m.hlab"]) == 0
        assert "1 kernel put into m.hlab" in capsys.readouterr().err
        patched.setenv("HYBRID_LAB_CACHE", str(tmp_path / "second"))
        patched.setattr(compiling, "_Process", None)
        assert main(["compile", "m.hlab", "--target", "gfx942", "--trust"]) == 0
        assert "gfx942: 1 kernel put into the cache" in capsys.readouterr().err
