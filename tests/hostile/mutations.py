"""Damaged ONNX and SINGA files, 100,000 of them: `make test-onnx-mutations`.

Each is read or refused by a typed error, within a second and with at most 64 MB and twice its bytes of memory; nothing
is imported or executed that the file names, and no file but those in its folder is opened. What is damaged are the
models of `tests/onnx/mutations.py`, all cases of ONNX for operators, and a file of SINGA. A damaged file that is
answered in a new way is damaged further: the fuzzer is guided by the answers.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import hybrid_lab as mx
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.singa import ATTRIBUTES, TENSORS, read_states, write_states
from tests.onnx import mutations as onnx_files

MOST_SECONDS = 1.0
MOST_BYTES = 64 << 20
"""Besides twice the file."""
LARGEST_CASE = 20_000
"""Bytes of the largest of ONNX's cases that are damaged."""
CHUNK = 5000
"""Files that one process reads: its memory is measured too."""


# -- files to damage ------------------------------------------------------------------------------------------------


def onnx_originals():
    from onnx.backend.test.loader import load_model_tests

    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        cases = load_model_tests(kind="node")
    models = [*onnx_files.models(), *(case.model for case in cases if case.model is not None)]
    found = [item.SerializeToString() for item in models]
    return [data for data in found if len(data) < LARGEST_CASE]


def onnx_mutated(data, rng):
    from google.protobuf.message import DecodeError

    try:
        return onnx_files.mutated(data, rng)
    except DecodeError:  # it was damaged before
        return onnx_files._bytes(bytearray(data), rng)


def onnx_read(path):
    mx.onnx.imports(path)
    if b"ai.onnx.preview.training" in path.read_bytes():
        mx.onnx.imports_training(path)


def singa_originals():
    states = {"a.W": np.arange(6, dtype=np.float32).reshape(2, 3), "a.b": np.ones(3, np.float16)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.zip"
        write_states(path, states, {"epoch": np.array(3), "flags": np.array([True, False])})
        return [path.read_bytes()]


def singa_mutated(data, rng):
    """The file with changed bytes; or with changed members, in zips that are sound."""
    if rng.random() < 0.25:
        return onnx_files._bytes(bytearray(data), rng)
    try:
        members = _members(data)
        if rng.random() < 0.4:
            text = json.loads(members[ATTRIBUTES])
            holder, key = rng.choice(list(_places(text)))
            holder[key] = rng.choice((0, 1, -1, 2**63, 0.5, None, "", "x", [], [2**40, 2**40], [-1], {}, True))
            members[ATTRIBUTES] = json.dumps(text).encode()
        else:
            arrays = _members(members[TENSORS])
            name = rng.choice(sorted(arrays))
            arrays[name] = onnx_files._bytes(bytearray(arrays[name]), rng)
            members[TENSORS] = _zipped(arrays, zipfile.ZIP_STORED)
    except (zipfile.BadZipFile, zlib.error, ValueError, LookupError, EOFError, RuntimeError, OSError):
        return onnx_files._bytes(bytearray(data), rng)  # it was damaged before, and is no zip with these members
    return _zipped(members, zipfile.ZIP_DEFLATED)


def _members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > 1 << 20:
            raise ValueError
        return {info.filename: archive.read(info) for info in infos}


def _zipped(members, compression):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _places(holder):
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        yield holder, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


KINDS = {
    "onnx": (onnx_originals, onnx_mutated, onnx_read),
    "singa": (singa_originals, singa_mutated, read_states),
}


# -- what a read may do -----------------------------------------------------------------------------------------------

_QUIET = re.compile(r"os\.(scandir|listdir)|sys\.|object\.|code\.|builtins\.id|gc\.|time\.|tempfile\.|marshal\.loads")
_OWN = tuple({str(Path(mx.__file__).parents[1]), sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)})
"""Where Python, this package and what it needs lie; they import parts of themselves when these are first needed."""
_deeds: list[str] | None = None
"""What a read did that it may not do, while one runs."""


