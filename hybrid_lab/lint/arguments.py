"""The values of a checked method's arguments: tensors, unless annotations, defaults or the docstring say otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from . import names
from .classes import FunctionNode, SourceClass, positional_arguments
from .values import OTHER, Value, constant, sequence, tensor

_DOCUMENTED = re.compile(r"^\s*(\w+)\s*:[ \t]*(\S.*)$", re.MULTILINE)
_INPUT = re.compile(r"^\s*- \*\*(\w+)\*\*\s*:[ \t]*(\S.*)$", re.MULTILINE)


def seeds(cls: SourceClass, function: FunctionNode, chosen: Sequence[ast.arg]) -> dict[str, Value]:
    """The value of each chosen argument of a method of a class, whose parameters are passed under their names.

    An argument is one tensor unless its default, annotation or docstring, a test like `isinstance(x, (list, tuple))`
    in the body, or Gluon's habit for its name (`states`) makes it a list or a Python value.
    """
    arguments = function.args
    parameters = set(cls.parameters)
    positional = positional_arguments(function)
    defaults = dict(zip((a.arg for a in reversed(positional)), reversed(arguments.defaults), strict=False))
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    lists = _compared_with_lists(function) | _indexed_in_loops(function)
    documented = _documented_types(cls, function)
    values = {}
    for argument in chosen:
        name = argument.arg
        value = _argument(argument, defaults.get(name), name in lists, parameters)
        if value.is_tensor and name not in parameters:
            value = _as_documented(value, documented.get(name, ""))
        values[name] = value
    return values


def _compared_with_lists(function: ast.AST) -> set[str]:
    """The names somewhere tested with isinstance(name, (list, tuple))."""
    compared = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if len(node.args) == 2 and isinstance(node.args[0], ast.Name):
                classes = {child.id for child in ast.walk(node.args[1]) if isinstance(child, ast.Name)}
                if classes & {"list", "tuple"}:
                    compared.add(node.args[0].id)
    return compared


def _indexed_in_loops(function: ast.AST) -> set[str]:
    """The names that are read only as `name[i]`, with numbers and once with the variable of a loop: lists, mostly."""
    loops = [node.target for node in ast.walk(function) if isinstance(node, ast.For | ast.comprehension)]
    counters = {name.id for target in loops for name in ast.walk(target) if isinstance(name, ast.Name)}
    reads: dict[str, list[ast.expr | None]] = {}
    subscripts = {id(node.value): node.slice for node in ast.walk(function) if isinstance(node, ast.Subscript)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            reads.setdefault(node.id, []).append(subscripts.get(id(node)))
    return {
        name
        for name, indices in reads.items()
        if any(isinstance(index, ast.Name) and index.id in counters for index in indices)
        and all(isinstance(index, ast.Name | ast.Constant) for index in indices)
    }


def _documented_types(cls: SourceClass, function: FunctionNode) -> dict[str, str]:
    """`name : type` lines of the docstring, as NumPy's convention has them, and `- **name**: a list` of the class's."""
    text = None if isinstance(function, ast.Lambda) else ast.get_docstring(function)
    of_class = {match[1]: match[2] for match in _INPUT.finditer(ast.get_docstring(cls.node) or "")}
    return of_class | {match[1]: match[2] for match in _DOCUMENTED.finditer(text or "")}


def _as_documented(value: Value, kind: str) -> Value:
    words = set(re.findall(r"\w+", kind))
    if words & {"list", "List", "tuple", "Tuple", "dict", "sequence", "Sequence"}:
        return value.but(single=False)
    python = words & {"bool", "int", "float", "str", "string"}
    return OTHER if python and not words & {"NDArray", "Symbol", "array", "tensor", "Tensor", "ndarray"} else value


def _argument(argument: ast.arg, default: ast.expr | None, is_list: bool, parameters: set[str]) -> Value:
    """The value of one argument: a tensor, unless its default or annotation says otherwise."""
    name = argument.arg
    if name in parameters:
        return tensor(name, depends=False, like=("argument", name))
    annotated = {
        child.attr if isinstance(child, ast.Attribute) else child.id
        for child in ast.walk(argument.annotation)
        if isinstance(child, (ast.Name, ast.Attribute))
    } if argument.annotation is not None else set()  # fmt: skip
    is_tensor = bool(annotated & names.TENSOR_ANNOTATIONS)
    in_list = bool(annotated & names.LIST_ANNOTATIONS)
    if not is_tensor and not in_list and annotated & names.PYTHON_ANNOTATIONS:
        return OTHER
    if isinstance(default, ast.UnaryOp):
        default = default.operand
    if isinstance(default, ast.Constant) and default.value is not None:
        return constant(default.value) if isinstance(default.value, bool | int | float | str) else OTHER
    if default is not None and not isinstance(default, ast.Constant):
        # A tuple, list or dict of numbers is a setting; an empty one may be meant for tensors.
        if isinstance(default, (ast.Tuple, ast.List)) and not default.elts:
            return sequence(element=tensor(name))
        return OTHER
    by_habit = name in names.LIST_ARGUMENTS or name.endswith(names.LIST_ARGUMENT_ENDINGS)
    single = not (is_list or in_list or by_habit)
    return tensor(name, single=single, optional=default is not None, like=("argument", name))
