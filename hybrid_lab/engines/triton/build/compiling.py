"""Compiling kernels: many at once in processes of their own, each distinct one once, kept on disk from run to run.

A compile process may crash, hang or be killed without harm to this one; it is never forked from it, does not run the
user's code, and none is left behind when a call ends, however it ends.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import IO, Any

from hybrid_lab.diagnostics.errors import EngineError, EngineUnavailable
from hybrid_lab.engines.triton.build import binaries, internals, texts
from hybrid_lab.engines.triton.build.binaries import BINARIES, KINDS, Binary, key_of
from hybrid_lab.engines.triton.build.targets import name_of, shared_limit, target_of
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.engines.triton.write.tiles import ONE_STAGE
from hybrid_lab.system.progress import Progress

#: A kernel may take this many seconds to compile.
LIMIT = 300.0
#: One process is started for EACH kernels, and at most MOST_PROCESSES: one process takes 300 MB.
EACH, MOST_PROCESSES = 3, 16
_SCRIPT = Path(__file__).with_name("compile_process.py")
#: A pointwise kernel of fewer elements takes as long for one as for four of them at once.
SMALL = 1 << 16


def divisible(source: KernelSource) -> tuple[tuple[int, int], ...]:
    """Arguments that are multiples of a number: (which one, of what). Addresses are of 16, sizes of as many elements as
    one instruction then loads.

    That is all that a binary knows of a size: another batch runs the same one, but a binary for multiples must not run
    with other sizes. So nothing is promised for sizes without effect on loads (`KernelSource.together` knows the sizes
    with effect; a number of parts says nothing about positions), and nothing for the number of elements of a small
    pointwise kernel, unless each row's size is a multiple, too.
    """
    sizes, multiples = source.sizes, []
    small = source.kind == "pointwise" and source.together is not None
    for index, name, many in source.multiples:
        if name and (sizes[name] % many or (small and sizes[name] < SMALL and _per_row(source) % many)):
            continue
        multiples.append((index, many))
    return tuple(multiples)


def _per_row(source: KernelSource) -> int:
    """The number of elements of an output without its first axis, which most often is the changing axis."""
    return prod(source.outputs[0].shape[1:])


def options_of(source: KernelSource, target: tuple[str, object, int]) -> dict[str, Any]:
    """Triton's options: warps and stages if the source gives them. Products and sums are joined (fma)."""
    options = {"num_warps": source.warps, "num_stages": source.stages}
    if target[1] in ONE_STAGE:
        options["num_stages"] = 1
    return {"enable_fp_fusion": True, **{name: value for name, value in options.items() if value is not None}}


def request_of(source: KernelSource, target: tuple[str, object, int]) -> dict[str, Any]:
    """Everything that a compile process needs; "key" tells it from all other binaries."""
    request = {
        "name": source.name,
        "text": source.code,
        "file": texts.path_of(source.name, source.code),
        "signature": source.signature,
        "constants": dict(source.blocks),
        "divisible": [list(item) for item in divisible(source)],
        "far": list(source.far),
        "target": list(target),
        "options": options_of(source, target),
    }
    request["key"] = key_of(request, _version())
    return request


@functools.cache
def _version() -> str:
    return internals.version()


def check_triton() -> None:
    """Raise EngineUnavailable if kernels cannot be compiled here. Neither a GPU nor torch is needed for it."""
    if importlib.util.find_spec("triton") is None:
        hint = "Triton runs on Linux" if sys.platform != "linux" else "pip install triton (no GPU is needed)"
        raise EngineUnavailable(f"compiling kernels needs Triton, which is not installed: {hint}")


def compile_all(
    sources: Sequence[KernelSource], target: str | tuple[str, object, int], failed: dict[int, str] | None = None
) -> list[Binary | None]:
    """Compile kernels for a target that need not be in the machine; equal kernels once, and kernels known from disk not
    at all.

    target : "gfx942", "sm90" ...
    failed : takes, by position, why a kernel did not compile; its place in the result is then None
    Raises EngineError for an unknown target and, unless `failed` is given, for a kernel that does not compile, named.
    """
    where = target_of(target) if isinstance(target, str) else target
    if not sources:
        return []
    check_triton()
    requests = [request_of(source, where) for source in sources]
    by_key = {request["key"]: BINARIES.find(request["key"]) for request in requests}
    waiting = {request["key"]: request for request in requests if by_key[request["key"]] is None}
    errors: dict[str, str] = {}
    if waiting:
        with contextlib.closing(_compiled(list(waiting.values()), name_of(where))) as results:
            for key, result in results:
                if isinstance(result, Binary):
                    by_key[key] = result
                elif failed is None:
                    raise EngineError(result)
                else:
                    errors[key] = result
    if failed is not None:
        failed.update(
            {index: errors[request["key"]] for index, request in enumerate(requests) if request["key"] in errors}
        )
    return [by_key[request["key"]] for request in requests]


