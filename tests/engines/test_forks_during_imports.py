"""A process may fork at any moment of another thread's import: no child hangs, and none uses what is half imported."""

import _thread
import ctypes
import importlib
import os
import subprocess
import sys
import threading
from concurrent.futures import wait
from pathlib import Path

import pytest

from hybrid_lab.engines import libraries
from hybrid_lab.system import forks
from tests.forking import in_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # Python 3.12 warns of forks beside threads: which is what these tests are about.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
#: A child that has not come back after so many seconds never will.
SECONDS = 120
LIBRARY = """
import slow_library.part
values = ["whole"]
"""
PART = """
import slow_library_events as events
values = ["begun"]
events.begun.set()
assert events.go_on.wait(120)
values = ["whole"]
"""


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """slow_library waits in the import of its part: `begun` is set then, and setting `go_on` ends it."""
    folder = tmp_path / "slow_library"
    folder.mkdir()
    (folder / "__init__.py").write_text(LIBRARY)
    (folder / "part.py").write_text(PART)
    module = type(sys)("slow_library_events")
    module.begun, module.go_on = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "slow_library_events", module)
    monkeypatch.syspath_prepend(tmp_path)
    threads = set(threading.enumerate())
    yield module
    module.go_on.set()
    for thread in set(threading.enumerate()) - threads:
        thread.join()
    for name in [name for name in sys.modules if name.partition(".")[0] == "slow_library"]:
        del sys.modules[name]
    libraries._imports.pop("slow_library", None)
    libraries._threads.pop("slow_library", None)
    libraries._early.discard("slow_library")


def begun_early():
    libraries.begin_import("slow_library", lambda: libraries.load("slow_library"))


def needed_by_another_thread():
    threading.Thread(target=libraries.import_library, args=["slow_library"]).start()


def interrupted():
    begun = sys.modules["slow_library_events"].begun
    threading.Thread(target=lambda: begun.wait(SECONDS) and _thread.interrupt_main()).start()
    with pytest.raises(KeyboardInterrupt):
        libraries.import_library("slow_library")


def by_a_thread_of_the_user():
    threading.Thread(target=importlib.import_module, args=["slow_library"]).start()


OURS = [begun_early, needed_by_another_thread, interrupted]


def what_is_there():
    """What a child finds that imports the library and its part."""
    sys.modules["slow_library_events"].go_on.set()
    library = libraries.import_library("slow_library")
    part = importlib.import_module("slow_library.part")
    return library.values, part.values, sorted(forks.half_imported)


@pytest.mark.parametrize("begin", OURS)
def test_a_fork_waits_for_the_whole_import(events, begin, monkeypatch):
    waits = []

    def end_the_import_and_wait(outcomes, longest):
        waits.append(longest)
        assert not events.go_on.is_set()
        events.go_on.set()
        return wait(outcomes, SECONDS)

    begin()
    assert events.begun.wait(SECONDS)
    monkeypatch.setattr(libraries, "wait", end_the_import_and_wait)
    assert in_child(what_is_there) == (["whole"], ["whole"], [])
    assert len(waits) == 1 and 0 < waits[0] <= libraries.LONGEST_WAIT
    assert in_child(what_is_there) == (["whole"], ["whole"], [])
    assert len(waits) == 1  # the second fork did not


@pytest.mark.skipif(sys.platform != "linux", reason="the system's threads are read from /proc")
def test_a_fork_waits_for_what_the_thread_of_the_import_does_after_its_last_python_code(events):
    """Such as MKL's destructor of a thread, which holds the lock of its memory. Here it is sleep()."""
    library = ctypes.CDLL(None)
    key = ctypes.c_uint()
    threads = []

    def with_a_destructor_of_two_seconds():
        assert library.pthread_key_create(ctypes.byref(key), library.sleep) == 0
        assert library.pthread_setspecific(key, ctypes.c_void_p(2)) == 0
        threads.append(Path(f"/proc/self/task/{threading.get_native_id()}"))
        return libraries.load("slow_library")

    events.go_on.set()
    libraries.begin_import("slow_library", with_a_destructor_of_two_seconds)
    assert libraries.import_library("slow_library").values == ["whole"]
    assert threads[0].exists()
    assert in_child(what_is_there) == (["whole"], ["whole"], [])
    assert not threads[0].exists()
    assert not libraries._threads.get("slow_library")


def test_the_thread_of_the_import_forks_without_waiting_for_itself(events):
    (Path(importlib.util.find_spec("slow_library").origin).parent / "part.py").write_text(
        "import os\nchild = os.fork()\nchild or os._exit(7)\n"
        "values = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]"
    )
    begun_early()
    assert libraries.import_library("slow_library").part.values == [7]


@pytest.mark.parametrize("begin", [*OURS, by_a_thread_of_the_user])
def test_a_child_imports_anew_what_the_fork_did_not_wait_for(events, begin, monkeypatch, caplog):
    """As where the import waits for something that the forking thread holds."""
    begin()
    assert events.begun.wait(SECONDS)
    monkeypatch.setattr(libraries, "LONGEST_WAIT", 0)
    monkeypatch.setattr(libraries.logger, "propagate", True)
    assert in_child(what_is_there) == (["whole"], ["whole"], ["slow_library", "slow_library.part"])
    assert ("slow_library did not end within 0 s" in caplog.text) == (begin in OURS)
    events.go_on.set()
    assert libraries.import_library("slow_library").part.values == ["whole"]  # the parent's import went on


