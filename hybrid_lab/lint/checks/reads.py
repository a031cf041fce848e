"""Checks of rules about reading facts that a tensor in a graph does not have: its shape, size, type, place, layout."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.finding import Fix

from ..values import Kind
from ..walk import Mark, Walk, check


def attribute_of(node: ast.AST) -> str | None:
    """The attribute an expression reads: of `x.shape` or `getattr(x, "shape")`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
        return str(node.args[1].value)
    return None


def attribute_read(node: ast.AST, names: tuple[str, ...], walk: Walk) -> ast.expr | None:
    """The tensor of which one of the attributes is read here, or None."""
    if attribute_of(node) not in names:
        return None
    if isinstance(node, ast.Call):
        if walk.dotted(node.func) != "builtins.getattr":
            return None
        owner = node.args[0]
    else:
        assert isinstance(node, ast.Attribute)
        if not isinstance(node.ctx, ast.Load):
            return None
        owner = node.value
    return owner if walk.value(owner).is_tensor else None


@check("HL101")
def shape_read(node: ast.Attribute | ast.Call, walk: Walk) -> Iterator[Mark]:
    if (owner := attribute_read(node, ("shape",), walk)) is not None:
        yield Mark(node, walk.tensor_name(owner), fix=_zero_for_batch(node, owner, walk))


def _zero_for_batch(node: ast.AST, owner: ast.expr, walk: Walk) -> Fix | None:
    """`x.shape[0]` as the first of the numbers given to a reshape of the same tensor."""
    subscript = walk.parent(node)
    if not (isinstance(subscript, ast.Subscript) and subscript.value is node):
        return None
    if not (isinstance(subscript.slice, ast.Constant) and subscript.slice.value == 0):
        return None
    parent = walk.parent(subscript)
    call = walk.parent(parent) if isinstance(parent, ast.Tuple | ast.List) and parent.elts[0] is subscript else parent
    if isinstance(call, ast.keyword):
        call = walk.parent(call)
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "reshape"):
        return None
    if call is parent and call.args[:1] != [subscript]:
        return None
    if walk.value(call.func.value).kind is Kind.OPERATORS:
        reshaped = call.args[0] if call.args else None
    else:
        reshaped = call.func.value
    if reshaped is None or walk.text(reshaped) != walk.text(owner):
        return None
    return Fix("0 keeps the first dimension", (walk.replace(subscript, "0"),), safe=True)


@check("HL102")
def size_read(node: ast.Attribute | ast.Call, walk: Walk) -> Iterator[Mark]:
    if (owner := attribute_read(node, ("size", "ndim"), walk)) is not None:
        yield Mark(node, walk.tensor_name(owner), attribute=attribute_of(node))


@check("HL103")
def dtype_read(node: ast.Attribute | ast.Call, walk: Walk) -> Iterator[Mark]:
    if (owner := attribute_read(node, ("dtype",), walk)) is not None:
        yield Mark(node, walk.tensor_name(owner))


@check("HL104")
def context_read(node: ast.Attribute | ast.Call, walk: Walk) -> Iterator[Mark]:
    if (owner := attribute_read(node, ("context", "ctx", "device"), walk)) is not None:
        yield Mark(node, walk.tensor_name(owner), attribute=attribute_of(node))


@check("HL105")
def layout_read(node: ast.Attribute | ast.Call, walk: Walk) -> Iterator[Mark]:
    if (owner := attribute_read(node, ("T", "stype"), walk)) is None:
        return
    attribute = attribute_of(node)
    if attribute == "T" and walk.style == "forward":
        return  # arrays of a 2.x trace have it
    transposed = f"{walk.operators}.transpose({walk.text(owner)})" if walk.operators else None
    fix = None
    if attribute == "T" and transposed and isinstance(node, ast.Attribute):
        fix = Fix("the operator", (walk.replace(node, transposed),), safe=True)
    yield Mark(node, walk.tensor_name(owner), fix=fix, attribute=attribute)


@check("HL106")
def unpack_tensor(node: ast.Assign, walk: Walk) -> Iterator[Mark]:
    if not walk.value(node.value).is_one_tensor:
        return
    for target in node.targets:
        if isinstance(target, ast.Tuple | ast.List):
            count = len(target.elts) if not any(isinstance(t, ast.Starred) for t in target.elts) else None
            yield Mark(target, walk.tensor_name(node.value), count=count)
