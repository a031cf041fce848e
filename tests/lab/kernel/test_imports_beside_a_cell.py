"""A page may connect while the cell that imports the package is still at it: in another thread, which imports, too."""

import subprocess
import sys

import pytest

from tests.failures import Failures

pytest.importorskip("IPython")

#: The main thread stands still at PLACE until the other one waits for it, be it inside of numpy, too.
BESIDE = """
import sys, threading, time
from IPython.core.interactiveshell import InteractiveShell
from hybrid_lab.lab.kernel.hooks import Lab

lab, inside, errors = Lab(InteractiveShell.instance()), threading.Event(), []

def pause(event, arguments):
    if event == "import" and arguments[0] == PLACE and threading.current_thread() is threading.main_thread():
        inside.set()
        time.sleep(3)

def connect():
    inside.wait()
    try:
        lab.session
    except BaseException as error:
        errors.append(error)

assert "numpy" not in sys.modules
sys.addaudithook(pause)
other = threading.Thread(target=connect)
other.start()
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn
other.join()
assert not errors, errors
assert nn.Dense(1) is not None and lab.session is not None
print("both")
"""


PLACES = (
    *("numpy.lib", "numpy.linalg", "numpy._typing"),
    *("hybrid_lab.gluon.block", "hybrid_lab.ops.layers", "hybrid_lab.ndarray"),
)


def test_the_cell_and_the_page_both_get_whole_modules():
    """Each place in a process of its own. They run together, for each of them stands still for three seconds."""
    started = {
        place: subprocess.Popen(
            [sys.executable, "-c", f"PLACE = {place!r}\n{BESIDE}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for place in PLACES
    }  # fmt: skip
    failures = Failures()
    for place, process in started.items():
        with failures.of(place):
            try:
                output, errors = process.communicate(timeout=300)
            finally:
                process.kill()
            assert output == "both\n", errors[-2000:]
    failures.raise_all()
