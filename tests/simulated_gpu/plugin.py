"""pytest -p tests.simulated_gpu.plugin: the tests of `make test-gpu` on a GPU that is not there.

SIMULATED_GPU : "sm90" (as it is), "gfx942" ...; SIMULATED_COMPILE=1 : binaries are compiled, which takes hours for all
tests. Without it one kernel's binary stands in for all, so that nothing is known of the shared memory that a kernel
takes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tests.simulated_gpu as simulated_gpu


@functools.cache
def stand_in() -> None:
    """Let one binary of each target, with the name and the warps of each kernel, stand in for all."""
    from hybrid_lab.engines.triton.build import compiling
    from hybrid_lab.engines.triton.build.binaries import Binary

    compiled: dict[str, dict[str, Any]] = {}
    inner, here = compiling._compiled, []
    beside: dict[str, Binary] = {}

    def for_launches(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            here.append(True)
            try:
                return function(*given)
            finally:
                here.pop()

        return run

    def stand_ins(requests: list[dict[str, Any]], target: str) -> Iterator[tuple[str, Any]]:
        if not here:
            yield from inner(requests, target)
            return
        if target not in compiled:
            text = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef one(p):\n    tl.store(p, 1.0)\n"
            plain = dict(requests[0], name="one", text=text, file="one.py", signature={"p": "*fp32"})
            plain |= {"constants": {}, "divisible": [[0, 16]], "options": {}, "key": "0" * 64}
            for _, binary in inner([plain], target):
                compiled[target] = binary.files
        for request in requests:
            metadata = json.loads(compiled[target]["json"]) | {"name": request["name"]}
            metadata["num_warps"] = request["options"].get("num_warps", 4)
            files = compiled[target] | {"json": json.dumps(metadata).encode()}
            beside[request["key"]] = Binary(request["key"], request["name"], target, files, "", 0.0)
            yield request["key"], beside[request["key"]]

    compiling._compiled = stand_ins
    find = compiling.BINARIES.find
    compiling.BINARIES.find = lambda key: beside.get(key) if here else find(key)  # type: ignore[method-assign]
    compiling.load, compiling.prepare = map(for_launches, (compiling.load, compiling.prepare))


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("HYBRID_LAB_CACHE", "")
    config.stash[_GPU] = simulated_gpu.start(os.environ.get("SIMULATED_GPU", "sm90"))
    if os.environ.get("SIMULATED_COMPILE") != "1":
        stand_in()


_GPU: pytest.StashKey[simulated_gpu.SimulatedGpu] = pytest.StashKey()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test during which a launch was refused has failed, whatever it made of it."""
    gpu = item.config.stash[_GPU]
    gpu.problems.clear()
    outcome = yield
    if gpu.problems and outcome.excinfo is None:
        outcome.force_exception(simulated_gpu.Refused("; ".join(gpu.problems)))
