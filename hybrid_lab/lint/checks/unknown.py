"""The check of names that F, the namespaces of operators and tensors do not have."""

import ast
from collections.abc import Callable, Iterator

from hybrid_lab.diagnostics.expression import one_line
from hybrid_lab.diagnostics.finding import Edit, Fix
from hybrid_lab.diagnostics.foreign_names import foreign_method

from .. import names
from ..classes import Module
from ..known_names import (
    NAMESPACES,
    has_member,
    has_operator,
    instead_of_member,
    instead_of_operator,
    nearest_is_meant,
)
from ..values import Kind
from ..walk import Mark, Walk, check

_Replace = Callable[[ast.AST, str], Edit]
_Parent = Callable[[ast.AST], ast.AST | None]

_OTHER_RULES = frozenset({
    "asnumpy", "asscalar", "item", "tolist", "numpy", "wait_to_read", "wait_to_write", "copyto", "as_in_context",
    "as_in_ctx", "to_device", "asnumpy_or_copy", "to_dlpack_for_read", "to_dlpack_for_write", "copy", "detach",
    "attach_grad", "backward", "zero_grad", "drop_grad", "grad", "tostype", "shape", "size", "ndim", "dtype", "context",
    "ctx", "stype", "T",
})  # fmt: skip
"""Members of arrays that have rules of their own."""
_CAUGHT = frozenset({"AttributeError", "Exception", "BaseException"})


@check("HL166")
def unknown_name(node: ast.Attribute, walk: Walk) -> Iterator[Mark]:
    if not isinstance(node.ctx, ast.Load) or node.attr in walk.frame.module.given or _caught(node, walk.parent):
        return
    owner = walk.value(node.value)
    if owner.kind is Kind.OPERATORS:
        yield from of_namespace(node, str(owner.ref), None, walk.text(node), walk.operators or "F", walk.replace)
    elif owner.kind is Kind.MODULE and (found := namespace_of(str(owner.ref))) is not None:
        namespace, path = found
        yield from of_namespace(node, path, namespace, walk.text(node), None, walk.replace)
    elif owner.is_one_tensor and node.attr not in _OTHER_RULES and not has_member(node.attr):
        if _perhaps_no_tensor(node, walk):
            return
        whole = walk.text(node)
        framework, replacement = instead_of_member(node.attr, whole.removesuffix(f".{node.attr}"), walk.operators)
        yield _mark(node, whole, framework, replacement, walk.replace)


def namespace_of(dotted: str) -> tuple[str, str] | None:
    """("mx.nd", "contrib") for `mx.nd.contrib`; None for anything but a namespace of operators."""
    for namespace in NAMESPACES:
        if dotted == namespace or dotted.startswith(namespace + "."):
            return namespace, dotted[len(namespace) + 1 :]
    return None


def of_namespace(
    node: ast.Attribute, path: str, namespace: str | None, text: str, root: str | None, replace: _Replace
) -> Iterator[Mark]:
    """The mark at `F.contrib.nosuch`. path : of the owner in the namespace; text : the source; root : the name of F"""
    whole = f"{path}.{node.attr}" if path else node.attr
    if (path and not has_operator(path, namespace)) or has_operator(whole, namespace):
        return
    framework, replacement = instead_of_operator(whole, root or text.removesuffix(f".{whole}"), namespace)
    yield _mark(node, text, framework, replacement, replace)


def _mark(node: ast.Attribute, name: str, framework: str, replacement: str, replace: _Replace) -> Mark:
    fix = None
    if not framework and nearest_is_meant(node.attr, replacement):
        fix = Fix(f"`{replacement}`", (replace(node, replacement),), safe=False)
    foreign = f"; it is {framework}'s name" if framework else ""
    return Mark(
        node,
        fix=fix,
        name=f"`{one_line(node, name)}`",
        foreign=foreign,
        replacement=replacement or "an operator that exists",
    )


def _caught(node: ast.AST, parent: _Parent) -> bool:
    """Whether an AttributeError at this place is caught by a `try` or `with suppress(...)` around it."""
    inner: ast.AST | None = node
    while inner is not None and (outer := parent(inner)) is not None:
        if isinstance(outer, ast.Try) and inner in outer.body:
            for handler in outer.handlers:
                caught = {part.id for part in ast.walk(handler.type or ast.Name("Exception")) if hasattr(part, "id")}
                if caught & _CAUGHT:
                    return True
        if isinstance(outer, ast.With) and any("suppress" in ast.dump(item.context_expr) for item in outer.items):
            return True
        inner = outer
    return False


def _perhaps_no_tensor(node: ast.Attribute, walk: Walk) -> bool:
    """Whether an argument may be a user's object with this attribute, a field to read and not to call."""
    value = walk.value(node.value)
    if not (isinstance(value.like, tuple) and value.like[:1] == ("argument",)):
        return False
    if (function := walk.frame.function) is not None:
        arguments = [*function.node.args.posonlyargs, *function.node.args.args, *function.node.args.kwonlyargs]
        for argument in arguments:
            if argument.arg == value.like[1] and argument.annotation is not None:
                kinds = {getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(argument.annotation)}
                if not kinds & names.TENSOR_ANNOTATIONS:
                    return True
    parent = walk.parent(node)
    called = isinstance(parent, ast.Call) and parent.func is node
    if called or foreign_method(node.attr) is not None:
        return False
    return isinstance(node.value, ast.Name) and node.value.id not in walk.about_function(_used_as_tensors)


def _used_as_tensors(function: ast.AST) -> frozenset[str]:
    """The names that are operands of arithmetic, or arguments of calls."""
    used: set[str] = set()
    for node in ast.walk(function):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Call):
            parts = node.args
        used.update(part.id for part in parts if isinstance(part, ast.Name))
    return frozenset(used)


def unknown_in_module(module: Module) -> Iterator[Mark]:
    """The marks at names like `nd.nosuch` of imported namespaces, anywhere in a source."""
    tree, source = module.source.tree, module.source

    def parent(node: ast.AST) -> ast.AST | None:
        return source.parents.get(id(node))

    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or node.attr in module.given:
            continue
        dotted = _imported(node.value, module, bound)
        if dotted is None or (found := namespace_of(dotted)) is None or _caught(node, parent):
            continue
        namespace, path = found
        yield from of_namespace(node, path, namespace, source.segment(node), None, source.edit)


def _imported(node: ast.expr, module: Module, bound: set[str]) -> str | None:
    """The canonical name of `nd.contrib`, if its first part is imported, here or in another cell, and nothing else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id in bound:
        return None
    value = module.names.get(node.id) or module.lookup(node.id)
    if value is None:
        root = names.CONVENTIONAL.get(node.id)
    else:
        root = value.ref if value.kind is Kind.MODULE and isinstance(value.ref, str) else None
    return None if root is None else names.canonical(".".join([root, *reversed(parts)]))
