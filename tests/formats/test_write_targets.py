"""Every writer, at every kind of target: only regular files are replaced, they keep their permissions, and whatever
else is there stays and is named in a typed error.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.cli import main
from hybrid_lab.diagnostics import FileError, HybridLabError
from hybrid_lab.engines.store import Store
from hybrid_lab.formats import atomic
from hybrid_lab.gluon import nn
from hybrid_lab.lab.saving import history

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="FIFOs, devices and permissions are POSIX's")


class Models(NamedTuple):
    """What the writers write."""

    net: nn.HybridSequential
    trainer: gluon.Trainer
    symbol: mx.sym.Symbol


@pytest.fixture(scope="module")
def models():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=4))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9}, kvstore=None)
    with autograd.record():
        loss = net(nd.ones((2, 4)))
    loss.backward()
    trainer.step(2)
    return Models(net, trainer, net(mx.sym.var("data")))


def _indexed(models: Models, path: str, other: str, records_first: bool) -> None:
    names = (path, other) if not records_first else (other, path)
    with mx.recordio.MXIndexedRecordIO(*names, "w") as file:
        file.write_idx(0, b"record")


def _record(models: Models, path: str) -> None:
    with mx.recordio.MXRecordIO(path, "w") as file:
        file.write(b"record")


def _kvstore(models: Models, path: str) -> None:
    store = mx.kv.create("local")
    store.set_optimizer(mx.optimizer.SGD())
    store.save_optimizer_states(path)


def _module(models: Models, write: Callable[[mx.mod.Module], object]) -> None:
    module = mx.mod.Module(models.symbol, label_names=None)
    module.bind([("data", (2, 4))], for_training=False)
    module.init_params()
    write(module)


def _profile(models: Models, path: str) -> None:
    mx.profiler.set_config(filename=path)
    mx.profiler.dump()


def _tool(*arguments: str) -> None:
    """A command of hybrid-lab. Raises FileError where its error is one."""
    status = main(list(arguments))
    if status == 2:
        raise FileError(errno.EINVAL, "", "", "the command's error")


REPAIRED = """from hybrid_lab import gluon


