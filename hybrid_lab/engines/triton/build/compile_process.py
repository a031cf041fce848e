"""A compile process: kernels as JSON in lines on standard input, one line of answer for each.

It is run as a script with a folder for Triton's files, in an environment without Triton's interpreter, and imports
nothing of the package but two files that lie beside it: it is to start fast. It ends with its standard input.

A kernel whose values do not fit into the registers of its threads is compiled once more with twice as many threads,
which share the same tile, and so on; what spills least is kept. In products a few registers may go to memory: their
threads were chosen for speed; not so in recurrences, whose few programs leave room for more threads. Scalar registers
that are moved aside cost no memory, and more threads free none.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

#: A program has at most MOST_WARPS warps, and a kernel with products may spill at most FEW registers.
MOST_WARPS, FEW = 16, 16


def _beside(name: str) -> Any:
    """A file of this folder as a module, without the package around it."""
    spec = importlib.util.spec_from_file_location(f"hybrid_lab_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Answer until the input ends. What libraries print goes to standard error."""
    folder = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    internals, resources = _beside("internals"), _beside("resources")
    internals.use_cache_folder(folder)
    internals.forget_own_cache()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(internals, resources, json.loads(line), folder)) + "\n")
        answers.flush()


def _answer(internals: Any, resources: Any, request: dict[str, Any], folder: str) -> dict[str, Any]:
    """The paths of the stages' files, or an error."""
    started = time.perf_counter()
    tries: list[tuple[int, dict[str, str], str]] = []
    warps, text = request["options"].get("num_warps", 4), request["text"]
    allowed = FEW if "tl.dot(" in text and "tl.debug_barrier(" not in text else 0
    try:
        function = internals.function_of(request["name"], text, request["file"])
        while True:
            into = os.path.join(folder, f"{request['key']}.{warps}")
            tries.append(_compiled(internals, resources, function, request, warps, into))
            warps *= 2
            if tries[-1][0] <= allowed or warps > MOST_WARPS:
                break
    except Exception as error:  # Triton's, LLVM's and the assembler's errors have no common base
        if not tries:
            return {"key": request["key"], "error": f"{type(error).__name__}: {error}"[-4000:]}
    _, files, log = min(tries, key=lambda found: found[0])
    return {"key": request["key"], "files": files, "log": log, "seconds": time.perf_counter() - started}


def _compiled(
    internals: Any, resources: Any, function: Any, request: dict[str, Any], warps: int, into: str
) -> tuple[int, dict[str, str], str]:
    """The number of spilled registers, the files by suffix, and the assembler's output."""
    printed = io.StringIO()
    internals.use_cache_folder(into)
    with contextlib.redirect_stdout(printed):
        compiled = internals.compile_source(
            function, request["signature"], request["constants"], request["divisible"], request["far"],
            tuple(request["target"]), {**request["options"], "num_warps": warps},
        )  # fmt: skip
    files = internals.files_of(compiled, into)
    text = compiled.asm.get("amdgcn") or compiled.asm["ptx"]
    return resources.resources_of(text, printed.getvalue(), {}, 0).spills, files, printed.getvalue()


if __name__ == "__main__":
    main()
