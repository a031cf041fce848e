"""Workers of a notebook: cells in all of them, their output and errors, the stop button, and their end."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.lab.distributed import workers
from tests.lab.kernel_process import Kernel

pytest.importorskip("torch")
pytest.importorskip("ipyparallel")


def _is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's list of processes")
def test_cells_of_workers(tmp_path):
    kernel = Kernel(tmp_path)
    try:
        kernel.run("import hybrid_lab as mx", "workers = mx.lab.workers(2)")
        pids = [int(pid) for pid in re.findall(r"\d+", kernel.run("print([row.pid for row in workers.rows()])"))]
        pids.append(int(kernel.run("print(workers._cluster.controller.process.pid)")))

        printed = kernel.run(
            "%%workers\nimport hybrid_lab as mx\nstore = mx.kv.create('dist_sync')\n"
            "print('together')\nprint('rank', store.rank, 'of', store.num_workers)"
        )
        assert printed.splitlines() == ["together", "[0] rank 0 of 2", "[1] rank 1 of 2"]
        assert kernel.run("%%workers 1\nnumber = store.rank\nprint('alone', number)") == "alone 1"
        assert kernel.run("print(workers[1]['number'], len(workers))") == "1 2"

        with pytest.raises(AssertionError) as caught:
            kernel.run("%%workers\nif store.rank == 1:\n    raise ValueError('a mistake')\nstore.barrier()")
        assert "WorkerCellError" in str(caught.value)
        assert "rank 1 ValueError: a mistake" in str(caught.value)
        assert kernel.run("%%workers\nstore.barrier()\nprint('joined again')") == "joined again"

        running = kernel.start(
            "%%workers\nimport time\nprint('begun', flush=True)\nwhile True:\n    store.barrier()\n    time.sleep(0.05)"
        )
        kernel.wait_for_output(running, "begun")
        kernel.manager.interrupt_kernel()
        with pytest.raises(AssertionError, match="KeyboardInterrupt"):
            kernel.finish(running)
        assert kernel.run("%%workers\nstore.barrier()\nprint('after the stop')") == "after the stop"

        assert all(map(_is_there, pids))
        os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
        until = time.monotonic() + 120
        while any(map(_is_there, pids)):
            assert time.monotonic() < until, [pid for pid in pids if _is_there(pid)]
            time.sleep(0.1)
    finally:
        kernel.stop()


@pytest.mark.parametrize(
    ("text", "ranks"), [("", None), ("0", [0]), (" 0, 2 ", [0, 2]), ("1-3", [1, 2, 3]), ("0,2-3,2", [0, 2, 3])]
)
def test_ranks(text, ranks):
    assert workers._ranks(text) == ranks


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1,,2", "0;1", "1.5"])
def test_wrong_ranks(text):
    with pytest.raises(SettingError, match="%%workers takes ranks"):
        workers._ranks(text)


@pytest.mark.parametrize("ranks", [[0], [0, 1], [0, 1, 3], [2, 4, 5, 6]])
def test_ranks_are_named_as_they_are_given(ranks):
    named = workers._named(ranks)
    assert workers._ranks(named.split(" ", 1)[1]) == ranks


@pytest.mark.parametrize("arguments", [{}, {"count": 0}, {"count": True}, {"count": 2.0}, {"count": 2, "profile": "x"}])
def test_wrong_arguments(arguments):
    with pytest.raises(SettingError):
        workers.workers(**arguments)


def test_a_worker_is_told_when_there_are_none():
    with pytest.raises(workers.WorkersError, match=r"mx.lab.workers\(2\)"):
        workers._cell("", "print(1)")


def test_output_is_labelled(capsys):
    output = workers._Output([0, 1, 2])
    output.take(0, "same\nown 0\nhalf", "")
    output.show()
    assert capsys.readouterr().out == ""
    output.take(1, "same\nown\n", "")
    output.take(2, "same\nown\n", "warned\n")
    output.show()
    assert capsys.readouterr() == ("same\n[0] own 0\n[1-2] own\n", "")
    output.end()
    assert capsys.readouterr() == ("[0] half\n", "[2] warned\n")