class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((0, -1))
"""


def _fix(models: Models, path: str) -> None:
    if not os.path.exists(path) or os.path.isfile(path):  # a repair needs a file to repair
        with open(path, "w") as file:
            file.write(REPAIRED.replace("0", "x.shape[0]"))
    _tool("lint", "--fix", path)
    assert Path(path).read_text() == REPAIRED


def _kept(models: Models, path: str) -> None:
    with history.replacing(Path(path)):
        models.net.save(path)


def _estimator(models: Models, path: str) -> None:
    folder, name = os.path.split(path)
    handler = gluon.contrib.estimator.CheckpointHandler(folder or ".", name.removesuffix("-epoch0batch0.params"))
    estimator = gluon.contrib.estimator.Estimator(models.net, gluon.loss.L2Loss(), trainer=models.trainer)
    handler.epoch_end(estimator)


def _manager(models: Models, path: str) -> None:
    folder = os.path.dirname(path)
    mx.checkpoint.Manager(folder or ".", models.net, models.trainer).save(7)


def _download(models: Models, path: str) -> None:
    source = Path("source.bin").absolute()
    source.write_bytes(b"bytes")
    gluon.utils.download(source.as_uri(), path, overwrite=True, retries=0)


def _cut(path: str, ending: str) -> str:
    return path.removesuffix(ending)


#: Writer -> the ending of the file that it writes, and how.
WRITERS: dict[str, tuple[str, Callable[[Models, str], object]]] = {
    "net.save": (".hlab", lambda m, path: m.net.save(path)),
    "save_cached_graphs": (".hlab", lambda m, path: mx.save_cached_graphs(m.net, path, trainer=m.trainer)),
    "earlier saves": (".hlab", _kept),
    "export, graph": ("-symbol.json", lambda m, path: m.net.export(_cut(path, "-symbol.json"))),
    "export, parameters": ("-0000.params", lambda m, path: m.net.export(_cut(path, "-0000.params"))),
    "save_parameters": (".params", lambda m, path: m.net.save_parameters(path)),
    "save_parameters, safetensors": (".safetensors", lambda m, path: m.net.save_parameters(path)),
    "ParameterDict.save": (".params", lambda m, path: m.net.collect_params().save(path)),
    "nd.save": ("", lambda m, path: nd.save(path, [nd.ones(2)])),
    "nd.save, safetensors": (".safetensors", lambda m, path: nd.save(path, {"a": nd.ones(2)})),
    "npx.save": ("", lambda m, path: mx.npx.save(path, [mx.np.ones(2)])),
    "sym.save": (".json", lambda m, path: m.symbol.save(path)),
    "onnx": (".onnx", lambda m, path: mx.onnx.export(m.net, path)),
    "Trainer.save_states": (".states", lambda m, path: m.trainer.save_states(path)),
    "KVStore.save_optimizer_states": (".states", _kvstore),
    "model.save_checkpoint": (
        "-0003.params",
        lambda m, path: mx.model.save_checkpoint(_cut(path, "-0003.params"), 3, m.symbol, {"w": nd.ones(2)}, {}),
    ),
    "Module.save_params": (".params", lambda m, path: _module(m, lambda module: module.save_params(path))),
    "Module.save_checkpoint": (
        "-symbol.json",
        lambda m, path: _module(m, lambda module: module.save_checkpoint(_cut(path, "-symbol.json"), 1)),
    ),
    "Block.save_states": (".zip", lambda m, path: m.net.save_states(path)),
    "records": (".rec", _record),
    "records with an index": (".rec", lambda m, path: _indexed(m, path + ".idx", path, False)),
    "the index of records": (".idx", lambda m, path: _indexed(m, path, path + ".rec", False)),
    "profiler.dump": (".json", _profile),
    "lint --fix": (".py", _fix),
    "CheckpointHandler": ("-epoch0batch0.params", _estimator),
    "download": (".bin", _download),
    "add_binaries": (".hlab", lambda m, path: _add_binaries(m, path)),
}


def _add_binaries(models: Models, path: str) -> None:
    from hybrid_lab.formats.archive.compiled import add_binaries

    if not os.path.exists(path):
        models.net.save(path)
    if not os.path.isfile(path) or not os.path.getsize(path):
        models.net.save(path)
    add_binaries(path, [])


class Place(NamedTuple):
    """A path that is written to. special : what is there, which must stay"""

    path: Path
    special: Path | None = None


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # a null device of our own: the machine's is not touched
    except PermissionError:
        pytest.skip("only root makes devices")


def _socket(path: Path) -> None:
    short = f"s{os.getpid()}"  # an address of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short)
    os.rename(short, path)


MAKE = {"FIFO": os.mkfifo, "device": _device, "socket": _socket, "folder": os.mkdir}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    mx.profiler.set_config(filename="profile.json")


def _entries() -> dict[str, tuple[int, int]]:
    """Path -> kind and number of everything in the folder."""
    return {str(path): (path.lstat().st_mode, path.lstat().st_ino) for path in Path().rglob("*")}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("through_link", [False, True], ids=["", "link"])
def test_what_is_no_regular_file_is_not_replaced(models, writer, kind, through_link):
    if kind == "folder" and writer in ("lint --fix", "download"):
        pytest.skip("it takes a folder")
    ending, write = WRITERS[writer]
    os.mkdir("there")
    MAKE[kind](Path("there/special"))
    if through_link:
        os.symlink("special", f"there/m{ending}")
    else:
        os.rename("there/special", f"there/m{ending}")
    before = _entries()
    with pytest.raises(FileError):
        write(models, f"there/m{ending}")
    after = _entries()
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if name.endswith(".tmp")]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_file_that_is_replaced_passes_on_its_permissions(models, writer, mode):
    ending, write = WRITERS[writer]
    path = Path(f"m{ending}")
    write(models, str(path))
    path.chmod(mode)
    if mode == 0o444 and os.geteuid() != 0:
        with pytest.raises(FileError):
            write(models, str(path))
    else:
        write(models, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert not [name for name in os.listdir() if name.endswith(".tmp")]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("umask", [0o077, 0o022])
def test_a_new_file_follows_the_umask(models, writer, umask):
    ending, write = WRITERS[writer]
    before = os.umask(umask)
    try:
        write(models, f"m{ending}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(f"m{ending}").st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dangling", [False, True], ids=["", "dangling"])
def test_a_link_stays_and_its_target_is_written(models, writer, dangling):
    ending, write = WRITERS[writer]
    os.mkdir("other")
    if not dangling:
        write(models, f"other/real{ending}" if "epoch0" not in ending else f"other/m{ending}")
        real = Path(f"other/real{ending}" if "epoch0" not in ending else f"other/m{ending}")
        real.chmod(0o640)
    else:
        real = Path(f"other/real{ending}")
    link = Path(f"m{ending}")
    link.symlink_to(real)
    write(models, str(link))
    assert link.is_symlink() and real.is_file() and not real.is_symlink() and real.stat().st_size
    if not dangling:
        assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.parametrize("writer", [name for name in WRITERS if name not in ("lint --fix", "CheckpointHandler")])
@pytest.mark.parametrize(
    "name", ["nowhere/m", "file/m", "x" * 300, "a\0b", "loop", "dangling"], ids=lambda name: name[:8].replace("\0", "0")
)
def test_paths_that_cannot_be_written_are_typed_errors(models, writer, name):
    ending, write = WRITERS[writer]
    if writer == "download" and name == "nowhere/m":
        pytest.skip("download makes the folders of its path")
    Path("file").write_text("mine")
    os.symlink(f"loop{ending}", f"loop{ending}")
    os.symlink("nowhere/m", f"dangling{ending}")
    before = _entries()
    with pytest.raises(FileError) as caught:
        write(models, name + ending)
    assert "Errno" not in str(caught.value)
    after = _entries()
    assert {path: after.get(path) for path in before} == before and Path("file").read_text() == "mine"


@pytest.mark.parametrize("writer", WRITERS)
def test_names_that_are_not_utf8_are_written(models, writer, caplog):
    ending, write = WRITERS[writer]
    name = os.fsdecode(b"m\xff") + ending
    write(models, name)
    assert name in os.listdir()
    caplog.text.encode("utf-8")  # a line of the log can be shown and sent


@pytest.mark.parametrize("writer", ["nd.save", "sym.save", "profiler.dump", "records", "Trainer.save_states"])
@pytest.mark.parametrize("end", ["/", "/.", "/.."])
def test_a_slash_at_the_end_names_a_folder(models, writer, end):
    ending, write = WRITERS[writer]
    Path(f"m{ending}").write_text("mine")
    with pytest.raises(FileError):
        write(models, f"m{ending}{end}")
    assert Path(f"m{ending}").read_text() == "mine"


# -- writers with a folder of their own --------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", MAKE)
def test_format_mxnet_and_checkpoints_replace_no_special_file(models, kind):
    os.mkdir("models")
    MAKE[kind](Path("models/0-0000.params"))
    before = _entries()
    with pytest.raises(FileError):
        mx.save_cached_graphs(models.net, "models", format="mxnet")
    assert _entries() == before
    os.mkdir("run")
    MAKE[kind](Path("run/step-00000007.hlab"))
    before = _entries()
    with pytest.raises(FileError):
        mx.checkpoint.Manager("run", models.net, models.trainer).save(7)
    assert _entries() == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", MAKE)
def test_commands_replace_no_special_file(kind, tmp_path, capsys):
    os.mkdir("notebooks")
    MAKE[kind](Path("notebooks/01_tutorial.ipynb"))
    before = _entries()["notebooks/01_tutorial.ipynb"]
    assert main(["tutorial", "--copy-only", "--force", "--folder", "notebooks"]) == 2
    assert "01_tutorial.ipynb" in capsys.readouterr().err
    assert _entries()["notebooks/01_tutorial.ipynb"] == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", MAKE)
def test_the_store_replaces_no_special_file(kind, tmp_path):
    store = Store("test", lambda: "1", 1 << 20, tmp_path / "store")
    assert store.put("key", b"content")
    entry = next((tmp_path / "store" / "test").iterdir())
    entry.unlink()
    MAKE[kind](entry)
    before = entry.lstat().st_ino
    assert store.get("key") is None and not store.put("key", b"content")
    assert entry.lstat().st_ino == before


# -- how a file is written ---------------------------------------------------------------------------------------------


def test_until_it_is_complete_only_this_user_opens_the_file(tmp_path):
    path = tmp_path / "m"
    path.write_text("old")
    for mode in (0o600, 0o644, 0o444):
        path.chmod(mode)
        with atomic.atomic_write(path) as file:
            file.write(b"new")
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_are_kept_where_the_system_allows_it(tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_text("old")
    path.chmod(0o660)
    os.chown(path, 1234, 2345)
    with atomic.atomic_write(path) as file:
        file.write(b"new")
    state = path.stat()
    assert (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) == (1234, 2345, 0o660)

    def refused(*arguments):
        raise PermissionError(errno.EPERM, "refused")

    monkeypatch.setattr(os, "fchown", refused)
    with atomic.atomic_write(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # another group does not get what the old one had


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOSYS])
@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_folder_that_cannot_be_forced_to_disk_fails_no_save(models, tmp_path, monkeypatch, number, call):
    real = {"open": os.open, "fsync": os.fsync}[call]

    def refuse(first, *arguments):
        if call == "open" and os.path.isdir(first) or call == "fsync" and stat.S_ISDIR(os.fstat(first).st_mode):
            raise OSError(number, os.strerror(number))
        return real(first, *arguments)

    monkeypatch.setattr(os, call, refuse)
    models.net.save("m.hlab")
    models.net.load("m.hlab")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO, errno.ENOSPC])
def test_a_file_that_did_not_reach_the_disk_fails_the_save(models, monkeypatch, number):
    models.net.save("m.hlab")
    before, real = Path("m.hlab").read_bytes(), os.fsync

    def refuse(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        return real(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    if number in (errno.EINVAL, errno.ENOTSUP):  # the file system forces nothing to the disk
        models.net.save("m.hlab")
    else:
        with pytest.raises(FileError):
            models.net.save("m.hlab")
        assert Path("m.hlab").read_bytes() == before


# -- the list of writers -----------------------------------------------------------------------------------------------

#: Modules that open files for writing by themselves, and what looks at the target there.
OPENS = {
    "hybrid_lab/formats/atomic.py": "itself",
    "hybrid_lab/data/recordio.py": "check_writable",
    "hybrid_lab/engines/store.py": "a new name, in a folder of this user alone",
    "hybrid_lab/lab/saving/history.py": "new names, and .gitignore in a new folder",
    "hybrid_lab/cli/jupyter.py": "is_file",
    "hybrid_lab/mxnet/test_utils/running.py": "output to the null device",
    "hybrid_lab/ndarray/stubs.py": "files of this checkout, for developers",
    "hybrid_lab/engines/triton/build/internals.py": "temporary files of the system",
}


#: Each call that `_opens_for_writing` looks for.
_CALLS = re.compile(r"(open|write_(text|bytes)|copy(file|2|tree)|NamedTemporaryFile|mkstemp|tofile|savez?|move)\(")


def _opens_for_writing(source: str) -> bool:
    if not _CALLS.search(source):
        return False
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        modes = [item.value for item in [*node.args, *(keyword.value for keyword in node.keywords)]
                 if isinstance(item, ast.Constant) and isinstance(item.value, str)]  # fmt: skip
        if name == "open" and any(set(mode) & set("wax+") and set(mode) <= set("rwaxbt+") for mode in modes):
            return True
        if name.endswith((".write_text", ".write_bytes", "copyfile", "copy2", "NamedTemporaryFile", "mkstemp")):
            return True
        if name.endswith((".tofile", "np.save", "np.savez", "copytree", "shutil.move")):
            return True
    return False


def test_no_other_module_opens_files_for_writing():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "hybrid_lab").rglob("*.py")
        if _opens_for_writing(path.read_text(encoding="utf-8"))
    }
    assert found == set(OPENS)


def test_errors_about_special_files_say_what_is_there(tmp_path):
    os.mkfifo("m.params")
    with pytest.raises(HybridLabError, match="'m.params' is a FIFO"):
        nd.save("m.params", [nd.ones(2)])
