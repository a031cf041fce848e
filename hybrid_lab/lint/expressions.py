"""Abstract evaluation of each kind of expression but calls, which have their own module."""

from __future__ import annotations

import ast

from .attributes import attribute_of, lookup, member, subscript_of
from .classes import Function
from .targets import bind, narrow
from .values import ITERATOR, NONE, OTHER, Kind, Value, constant, element_of, join, mapping, sequence, tensor
from .walk import Walk, evaluate, value_of

# Names and attributes


@value_of.register
def _(node: ast.Constant, walk: Walk) -> Value:
    return NONE if node.value is None else constant(node.value)


@value_of.register
def _(node: ast.Name, walk: Walk) -> Value:
    return lookup(walk, node.id)


@value_of.register
def _(node: ast.Attribute, walk: Walk) -> Value:
    return attribute_of(walk, evaluate(walk, node.value), node.attr)


# Operators


@value_of.register
def _(node: ast.BinOp, walk: Walk) -> Value:
    left, right = evaluate(walk, node.left), evaluate(walk, node.right)
    return arithmetic(node.op, left, right)


def arithmetic(op: ast.operator, left: Value, right: Value) -> Value:
    """The value of a binary operation."""
    kinds = {left.kind, right.kind}
    if Kind.TENSOR in kinds:
        return _tensor_arithmetic(op, left, right)
    if Kind.SEQUENCE in kinds:
        if left.kind is right.kind:
            if left.items is not None and right.items is not None:
                return sequence(left.items + right.items)
            return join(sequence(element=element_of(left)), sequence(element=element_of(right)))
        container = (left if left.kind is Kind.SEQUENCE else right).but(held=None, ref=None)
        other = right if left.kind is Kind.SEQUENCE else left
        if isinstance(op, (ast.Mult, ast.Add)):
            return sequence(element=element_of(container)) if container.members else container
        return OTHER if not other.has_tensor else tensor(single=False)
    if left.kind is Kind.CONSTANT and isinstance(left.ref, tuple) and left.ref[0] == "str":
        return OTHER
    for kind in (Kind.HOST, Kind.ARRAY, Kind.SHAPE, Kind.LENGTH):
        if kind in kinds:
            return left if left.kind is kind else right
    return OTHER


def _tensor_arithmetic(op: ast.operator, left: Value, right: Value) -> Value:
    values = [value for value in (left, right) if value.kind is Kind.TENSOR]
    others = [value for value in (left, right) if value.kind is not Kind.TENSOR]
    depends = any(value.depends for value in values)
    if others and others[0].kind in (Kind.SEQUENCE, Kind.MAPPING) and not all(value.single for value in values):
        return tensor(single=False, depends=depends)
    if others and others[0].kind is Kind.CONSTANT and others[0].ref[0] == "str":  # type: ignore[index]
        return OTHER
    # `a + b` of two unknown results may join two lists; any other operator is on tensors.
    surely = not isinstance(op, ast.Add) or any(value.single for value in values) or bool(others)
    likes = {value.like for value in values}
    like = likes.pop() if len(likes) == 1 and not any(o.kind is Kind.ARRAY for o in others) else None
    thin = values[0].thin if len({value.thin for value in values}) == 1 else False
    return tensor(values[0].name, single=surely, depends=depends, like=like, thin=thin, fresh=True)


@value_of.register
def _(node: ast.Compare, walk: Walk) -> Value:
    operands = [evaluate(walk, node.left), *(evaluate(walk, comparator) for comparator in node.comparators)]
    if asks_for_mode(node, operands):
        return Value(Kind.MODE, ref="sort")
    for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
        if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            continue
        if any(side.kind is Kind.CONSTANT and side.ref[0] in ("str", "NoneType") for side in (left, right)):  # type: ignore[index]
            continue
        if Kind.TENSOR in (left.kind, right.kind) and Kind.SEQUENCE not in (left.kind, right.kind):
            tensors = [side for side in (left, right) if side.kind is Kind.TENSOR]
            like = tensors[0].like if len(tensors) == 1 else None
            thin = tensors[0].thin if len({side.thin for side in tensors}) == 1 else False
            depends = any(side.depends for side in tensors)
            return tensor(tensors[0].name, depends=depends, like=like, thin=thin, fresh=True)
    if any(operand.kind is Kind.HOST for operand in operands):
        return Value(Kind.HOST)
    return OTHER


def asks_for_mode(node: ast.Compare, operands: list[Value]) -> bool:
    """`F is nd`, `F == mx.sym`, `type(x) is NDArray`, `F.__name__ == "..."`, `"symbol" in F.__name__`."""
    if not isinstance(node.ops[0], (ast.Is, ast.Eq, ast.IsNot, ast.NotEq, ast.In, ast.NotIn)):
        return False
    about = ("mx.nd.NDArray", "mx.sym.Symbol")
    return any(v.kind is Kind.OPERATORS or (v.kind is Kind.MODULE and v.ref in about) for v in operands)


