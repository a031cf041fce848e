"""Rules about writing into tensors and keeping things on `self` while a graph is made."""

import ast
from collections.abc import Iterator
from typing import Any

from ..expression import right_side
from ..finding import Fix, Severity
from .checking import Checking, Mark
from .record import Rule, rule
from .values import Kind

_SYMBOLS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**", ast.FloorDiv: "//",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
#: Arrays change in place by these; `x @= y` and the like bind a new array to the name, in both modes.
_IN_PLACE = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Pow)
_GROWING = ("append", "extend", "insert", "appendleft", "setdefault", "update")


def _on_self(node: ast.expr, checking: Checking) -> bool:
    """Whether an expression is an attribute of self, or something reached through one."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and checking.value(node.value).kind is Kind.SELF:
            return True
        node = node.value
    return False


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _leaves(element)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _set_by(call: ast.Call, checking: Checking) -> str:
    """`self.last` of `setattr(self, "last", x)`."""
    owner, name = call.args[:2]
    return f"{checking.text(owner)}.{str(name.value) if isinstance(name, ast.Constant) else checking.text(name)}"


def _has_other_name(name: str, checking: Checking) -> bool:
    """Whether a local name is copied to another name, container or attribute, so that both would see a change."""
    function = checking.function()
    for node in ast.walk(function) if function is not None else ():
        holders: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            holders = [node.value]
        elif isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(
            node.ctx if hasattr(node, "ctx") else None, ast.Load
        ):
            holders = list(node.elts)
        elif isinstance(node, ast.Dict):
            holders = list(node.values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING:
            holders = list(node.args)
        if any(isinstance(held, ast.Name) and held.id == name for held in holders):
            return True
    return False


@rule("HL141", "item-assignment", Severity.ERROR, error=TypeError)
class ItemAssignment(Rule):
    """Assigning to elements of a tensor, or deleting them: `x[...] = v`, `del x[...]`.

    Why: a graph consists of values; it has no memory to write to.
    Bad:
        x[0] = 0
        return x
    Instead:
        return F.where(mask, F.zeros_like(x), x)    # or F.scatter_nd, F.concat of the parts
    """

    message = "elements of {tensor} cannot be {change}: a graph has values, not memory."
    rewrite = "F.where(mask, value, {x})      or      F.scatter_nd(value, indices, shape)"
    rewrites = {"del": "F.slice_axis({x}, axis=0, begin=1, end=None)      or      F.concat of the parts to keep"}
    defaults = {"change": "assigned to"}

    def at(self, node: ast.Subscript | ast.AugAssign, checking: Checking) -> Iterator[Mark]:
        target = node.target if isinstance(node, ast.AugAssign) else node
        if not isinstance(target, ast.Subscript) or isinstance(target.ctx, ast.Load):
            return
        value = checking.value(target.value)
        whole = isinstance(target.slice, ast.Slice | ast.Tuple)  # a list cannot be indexed so
        if value.is_one_tensor or (value.is_tensor and whole and isinstance(target.slice, ast.Tuple)):
            deleted: dict[str, Any] = {}
            if isinstance(target.ctx, ast.Del):
                deleted = {"change": "deleted", "construct": "del"}
            yield checking.mark(target, checking.tensor_name(target.value), **deleted)


@rule("HL142", "augmented-assignment", Severity.ERROR, error=TypeError)
class AugmentedAssignment(Rule):
    """Changing a tensor in place: `x += y`, and methods that end in `_`.

    Why: eager code changes the caller's array, and a graph cannot do that, so the two modes would differ.
    Bad:
        x += 1
        return x
    Instead:
        x = x + 1
        return x
    Fix: safe if the tensor was created inside the method and has no other name.
    """

    message = "`{operator}` changes {tensor} in place in eager mode; a graph cannot."
    rewrite = "{x} = {x} {binary} {right}"
    defaults = {"operator": "+=", "binary": "+", "right": "..."}

    def at(self, node: ast.AugAssign | ast.Call, checking: Checking) -> Iterator[Mark]:
        if isinstance(node, ast.Call):
            return
        value = checking.value(node.target)
        if not value.is_tensor or isinstance(node.target, ast.Subscript) or type(node.op) not in _IN_PLACE:
            return
        if not value.single and not checking.value(node.value).is_tensor:
            return  # perhaps a list that grows
        symbol = _SYMBOLS.get(type(node.op), "+")
        target = checking.text(node.target)
        fix = None
        right = right_side(node, checking.text)
        if isinstance(node.target, ast.Name):
            edit = checking.replace(node, f"{target} = {target} {symbol} {right}")
            safe = value.fresh and not _has_other_name(node.target.id, checking)
            fix = Fix("a new tensor instead of a changed one", (edit,), safe=safe)
        yield checking.mark(node, target, fix=fix, operator=f"{symbol}=", binary=symbol, right=right)


@rule("HL173", "store-on-self", Severity.ERROR)
class StoreOnSelf(Rule):
    """Assigning to an attribute of `self` inside hybrid_forward.

    Why: the assignment runs once, while the graph is traced. A stored tensor is then a Symbol, and a stored number
        never changes again.
    Bad:
        self.attention = F.softmax(x)
        return self.attention
    Instead:
        attention = F.softmax(x)
        return attention                     # return it, or make it a parameter
    """

    message = "`{target}` is {changed} only once, while the graph is made: it {outcome}."
    rewrite = "return it as an output      or      keep it as a parameter with grad_req='null'"
    defaults = {"target": "self.x", "changed": "assigned", "outcome": "would keep a Symbol, not numbers"}

    def at(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Call, checking: Checking) -> Iterator[Mark]:
        if isinstance(node, ast.Call):
            yield from self._grown(node, checking)
            return
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in (leaf for whole in targets for leaf in _leaves(whole)):
            if isinstance(target, ast.Attribute | ast.Subscript) and _on_self(target, checking):
                # What an augmented assignment stores is what it reads, joined with what is added.
                value = checking.value(target)
                added = checking.value(node.value) if node.value is not None else value
                tensor = value.has_tensor or (isinstance(node, ast.AugAssign) and added.has_tensor)
                if value.kind in (Kind.BLOCK, Kind.CLASS):
                    continue  # HL183
                yield self._mark(target, checking.text(target), tensor, checking)

    def _grown(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _GROWING and _on_self(function.value, checking):
            if any(checking.value(argument).has_tensor for argument in node.args):
                yield self._mark(node, checking.text(function.value), True, checking)
        elif checking.dotted(function) == "builtins.setattr" and len(node.args) == 3:
            if checking.value(node.args[0]).kind is Kind.SELF and checking.value(node.args[2]).has_tensor:
                yield self._mark(node, _set_by(node, checking), True, checking)

    def _mark(self, node: ast.AST, target: str, tensor: bool, checking: Checking) -> Mark:
        if tensor:
            return checking.mark(node, target=target)
        return checking.mark(node, severity=Severity.WARNING, target=target, outcome="keeps the value of that one call")


@rule("HL178", "hidden-input", Severity.WARNING)
class HiddenInput(Rule):
    """Reading or writing the environment, a global variable or a mutable default inside hybrid_forward.

    Why: a value that is read becomes a constant of the graph, and a value is written only once, while the graph is
        traced.
    Bad:
        if os.environ.get("DOUBLE"):
            x = x * 2
        return x
    Instead:
        return x * self.factor               # read in the constructor
    """

    message = "`{construct}` {happens} once, while the graph is made, and never again."
    rewrite = "a constructor argument kept on self      or      an input of the network"
    defaults = {"construct": "global", "happens": "is read"}

    def at(self, node: ast.Global | ast.Subscript | ast.Call | ast.FunctionDef, checking: Checking) -> Iterator[Mark]:
        if isinstance(node, ast.Global):
            yield checking.mark(node, construct=f"global {', '.join(node.names)}", happens="is assigned")
        elif isinstance(node, ast.Subscript):
            if checking.dotted(node.value) == "os.environ":
                yield checking.mark(node, construct=checking.text(node))
        elif isinstance(node, ast.Call):
            if checking.dotted(node.func) in ("os.getenv", "os.environ.get"):
                yield checking.mark(node, construct=checking.text(node))
        else:
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if isinstance(default, ast.List | ast.Dict | ast.Set):
                    construct = f"mutable default {checking.text(default)}"
                    yield checking.mark(default, construct=construct, happens="is seen")
