"""Checks of rules about how a HybridBlock is put together: children, methods, outputs."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.finding import Fix

from ..values import Kind, Value
from ..walk import Mark, Walk, check

_COUNTERPARTS = {
    "Sequential": "HybridSequential", "Lambda": "HybridLambda", "Concurrent": "HybridConcurrent",
    "Concatenate": "HybridConcatenate", "SequentialRNNCell": "HybridSequentialRNNCell", "Block": "HybridBlock",
    "RecurrentCell": "HybridRecurrentCell", "Compose": "HybridCompose",
}  # fmt: skip


def _blocks_in(container: Value) -> Iterator[Value]:
    for member in container.members:
        if member.kind is Kind.BLOCK:
            yield member
        elif member.kind in (Kind.SEQUENCE, Kind.MAPPING):
            yield from _blocks_in(member)


def _hands_on(method: ast.FunctionDef) -> bool:
    """Whether a `forward` calls the one it overrides, which makes the graph."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "forward"
        and not (isinstance(node.func.value, ast.Attribute) or getattr(node.func.value, "id", "") == "self")
        for node in ast.walk(method)
    )


def _count(value: Value) -> int | None:
    """The number of outputs in a return value; None if it is not known."""
    if value.kind is Kind.SEQUENCE:
        return len(value.items) if value.items is not None else None
    return 1 if value.is_one_tensor else None


@check("HL181")
def plain_child(node: ast.ClassDef, walk: Walk) -> Iterator[Mark]:
    block = walk.block
    if block.find("hybrid_forward") is None and block.find("forward") is None:
        return
    children = [(a.node, f"self.{a.name}", a.value) for a in block.attributes.values()]
    children += [(place, walk.text(place), value) for place, value in block.added]
    for place, child, value in children:
        if value.kind is Kind.BLOCK and walk.is_block(value) is False:
            counterpart, fix = _counterpart(place, value, walk)
            kind = walk.kind_of_block(value)
            yield Mark(place, fix=fix, child=child, type=kind, counterpart=counterpart)


def _counterpart(place: ast.AST, value: Value, walk: Walk) -> tuple[str | None, Fix | None]:
    name = walk.kind_of_block(value)
    hybrid = _COUNTERPARTS.get(name)
    if hybrid is None:
        return f"class {name}(HybridBlock)  with hybrid_forward", None
    call = place if id(place) == value.site else getattr(place, "value", None)
    if not isinstance(call, ast.Call) or id(call) != value.site:
        call = _call_in(walk.statement(place), value.site, walk)
    if call is None:
        return hybrid, None
    function = call.func
    text = walk.text(function)
    if not text.endswith(name) or (isinstance(function, ast.Name) and function.id == name):
        # A bare name would have to be imported first.
        return hybrid, Fix("the hybrid counterpart", (walk.replace(function, hybrid),), safe=False)
    return hybrid, Fix("the hybrid counterpart", (walk.replace(function, text.removesuffix(name) + hybrid),), safe=True)


def _call_in(statement: ast.AST, site: int | None, walk: Walk) -> ast.Call | None:
    for inner in ast.walk(statement):
        walk.budget -= 1
        if walk.budget < 0:
            return None
        if isinstance(inner, ast.Call) and id(inner) == site:
            return inner
    return None


@check("HL182")
def hidden_children(node: ast.ClassDef, walk: Walk) -> Iterator[Mark]:
    for attribute in walk.block.attributes.values():
        container = {Kind.SEQUENCE: "list", Kind.MAPPING: "dict"}.get(attribute.value.kind)
        if container and any(block.site not in walk.block.registered for block in _blocks_in(attribute.value)):
            yield Mark(attribute.node, attribute=f"self.{attribute.name}", container=container)


@check("HL183")
def child_in_forward(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.value(node).site == id(node):
        yield Mark(node, type=walk.text(node.func), method=walk.style)


@check("HL184")
def forward_overridden(node: ast.ClassDef, walk: Walk) -> Iterator[Mark]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "forward":
            if walk.block.find("hybrid_forward") is not None and not _hands_on(statement):
                yield Mark(statement)


@check("HL191")
def varying_outputs(node: ast.FunctionDef, walk: Walk) -> Iterator[Mark]:
    counts: dict[int, tuple[ast.AST, bool]] = {}
    for place, value, varying in walk.frame.returns:
        if (count := _count(value)) is not None:
            known = counts.get(count)
            counts[count] = (place, varying or (known[1] if known else False))
    if len(counts) > 1 and any(varying for _, varying in counts.values()):
        place = list(counts.values())[-1][0]
        yield Mark(place, counts=" or ".join(str(count) for count in sorted(counts)))
