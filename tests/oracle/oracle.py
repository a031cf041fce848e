"""The process in which the real MXNet answers cases. It survives crashes, which are answers like others."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.oracle.execute import Answer

ROOT = Path(__file__).parents[2]
#: Cases after which MXNet starts anew: it keeps memory that a faulty operator has overwritten.
_LIFE = 500
#: Seconds after which a case counts as hanging.
_PATIENCE = 120


def python() -> Path:
    """MXNet's Python, of `make oracle`."""
    return ROOT / os.environ.get("ORACLE", ".oracle") / "bin" / "python"


class Oracle:
    """Answers of MXNet. onednn : whether oneDNN is on, which the fused RNN needs and of which gradients are wrong."""

    def __init__(self, onednn: bool = False):
        self._environment = {
            **os.environ,
            "MXNET_MKLDNN_ENABLED": "1" if onednn else "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "MXNET_ENGINE_TYPE": "NaiveEngine",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = 0

    def answer(self, case: dict[str, Any], fresh: bool = False) -> Answer:
        """MXNet's answer; its error is "Crash" or "Hang" where the process ended or did not answer.

        A crash may come from an earlier case that overwrote memory: the case is then asked again.
        fresh : whether no other case has run in the process
        """
        if (fresh or self._answered >= _LIFE) and self._answered:
            self._send(b"fresh\n")
            self._answered = 0
        alone = self._answered == 0
        found = self._ask(case)
        self._answered += 1
        if found.error == ("Crash",):
            self._answered = 0
            return found if alone else self.answer(case)
        if found.error == ("Hang",):
            self.close()
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.kill()
            self._process.wait()
        self._process, self._answered = None, 0

    def _ask(self, case: dict[str, Any]) -> Answer:
        self._send(json.dumps(case).encode() + b"\n")
        assert self._process is not None and self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            return Answer({}, ("Hang",), f"no answer within {_PATIENCE} seconds")
        return _read(self._process.stdout)

    def _send(self, line: bytes) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [str(python()), "-m", "tests.oracle.worker"],
                cwd=ROOT, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert self._process.stdout is not None
            if self._process.stdout.readline() != b"ready\n":
                raise RuntimeError("MXNet does not start; python -m tests.oracle.worker says why")
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()


def _read(stream: IO[bytes]) -> Answer:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise RuntimeError("MXNet's process has ended; python -m tests.oracle.worker says why")
    head = json.loads(line)
    values = {}
    for name, (kind, shape) in head["values"].items():
        dtype = np.dtype(kind)
        data = stream.read(dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        values[name] = np.frombuffer(data, dtype).reshape(shape)
    return Answer(values, tuple(head["error"]), head["text"], head["at"])
