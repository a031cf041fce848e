"""The pages of operators, one for each family, and an example of each operator from its record's samples."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy

import hybrid_lab as mx
from hybrid_lab.ops import Operator

from . import docstrings, executed

#: Namespace, as users write it -> beginnings of the names of its operators' records.
NAMESPACES = {
    "nd": ("",),
    "nd.linalg": ("_linalg_", "linalg_"),
    "nd.image": ("_image_",),
    "nd.contrib": ("_contrib_",),
    "nd.random": ("_random_", "_sample_", "random_"),
}
#: Arrays with more elements are made by a call instead of being written out.
WRITTEN = 24


def public() -> dict[type[Operator], list[str]]:
    """Each operator that users may call, with its names, the first one the one to write."""
    found: dict[type[Operator], list[str]] = {}
    for namespace, beginnings in NAMESPACES.items():
        module = mx.nd
        for part in namespace.split(".")[1:]:
            module = getattr(module, part)
        for name in dir(module):
            if name.startswith("_"):
                continue
            record = _record(beginnings, name)
            if record is not None and record.samples and callable(getattr(module, name)):
                found.setdefault(record, []).append(f"{namespace}.{name}")
    for record, names in found.items():
        names.sort(key=lambda name: (_is_prefixed(name), not _own_name(record, name), name.count("."), name))
    return found


def _record(beginnings: tuple[str, ...], name: str) -> type[Operator] | None:
    for beginning in beginnings:
        record = mx.ops.find(beginning + name)
        if record is not None:
            return record
    return None


def _is_prefixed(name: str) -> bool:
    """Whether it is a name like `nd.contrib_box_nms`, which is `nd.contrib.box_nms`, too."""
    return re.match(r"nd\.(contrib|linalg|image|random|sample)_", name) is not None


def _own_name(record: type[Operator], name: str) -> bool:
    return record.name.endswith(name.rpartition(".")[2])


def families() -> dict[str, list[tuple[type[Operator], list[str]]]]:
    """Page of the site -> the operators of one family, in the order of their file."""
    pages: dict[str, list[tuple[type[Operator], list[str]]]] = {}
    for record, names in public().items():
        module = record.__module__.partition(".ops.")[2] or record.__module__
        pages.setdefault("operators/" + module.replace(".", "-").replace("_", "-"), []).append((record, names))
    for operators in pages.values():
        operators.sort(key=lambda each: each[1][0].rpartition(".")[2].lower())
    return dict(sorted(pages.items()))


def title(page: str, operators: list[tuple[type[Operator], list[str]]]) -> str:
    """The heading of a family's page: the beginning of its module's docstring."""
    text = (sys.modules[operators[0][0].__module__].__doc__ or page).strip().splitlines()[0]
    return docstrings.escape(re.split(r"[:.](?: |$)|, | \(| as operators", text)[0].strip())


def signature(function: Any) -> str:
    """Arguments with defaults, without types and without `out` and `name`, which all operators have."""
    parameters = inspect.signature(function).parameters.values()
    own = [each for each in parameters if each.name not in ("out", "name") or each.kind != each.KEYWORD_ONLY]
    shown = [each.replace(annotation=inspect.Parameter.empty) for each in own]
    return str(inspect.Signature(shown))


def example(record: type[Operator], name: str) -> str | None:
    """A call of the operator on the smallest of its samples that shows numbers, executed; None where it has none."""
    candidates = sorted(record.samples, key=lambda item: sum(numpy.size(each) for each in item.arrays(record.name)))
    failures = []
    for item in sorted(candidates, key=lambda item: item.dtype != "float32"):
        code = _code(record, name, item)
        if code is None:
            continue
        try:
            return executed.session(code)
        except executed.ExampleError as error:
            failures.append(str(error))
    return None


def _code(record: type[Operator], name: str, item: Any) -> str | None:
    op = record.bind(**item.attributes)
    arrays = item.arrays(record.name)
    names = [f"data{index}" for index in range(len(arrays))] if record.variadic else list(op.signature.inputs)
    if len(arrays) > len(names):
        return None
    lines, arguments = [], []
    whole = sum(each.size for each in arrays if isinstance(each, numpy.ndarray)) > WRITTEN
    for name_of, given, value in zip(names, item.inputs, arrays, strict=False):
        if not isinstance(value, numpy.ndarray):
            arguments.append(f"{name_of}={value!r}" if name_of in record.scalars else repr(value))
            continue
        made = _made(given, value, item) if whole and value.size > 6 else _written(value)
        if made is None:
            return None
        lines.append(f"{name_of} = {made}")
        arguments.append(name_of)
    arguments += [f"{key}={value!r}" for key, value in item.attributes.items()]
    call = f"{name}({', '.join(arguments)})"
    outputs = op.signature.visible
    if whole and outputs == 1:
        lines.append(f"{call}.shape")
    elif whole:
        lines.append(f"[each.shape for each in {call}]")
    else:
        lines.append(call)
    return "\n".join(lines)


def _written(value: numpy.ndarray) -> str | None:
    numbers = str((value.astype("float64").round(2) if value.dtype.kind == "f" else value).tolist())
    dtype = "" if value.dtype == "float32" else f', dtype="{value.dtype}"'
    text = f"nd.array({numbers}{dtype})"
    return text if len(text) < 400 else None


def _made(given: Any, value: numpy.ndarray, item: Any) -> str | None:
    dtype = "" if value.dtype == "float32" else f', dtype="{value.dtype}"'
    if isinstance(given, tuple):
        return f"nd.random.uniform({item.low}, {item.high}, shape={value.shape}{dtype})"
    if hasattr(given, "low"):
        text = f"nd.random.randint({given.low}, {given.high}, shape={value.shape})"
        return f'{text}.astype("{value.dtype}")'
    return _written(value)


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of every page of operators."""
    rows = []
    for page, operators in families().items():
        heading = title(page, operators)
        parts = [f"# {heading}\n"]
        for record, names in operators:
            parts.append(entry(record, names))
        yield page, "\n".join(parts)
        listed = ", ".join(f"[`{names[0]}`](#{names[0]})" for _, names in operators)
        rows.append((page, heading, listed))
    yield "operators/index", _index(rows)