def eager_branch(walk: Walk, test: ast.expr) -> bool | None:
    """Which outcome of a test only eager mode reaches; None if the test is about something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = eager_branch(walk, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        refs = [walk.values.get(id(side), OTHER) for side in (test.left, test.comparators[0])]
        positive = isinstance(test.ops[0], (ast.Is, ast.Eq))
        if asks_for_mode(test, refs):
            for value in refs:
                if value.kind is Kind.MODULE and isinstance(value.ref, str):
                    # By the last part: it may come from a module whose source is not at hand.
                    namespace = value.ref.removesuffix(".NDArray").removesuffix(".Symbol").rpartition(".")[2]
                    if namespace in ("nd", "ndarray"):
                        return positive
                    if namespace in ("sym", "symbol"):
                        return not positive
    if isinstance(test, ast.Call) and len(test.args) == 2:
        value = walk.values.get(id(test.func), OTHER)
        asked = walk.values.get(id(test.args[1]), OTHER)
        if value.kind is Kind.MODULE and value.ref == "builtins.isinstance" and asked.kind is Kind.MODULE:
            return {"mx.nd.NDArray": True, "mx.sym.Symbol": False}.get(str(asked.ref))
    return None


@value_of.register
def _(node: ast.BoolOp, walk: Walk) -> Value:
    joined = evaluate(walk, node.values[0])
    kinds = {joined.kind}
    env = walk.names_known()
    for previous, operand in zip(node.values, node.values[1:], strict=False):
        narrow(walk, previous, isinstance(node.op, ast.And))
        value = evaluate(walk, operand)
        kinds.add(value.kind)
        joined = join(joined, value)
    walk.frame.env = env
    return Value(Kind.MODE, ref="joined") if Kind.MODE in kinds else joined


@value_of.register
def _(node: ast.UnaryOp, walk: Walk) -> Value:
    operand = evaluate(walk, node.operand)
    if isinstance(node.op, ast.Not):
        return operand if operand.kind is Kind.MODE else OTHER
    if operand.kind is Kind.TENSOR:
        return operand.but(fresh=True)
    return operand if operand.kind in (Kind.HOST, Kind.ARRAY, Kind.SHAPE, Kind.LENGTH) else OTHER


@value_of.register
def _(node: ast.IfExp, walk: Walk) -> Value:
    evaluate(walk, node.test)
    env = walk.names_known()
    only_eager = eager_branch(walk, node.test)
    narrow(walk, node.test, True)
    with walk.quietly(only_eager is True):
        body = evaluate(walk, node.body)
    walk.frame.env = dict(env)
    narrow(walk, node.test, False)
    with walk.quietly(only_eager is False):
        orelse = evaluate(walk, node.orelse)
    walk.frame.env = env
    return join(body, orelse)


@value_of.register
def _(node: ast.NamedExpr, walk: Walk) -> Value:
    value = evaluate(walk, node.value)
    bind(walk, node.target, value)
    return value


@value_of.register
def _(node: ast.Await | ast.Starred, walk: Walk) -> Value:
    return evaluate(walk, node.value)


# Indexing


@value_of.register
def _(node: ast.Subscript, walk: Walk) -> Value:
    owner = evaluate(walk, node.value)
    evaluate(walk, node.slice)
    return subscript_of(owner, node.slice)


# Containers and comprehensions


@value_of.register
def _(node: ast.Tuple | ast.List | ast.Set, walk: Walk) -> Value:
    items: list[Value] = []
    open_ended = isinstance(node, ast.Set)
    for part in node.elts:
        if isinstance(part, ast.Starred):
            inner = evaluate(walk, part.value)
            walk.look(part)
            if inner.items is not None:
                items += inner.items
            else:
                open_ended = True
                items.append(member(inner))
        elif isinstance(part, ast.Constant):  # lists of numbers and texts are long
            items.append(value_of.dispatch(ast.Constant)(part, walk))
        else:
            items.append(evaluate(walk, part))
    walk.budget -= len(items) >> 5
    if open_ended:
        return sequence(element=element_of(sequence(tuple(items))) if items else None)
    return sequence(tuple(items))


@value_of.register
def _(node: ast.Dict, walk: Walk) -> Value:
    values = []
    for key, item in zip(node.keys, node.values, strict=True):
        if key is not None:
            evaluate(walk, key)
        value = evaluate(walk, item)
        values.append(element_of(value) if key is None else value)
    element = element_of(sequence(tuple(values))) if values else None
    return mapping(element)


def _comprehension(walk: Walk, generators: list[ast.comprehension], results: list[ast.expr]) -> list[Value]:
    env = walk.names_known()
    for generator in generators:
        iterable = evaluate(walk, generator.iter)
        walk.look(generator)
        bind(walk, generator.target, member(iterable))
        for condition in generator.ifs:
            evaluate(walk, condition)
            narrow(walk, condition, True)
        if generator.ifs:  # a second time, now that the conditions are known
            walk.look(generator)
    values = [evaluate(walk, result) for result in results]
    walk.frame.env = env
    return values


@value_of.register
def _(node: ast.ListComp | ast.SetComp | ast.GeneratorExp, walk: Walk) -> Value:
    made = sequence(element=_comprehension(walk, node.generators, [node.elt])[0])
    return made.but(ref=ITERATOR) if isinstance(node, ast.GeneratorExp) else made


@value_of.register
def _(node: ast.DictComp, walk: Walk) -> Value:
    return mapping(_comprehension(walk, node.generators, [node.key, node.value])[1])


@value_of.register
def _(node: ast.Lambda, walk: Walk) -> Value:
    function = Function(node, walk.frame.source, walk.frame.module, closure=walk.frame)
    return Value(Kind.FUNCTION, ref=function)


@value_of.register
def _(node: ast.JoinedStr, walk: Walk) -> Value:
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            evaluate(walk, part)
    return constant("")
