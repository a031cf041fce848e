"""Checks of rules about bringing numbers to Python: host reads, synchronization, copies, conversions, printing."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.expression import one_line
from hybrid_lab.diagnostics.finding import Fix
from hybrid_lab.diagnostics.rules.numpy_calls import ELEMENTWISE, JOINING, instead_of, operator_for

from ..classes import passed
from ..values import Kind, element_of
from ..walk import Mark, Walk, check
from .reads import attribute_read

_READS = ("asnumpy", "asscalar", "item", "tolist", "numpy", "__array__")
_MOVES = (
    "wait_to_read", "wait_to_write", "copyto", "as_in_context", "as_in_ctx", "to_device", "asnumpy_or_copy",
    "to_dlpack_for_read", "to_dlpack_for_write",
)  # fmt: skip
_COPIES = ("copy", "detach", "attach_grad", "backward", "zero_grad", "drop_grad")
_SHOWING = {
    "builtins.print", "builtins.str", "builtins.repr", "builtins.format", "pprint.pprint", "IPython.display.display",
}  # fmt: skip
_LOG_METHODS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log")


def method_call(node: ast.Call, names: tuple[str, ...], walk: Walk) -> ast.expr | None:
    """The tensor whose method, one of the names, is called here; None if it is another call."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in names and walk.value(function.value).is_tensor:
        return function.value
    return None


def only_statement(node: ast.stmt, walk: Walk) -> bool:
    """Whether deleting a statement would leave its block empty."""
    parent = walk.parent(node)
    return any(getattr(parent, block, None) == [node] for block in ("body", "orelse", "finalbody"))


@check("HL111")
def host_read(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if (owner := method_call(node, _READS, walk)) is not None:
        yield Mark(node, walk.tensor_name(owner), call=node.func.attr)  # type: ignore[attr-defined]


@check("HL112")
def host_sync(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.dotted(node.func) == "mx.nd.waitall":
        yield Mark(node, None, message="`nd.waitall()` has no meaning inside a graph.", call="waitall")
    elif (owner := method_call(node, _MOVES, walk)) is not None:
        name = node.func.attr  # type: ignore[attr-defined]
        statement = walk.parent(node)
        fix = None
        if isinstance(statement, ast.Expr) and name.startswith("wait_to_"):
            edit = walk.replace(statement, "pass" if only_statement(statement, walk) else "")
            fix = Fix("delete the call", (edit,), safe=True)
        yield Mark(node, walk.tensor_name(owner), fix=fix, call=name)


@check("HL113")
def copy_call(node: ast.Call | ast.Attribute, walk: Walk) -> Iterator[Mark]:
    if isinstance(node, ast.Attribute):
        if (owner := attribute_read(node, ("grad",), walk)) is not None:
            yield Mark(node, walk.tensor_name(owner), call="grad")
        return
    if (owner := method_call(node, _COPIES, walk)) is None:
        return
    name = node.func.attr  # type: ignore[attr-defined]
    fix = None
    if walk.operators and not node.args and not node.keywords and name in ("copy", "detach"):
        operator = "identity" if name == "copy" else "BlockGrad"
        text = f"{walk.operators}.{operator}({walk.text(owner)})"
        fix = Fix("the operator", (walk.replace(node, text),), safe=True)
    yield Mark(node, walk.tensor_name(owner), fix=fix, call=name)


@check("HL124")
def tensor_length(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.dotted(node.func) == "builtins.len" and len(node.args) == 1:
        if walk.value(node.args[0]).is_one_tensor:
            yield Mark(node, walk.tensor_name(node.args[0]))


@check("HL125")
def python_number(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    name = walk.dotted(node.func) or ""
    root, _, function = name.partition(".")
    arguments = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
    if root == "builtins" and function in ("int", "float", "complex", "round"):
        guilty = arguments[:1]
    elif root == "builtins" and function in ("max", "min", "sorted"):
        guilty = arguments
    elif root == "math":
        guilty = arguments
    else:
        return
    if (by_key := walk.results.get(id(node))) is not None:
        if by_key.is_one_tensor and guilty:
            yield Mark(node, walk.tensor_name(guilty[0]), call=name.removeprefix("builtins."))
        return
    for argument in guilty:
        value = walk.value(argument)
        in_list = value.kind is Kind.SEQUENCE and value.has_tensor
        if function == "sorted":
            in_list = in_list and element_of(value).is_one_tensor
        if value.is_one_tensor or (in_list and function in ("max", "min", "sorted")):
            if function == "sorted" and len(node.args) == 1 and not node.keywords and value.is_tensor:
                return  # iterating is the first thing that fails: HL123
            fix = _operator_fix(node, function, walk)
            yield Mark(node, walk.tensor_name(argument), fix=fix, call=name.removeprefix("builtins."))
            return


def _operator_fix(node: ast.Call, function: str, walk: Walk) -> Fix | None:
    operators, tensors = walk.operators, [walk.value(a).is_one_tensor for a in node.args]
    if operators is None or node.keywords:
        return None
    if function in ("max", "min") and len(node.args) == 2 and any(tensors):
        text = f"{operators}.{function}imum"
    elif function == "round" and len(node.args) == 1:
        text = f"{operators}.round"
    else:
        return None
    return Fix("the operator", (walk.replace(node.func, text),), safe=True)


@check("HL162")
def numpy_on_tensor(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    name = walk.dotted(node.func)
    if name is None or not name.startswith("numpy."):
        return
    if (guilty := walk.first_tensor(passed(node))) is None:
        return
    function = name.rpartition(".")[2]
    operator = operator_for(function)
    tensor = walk.tensor_name(guilty)
    rewrite = instead_of(function, node, tensor, lambda part: one_line(part, walk.text(part)), walk.operators or "F")
    fix = None
    if walk.operators and function in JOINING and "..." not in rewrite:
        fix = Fix("the operator", (walk.replace(node, rewrite),), safe=False)
    elif walk.operators and operator and not node.keywords:
        exact = function in ELEMENTWISE and len(node.args) == 1
        fix = Fix("the operator", (walk.replace(node.func, f"{walk.operators}.{operator}"),), safe=exact)
    yield Mark(node, tensor, fix=fix, rewrite=rewrite, call=walk.text(node.func))


@check("HL171")
def print_tensor(node: ast.Call | ast.JoinedStr | ast.BinOp, walk: Walk) -> Iterator[Mark]:
    if walk.frame.raising:
        return  # the text of an error
    if isinstance(node, ast.Call):
        if (call := _shown_by(node, walk)) is None:
            return
        shown = passed(node)
    elif isinstance(node, ast.JoinedStr):
        call = "f-string"
        shown = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    elif isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        call, shown = "%", [node.right]
    else:
        return
    if (guilty := walk.first_tensor(shown)) is not None:
        yield Mark(node, walk.root_name(guilty) or walk.tensor_name(guilty), call=call)


def _shown_by(node: ast.Call, walk: Walk) -> str | None:
    name = walk.dotted(node.func)
    if name in _SHOWING or (name or "").startswith(("logging.", "warnings.warn")):
        return walk.text(node.func)
    if isinstance(node.func, ast.Attribute):
        owner = walk.value(node.func.value)
        if node.func.attr == "format" and owner.kind is Kind.CONSTANT:
            return "format"
        if node.func.attr in _LOG_METHODS and not owner.is_tensor and "log" in walk.text(node.func.value).lower():
            return walk.text(node.func)
    return None
