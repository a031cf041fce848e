"""What runs in the calls of the network in README.md: functions, files, classes, and modules that are loaded.

    python scripts/measure_calls.py            the table, as Markdown
    python scripts/measure_calls.py --list     the functions of each call, file by file
    python scripts/measure_calls.py --json     the numbers of this process, as JSON, with the functions

A function counts if it belongs to the package and runs in the call; what an import runs counts as a module that is
loaded. Bodies of comprehensions belong to their function. A method that `dataclass` or `NamedTuple` has written, such
as `__init__`, counts as a method in the file of its class. A file switch is a call from one file of the package to
another one. The calls run in a new process, on the NumPy engine, without files of an earlier process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "hybrid_lab") + os.sep
CALLS = ("first call", "second call", "new batch size")


class Watch:
    """The functions of the package that run in a with-block, in every thread."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str, int]] = set()
        self.classes: set[str] = set()
        self.modules: set[str] = set()
        self.switches = 0

    def __enter__(self) -> Watch:
        self._loaded = set(sys.modules)
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self.modules = {name for name in set(sys.modules) - self._loaded if name.startswith("hybrid_lab")}

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        function = _function(frame)
        if function is None or _is_part(frame.f_code) or _in_import(frame):
            return
        self.functions.add(function)
        caller = _caller(frame)
        if caller is not None and caller != function[0]:
            self.switches += 1
        kind = _class(frame)
        if kind is not None and _is_ours(kind):
            self.classes.add(f"{kind.__module__.removeprefix('hybrid_lab.')}.{kind.__qualname__}")

    def numbers(self) -> dict[str, int]:
        return {
            "functions": len(self.functions),
            "files": len({file for file, _, _ in self.functions}),
            "classes": len(self.classes),
            "file switches": self.switches,
            "modules loaded": len(self.modules),
        }


def _function(frame: FrameType) -> tuple[str, str, int] | None:
    """File in the package, name and line of the function that runs; None if it is not the package's."""
    code = frame.f_code
    if code.co_filename.startswith(PACKAGE):
        return code.co_filename.removeprefix(PACKAGE), code.co_qualname, code.co_firstlineno
    kind = _class(frame) if code.co_filename == "<string>" else None
    for base in () if kind is None else kind.__mro__:
        for name, member in vars(base).items():
            if getattr(getattr(member, "__func__", member), "__code__", None) is code and _is_ours(base):
                file = str(sys.modules[base.__module__].__file__)
                return file.removeprefix(PACKAGE), f"{base.__qualname__}.{name}", code.co_firstlineno
    return None


def _class(frame: FrameType) -> type | None:
    """The class whose method runs, if one does."""
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] not in ("self", "cls", "_cls"):
        return None
    owner = frame.f_locals.get(code.co_varnames[0])
    return owner if isinstance(owner, type) else type(owner)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("hybrid_lab.")


def _is_part(code: CodeType) -> bool:
    """Whether it is the body of a module, of a class or of a comprehension."""
    return not code.co_flags & inspect.CO_OPTIMIZED or code.co_name in (
        "<listcomp>",
        "<genexpr>",
        "<dictcomp>",
        "<setcomp>",
    )


def _in_import(frame: FrameType) -> bool:
    """Whether a module is being loaded around this call."""
    above: FrameType | None = frame
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(PACKAGE):
            return True
        above = above.f_back
    return False


def _caller(frame: FrameType) -> str | None:
    """The file of the package that called, past frames of other packages; None where it was the user's code."""
    above = frame.f_back
    while above is not None:
        function = _function(above)
        if function is not None:
            return function[0]
        above = above.f_back
    return None


def readme_network() -> str:
    """The code of README.md up to `net.hybridize()`: the network, and an eager call."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    code = next(block for block in blocks if "class Net(gluon.HybridBlock)" in block)
    return code[: code.index("net.hybridize()")]


def measure() -> dict[str, Any]:
    """The numbers of this process, which has not imported the package yet."""
    sys.path.insert(0, str(ROOT))
    gluon: Any = importlib.import_module("hybrid_lab.gluon")
    loaded = [name for name in sys.modules if name.split(".")[0] == "hybrid_lab"]
    result: dict[str, Any] = {"import gluon": {"modules loaded": len(loaded)}}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        (Path(folder) / "readme_network.py").write_text(readme_network(), encoding="utf-8")
        sys.path.insert(0, folder)
        network: Any = importlib.import_module("readme_network")
        net, x = network.net, network.x
        larger = network.nd.random.normal(shape=(7, 20))
        assert isinstance(net, gluon.HybridBlock)
        net.hybridize()
        for name, data in zip(CALLS, (x, x, larger), strict=True):
            with Watch() as watch:
                net(data)
            result[name] = {**watch.numbers(), "list": sorted(watch.functions), "classes listed": sorted(watch.classes)}
            result[name]["modules listed"] = sorted(watch.modules)
    result["lint modules"] = sorted(name for name in sys.modules if name.startswith("hybrid_lab.lint"))
    return result


def measured() -> dict[str, Any]:
    """The numbers of a new process."""
    environment = {**os.environ, "HYBRID_LAB_CACHE": "", "HYBRID_LAB_CPU": "numpy", "PYTHONPATH": str(ROOT)}
    environment.pop("HYBRID_LAB_TRITON", None)
    command = [sys.executable, str(Path(__file__)), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def table(result: dict[str, Any]) -> str:
    kinds = ("functions", "files", "classes", "file switches", "modules loaded")
    rows = [["call of README's network", *kinds]]
    rows += [[name, *(str(result[name][kind]) for kind in kinds)] for name in CALLS]
    rows.append(["from hybrid_lab import gluon", "", "", "", "", str(result["import gluon"]["modules loaded"])])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def listing(result: dict[str, Any]) -> str:
    """The functions of each call, file by file; the classes; the modules that are loaded."""
    lines = []
    for name in CALLS:
        lines.append(f"{name}:")
        for file, number in sorted(Counter(file for file, _, _ in result[name]["list"]).items()):
            functions = [function for other, function, _ in result[name]["list"] if other == file]
            lines.append(f"  {number:3} {file}: {', '.join(functions)}")
        lines.append(f"  classes: {', '.join(result[name]['classes listed'])}")
        lines.append(f"  modules loaded: {', '.join(result[name]['modules listed'])}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(measure()))
        return 0
    result = measured()
    print(table(result))
    if options.list:
        print(f"\n{listing(result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
