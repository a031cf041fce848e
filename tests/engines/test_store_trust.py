"""Files of the store are used only if nobody but this user or root can have written them."""

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_lab.cli import environment
from hybrid_lab.engines import store, tuned
from hybrid_lab.engines.triton import tuning_results
from hybrid_lab.engines.triton.build import binaries, texts
from hybrid_lab.system.temporary import lock, temporary_path
from tests.graph.building import graph_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows' cache folder is the user's own")
STRANGER = 54321


GRAPH = graph_of(lambda F, x: F.exp(x), (2, 3))


def keep_engine():
    tuned.remember([GRAPH], tuned.Tuned("numpy", {"numpy": 0.5}))


def find_engine():
    tuned._known.clear()
    return tuned.recall([GRAPH])


def keep_tuned():
    tuning_results.remember("0" * 40, "kernel", tuning_results.TuningResult(tuning_results.RULE))
    tuning_results.forget()


def find_tuned():
    tuning_results.forget()
    return tuning_results.recall("0" * 40)


BINARIES = binaries.BINARIES.disk


def keep_binary():
    made = binaries.Binary("0" * 64, "kernel", "sm90", {"ttir": b"text"}, "", 0.0)
    binaries.Binaries(BINARIES).add(made)


def find_binary():
    return binaries.Binaries(BINARIES).find("0" * 64)


#: kind -> (write, read: None where it is not used)
KINDS = {
    "engines": (keep_engine, find_engine),
    "tuned": (keep_tuned, find_tuned),
    "binaries": (keep_binary, find_binary),
}
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "cache"))
    store._warn_once.cache_clear()
    return tmp_path / "cache"


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def all_files(kind, folder):
    return [path for path in (folder / kind).rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_is_for_this_user_alone_and_used(kind, folder, caplog):
    before = os.umask(0)
    try:
        KINDS[kind][0]()
    finally:
        os.umask(before)
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert KINDS[kind][1]() and not warnings(caplog)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
@pytest.mark.parametrize("level", ["root", "kind"])
def test_a_folder_that_others_may_write_to_is_not_used_and_said_once(kind, level, mode, folder, caplog):
    write, read = KINDS[kind]
    write()
    spoiled = folder if level == "root" else folder / kind
    spoiled.chmod(mode)
    assert read() is None and read() is None and store.Store(kind, str, 99).folder() is None
    (warning,) = warnings(caplog)
    assert f"{spoiled} is not used" in warning and f"chmod -R go-w {spoiled}" in warning
    assert f"{spoiled} is not used" in environment._kernel_cache().found
    spoiled.chmod(0o700)
    assert read()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_to_is_made_anew(kind, mode, folder, caplog):
    write, read = KINDS[kind]
    for index in range(len(all_files(kind, folder)) or 1):
        write()
        all_files(kind, folder)[index].chmod(mode)
        assert read() is None
        write()
        assert read()
    assert len(warnings(caplog)) == 1


@root
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["root", "kind", "file"])
def test_what_belongs_to_another_user_is_not_used(kind, level, folder, caplog):
    write, read = KINDS[kind]
    write()
    os.chown({"root": folder, "kind": folder / kind, "file": all_files(kind, folder)[-1]}[level], STRANGER, -1)
    assert read() is None and len(warnings(caplog)) == 1
    assert level == "file" or "HYBRID_LAB_CACHE names a folder of your own" in warnings(caplog)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["kind", "file"])
def test_links_below_the_cache_folder_are_not_followed(kind, level, folder):
    write, read = KINDS[kind]
    write()
    path = folder / kind if level == "kind" else all_files(kind, folder)[0]
    os.rename(path, folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")
    assert read() is None


def test_the_cache_folder_may_be_a_link_of_this_user(folder, caplog):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")
    keep_engine()
    assert KINDS["engines"][1]() and not warnings(caplog)
    (folder.parent / "elsewhere").chmod(0o777)
    assert KINDS["engines"][1]() is None and len(warnings(caplog)) == 1


@root
def test_the_cache_folder_is_no_link_of_another_user(folder, caplog):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")
    os.lchown(folder, STRANGER, -1)
    keep_engine()
    assert not list((folder.parent / "elsewhere").iterdir()) and len(warnings(caplog)) == 1


@root
def test_what_root_made_is_used_by_others(folder, caplog, monkeypatch):
    keep_engine()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert KINDS["engines"][1]() and not warnings(caplog)


def test_texts_of_kernels_are_not_written_where_others_write(folder, caplog):
    texts.keep("k", "text")
    assert Path(texts.path_of("k", "text")).read_text() == "text"
    folder.chmod(0o777)
    texts.keep("other", "text")
    assert len(list((folder / "kernels").iterdir())) == 1 and len(warnings(caplog)) == 1


# -- what killed writers left ------------------------------------------------------------------------------------------


def test_stale_files_go_and_those_of_live_writers_stay(folder):
    (folder / "engines").mkdir(parents=True)
    stale, held = (Path(temporary_path(str(folder / "engines" / "a.json"))) for _ in range(2))
    stale.touch()
    script = (
        "import sys, os, time\nfrom hybrid_lab.system.temporary import lock\n"
        f"lock(os.open({str(held)!r}, os.O_CREAT | os.O_RDWR)); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "held\n"
        keep_engine()
        assert held.exists() and not stale.exists()
        writer.kill()
    tuned.ENGINES._unchecked.clear()  # as in another process
    keep_engine()
    assert [path.suffix for path in (folder / "engines").iterdir()] == [""]


def test_a_lock_on_what_was_just_removed_is_none(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    assert lock(descriptor)
    (tmp_path / "file").unlink()
    assert not lock(descriptor)
    os.close(descriptor)
