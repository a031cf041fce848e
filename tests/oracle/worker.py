"""Answers cases in MXNet's Python: a line of JSON comes in for each case, a line of JSON and arrays go out.

A parent imports MXNet once. A child, forked from it, answers cases until it crashes or a line says "fresh"; the parent
reports a crash and forks another child. `tests.oracle.oracle` starts it as `python -m tests.oracle.worker`.
"""

from __future__ import annotations

import json
import os
import warnings

import mxnet as mx
import numpy as np

from tests.oracle.execute import Answer, answer

#: What a child returns where the input has ended, and where the next case wants a fresh one.
_END, _FRESH = 0, 42


def main() -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    out = os.dup(1)
    os.dup2(2, 1)  # what MXNet prints must not come between the answers
    os.write(out, b"ready\n")
    while True:
        child = os.fork()
        if child == 0:
            os._exit(_serve(out))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == _END:
            return
        if status != _FRESH:
            _write(out, Answer({}, ("Crash",), f"MXNet's process ended with {status}"))


def _serve(out: int) -> int:
    """Answer cases. out : the descriptor to write to; returns the exit status"""
    with os.fdopen(0, "rb", buffering=0, closefd=False) as lines:
        while line := lines.readline():
            if line == b"fresh\n":
                return _FRESH
            _write(out, answer(mx, json.loads(line)))
    return _END


def _write(out: int, found: Answer) -> None:
    values = {name: np.asarray(value, order="C") for name, value in found.values.items()}
    kinds = {name: [value.dtype.str, value.shape] for name, value in values.items()}
    head = {"values": kinds, "error": found.error, "text": found.text, "at": found.at}
    data = memoryview(json.dumps(head).encode() + b"\n" + b"".join(value.tobytes() for value in values.values()))
    while data:
        data = data[os.write(out, data) :]


if __name__ == "__main__":
    main()