@pytest.mark.parametrize("begin", [*OURS, by_a_thread_of_the_user])
def test_a_child_has_the_modules_of_a_package_that_were_imported_whole(events, begin, monkeypatch):
    """Python makes them attributes of their package when it imports them, and not again when the package is."""
    folder = Path(importlib.util.find_spec("slow_library").origin).parent
    code = "from .first import *\nfrom .part import *\nvalues = first.values + part.values"
    (folder / "__init__.py").write_text(code)
    (folder / "first.py").write_text("values = ['first']")
    importlib.invalidate_caches()
    monkeypatch.setattr(libraries, "LONGEST_WAIT", 0)
    begin()
    assert events.begun.wait(SECONDS)

    def what_is_there():
        events.go_on.set()
        library = importlib.import_module("slow_library")
        return library.values, library.__spec__.loader == library.__loader__, sorted(forks.half_imported)

    assert in_child(what_is_there) == (["first", "whole"], True, ["slow_library", "slow_library.part"])


@pytest.mark.parametrize("begin", [*OURS, by_a_thread_of_the_user])
def test_a_library_of_native_code_is_not_imported_twice(events, begin, monkeypatch):
    def failure():
        events.go_on.set()
        try:
            libraries.import_library("slow_library")
        except ImportError as error:
            try:
                importlib.import_module("slow_library")
            except ImportError:
                return str(error), importlib.util.find_spec("slow_library"), in_child(lambda: libraries.cut_off)

    begin()
    assert events.begun.wait(SECONDS)
    monkeypatch.setattr(libraries, "LONGEST_WAIT", 0)
    monkeypatch.setattr(libraries, "_NATIVE", ["slow_library"])
    message, spec, of_its_child = in_child(failure)
    assert "forked while its parent imported slow_library" in message and "spawn" in message
    assert spec is None and of_its_child == {"slow_library"}
    assert not libraries.cut_off


def test_an_interrupt_comes_when_the_fork_is_done(events, monkeypatch):
    def interrupted_wait(outcomes, longest):
        if not events.go_on.is_set():
            events.go_on.set()
            raise KeyboardInterrupt
        return wait(outcomes, longest)

    begun_early()
    assert events.begun.wait(SECONDS)
    monkeypatch.setattr(libraries, "wait", interrupted_wait)
    answers = []
    with pytest.raises(KeyboardInterrupt):
        answers.append(in_child(what_is_there))
        threading.Event().wait(SECONDS)
    assert answers in ([], [(["whole"], ["whole"], [])])  # the interrupt may come while the answer is read
    assert in_child(what_is_there) == (["whole"], ["whole"], [])


#: Forks at every so many modules of an import, without waiting: each child works, and says what it cannot use.
AT_EVERY_MODULE = """
import faulthandler, logging, os, sys, threading
import hybrid_lab as mx
from hybrid_lab import forks, nd
from hybrid_lab.engines import libraries, registry

logging.getLogger("hybrid_lab").setLevel(logging.ERROR)
libraries.LONGEST_WAIT = 0
net = mx.gluon.nn.Dense(3, in_units=4)
net.initialize()
x = nd.ones((2, 4))
expected = net(x).asnumpy().tolist()
modules, ended, problems = 0, False, []
turn, go_on = threading.Semaphore(0), threading.Semaphore(0)

def moment(event, arguments):  # Python's event before an import; in a finder Python's own lock would hold up the fork
    global modules
    if event == "import" and threading.current_thread() is not threading.main_thread() and os.getpid() == parent:
        modules += 1
        if modules % EVERY == 0:
            turn.release()
            if HELD:
                go_on.acquire()

def import_it():
    global ended
    try:
        libraries.import_library(LIBRARY) if OURS else __import__(LIBRARY)
    finally:
        ended = True
        turn.release()

def child():
    faulthandler.dump_traceback_later(120, exit=True)
    net.hybridize()
    assert net(x).asnumpy().tolist() == expected
    for name in sorted(forks.half_imported - {LIBRARY}):
        if name.partition(".")[0] != LIBRARY:
            __import__(name)
    if libraries.cut_off:
        assert LIBRARY in registry.left_behind
        try:
            libraries.import_library(LIBRARY)
        except ImportError as error:
            assert "spawn" in str(error)
        else:
            raise AssertionError("imported")

parent, forked, cut = os.getpid(), 0, 0
sys.addaudithook(moment)
threading.Thread(target=import_it).start()
while turn.acquire() and not ended:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            child()
            status = 2 if libraries.cut_off else 0
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    forked, cut = forked + 1, cut + (status == 2)
    if status not in (0, 2):
        print("status", status, "after", modules, "modules", file=sys.stderr, flush=True)
        os._exit(1)  # the import, which may be held, is not waited for
    go_on.release()
print(forked, cut)
"""


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(("library", "every"), [("torch", 60), ("onnxruntime", 2)])
def test_no_child_hangs_whatever_module_the_parent_was_importing(library, every, ours, held):
    """held: the import stands still at the beginning of a module during the fork; else it goes on beside it."""
    pytest.importorskip(library)
    settings = f"LIBRARY, EVERY, OURS, HELD = {library!r}, {every}, {ours}, {held}"
    environment = {name: value for name, value in os.environ.items() if name != "HYBRID_LAB_CPU"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", settings + AT_EVERY_MODULE],
        env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    forked, cut = map(int, done.stdout.split())
    assert cut <= forked and (cut >= 3 or not held), done.stdout
