"""Rules that only matter where the code must also run on MXNet: reported with `target="mxnet"` and at export."""

import ast
from collections.abc import Iterator

from ..finding import Severity
from .checking import Checking, Mark, is_stub
from .record import Rule, rule
from .values import NONE, Kind

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


def may_broadcast(left: ast.expr, right: ast.expr, checking: Checking) -> bool:
    """Two tensors that are not surely of equal shape."""
    a, b = checking.value(left), checking.value(right)
    return a.is_tensor and b.is_tensor and (a.like is None or a.like != b.like)


def arguments_of(node: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The positional arguments after self with their defaults."""
    positional = [*node.args.posonlyargs, *node.args.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    yield from list(zip(positional, [*missing, *node.args.defaults], strict=True))[1:]


@rule("HL151", "broadcasting-arithmetic", Severity.NOTE, portability=True)
class BroadcastingArithmetic(Rule):
    """Arithmetic between two tensors that may have different shapes.

    Why: in Hybrid Lab `+ - * / % **` broadcast in both modes. On MXNet's Symbol they need equal shapes.
    Bad:
        return x + F.ones((1, 1))
    Instead:
        return F.broadcast_add(x, F.ones((1, 1)))
    """

    message = "`{operator}` between two tensors does not broadcast on MXNet's Symbol."
    rewrite = "F.{broadcast}({left}, {right})"
    defaults = {"operator": "+", "broadcast": "broadcast_add", "left": "x", "right": "y"}

    def at(self, node: ast.BinOp, checking: Checking) -> Iterator[Mark]:
        if (operator := _ARITHMETIC.get(type(node.op))) is not None and may_broadcast(node.left, node.right, checking):
            symbol, broadcast = operator
            left, right = checking.text(node.left), checking.text(node.right)
            yield checking.mark(node, operator=symbol, broadcast=broadcast, left=left, right=right)


@rule("HL152", "broadcasting-comparison", Severity.NOTE, portability=True)
class BroadcastingComparison(Rule):
    """A comparison between two tensors that may have different shapes.

    Why: in Hybrid Lab comparisons broadcast in both modes. On MXNet's Symbol they need equal shapes.
    Bad:
        return x > F.ones((1, 1))
    Instead:
        return F.broadcast_greater(x, F.ones((1, 1)))
    """

    message = "`{operator}` between two tensors does not broadcast on MXNet's Symbol."
    rewrite = "F.{broadcast}({left}, {right})"
    defaults = {"operator": ">", "broadcast": "broadcast_greater", "left": "x", "right": "y"}

    def at(self, node: ast.Compare, checking: Checking) -> Iterator[Mark]:
        if (operator := _COMPARISON.get(type(node.ops[0]))) is None or not checking.value(node).is_tensor:
            return
        if may_broadcast(node.left, node.comparators[0], checking):
            symbol, broadcast = operator
            left, right = checking.text(node.left), checking.text(node.comparators[0])
            yield checking.mark(node, operator=symbol, broadcast=broadcast, left=left, right=right)


@rule("HL153", "missing-operator", Severity.NOTE, portability=True)
class MissingOperator(Rule):
    """`@`, `//`, `&`, `|`, `^`, `~` on a tensor.

    Why: in Hybrid Lab these operators work in both modes. MXNet's Symbol does not have them.
    Bad:
        return x @ weight
    Instead:
        return F.dot(x, weight)
    """

    message = "`{operator}` on {tensor} does not exist on MXNet's Symbol."
    rewrite = "{replacement}"
    defaults = {"operator": "@", "replacement": "F.dot(x, y)"}

    def at(self, node: ast.BinOp | ast.UnaryOp | ast.AugAssign, checking: Checking) -> Iterator[Mark]:
        if isinstance(node, ast.AugAssign):
            operands = [node.target, node.value]
        else:
            operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
            if not checking.value(node).is_tensor:
                return
        if (operator := _MISSING.get(type(node.op))) is None:
            return
        guilty = next((operand for operand in operands if checking.value(operand).is_tensor), None)
        if guilty is not None:
            symbol, replacement = operator
            texts = [checking.text(operand) for operand in operands]
            yield checking.mark(
                node, checking.tensor_name(guilty), operator=symbol, replacement=replacement.format(*texts)
            )


@rule("HL192", "structured-output", Severity.NOTE, portability=True)
class StructuredOutput(Rule):
    """Returning a dict, None or a number from hybrid_forward.

    Why: Hybrid Lab returns the same structure from the graph. MXNet's graphs return only tensors, or lists of tensors.
    Bad:
        return {"score": x}
    Instead:
        return x
    """

    message = "an output that is {kind} does not pass through MXNet's graphs."
    rewrite = "return tensors, or a list of tensors"
    defaults = {"kind": "a dict"}

    def at(self, node: ast.Return, checking: Checking) -> Iterator[Mark]:
        if checking.depth > 1 or node.value is None:
            return
        value = checking.value(node.value)
        kind = None
        if value.kind is Kind.MAPPING:
            kind = "a dict"
        elif value.kind is Kind.CONSTANT:
            kind = "None" if value == NONE else "a constant"
        elif value.kind is Kind.SEQUENCE and any(member.kind is Kind.CONSTANT for member in value.members):
            kind = "a tuple with None or a number in it"
        elif value.kind is Kind.SEQUENCE and isinstance(node.value, ast.Tuple):
            kind = "a tuple (it comes back as a list)"
        if kind:
            yield checking.mark(node, kind=kind)


@rule("HL193", "structured-input", Severity.NOTE, portability=True)
class StructuredInput(Rule):
    """Inputs of hybrid_forward that are passed by keyword, or are numbers, strings or dicts.

    Why: Hybrid Lab traces a graph for each such value. MXNet's graphs take only tensors and lists of tensors, by
        position.
    Bad:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, scale=2.0):
                return x * scale
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self, scale=2.0):
                super().__init__()
                self.scale = scale

            def hybrid_forward(self, F, x):
                return x * self.scale
    """

    message = "the input `{argument}` is {kind}, which MXNet's graphs do not take."
    rewrite = "a constructor argument kept on self      or      a tensor"
    defaults = {"argument": "scale", "kind": "a number"}

    def at(self, node: ast.FunctionDef, checking: Checking) -> Iterator[Mark]:
        parameters = set(checking.block.parameters) if checking.block is not None else set()
        for argument, default in arguments_of(node):
            if argument.arg in parameters:
                continue
            if isinstance(default, ast.Constant) and default.value is not None:
                kinds = {bool: "a truth value", str: "a string", int: "a number", float: "a number"}
                yield checking.mark(argument, argument=argument.arg, kind=kinds.get(type(default.value), "a constant"))
            elif isinstance(default, ast.Dict):
                yield checking.mark(argument, argument=argument.arg, kind="a dict")
        for keyword in node.args.kwonlyargs:
            if keyword.arg not in parameters:
                yield checking.mark(keyword, argument=keyword.arg, kind="passed by keyword")


@rule("HL194", "varying-inputs", Severity.NOTE, portability=True)
class VaryingInputs(Rule):
    """Inputs whose number may change from call to call: `*args`, or an argument that may be None.

    Why: Hybrid Lab traces a graph for each structure of inputs. MXNet has only the graph of the first call's inputs.
    Bad:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, mask=None):
                return x if mask is None else x * mask
    Instead:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, mask):
                return x * mask
    """

    message = "the input `{argument}` may be missing in some calls; MXNet's graph fits only the first call's inputs."
    rewrite = "always the same inputs"
    defaults = {"argument": "mask"}

    def at(self, node: ast.FunctionDef, checking: Checking) -> Iterator[Mark]:
        parameters = set(checking.block.parameters) if checking.block is not None else set()
        if node.args.vararg is not None:
            yield checking.mark(node.args.vararg, argument=f"*{node.args.vararg.arg}")
        for argument, default in arguments_of(node):
            if isinstance(default, ast.Constant) and default.value is None and argument.arg not in parameters:
                yield checking.mark(argument, argument=argument.arg)


@rule("HL197", "unused-input", Severity.WARNING)
class UnusedInput(Rule):
    """An input of hybrid_forward that nothing reads.

    Why: the input is not part of the graph. MXNet warns, and an exported graph has one input less.
    Bad:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, mask):
                return x * 2
    Instead:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x * 2
    """

    message = "the input `{argument}` is never used."
    rewrite = "delete the argument      or      name it `_{argument}`"
    defaults = {"argument": "mask"}

    def at(self, node: ast.FunctionDef, checking: Checking) -> Iterator[Mark]:
        if is_stub(node):
            return
        used = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if "locals" in used:
            return
        parameters = set(checking.block.parameters) if checking.block is not None else set()
        positional = [*node.args.posonlyargs, *node.args.args]
        skipped = 2 if checking.operators else 1
        for argument in positional[skipped:]:
            name = argument.arg
            if name not in used and name not in parameters and not name.startswith("_"):
                yield checking.mark(argument, argument=name)
