"""A compile process: kernels as JSON in lines on standard input, one line of answer for each.

It is run as a script with a folder for Triton's files, in an environment without Triton's interpreter, and imports
nothing of the package but one file that lies beside it: it is to start fast. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import linecache
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any


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
    internals = _beside("internals")
    internals.use_cache_folder(folder)
    internals.forget_own_cache()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(internals, json.loads(line), folder)) + "\n")
        answers.flush()


def _answer(internals: Any, request: dict[str, Any], folder: str) -> dict[str, Any]:
    """Where the files of the stages lie; or an error."""
    started = time.perf_counter()
    printed = io.StringIO()
    into = os.path.join(folder, request["key"])
    internals.use_cache_folder(into)
    try:
        function = _function(request["name"], request["text"], request["file"])
        with contextlib.redirect_stdout(printed):
            made = internals.compile_source(
                function, request["signature"], request["constants"], request["divisible"],
                tuple(request["target"]), request["options"],
            )  # fmt: skip
    except Exception as error:
        shutil.rmtree(into, ignore_errors=True)
        return {"key": request["key"], "error": f"{type(error).__name__}: {error}"[-4000:]}
    files = {Path(path).suffix[1:]: str(path) for path in made.metadata_group.values()}
    return {
        "key": request["key"],
        "folder": into,
        "files": files,
        "log": printed.getvalue(),
        "seconds": time.perf_counter() - started,
    }


def _function(name: str, text: str, file: str) -> Any:
    """The jit function in generated source."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"__name__": "hybrid_lab_kernel", "__file__": file}
    exec(compile(text, file, "exec"), scope)
    return scope[name]


if __name__ == "__main__":
    main()
