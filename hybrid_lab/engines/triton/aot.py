"""Compile kernels ahead of time for a GPU that need not be in the machine, in a process without Triton's interpreter.

`python -m hybrid_lab.engines.triton.aot` reads requests as JSON from standard input and writes one result per request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.triton.source import KernelSource

#: target -> Triton's (backend, architecture, threads per warp)
TARGETS: dict[str, tuple[str, Any, int]] = {
    "gfx90a": ("hip", "gfx90a", 64),
    "gfx942": ("hip", "gfx942", 64),
    "gfx1100": ("hip", "gfx1100", 32),
    "sm80": ("cuda", 80, 32),
    "sm90": ("cuda", 90, 32),
}


@dataclass(frozen=True)
class Binary:
    """A kernel compiled for one target: its assembly text, the size of the binary, shared memory and warps."""

    kernel: str
    target: str
    assembly: str
    binary_bytes: int
    shared: int
    num_warps: int


def compile_for(sources: Sequence[KernelSource], target: str) -> list[Binary]:
    """Compile each kernel for `target`. Raises EngineError for an unknown target or a kernel that does not compile."""
    if target not in TARGETS:
        raise EngineError(f"there is no target {target!r}; the targets are {', '.join(TARGETS)}")
    requests = [
        {
            "name": source.name,
            "text": source.code,
            "signature": source.signature,
            "blocks": dict(source.blocks),
            "target": target,
        }
        for source in sources
    ]
    environment = {
        key: value for key, value in os.environ.items() if key not in ("TRITON_INTERPRET", "HYBRID_LAB_TRITON")
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        item for item in (_package_parent(), environment.get("PYTHONPATH", "")) if item
    )
    done = subprocess.run(
        [sys.executable, "-m", "hybrid_lab.engines.triton.aot"],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise EngineError(f"compiling for {target} failed:\n{done.stderr.strip()[-2000:]}")
    return [Binary(**item) for item in json.loads(done.stdout.splitlines()[-1])]


def _package_parent() -> str:
    import hybrid_lab

    return os.path.dirname(os.path.dirname(os.path.abspath(hybrid_lab.__file__)))


def _compile_all(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Many kernels are compiled by as many processes as there are processors."""
    workers = min(os.cpu_count() or 1, len(requests) // 4)
    if workers < 2:
        return [_compile(request) for request in requests]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_compile, requests, chunksize=2))


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    import linecache
    import tempfile

    from hybrid_lab.engines.triton.internals import compile_source

    name, text = request["name"], request["text"]
    file = os.path.join(tempfile.gettempdir(), f"hybrid_lab_aot_{os.getpid()}_{name}.py")
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"__name__": "hybrid_lab_aot", "__file__": file}
    exec(compile(text, file, "exec"), scope)
    signature = request["signature"]
    pointers = [index for index, kind in enumerate(signature.values()) if kind.startswith("*")]
    target = TARGETS[request["target"]]
    compiled = compile_source(scope[name], signature, request["blocks"], pointers, target)
    text_kind, binary_kind = ("amdgcn", "hsaco") if target[0] == "hip" else ("ptx", "cubin")
    return {
        "kernel": name,
        "target": request["target"],
        "assembly": compiled.asm[text_kind],
        "binary_bytes": len(compiled.asm[binary_kind]),
        "shared": compiled.metadata.shared,
        "num_warps": compiled.metadata.num_warps,
    }


if __name__ == "__main__":
    print(json.dumps(_compile_all(json.load(sys.stdin))))
