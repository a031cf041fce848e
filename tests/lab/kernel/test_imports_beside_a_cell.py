"""A page may connect while the cell that imports the package is still at it: in another thread, which imports, too."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
    "place",
    [
        "numpy.lib",
        "numpy.linalg",
        "numpy._typing",
        "hybrid_lab.gluon.block",
        "hybrid_lab.ops.layers",
        "hybrid_lab.ndarray",
    ],
)
def test_the_cell_and_the_page_both_get_whole_modules(place):
    done = subprocess.run(
        [sys.executable, "-c", f"PLACE = {place!r}\n{BESIDE}"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "both\n", done.stderr[-2000:]
