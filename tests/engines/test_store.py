"""Store: whole entries or none, of this version, within a limit, in the platform's cache folder."""

import errno
import importlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import platformdirs
import pytest

from hybrid_lab.cli import environment
from hybrid_lab.engines import store, tuned
from hybrid_lab.engines.store import DAY, Store, root_folder
from hybrid_lab.engines.triton import tuning_results
from hybrid_lab.engines.triton.build import binaries
from tests.graph.building import graph_of

posix = pytest.mark.skipif(os.name != "posix", reason="signals and modes of files")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "cache"))
    store._warn_once.cache_clear()
    return tmp_path / "cache"


def new(limit=1 << 20, version="1", kind="kind"):
    """A store as another process would make it."""
    return Store(kind, lambda: version, limit)


def one_file(root):
    (path,) = (root / "kind").iterdir()
    return path


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# -- entries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n", b"text\n\0\xff", bytes(100_000)])
def test_another_process_reads_what_was_written(content):
    assert new().get("key") is None and new().is_empty()
    assert new().put("key", content)
    assert new().get("key") == content and new().get("other") is None and not new().is_empty()


def test_a_later_entry_replaces_an_earlier_one(root):
    new().put("key", b"first")
    new().put("key", b"second")
    assert new().get("key") == b"second" and one_file(root)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, "ü"]}, [], "text", 0])
def test_json(value):
    assert new().get_json("key") is None
    assert new().put_json("key", value) and new().get_json("key") == value


def test_keys_may_be_any_text():
    keys = ["", "../../escape", "a/b", "\n", "\0", "x" * 10_000, "ü"]
    for number, key in enumerate(keys):
        assert new().put_json(key, number)
    assert [new().get_json(key) for key in keys] == list(range(len(keys)))


def test_an_entry_that_is_damaged_anywhere_is_missing(root):
    new().put("key", b"content")
    path = one_file(root)
    good = path.read_bytes()
    damaged = [good[:end] for end in range(len(good))] + [good + b"\n", b"\xff" + good]
    damaged += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good))]
    for data in damaged:
        path.write_bytes(data)
        assert new().get("key") is None
    assert new().put("key", b"content") and path.read_bytes() == good


def test_an_entry_under_another_name_is_missing(root):
    new().put("key", b"content")
    first = one_file(root)
    new().put("other", b"other")
    (second,) = {*first.parent.iterdir()} - {first}
    os.replace(first, second)
    assert new().get("other") is None


@pytest.mark.parametrize("other", [{"version": "2"}, {"kind": "another"}])
def test_entries_of_another_version_or_kind_are_not_read(other, root):
    new().put("key", b"content")
    assert new(**other).get("key") is None
    new(**other).put("key", b"other")
    assert new().get("key") == b"content" and new(**other).get("key") == b"other"


def test_a_folder_in_the_place_of_an_entry_is_a_missing_one(root, caplog):
    new().put("key", b"content")
    path = one_file(root)
    path.unlink()
    path.mkdir()
    assert new().get("key") is None and not new().put("key", b"content") and len(warnings(caplog)) == 1


def keep_binary():
    binaries.BINARIES.add(binaries.Binary("0" * 64, "name", "sm90", {"ttir": b"a", "cubin": b"\n\n"}, "log", 1.5))


def keep_tuned():
    tuning_results.remember(
        "key",
        "name",
        tuning_results.TuningResult(tuning_results.TILES, {"ROWS": 16}, 8, 3, {"rule": 1e-3}, {"x": "why"}),
    )
    tuning_results.forget()


GRAPH = graph_of(lambda F, x: F.exp(x), (2, 3))


def keep_engine():
    tuned.remember([GRAPH], tuned.Tuned("numpy", {"numpy": 0.5}))
    tuned._known.clear()


