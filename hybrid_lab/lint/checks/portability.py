"""Checks of rules that only matter for code that must also run on MXNet, reported with `target="mxnet"`."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.expression import one_line

from ..classes import Function, is_stub, positional_arguments
from ..values import NONE, Kind
from ..walk import Mark, Walk, check

_ARITHMETIC: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "broadcast_add"), ast.Sub: ("-", "broadcast_sub"), ast.Mult: ("*", "broadcast_mul"),
    ast.Div: ("/", "broadcast_div"), ast.Mod: ("%", "broadcast_mod"), ast.Pow: ("**", "broadcast_power"),
}  # fmt: skip
_COMPARISON: dict[type, tuple[str, str]] = {
    ast.Gt: (">", "broadcast_greater"), ast.GtE: (">=", "broadcast_greater_equal"), ast.Lt: ("<", "broadcast_lesser"),
    ast.LtE: ("<=", "broadcast_lesser_equal"), ast.Eq: ("==", "broadcast_equal"),
    ast.NotEq: ("!=", "broadcast_not_equal"),
}  # fmt: skip
_MISSING: dict[type, tuple[str, str]] = {
    ast.MatMult: ("@", "F.dot({0}, {1})"), ast.FloorDiv: ("//", "F.floor({0} / {1})"),
    ast.BitAnd: ("&", "F.broadcast_logical_and({0}, {1})"), ast.BitOr: ("|", "F.broadcast_logical_or({0}, {1})"),
    ast.BitXor: ("^", "F.broadcast_logical_xor({0}, {1})"), ast.Invert: ("~", "F.logical_not({0})"),
}  # fmt: skip

#: Functions of mx.nd that mx.sym has not, with the operator that both have.
_ARRAY_ONLY = {
    "add": "broadcast_add", "subtract": "broadcast_sub", "multiply": "broadcast_mul", "divide": "broadcast_div",
    "true_divide": "broadcast_div", "modulo": "broadcast_mod", "equal": "broadcast_equal",
    "not_equal": "broadcast_not_equal", "greater": "broadcast_greater", "greater_equal": "broadcast_greater_equal",
    "lesser": "broadcast_lesser", "lesser_equal": "broadcast_lesser_equal", "logical_and": "broadcast_logical_and",
    "logical_or": "broadcast_logical_or", "logical_xor": "broadcast_logical_xor", "concatenate": "concat",
    "moveaxis": "transpose", "empty": "zeros", "onehot_encode": "one_hot",
    "contrib.isnan": "broadcast_not_equal(x, x)", "contrib.isinf": "broadcast_equal(F.abs(x), inf)",
    "contrib.isfinite": "broadcast_lesser(F.abs(x), inf)",
}  # fmt: skip


def may_broadcast(left: ast.expr, right: ast.expr, walk: Walk) -> bool:
    """Whether the code shows that two tensors differ in shape, or leaves it to the caller: two inputs."""
    a, b = walk.value(left), walk.value(right)
    if not (a.is_tensor and b.is_tensor):
        return False
    if a.like is not None and a.like == b.like:
        return False
    two_inputs = all(isinstance(value.like, tuple) and value.like[0] == "argument" for value in (a, b))
    # A parameter or a constant has no batch axis; what layers return is as wide as the author made it.
    unlike = a.depends != b.depends or (a.thin is True) != (b.thin is True)
    return two_inputs or unlike or ("of", b.like) == a.thin or ("of", a.like) == b.thin


def arguments_of(node: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The positional arguments after self with their defaults."""
    positional = positional_arguments(node)
    missing: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    yield from list(zip(positional, [*missing, *node.args.defaults], strict=True))[1:]


@check("HL151")
def broadcasting_arithmetic(node: ast.BinOp, walk: Walk) -> Iterator[Mark]:
    if (operator := _ARITHMETIC.get(type(node.op))) is not None and may_broadcast(node.left, node.right, walk):
        symbol, broadcast = operator
        left, right = walk.text(node.left), walk.text(node.right)
        yield Mark(node, operator=symbol, broadcast=broadcast, left=left, right=right)


@check("HL152")
def broadcasting_comparison(node: ast.Compare, walk: Walk) -> Iterator[Mark]:
    if (operator := _COMPARISON.get(type(node.ops[0]))) is None or not walk.value(node).is_tensor:
        return
    if may_broadcast(node.left, node.comparators[0], walk):
        symbol, broadcast = operator
        left, right = walk.text(node.left), walk.text(node.comparators[0])
        yield Mark(node, operator=symbol, broadcast=broadcast, left=left, right=right)