def _index(rows: list[tuple[str, str, str]]) -> str:
    count = len(public())
    lines = [
        "# Operators\n",
        f"{count} operators, by family. `nd.softmax(x)` computes at once; `sym.softmax(x)`, `F.softmax(x)` in",
        "`hybrid_forward` and the method `x.softmax()` are the same operator. All take `out=`, an array for the",
        "result, and `name=`, the name of the node in a graph. This page and those below it are made from the",
        "operators' records; the examples are their samples, executed when the site is built.\n",
        "| family | operators |",
        "|---|---|",
    ]
    lines += [f"| [{heading}]({page.partition('/')[2]}.md) | {listed} |" for page, heading, listed in rows]
    tree = "\n".join(page.partition("/")[2] for page, _, _ in rows)
    return "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def entry(record: type[Operator], names: list[str]) -> str:
    """One operator: signature, docstring, attributes, example."""
    function = mx
    for part in names[0].split("."):
        function = getattr(function, part)
    text = (inspect.getdoc(function) or "").partition("\n\nAttributes\n")
    lines = [f"``````{{py:function}} {names[0]}{signature(function)}", "", docstrings.markdown(text[0]), ""]
    if text[2]:
        lines += ["| attribute | type | |", "|---|---|---|"]
        for row in text[2].splitlines():
            attribute, _, rest = row.partition(" : ")
            kind, _, default = rest.removesuffix(", required").partition(", default ")
            note = f"default `{default}`" if default else "required"
            lines.append(f"| `{attribute}` | {docstrings.escape(_short(kind))} | {note} |")
        lines.append("")
    if len(names) > 1:
        lines += ["Also: " + ", ".join(f"`{name}`" for name in names[1:]) + ".", ""]
    shown = example(record, names[0])
    if shown is not None:
        lines += ["```pycon", shown, "```", ""]
    return "\n".join([*lines, "``````", ""])


def _short(kind: str) -> str:
    """A type without the modules of its parts."""
    kind = re.sub(r"Optional\[(.*)\]$", r"\1 or None", kind)
    return re.sub(r"\b[\w]+(?:\.\w+)+\b", lambda name: name[0].rpartition(".")[2], kind).replace("| None", "or None")
