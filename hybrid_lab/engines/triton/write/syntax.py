"""Types, numbers, names and comments as the text of a kernel prints them."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.printer import format_type
from hybrid_lab.ops.framework.dtypes import NARROW
from hybrid_lab.ops.framework.pointwise import printed

#: dtype name -> its type in a kernel
TYPES = {
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float32": "tl.float32",
    "float64": "tl.float64",
    "int8": "tl.int8",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}


def _functions() -> dict[str, str]:
    text = Path(__file__).with_name("functions.py").read_text(encoding="utf-8")
    lines, defined = text.splitlines(), [item for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)]
    return {item.name: "\n".join(lines[item.decorator_list[0].lineno - 1 : item.end_lineno]) for item in defined}


#: Functions that kernels call in addition to Triton's own: name -> text; each comes before its callers.
FUNCTIONS = _functions()

#: Separates an operator from its origin in a comment.
ORIGIN = "   < "


@functools.lru_cache(maxsize=64)
def wide(dtype: Any) -> str:
    """The dtype that a kernel computes in."""
    return "float32" if dtype.name in NARROW else str(dtype.name)


def literal(item: Any, dtype: Any) -> str:
    """A Python scalar as an operand of this dtype takes it; the parts of composites round none to float16."""
    return printed(item, np.dtype(wide(dtype)))


#: A comment behind a line: text, or the operator that the line computes (`said` prints it).
Remark = str | Node


def said(remark: Remark) -> str:
    """A comment as text: an operator with its attributes, and its Block, composite, file and line."""
    if isinstance(remark, str):
        return remark
    node = remark
    line = f"{Path(node.location.file).name}:{node.location.line}" if node.location is not None else ""
    part = f"part of {node.composite}" if node.composite else ""
    origin = ", ".join(item for item in (node.scope, part, line) if item)
    text = repr(node.op).removesuffix("()")
    text = f"{text}{ORIGIN}{origin}" if origin else text
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def typed(value: Value) -> str:
    """f32[64,120], as a comment says it."""
    inner = ",".join([f"{size:d}" for size in value.shape])
    return f"{format_type((), value.dtype)[:-1]}{inner}]"


def rounded(name: str, dtype: Any) -> str:
    """An expression in float32, rounded to half precision as it would be in memory."""
    return f"{tensor(name, dtype)}.to({TYPES[dtype.name]}).to(tl.float32)"


def number_of(item: object) -> Any:
    """The number that an operand is, or None for other operands."""
    if not isinstance(item, Value):
        return item
    return item.node.op.array.item() if isinstance(item.node.op, Constant) and item.node.op.array.size == 1 else None


def label(value: Value) -> str:
    """The name of a value in a kernel: its operator's, and for inputs the name without the layer's prefix
    (`conv3_weight`), so that layers of one kind and size share a kernel.
    """
    if not value.is_input:
        return short(value.node.op.name)
    return re.sub(r"^(saved|head)\d+$", r"\1", re.sub(r".*\d_", "", value.node.name))


def short(name: str) -> str:
    return name.removeprefix("broadcast_").strip("_")


def tensor(name: str, dtype: object) -> str:
    """A name, or a number as something that has a type."""
    return f"tl.full([], {name}, {TYPES[wide(dtype)]})" if is_number(name) else name


def is_number(text: str) -> bool:
    return text[0] in "-.0123456789" or text.startswith("float(")


def plain(expression: str) -> bool:
    """Whether an expression is a name, or a number that is not negative."""
    return re.fullmatch(r"\w+|[\d.]+(e-?\d+)?", expression) is not None


def wrapped(operand: str) -> str:
    return operand if plain(operand) else f"({operand})"


def closes_at_the_end(text: str) -> bool:
    """Whether the first bracket is closed by the last letter."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index == len(text) - 1
    return False
