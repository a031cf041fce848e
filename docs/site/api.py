"""The pages of the Python interface: every public name with its signature, docstring and an example."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hybrid_lab as mx

from . import docstrings, executed, operators, trials

#: Pages in their order: heading -> (page, namespaces as users write them).
PAGES = {
    "The top level": ("mx", ("mx",)),
    "Arrays": ("nd", ("nd", "nd.random", "nd.linalg", "nd.image", "nd.contrib", "nd.sparse")),
    "Gradients": ("autograd", ("autograd",)),
    "Blocks, parameters, training": ("gluon", ("gluon", "gluon.utils")),
    "Layers": ("gluon-nn", ("gluon.nn", "gluon.contrib.nn")),
    "Recurrent layers": ("gluon-rnn", ("gluon.rnn", "gluon.contrib.rnn")),
    "Losses": ("gluon-loss", ("gluon.loss",)),
    "Data": ("gluon-data", ("gluon.data", "gluon.data.vision", "gluon.data.vision.transforms")),
    "Models": ("gluon-model-zoo", ("gluon.model_zoo.vision",)),
    "Optimizers": ("optimizer", ("mx.optimizer",)),
    "Learning rates": ("lr-scheduler", ("mx.lr_scheduler",)),
    "Initializers": ("initializer", ("mx.init",)),
    "Metrics": ("metric", ("mx.metric",)),
    "NumPy semantics": ("np", ("np",)),
    "NumPy semantics: random numbers and linear algebra": ("np-random-linalg", ("np.random", "np.linalg")),
    "NumPy semantics: neural networks": ("npx", ("npx",)),
    "Symbols": ("sym", ("sym",)),
    "Checkpoints": ("checkpoint", ("mx.checkpoint",)),
    "Several workers": ("distributed", ("mx.distributed", "mx.kv")),
    "ONNX and PyTorch": ("onnx-torch", ("mx.onnx", "mx.torch")),
    "The lab": ("lab", ("mx.lab",)),
    "Insight": ("insight", ("mx.insight", "mx.profiler", "mx.monitor", "mx.viz")),
    "The linter": ("lint", ("mx.lint",)),
    "Mixed precision": ("amp", ("mx.contrib.amp",)),
    "Iterators and records": ("io", ("mx.io", "mx.recordio")),
    "Images": ("image", ("mx.image",)),
    "Modules and checkpoints of Symbols": ("module", ("mx.mod", "mx.model", "mx.callback")),
    "Recurrent cells on Symbols": ("rnn", ("mx.rnn",)),
    "Operators in Python": ("operator", ("mx.operator",)),
    "Random state, contexts, settings": ("context", ("mx.random", "mx.context", "mx.engine", "mx.runtime", "mx.util")),
}

#: Classes with hundreds of methods, one for each operator, of which only a few are shown.
_FEW = ("NDArray", "Symbol", "ndarray")


@cache
def by_hand() -> dict[str, str]:
    """Name -> code of its example, from the Markdown-like file examples.txt."""
    text = (Path(__file__).parent / "examples.txt").read_text(encoding="utf-8")
    found = {}
    for match in re.finditer(r"^== (.+)\n((?:(?!== ).*\n)*)", text, re.MULTILINE):
        for name in match[1].split():
            found[name] = match[2].strip().replace("NAME", name.rpartition(".")[2]).replace("CALL", name)
    return found


def namespace(path: str) -> Any:
    """The module of `gluon.nn` or `mx.metric`."""
    found: Any = mx
    for part in path.removeprefix("mx").strip(".").split("."):
        found = getattr(found, part) if part else found
    return found


@cache
def entries() -> dict[str, list[tuple[str, Any]]]:
    """Namespace -> its public callables that are documented there: each object once, operators on their own pages."""
    seen: set[int] = set()
    listed: dict[str, list[tuple[str, Any]]] = {}
    taken = {name for names in operators.public().values() for name in names}
    for path in sorted((path for _, paths in PAGES.values() for path in paths), key=lambda path: path == "mx"):
        module = namespace(path)
        listed[path] = []
        named = {
            name: getattr(module, name, None)
            for name in getattr(module, "__all__", None) or dir(module)
            if not name.startswith("_")
        }
        # If an object has two names, the name of its definition comes first.
        for name, value in sorted(named.items(), key=lambda each: getattr(each[1], "__name__", "") != each[0]):
            if not callable(value) or isinstance(value, types.ModuleType) or f"{path}.{name}" in taken:
                continue
            if not _is_ours(value) or id(value) in seen:
                continue
            seen.add(id(value))
            listed[path].append((name, value))
        listed[path].sort(key=lambda each: each[0].lower())
    return listed


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "") or "").startswith("hybrid_lab")


def is_error(value: Any) -> bool:
    """Whether it is a class of exceptions."""
    return inspect.isclass(value) and issubclass(value, BaseException)


def example(name: str, value: Any) -> str | None:
    """The executed example of a callable as a session, or None where its docstring has one or none is known."""
    code = by_hand().get(name)
    if code is not None:
        return executed.session(code)
    if docstrings.examples(inspect.getdoc(value) or ""):
        return None
    return trials.session(name, value)


def without_example() -> Iterator[str]:
    """Run the examples of all callables except operators; returns the names of the callables without an example."""
    for space, named in entries().items():
        for name, value in named:
            if is_error(value) or example(f"{space}.{name}", value) is not None:
                continue
            if not docstrings.examples(inspect.getdoc(value) or ""):
                yield f"{space}.{name}"


def unexecuted() -> Iterator[str]:
    """Run the code in the docstrings of all callables; gives the names of those whose code does not run by itself."""
    for space, named in entries().items():
        for name, value in named:
            codes = docstrings.examples(inspect.getdoc(value) or "")
            if any(executed.attempt(code) is None for code in codes):
                yield f"{space}.{name}"


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of every page of the reference."""
    rows = []
    for heading, (page, paths) in PAGES.items():
        parts = [f"# {heading}", ""]
        for path in paths:
            module = namespace(path)
            parts += [f"## `{path}`", ""]
            text = (getattr(module, "__doc__", None) or "").strip()
            if text and isinstance(module, types.ModuleType):
                parts += [docstrings.markdown(inspect.cleandoc(text)), ""]
            if path == "nd" or path.startswith("nd."):
                parts += ["[Operators](../operators/index.md) lists the functions that are operators.", ""]
            usual = [each for each in entries()[path] if not is_error(each[1])]
            parts += [entry(f"{path}.{name}", value) for name, value in usual]
            errors = [each for each in entries()[path] if is_error(each[1])]
            if errors:
                parts += [f"**Errors of `{path}`**", ""]
                parts += [entry(f"{path}.{name}", value) for name, value in errors]
        yield f"api/{page}", "\n".join(parts)
        rows.append((page, heading, paths))
    yield "api/index", _index(rows)


