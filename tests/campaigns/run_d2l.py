"""Run the MXNet cells of the book "Dive into Deep Learning" and print how many run.

    python tests/campaigns/run_d2l.py FOLDER [--data DATA] [--files PART ...] [--mxnet] [--epochs 1] [--batch 16]
        [--seconds 120] [--errors]

FOLDER : a clone of the book, with its chapters and its package d2l/. Nothing is downloaded: a file that a cell asks
for is taken from DATA by its name, data sets of gluon from DATA/mxnet/datasets, and a cell that asks for another file
counts as "data". Networks that the book downloads get random weights.
--mxnet : run the cells with the installed mxnet instead of this package
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import re
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```\{\.python[^}]*\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
TAB = re.compile(r"^\s*(?:%%tab|#@tab)\s+(.+)$")


def cells_of(text: str) -> list[str]:
    """The code of the MXNet cells of a page: those of its tab, of all tabs, and those without one."""
    found = []
    for match in BLOCK.finditer(text):
        lines = match.group(1).splitlines()
        tabs = [TAB.match(line) for line in lines]
        names = [name.strip() for tab in tabs if tab for name in tab.group(1).split(",")]
        if names and not {"mxnet", "all"} & set(names):
            continue
        kept = [line for line, tab in zip(lines, tabs, strict=True) if not tab]
        code = "\n".join(line for line in kept if not line.lstrip().startswith(("%", "!", "tab.interact")))
        if code.strip():
            found.append(code)
    return found


def prepare(options: argparse.Namespace) -> None:
    """Import what all pages need, once: each page then runs in a fork of this process."""
    if not options.mxnet:
        import hybrid_lab.compat  # noqa: F401
    sys.path.insert(0, str(options.folder.resolve()))
    if options.data is not None:
        os.environ.setdefault("MXNET_HOME", str(options.data.resolve() / "mxnet"))
        if options.mxnet:
            _accept_any_data()
    import d2l.mxnet  # noqa: F401


def run_page(page: Path, results: Path, options: argparse.Namespace) -> None:
    """Run the cells of one page in this process; one line of JSON for each in the file `results`."""
    resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds + 5))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    folder, page = options.folder.resolve(), page.resolve()
    data = None if options.data is None else options.data.resolve()
    with tempfile.TemporaryDirectory() as place, open(results, "w", encoding="utf-8") as report:
        # Pages name files as ../img/cat.jpg and ../data/file.
        os.mkdir(os.path.join(place, "page"))
        os.symlink(folder / "img", os.path.join(place, "img"))
        os.chdir(os.path.join(place, "page"))
        space = _page_names(data, options.epochs)
        limits = {"num_epochs": options.epochs, "max_epochs": options.epochs, "batch_size": options.batch}
        lower = _Lower({name: limit for name, limit in limits.items() if limit is not None})
        for code in cells_of(page.read_text(encoding="utf-8")):
            kind, message = "ok", ""
            try:
                tree = ast.fix_missing_locations(lower.visit(ast.parse(code)))
                exec(compile(tree, f"<cell of {page.name}>", "exec"), space)
            except BaseException as error:
                kind = "data" if _asks_for_data(error) else "error"
                message = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            report.write(json.dumps({"kind": kind, "message": message, "code": code[:200]}) + "\n")
            report.flush()
        os.chdir("/")


def _accept_any_data() -> None:
    """Let MXNet read data sets that are not the published ones, whose digests it knows."""
    from mxnet.gluon import utils
    from mxnet.gluon.data.vision import datasets

    datasets.check_sha1 = utils.check_sha1 = lambda *args: True


class _Lower(ast.NodeTransformer):
    """Lowers numbers in a cell that are above a limit for their name: `num_epochs = 30`, `lr, num_epochs = 0.1, 30`,
    `f(max_epochs=30)` and `def f(num_epochs=30)`.
    """

    def __init__(self, limits: dict[str, int]) -> None:
        self._limits = limits

    def _lowered(self, name: str | None, value: ast.expr | None) -> Any:
        limit = self._limits.get(name or "")
        if limit is None or not isinstance(value, ast.Constant) or type(value.value) is not int or value.value <= limit:
            return value
        return ast.copy_location(ast.Constant(limit), value)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts)  # a star may stand for several values
            value.elts[: len(target.elts)] = [self._lowered(getattr(name, "id", None), each) for name, each in pairs]
        else:
            node.value = self._lowered(getattr(target, "id", None), value)
        self.generic_visit(node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        node.value = self._lowered(node.arg, node.value)
        self.generic_visit(node)
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        names = node.args[len(node.args) - len(node.defaults) :]
        node.defaults = [self._lowered(each.arg, value) for each, value in zip(names, node.defaults, strict=True)]
        self.generic_visit(node)
        return node


class _Tab:
    """The book's object that says which framework a cell is run for."""

    def selected(self, *names: str) -> bool:
        return "mxnet" in names

    def interact_select(self, *names: object) -> None:
        pass