@check("HL153")
def missing_operator(node: ast.BinOp | ast.UnaryOp | ast.AugAssign, walk: Walk) -> Iterator[Mark]:
    if isinstance(node, ast.AugAssign):
        operands = [node.target, node.value]
    else:
        operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        if not walk.value(node).is_tensor:
            return
    if (operator := _MISSING.get(type(node.op))) is None:
        return
    guilty = next((operand for operand in operands if walk.value(operand).is_tensor), None)
    if guilty is not None:
        symbol, replacement = operator
        texts = [walk.text(operand) for operand in operands]
        yield Mark(node, walk.tensor_name(guilty), operator=symbol, replacement=replacement.format(*texts))


@check("HL154")
def array_only_call(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return
    called = walk.value(function)
    if called.kind is Kind.OPERATORS and called.ref in _ARRAY_ONLY:
        replacement = f"{walk.operators or 'F'}.{_ARRAY_ONLY[called.ref]}"
        yield Mark(node, call=f"`{walk.text(function)}`", problem="does not exist for", replacement=replacement)
    elif walk.value(function.value).is_one_tensor:
        name, whole = walk.text(function), one_line(node, walk.text(node))
        if function.attr == "reshape" and len(node.args) > 1:
            sizes = ", ".join(walk.text(size) for size in node.args)
            replacement = f"{name}(({sizes}))"
            yield Mark(node, call=f"`{whole}`", replacement=replacement)
        elif function.attr == "tostype":
            yield Mark(node, call=f"`{name}`", problem="does not exist on", replacement="F.cast_storage")


@check("HL192")
def structured_output(node: ast.Return, walk: Walk) -> Iterator[Mark]:
    if len(walk.frames) > 1 or node.value is None:
        return
    value = walk.value(node.value)
    kind = None
    if value.kind is Kind.MAPPING:
        kind = "a dict"
    elif value.kind is Kind.CONSTANT:
        kind = "None" if value == NONE else "a constant"
    elif value.kind is Kind.SEQUENCE and any(member.kind is Kind.CONSTANT for member in value.members):
        kind = "a tuple with None or a number in it"
    if kind:
        yield Mark(node, kind=kind)


@check("HL193")
def structured_input(node: ast.FunctionDef, walk: Walk) -> Iterator[Mark]:
    parameters = set(walk.block.parameters)
    for argument, default in arguments_of(node):
        if argument.arg in parameters:
            continue
        if isinstance(default, ast.Constant) and default.value is not None:
            kinds = {bool: "a truth value", str: "a string", int: "a number", float: "a number"}
            yield Mark(argument, argument=argument.arg, kind=kinds.get(type(default.value), "a constant"))
        elif isinstance(default, ast.Dict):
            yield Mark(argument, argument=argument.arg, kind="a dict")
    for keyword in node.args.kwonlyargs:
        if keyword.arg not in parameters:
            yield Mark(keyword, argument=keyword.arg, kind="passed by keyword")


@check("HL194")
def varying_inputs(node: ast.FunctionDef, walk: Walk) -> Iterator[Mark]:
    read = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)}
    parameters = set(walk.block.parameters)
    if node.args.vararg is not None and node.args.vararg.arg in read and not _fixed_count(node, walk):
        yield Mark(node.args.vararg, argument=f"*{node.args.vararg.arg}")
    for argument, default in arguments_of(node):
        if isinstance(default, ast.Constant) and default.value is None and argument.arg not in parameters:
            if argument.arg in read:
                yield Mark(argument, argument=argument.arg)


def _fixed_count(method: ast.FunctionDef, walk: Walk) -> bool:
    """Whether the body takes a certain number of `*args`: it unpacks them or hands them to a function without `*`."""
    name = method.args.vararg.arg if method.args.vararg else ""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
            value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
            starred = any(isinstance(target, ast.Starred) for target in node.targets[0].elts)
            if isinstance(value, ast.Name) and value.id == name and not starred:
                return True
        elif isinstance(node, ast.Call) and any(
            isinstance(argument, ast.Starred) and getattr(argument.value, "id", None) == name for argument in node.args
        ):
            function = walk.value(node.func).ref
            if isinstance(function, Function) and function.node.args.vararg is None:
                return True
    return False


@check("HL197")
def unused_input(node: ast.FunctionDef, walk: Walk) -> Iterator[Mark]:
    if is_stub(node):
        return
    used = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    if "locals" in used:
        return
    parameters = set(walk.block.parameters)
    skipped = 2 if walk.operators else 1
    for argument in positional_arguments(node)[skipped:]:
        name = argument.arg
        if name not in used and name not in parameters and not name.startswith("_"):
            yield Mark(argument, argument=name)