def _index(rows: list[tuple[str, str, tuple[str, ...]]]) -> str:
    lines = [
        "# Python interface\n",
        "Every public name, with an example. The examples have these imports in common:\n",
        "```python\nimport hybrid_lab as mx",
        "from hybrid_lab import autograd, gluon, nd, np, npx, sym\nfrom hybrid_lab.gluon import nn\n```\n",
        "| | |",
        "|---|---|",
    ]
    for page, heading, paths in rows:
        lines.append(f"| [{heading}]({page}.md) | {', '.join(f'`{path}`' for path in paths)} |")
    tree = "\n".join(page for page, _, _ in rows)
    return "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def entry(name: str, value: Any) -> str:
    """One callable: signature, docstring, example, and of a class its methods and properties."""
    kind = "exception" if is_error(value) else "class" if inspect.isclass(value) else "function"
    lines = [
        f"``````{{py:{kind}}} {name}{_signature(value)}",
        "",
        docstrings.markdown(inspect.getdoc(value) or "", executed.attempt),
        "",
    ]
    shown = example(name, value)
    if shown is not None:
        lines += ["```pycon", shown, "```", ""]
    if inspect.isclass(value) and not is_error(value):
        lines += _members(value)
    return "\n".join([*lines, "``````", ""])


def _members(value: type) -> list[str]:
    lines: list[str] = []
    every = operators.public() if value.__name__ in _FEW else {}
    names_of_operators = {name.rpartition(".")[2] for names in every.values() for name in names}
    for name, member in sorted(vars(value).items()):
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        text = inspect.cleandoc(getattr(function, "__doc__", None) or "") if not name.startswith("_") else ""
        if not text or name in names_of_operators:
            continue
        if isinstance(member, property):
            lines += [f"`````{{py:property}} {name}", "", docstrings.markdown(text), "", "`````", ""]
        elif isinstance(member, (types.FunctionType, classmethod, staticmethod)):
            lines += [
                f"`````{{py:method}} {name}{_signature(function, bound=not isinstance(member, staticmethod))}",
                "",
            ]
            lines += [docstrings.markdown(text), "", "`````", ""]
    return lines


def _signature(value: Callable[..., Any], bound: bool = False) -> str:
    """Arguments with defaults, without types: those are in the docstring."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return "()"
    shown = [_plain(each) for each in parameters[1 if bound else 0 :]]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(shown))).replace("\n", " ")


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not inspect.Parameter.empty and re.search(r"[<>{}]|object at", repr(default)):
        default = _Text(getattr(default, "__name__", "..."))
    return parameter.replace(annotation=inspect.Parameter.empty, default=default)