#: kind -> (write, read, what decides whether its entries may still be used)
KINDS = {
    "engines": (keep_engine, lambda: tuned.recall([GRAPH]), (tuned, "FORMAT")),
    "tuned": (keep_tuned, lambda: tuning_results.recall("key"), (tuning_results, "FORMAT")),
    "binaries": (keep_binary, lambda: binaries.BINARIES.find("0" * 64), (binaries, "FORMAT")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_entry_comes_back_and_none_of_another_version(kind, monkeypatch, root):
    write, read, (module, name) = KINDS[kind]
    tuned._surroundings.cache_clear()
    assert read() is None
    write()
    assert list((root / kind).iterdir()) and read() is not None
    tuning_results.forget()
    tuned._known.clear()
    monkeypatch.setattr(module, name, lambda: "another")
    tuned._surroundings.cache_clear()
    assert read() is None
    monkeypatch.undo()
    tuned._surroundings.cache_clear()


def test_a_binary_comes_back_byte_for_byte():
    files = {"json": b'{"num_warps": 4}\n', "ttir": b"", "ptx": b"\n// ptx\n", "cubin": bytes(range(256))}
    made = binaries.Binary("1" * 64, "name", "sm90", files, "line\nline", 1.25)
    binaries.BINARIES.add(made)
    assert binaries.BINARIES.find("1" * 64) == made


# -- several processes -------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("moment", ["replace", "open"])
def test_a_killed_writer_leaves_nothing_once_the_next_one_has_written(moment, root):
    lines = {
        "replace": "os.replace = lambda *given: os.kill(os.getpid(), signal.SIGKILL)",
        "open": "store.temporary.lock = lambda *given: os.kill(os.getpid(), signal.SIGKILL)",
    }
    program = "import os, signal\nfrom hybrid_lab.engines import store\n"
    program += f"{lines[moment]}\nstore.Store('kind', lambda: '1', 1 << 20).put('key', b'half')"
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert one_file(root).name.endswith(".tmp") and new().get("key") is None
    assert new().put("key", b"whole") and not one_file(root).name.endswith(".tmp")


def test_processes_that_write_and_remove_at_once_do_each_other_no_harm(root):
    """Two contents of one key and many others, beyond the limit: whatever is read is whole."""
    program = (
        "import sys\nfrom hybrid_lab.engines.store import Store\n"
        "store = Store('kind', lambda: '1', 100_000)\n"
        "for turn in range(150):\n"
        "    assert store.put('key', sys.argv[1].encode() * 5000)\n"
        "    assert store.put(f'{turn} {sys.argv[1]}', bytes(2000))\n"
        "    found = store.get('key')\n"
        "    assert found in (None, b'a' * 5000, b'b' * 5000), found\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", program, name], stderr=subprocess.PIPE, text=True) for name in "ab"]
    assert [process.communicate(timeout=100)[1] for process in both] == ["", ""]
    assert all(path.stat().st_mode & 0o777 == 0o600 and path.suffix != ".tmp" for path in (root / "kind").iterdir())


# -- the limit ---------------------------------------------------------------------------------------------------------


def size(root):
    return sum(path.stat().st_size for path in (root / "kind").iterdir())


def age(root, seconds):
    """Let all entries be older."""
    for path in (root / "kind").iterdir():
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def test_the_entries_used_longest_ago_make_room_for_new_ones(root):
    for number in range(100):
        process = new(limit=1000)
        assert process.put(str(number), bytes(50)) and size(root) <= 1000
        age(root, 3)
    kept = [number for number in range(100) if new().get(str(number)) is not None]
    assert len(kept) > 4 and kept == list(range(100 - len(kept), 100))


@pytest.mark.parametrize("ahead", [3600, 86400 * 400])
def test_a_clock_that_was_set_back_removes_no_new_entry_before_old_ones(root, ahead):
    """Old entries have times in the future; the entries written since are the last to go."""
    old = new(limit=1000)
    for number in range(4):
        assert old.put(f"old {number}", bytes(50))
    later = time.time() + ahead
    for number, path in enumerate(sorted((root / "kind").iterdir())):
        os.utime(path, (later + number, later + number))
    for number in range(20):
        process = new(limit=1000)  # another process each time
        assert process.put(f"new {number}", bytes(50))
        assert process.get(f"new {number}") == bytes(50)
        if number:
            assert process.get(f"new {number - 1}") == bytes(50)
    assert not any(old.get(f"old {number}") for number in range(4)) and size(root) <= 1000


def test_one_process_looks_at_the_folder_often_enough(root):
    process = new(limit=10_000)
    for number in range(200):
        assert process.put(str(number), bytes(number)) and size(root) <= 10_000


def test_reading_an_entry_counts_as_using_it(root):
    for number in range(5):
        new().put(str(number), bytes(50))
        age(root, 2 * DAY)
    assert new().get("0") is not None
    assert time.time() - max(path.stat().st_mtime for path in (root / "kind").iterdir()) < DAY
    new(limit=500).put("new", bytes(50))
    assert [new().get(str(number)) is not None for number in range(5)] == [True, False, False, False, True]


def test_an_entry_that_was_used_today_is_not_marked_again(root):
    new().put("key", b"content")
    age(root, DAY / 2)
    before = one_file(root).stat().st_mtime_ns
    assert new().get("key") and one_file(root).stat().st_mtime_ns == before


def test_an_entry_larger_than_the_limit_is_not_kept_and_removes_nothing(root):
    process = new(limit=1000)
    process.put("key", b"content")
    assert not process.put("large", bytes(2000)) and process.get("key") == b"content" and one_file(root)