def _audit(event, arguments):
    if _deeds is None or _QUIET.match(event):
        return
    if event == "open":
        path, mode, _ = arguments
        read_only = isinstance(mode, str) and not set(mode) & set("wax+") or mode is None
        if read_only and str(path).startswith((*_OWN, _folder)):
            return
    elif event == "import":
        name = arguments[0]
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names or root in sys.modules:
            return
    elif event == "exec" and getattr(arguments[0], "co_filename", "").startswith((*_OWN, "<frozen", "<string>")):
        return
    elif event == "compile" and str(arguments[1]).startswith((*_OWN, "<")):
        return
    _deeds.append(f"{event}{tuple(str(item)[:80] for item in arguments)}")


_folder = ""


def read(path, data, reader):
    """Read a damaged file. Returns (the answer in words, what is wrong with the read)."""
    global _deeds
    path.write_bytes(data)
    tracemalloc.start()
    _deeds, start = [], time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader(path)
        answer, problem = "read", ""
    except HybridLabError as error:
        answer, problem = f"{type(error).__name__}: {error}", ""
    except Exception as error:
        answer = problem = f"{type(error).__name__}: {str(error)[:200]}"
    seconds, deeds, _deeds = time.process_time() - start, _deeds, None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if seconds > 2 * MOST_SECONDS:  # tracing memory takes half of it
        problem = problem or f"{seconds:.1f} s"
    if peak > 2 * len(data) + MOST_BYTES:
        problem = problem or f"{peak:,} bytes"
    if deeds:
        problem = problem or f"it did {deeds[0]}"
    return answer, problem


def kind_of(answer):
    """The answer without numbers, names and paths."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[\d.e+-]+|/\S+", "_", answer)[:120]


def read_chunk(kind, start, count, seed, keep):
    """Read many damaged files; print every one that is answered in no defined way, and how many were refused."""
    global _folder
    sys.addaudithook(_audit)
    originals, mutated, reader = KINDS[kind]
    corpus = list(originals())
    known, refused, bad, accepted = set(), 0, 0, 0
    with TemporaryDirectory() as folder:
        _folder = folder
        path = Path(folder) / "model"
        for data in corpus[:: max(1, len(corpus) // 200)]:  # imports all that a reader needs
            read(path, data, reader)
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(start, start + count):
            rng = random.Random(seed * 1_000_003 + number)
            data = mutated(rng.choice(corpus if rng.random() < 0.5 else corpus[-40:]), rng)
            answer, problem = read(path, data, reader)
            refused += answer != "read"
            accepted += answer == "read"
            if kind_of(answer) not in known and len(data) < 4 * LARGEST_CASE:
                known.add(kind_of(answer))
                corpus.append(data)
            if sorted(os.listdir(folder)) != ["model"]:
                problem = problem or f"it left {os.listdir(folder)}"
            if problem:
                bad += 1
                print(f"{kind} {number}: {problem}", flush=True)
                if keep:
                    keep.mkdir(exist_ok=True)
                    (keep / f"{number}.{kind}").write_bytes(data)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > 2 * MOST_BYTES:
        bad += 1
        print(f"{kind} {start} to {start + count}: the process grew by {grown:,} bytes")
    print(f"{kind} {start} to {start + count}: {refused} refused, {accepted} read, {len(known)} different answers, "
          f"grew {grown >> 20} MB, {bad} in no defined way", flush=True)  # fmt: skip
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="of ONNX files, and of SINGA's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--keep", type=Path, help="folder for files that are answered in no defined way")
    parser.add_argument("--chunk", nargs=2, type=int, help="read only these, in this process: first and how many")
    options = parser.parse_args()
    if options.chunk:
        return 1 if read_chunk(options.kind[0], *options.chunk, options.seed, options.keep) else 0
    failed = 0
    for kind in options.kind or KINDS:
        for start in range(0, options.count, CHUNK):
            chunk = ["--kind", kind, "--chunk", str(start), str(min(CHUNK, options.count - start))]
            kept = ["--keep", str(options.keep)] if options.keep else []
            command = [sys.executable, "-m", "tests.hostile.mutations", "--seed", str(options.seed), *chunk, *kept]
            failed += subprocess.run(command, check=False).returncode != 0
    print(f"{failed} parts failed" if failed else "each was read, or refused by a typed error")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
