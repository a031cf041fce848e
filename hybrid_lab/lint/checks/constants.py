"""Checks of rules about arrays and shapes that enter a graph as constants, and about where operators come from."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.expression import one_line
from hybrid_lab.diagnostics.finding import Fix, Severity

from ..classes import FunctionNode, is_stub, positional_arguments
from ..functions import input_in
from ..values import Kind, Value
from ..walk import Mark, Walk, check

_NOT_OPERATORS = {
    "NDArray", "Symbol", "load", "save", "waitall", "Variable", "var", "Group", "load_json", "fromjson", "from_numpy",
    "from_dlpack", "to_dlpack_for_read", "to_dlpack_for_write", "load_frombuffer", "array", "CSRNDArray",
    "RowSparseNDArray",
}  # fmt: skip

_MAKING_ARRAYS = ("mx.nd.array", "mx.nd.from_numpy", "mx.nd.NDArray", "mx.np.array")
_KNOWN_OF_ARRAYS = {"shape", "size", "ndim", "dtype", "context", "ctx"}
_NOT_FUNCTIONS = {"array", "ndarray", "load", "save", "set_np", "reset_np", "waitall"}
_NAMESPACES = ("mx.nd.", "mx.sym.", "mx.np.", "mx.npx.")


@check("HL161")
def array_constant(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.style == "forward":
        return
    name = walk.dotted(node.func) or ""
    if name in _MAKING_ARRAYS:
        yield Mark(node, call=walk.text(node.func), portability=name == "mx.np.array")
    elif walk.value(node.func).kind is Kind.OPERATORS and walk.value(node.func).ref == "array":
        yield Mark(
            node,
            severity=Severity.NOTE,
            portability=True,
            message=f"`{walk.text(node.func)}` embeds its numbers here; MXNet's Symbol has no such function.",
        )


@check("HL163")
def fixed_namespace(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.style == "forward" or walk.operators is None:
        return
    name = walk.dotted(node.func) or ""
    namespace = next((space for space in _NAMESPACES if name.startswith(space)), None)
    if namespace is None:
        return
    operator = name.removeprefix(namespace).removeprefix("_internal.")
    of_numpy = namespace in ("mx.np.", "mx.npx.")  # functions that take arrays and Symbols here
    if not operator or operator.rpartition(".")[2] in (_NOT_FUNCTIONS if of_numpy else _NOT_OPERATORS):
        return
    operator = f"{namespace.removeprefix('mx.')}{operator}" if of_numpy else operator
    text = f"{walk.operators}.{operator}"
    fix = Fix("the namespace of the mode that runs", (walk.replace(node.func, text),), safe=True)
    call = one_line(node.func, walk.text(node.func))
    yield Mark(node, fix=fix, call=call, operator=operator, portability=of_numpy)


@check("HL164")
def captured_array(node: ast.Call | ast.Name | ast.Attribute, walk: Walk) -> Iterator[Mark]:
    if walk.style == "forward":
        return
    if isinstance(node, ast.Call):
        function = node.func
        if not (isinstance(function, ast.Attribute) and function.attr in ("data", "list_data")):
            return
        owner = walk.value(function.value)
        if owner.kind is Kind.PARAMETER or _unknown_parameter(function.value, owner, node, walk):
            # In a trace `data()` is the variable that stands for the parameter; MXNet hands out the array.
            yield Mark(node, expression=walk.text(node), portability=function.attr == "data")
    elif isinstance(node.ctx, ast.Load) and walk.value(node).kind is Kind.ARRAY:
        parent = walk.parent(node)
        if isinstance(parent, ast.Attribute) and parent.attr in _KNOWN_OF_ARRAYS:
            return
        if isinstance(parent, ast.Call) and walk.dotted(parent.func) in _MAKING_ARRAYS:
            return  # HL161
        if isinstance(node, ast.Name) and node.id in walk.about_function(names_assigned):
            return  # reported where it was made
        yield Mark(node, expression=walk.text(node))


def _unknown_parameter(node: ast.expr, owner: Value, call: ast.Call, walk: Walk) -> bool:
    if not isinstance(node, ast.Attribute) or owner.kind is not Kind.OTHER or len(call.args) > 1:
        return False
    return walk.value(node.value).kind is Kind.SELF and walk.first_tensor(call.args) is None


def names_assigned(function: ast.AST) -> frozenset[str]:
    """The names that a function assigns."""
    return frozenset(
        inner.id for inner in ast.walk(function) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    )


@check("HL165")
def missing_parameter(node: ast.ClassDef, walk: Walk) -> Iterator[Mark]:
    method = walk.block.find("hybrid_forward")
    if method is None or method.node.args.kwarg is not None or is_stub(method.node):
        return
    positional = positional_arguments(method.node)
    taken = {argument.arg for argument in [*positional, *method.node.args.kwonlyargs]}
    signature = ", ".join(argument.arg for argument in positional)
    for parameter in walk.block.parameters:
        if parameter in taken:
            continue
        here = method.source is walk.frame.source
        place = walk.block.attributes[parameter].node if here else node
        fix = _add_argument(method.node, parameter, walk) if here else None
        yield Mark(place, fix=fix, parameter=parameter, signature=signature)


def _add_argument(method: FunctionNode, parameter: str, walk: Walk) -> Fix | None:
    arguments = method.args
    if arguments.vararg is not None or arguments.kwonlyargs or not arguments.args:
        return None
    end = arguments.defaults[-1] if arguments.defaults else arguments.args[-1]
    text = f", {parameter}=None" if arguments.defaults else f", {parameter}"
    edit = walk.frame.source.insertion(end.end_lineno or end.lineno, end.end_col_offset or 0, text)
    return Fix(f"add the argument {parameter}", (edit,), safe=True)


@check("HL195")
def constant_shape(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("reshape", "broadcast_to"):
        return
    owner = walk.value(function.value)
    arguments = list(node.args)
    if owner.kind is Kind.OPERATORS:
        data, arguments = (arguments[0], arguments[1:]) if arguments else (None, [])
    else:
        data = function.value
    arguments += [keyword.value for keyword in node.keywords if keyword.arg == "shape"]
    if data is None or not walk.value(data).is_tensor or not walk.value(data).depends:
        return
    numbers = arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List) else arguments
    if not numbers or not all(isinstance(n, ast.Constant) and type(n.value) is int and n.value > 0 for n in numbers):
        return
    shape = tuple(n.value for n in numbers if isinstance(n, ast.Constant))
    if any(number != 1 for number in shape):
        yield Mark(node, walk.tensor_name(data), shape=shape)


@check("HL196")
def output_without_input(node: ast.FunctionDef, walk: Walk) -> Iterator[Mark]:
    with_tensors = [(place, value) for place, value, _ in walk.frame.returns if value.has_tensor]
    if with_tensors and not any(input_in(value) for _, value in with_tensors):
        yield Mark(with_tensors[0][0])