class _Anything:
    """An object whose methods do nothing: IPython outside of a notebook."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **keywords: None


class _Response:
    """What `requests.get` gives: the bytes of a local file."""

    def __init__(self, content: bytes) -> None:
        self.content = content


def _page_names(data: Path | None, epochs: int | None) -> dict[str, Any]:
    """What the cells of a page find defined, with downloads replaced by files of `data`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib_inline.backend_inline as inline
    import requests

    def local(url: str, *args: object, **keywords: object) -> _Response:
        name = url.rsplit("/", 1)[-1]
        if data is None or not (data / name).exists():
            raise FileNotFoundError(f"no local file for {name}")
        return _Response((data / name).read_bytes())

    requests.get = local
    inline.set_matplotlib_formats = lambda *args, **keywords: None
    import d2l.mxnet as d2l
    from mxnet import init
    from mxnet.gluon.model_zoo import vision

    def untrained(name: str) -> Any:
        make = getattr(vision, name)

        def model(*args: object, pretrained: bool = False, ctx: Any = None, **keywords: object) -> Any:
            net = make(*args, **keywords)
            if pretrained:
                net.initialize(init.Xavier(), ctx=ctx)
            return net

        return model

    for name in ("resnet18_v2", "resnet34_v2", "vgg19"):
        setattr(vision, name, untrained(name))
    gpus = d2l.try_all_gpus
    d2l.try_all_gpus = lambda: gpus() or [d2l.try_gpu()]  # as its docstring says
    stem = d2l.plt.stem
    d2l.plt.stem = lambda *args, use_line_collection=True, **keywords: stem(*args, **keywords)  # as of Matplotlib 3.8
    if epochs is not None:
        initialize = d2l.Trainer.__init__

        def shorter(self: Any, max_epochs: int, *args: object, **keywords: object) -> None:
            initialize(self, min(max_epochs, epochs), *args, **keywords)

        d2l.Trainer.__init__ = shorter
    return {"__name__": "__main__", "tab": _Tab(), "get_ipython": _Anything, "display": lambda *items: None}


def _asks_for_data(error: BaseException) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"FileNotFoundError", "DatasetFileError", "ConnectionError", "URLError"})


def main() -> None:
    """Run the pages, each in a fork of this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--mxnet", action="store_true")
    parser.add_argument("--epochs", type=int, help="train for at most so many epochs")
    parser.add_argument("--batch", type=int, help="use batches of at most so many examples")
    parser.add_argument("--errors", action="store_true", help="print the errors of each page")
    parser.add_argument("--seconds", type=int, default=120, help="of processor time for one page")
    options = parser.parse_args()
    prepare(options)
    totals: dict[str, int] = {}
    pages = [page for page in sorted(options.folder.glob("chapter_*/*.md")) if _is_page(page, options.files)]
    print(f"{'page':60} {'cells':>6} {'ok':>4} {'data':>5} {'error':>6} {'time':>5}")
    for page in pages:
        counts, errors = count_page(page, options)
        for kind, number in counts.items():
            totals[kind] = totals.get(kind, 0) + number
        print(_row(str(page.relative_to(options.folder)), counts), flush=True)
        if options.errors:
            print("".join(f"    {error}\n" for error in errors), end="", flush=True)
    print(_row(f"{len(pages)} pages", totals))


def _is_page(page: Path, parts: list[str]) -> bool:
    text = page.read_text(encoding="utf-8")
    return bool(re.search(r"(%%tab|#@tab).*mxnet", text)) and (not parts or any(part in str(page) for part in parts))


def count_page(page: Path, options: argparse.Namespace) -> tuple[dict[str, int], list[str]]:
    """How many cells of a page gave which result, and the errors."""
    expected = len(cells_of(page.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results")
        file.touch()
        process = multiprocessing.get_context("fork").Process(target=run_page, args=(page, file, options))
        process.start()
        process.join(options.seconds * 10)  # waiting takes no processor time
        ended = "" if process.exitcode == 0 else f"stopped, exit code {process.exitcode}"
        process.kill()
        process.join()
        results = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    counts = {kind: sum(each["kind"] == kind for each in results) for kind in ("ok", "data", "error")}
    counts["time"] = expected - len(results)
    errors = [f"cell {number}: {each['message']}" for number, each in enumerate(results) if each["kind"] != "ok"]
    return counts, [*errors, *([ended] if ended else [])]


def _row(title: str, counts: dict[str, int]) -> str:
    numbers = [sum(counts.values()), *(counts.get(kind, 0) for kind in ("ok", "data", "error", "time"))]
    return f"{title:60} {numbers[0]:6} {numbers[1]:4} {numbers[2]:5} {numbers[3]:6} {numbers[4]:5}"


if __name__ == "__main__":
    main()