def prepare(sources: Sequence[KernelSource]) -> None:
    """Make binaries for this machine's GPU, and what launches them: `load` of these sources then compiles nothing.

    Raises EngineError.
    """
    target = internals.target_here()
    new = [source for source in sources if _alike(source, target) not in _handles]
    compile_all(new, target)
    _build_launchers(new, target)


def _build_launchers(sources: Sequence[KernelSource], target: tuple[str, object, int]) -> None:
    """Build the launchers of all signatures that are new, at the same time; newer Tritons build none.

    What fails here fails again, with its message, if the launcher is used.
    """
    new: dict[tuple[str, ...], KernelSource] = {}
    for source in sources:
        signature = tuple(source.signature.values())
        if signature not in _launchers:
            new.setdefault(signature, source)
    if len(new) < 2 or not internals.builds_launchers():
        return
    compiled = list(map(load, new.values()))
    with ThreadPoolExecutor(min(_processors(), MOST_PROCESSES, len(new))) as pool:
        done = [pool.submit(internals.build_launcher, each) for each in compiled]
    _launchers.update(signature for signature, future in zip(new, done, strict=True) if future.exception() is None)


#: The signatures whose launchers were built beforehand.
_launchers: set[tuple[str, ...]] = set()


def load(source: KernelSource, target: tuple[str, object, int] | None = None) -> Any:
    """Triton's CompiledKernel of a source on this machine's GPU, from memory or disk, compiled if there is none.

    target : of this machine's GPU, which is asked for by default. Raises EngineError.
    """
    target = internals.target_here() if target is None else target
    alike = _alike(source, target)
    known = _handles.get(alike)
    if known is None:
        request = request_of(source, target)
        (binary,) = compile_all([source], target)
        assert binary is not None
        known = internals.load_binary(
            source.name, request["signature"], request["constants"], request["divisible"], request["far"], target,
            binary.files, binary.key,
        )  # fmt: skip
        _handles[alike] = known
    return known


def _alike(source: KernelSource, target: tuple[str, object, int]) -> tuple[Any, ...]:
    """Equal for sources of one binary; what `request_of` has, without a digest of it."""
    return source.fixed, divisible(source), target


#: What `load` has given, by `_alike`.
_handles: dict[tuple[Any, ...], Any] = {}


# -- compile processes -------------------------------------------------------------------------------------------------