def test_files_for_people_count_too(root):
    for number in range(30):
        assert new(limit=1000).put_file(f"{number}.py", b"x = 1\n" * 20) and size(root) <= 1000
    assert (root / "kind" / "29.py").read_text().startswith("x = 1\n")


def test_the_unfinished_file_of_a_live_writer_is_not_removed_to_make_room(root):
    new().put("key", bytes(50))
    with store.temporary.replacement(str(root / "kind" / "other"), store._create) as file:
        file.write(bytes(900))
        file.flush()
        age(root, DAY)
        new(limit=500).put("new", bytes(400))
    assert (root / "kind" / "other").stat().st_size == 900 and new().get("key") is None


def test_the_folder_may_be_deleted_while_processes_use_it(root, caplog):
    process = new()
    for _ in range(3):
        assert process.get("key") is None and process.put("key", b"content") and process.get("key") == b"content"
        shutil.rmtree(root)
    assert not warnings(caplog)


# -- where nothing can be written --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_said_once_for_all_kinds(root, caplog):
    root.write_text("in the way")
    for kind in ("kind", "another"):
        for _ in range(2):
            process = new(kind=kind)
            assert not process.put("key", b"content") and process.get("key") is None and process.is_empty()
    (warning,) = warnings(caplog)
    assert f"{root} cannot be written" in warning and "HYBRID_LAB_CACHE names another folder" in warning


@pytest.mark.parametrize("call", ["open", "replace", "scandir", "mkdir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_disk_is_said_once_and_leaves_nothing(call, code, root, monkeypatch, caplog):
    def failing(*given, **named):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, failing)
    process = new()
    assert not process.put("key", b"content") and not process.put("other", b"content")
    monkeypatch.undo()
    assert len(warnings(caplog)) == 1 and os.strerror(code) in warnings(caplog)[0]
    assert not root.exists() or not list(root.rglob("*.tmp"))


def test_what_cannot_be_written_lasts_as_long_as_the_process(root, monkeypatch):
    root.write_text("in the way")
    monkeypatch.setattr(binaries.BINARIES, "_memory", {})
    keep_binary()
    tuning_results.remember("key", "name", tuning_results.TuningResult(tuning_results.RULE))
    assert binaries.BINARIES.find("0" * 64).code == b"\n\n" and tuning_results.recall("key")
    tuning_results.forget()


# -- its place ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "platform, name, place",
    [
        ("unix", "Unix", ".cache/hybrid_lab"),
        ("macos", "MacOS", "Library/Caches/hybrid_lab"),
        ("windows", "Windows", "AppData/Local/hybrid_lab/Cache"),
    ],
)
def test_the_platforms_cache_folder(platform, name, place, monkeypatch, tmp_path):
    module = importlib.import_module(f"platformdirs.{platform}")
    monkeypatch.delenv("HYBRID_LAB_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(platformdirs, "PlatformDirs", getattr(module, name))
    if platform == "windows":
        monkeypatch.setattr(module, "get_win_folder", lambda name: str(tmp_path / "AppData" / "Local"))
    assert Path(str(root_folder()).replace("\\", "/")) == tmp_path / place


@posix
def test_a_cache_folder_of_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.delenv("HYBRID_LAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert root_folder() == tmp_path / "elsewhere" / "hybrid_lab"


def test_without_a_home_nothing_is_kept(monkeypatch, caplog):
    def homeless(*given, **named):
        raise RuntimeError("no home")

    monkeypatch.delenv("HYBRID_LAB_CACHE")
    for answer in (homeless, lambda *given, **named: "~/.cache/hybrid_lab"):
        monkeypatch.setattr(platformdirs, "user_cache_dir", answer)
        assert root_folder() is None and not new().put("key", b"content") and not warnings(caplog)


def test_a_relative_folder_stays_where_it_was_when_the_process_goes_elsewhere(monkeypatch, tmp_path):
    name = f"relative-{os.getpid()}"
    monkeypatch.setenv("HYBRID_LAB_CACHE", name)
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        assert new().folder() == tmp_path / "first" / name / "kind"


def test_an_empty_name_keeps_nothing(monkeypatch, caplog):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    assert root_folder() is None and not new().put("key", b"content") and new().get("key") is None
    assert not warnings(caplog) and "off" in environment._kernel_cache().found


def test_the_import_of_the_package_needs_no_platformdirs():
    program = "import sys, hybrid_lab\nassert 'platformdirs' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_report_of_the_environment_has_place_and_size(root):
    assert environment._kernel_cache().found == f"0 files, 0.0 MiB in {root}, which may be deleted"
    new(limit=1 << 24).put("key", bytes(3 << 20))
    assert environment._kernel_cache().found == f"1 files, 3.0 MiB in {root}, which may be deleted"