class _Process:
    """One compile process and its current request."""

    def __init__(self, folder: str):
        self.request: dict[str, Any] | None = None
        self.since, self._heard = 0.0, 0
        self.errors: IO[bytes] = tempfile.TemporaryFile()
        self.pipe = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(),
            start_new_session=True,  # an interrupt is for this process, which then ends that one
        )

    def give(self, request: dict[str, object]) -> None:
        self.request, self.since = request, time.perf_counter()
        assert self.pipe.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end shows at the output pipe
            self.pipe.stdin.write(json.dumps(request).encode() + b"\n")
            self.pipe.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """The answer that has come; None if the process has ended instead."""
        assert self.pipe.stdout is not None
        try:
            return json.loads(self.pipe.stdout.readline())
        except ValueError:
            return None

    def said(self) -> str:
        """Its output since the last call."""
        self.errors.seek(self._heard)
        text = self.errors.read()
        self._heard += len(text)
        return text.decode(errors="replace")

    def epitaph(self) -> str:
        """How it ended, and the last that it said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.pipe.wait(0.5)  # it may still be at it
        self.end()
        code = self.pipe.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        if code == -signal.SIGKILL:
            how += ", as systems do where memory runs out: close other programs, then call again"
        said = self.said().strip()[-1500:]
        return f"{how}" + (f":\n{said}" if said else "")

    def end(self) -> None:
        """End it and its child processes, now."""
        if self.pipe.poll() is None and self.request is None:
            with contextlib.suppress(OSError):
                self.pipe.stdin.close()  # type: ignore[union-attr]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.pipe.wait(0.05)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pipe.pid, signal.SIGKILL)
        self.pipe.wait()
        for stream in (self.pipe.stdin, self.pipe.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]


def _environment() -> dict[str, str]:
    """This process's, without variables that would keep Triton from compiling, or make it compile something else."""
    unwanted = ("TRITON_INTERPRET", "TRITON_CACHE_DIR", "TRITON_KERNEL_OVERRIDE", "TRITON_STORE_BINARY_ONLY")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**environment, "TRITON_DUMP_PTXAS_LOG": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compiled(requests: list[dict[str, object]], target: str) -> Generator[tuple[str, Binary | str]]:
    """(key, binary or error), each when it is done. All processes end with the iterator, however it ends."""
    waiting = sorted(requests, key=_effort)
    progress = Progress(f"compiling for {target}", len(requests))
    count = min(_processors(), MOST_PROCESSES, -(-len(requests) // EACH))
    processes: list[_Process] = []
    with tempfile.TemporaryDirectory(prefix="hybrid_lab_compile_", ignore_cleanup_errors=True) as folder:
        selector = selectors.DefaultSelector()

        def start() -> None:
            process = _Process(folder)
            processes.append(process)
            assert process.pipe.stdout is not None
            selector.register(process.pipe.stdout, selectors.EVENT_READ, process)
            process.give(waiting.pop())

        try:
            while len(processes) < count:
                start()
            done = 0
            while any(process.request is not None for process in processes):
                ready = [key.data for key, _ in selector.select(0.2)]
                now = time.perf_counter()
                ready += [each for each in processes if each.request is not None and now - each.since > LIMIT]
                for process in dict.fromkeys(ready):
                    request = process.request
                    if request is None:
                        continue
                    answer = None if now - process.since > LIMIT else process.answer()
                    done += 1
                    if answer is None:
                        late = f"took more than {LIMIT:.0f} seconds" if now - process.since > LIMIT else ""
                        selector.unregister(process.pipe.stdout)
                        how = process.epitaph()
                        process.request = None
                        yield request["key"], _failure(request, target, f"the compile process {late or how}")
                        if waiting:
                            start()
                        continue
                    process.request = None
                    errors = [line for line in process.said().splitlines() if "error:" in line]
                    if waiting:
                        process.give(waiting.pop())
                    yield request["key"], _kept(request, answer, target, errors[-3:])
                busy = [each.request["name"] for each in processes if each.request is not None]
                progress.step(done, ", ".join(busy))
        finally:
            progress.close()
            selector.close()
            for process in processes:
                process.end()
                process.errors.close()


def _effort(request: dict[str, Any]) -> tuple[bool, int]:
    """What takes longest comes first, so that no process is left with it in the end."""
    return "tl.dot(" in request["text"], len(request["text"])


def _failure(request: dict[str, Any], target: str, what: str) -> str:
    return f"the kernel {request['name']} could not be compiled for {target}: {what}"


def _kept(request: dict[str, Any], answer: dict[str, Any], target: str, printed: Sequence[str]) -> Binary | str:
    """The binary, now in the store; or what went wrong, in words. printed : lines about errors"""
    if "error" in answer:
        answer["error"] = "\n".join([answer["error"], *printed])
        if "No space left" in answer["error"]:
            answer["error"] += "\nmake room in the folder for temporary files, or set TMPDIR to another one"
        if "TRITON_HIP_LLD_PATH" in answer["error"]:
            answer["error"] += "\nor install Triton 3.5 or newer, which brings what AMD's binaries need"
        return _failure(request, target, answer["error"])
    files = {kind: Path(answer["files"][kind]).read_bytes() for kind in KINDS if kind in answer["files"]}
    binary = Binary(request["key"], request["name"], target, files, answer["log"], answer["seconds"])
    shared, limit = binary.resources.shared, shared_limit(tuple(request["target"]))
    if shared > limit and request["target"][0] == "cuda":
        return _failure(request, target, f"it needs {shared} bytes of shared memory, a program there has {limit}")
    texts.keep(request["name"], request["text"])  # the path in the binary's line numbers
    BINARIES.add(binary)
    return binary


__all__ = [
    "binaries", "check_triton", "compile_all", "divisible", "load", "options_of", "prepare", "request_of",
]  # fmt: skip
