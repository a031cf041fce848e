"""Checks of rules about writing into tensors and keeping things on `self` while a graph is made."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.expression import right_side
from hybrid_lab.diagnostics.finding import Fix, Severity

from ..classes import Frame
from ..values import Held, Kind
from ..walk import Mark, Walk, check
from .constants import names_assigned

#: Arrays change in place by these operators; `x @= y` and the like bind a new array to the name, in both modes.
_IN_PLACE: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip
_GROWING = ("append", "extend", "insert", "appendleft", "setdefault", "update")
_ONLY_OF_CONTAINERS = (
    "append", "appendleft", "extend", "extendleft", "fill", "insert", "itemset", "popitem", "popleft", "setdefault",
    "__delitem__", "__iadd__", "__ior__", "__setitem__",
)  # fmt: skip
_OF_CONTAINERS = (
    *_ONLY_OF_CONTAINERS, "add", "clear", "difference_update", "discard", "intersection_update", "pop", "remove",
    "reverse", "rotate", "sort", "subtract", "symmetric_difference_update", "update",
)  # fmt: skip
#: Functions that change their first argument.
_CHANGING = frozenset({
    "heapq.heappush", "heapq.heappop", "heapq.heapify", "heapq.heapreplace", "heapq.heappushpop", "bisect.insort",
    "bisect.insort_left", "bisect.insort_right", "random.shuffle", "numpy.random.shuffle", "numpy.put", "numpy.copyto",
    "numpy.fill_diagonal", "numpy.place", "numpy.putmask",
    *(f"builtins.{kind}.{name}" for kind in ("list", "dict", "set") for name in _OF_CONTAINERS),
    *(f"collections.{kind}.{name}" for kind in ("deque", "Counter", "OrderedDict") for name in _OF_CONTAINERS),
})  # fmt: skip


def _held(node: ast.expr, walk: Walk) -> Held | None:
    """Where the object that an expression reads, or a part of which a target is, is kept from call to call."""
    while isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        node = node.value  # a target has the value assigned to it
    return walk.value(node).held


def _on_self(node: ast.expr, walk: Walk) -> bool:
    """Whether an expression is an attribute of self, something reached through one, or another name of it."""
    if (held := _held(node, walk)) is not None:
        return held.on_self
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            asked = node.value
            if isinstance(asked, ast.Call) and walk.dotted(asked.func) == "builtins.type" and len(asked.args) == 1:
                asked = asked.args[0]  # type(self).count
            if walk.value(asked).kind is Kind.SELF:
                return True
        node = node.value
    return False


def _outer_name(node: ast.expr, walk: Walk) -> str | None:
    """The name, of the module or of a function around the class, by which an expression is reached; None: another."""
    if (held := _held(node, walk)) is not None:
        return None if held.on_self else held.text
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    frame: Frame | None = walk.frame
    while frame is not None and (frame.checked or frame is walk.frame):
        known = node.id in frame.env and node.id not in frame.grown
        if known or (frame is walk.frame and node.id in walk.about_function(names_assigned)):
            return None
        if frame.closure is None:
            break
        frame = frame.closure
    return node.id


def is_kept(node: ast.expr, walk: Walk) -> bool:
    """Whether an expression is reached through self, or through a name around the class."""
    return _on_self(node, walk) or _outer_name(node, walk) is not None


def _changes_container(node: ast.Call, walk: Walk) -> ast.expr | None:
    """The container that a call changes, by a method of the container or as an argument; None: no call like that."""
    function = node.func
    name = walk.dotted(function) or ""
    if name in _CHANGING and node.args:
        return node.args[0]
    if name.startswith("numpy."):
        return next((each.value for each in node.keywords if each.arg == "out"), None)
    for called in (function, *node.args):  # push = self.seen.append; push(1)
        method = walk.value(called)
        if not isinstance(function, ast.Attribute) and method.kind is Kind.METHOD and method.ref in _OF_CONTAINERS:
            owner = method.element
            if owner is not None and owner.kind in (Kind.SEQUENCE, Kind.MAPPING) and owner.held is not None:
                walk.values[id(called)] = owner
                return called
    if not isinstance(function, ast.Attribute) or function.attr not in _OF_CONTAINERS:
        return None
    kind = walk.value(function.value).kind
    unknown = (Kind.OTHER, Kind.METHOD) if function.attr in _ONLY_OF_CONTAINERS else ()
    return function.value if kind in (Kind.SEQUENCE, Kind.MAPPING, *unknown) else None


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _leaves(element)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _set_by(call: ast.Call, walk: Walk) -> str:
    """`self.last` of `setattr(self, "last", x)`."""
    owner, name = call.args[:2]
    return f"{walk.text(owner)}.{str(name.value) if isinstance(name, ast.Constant) else walk.text(name)}"


def _names_copied(function: ast.AST) -> frozenset[str]:
    """The local names that are copied to another name, container or attribute, so that both would see a change."""
    names: set[str] = set()
    for node in ast.walk(function):
        holders: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            holders = [node.value]
        elif isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
            holders = list(node.elts)
        elif isinstance(node, ast.Dict):
            holders = list(node.values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING:
            holders = list(node.args)
        names |= {held.id for held in holders if isinstance(held, ast.Name)}
    return frozenset(names)


@check("HL141")
def item_assignment(node: ast.Subscript | ast.AugAssign, walk: Walk) -> Iterator[Mark]:
    target = node.target if isinstance(node, ast.AugAssign) else node
    if not isinstance(target, ast.Subscript) or isinstance(target.ctx, ast.Load):
        return
    value = walk.value(target.value)
    whole = isinstance(target.slice, ast.Slice | ast.Tuple)  # a list cannot be indexed so
    if value.is_one_tensor or (value.is_tensor and whole and isinstance(target.slice, ast.Tuple)):
        change, construct = ("deleted", "del") if isinstance(target.ctx, ast.Del) else (None, None)
        yield Mark(target, walk.tensor_name(target.value), change=change, construct=construct)


@check("HL142")
def augmented_assignment(node: ast.AugAssign, walk: Walk) -> Iterator[Mark]:
    value, symbol = walk.value(node.target), _IN_PLACE.get(type(node.op))
    if not value.is_tensor or isinstance(node.target, ast.Subscript) or symbol is None:
        return
    if not value.single and not walk.value(node.value).is_tensor:
        return  # perhaps a list that grows
    target = walk.text(node.target)
    fix = None
    right = right_side(node, walk.text)
    if isinstance(node.target, ast.Name):
        edit = walk.replace(node, f"{target} = {target} {symbol} {right}")
        safe = value.fresh and node.target.id not in walk.about_function(_names_copied)
        fix = Fix("a new tensor instead of a changed one", (edit,), safe=safe)
    yield Mark(node, target, fix=fix, operator=f"{symbol}=", binary=symbol, right=right)


@check("HL173")
def store_on_self(
    node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Call | ast.Delete | ast.For | ast.With, walk: Walk
) -> Iterator[Mark]:
    if isinstance(node, ast.Call):
        yield from _grown(node, walk)
        return
    if isinstance(node, ast.For | ast.With):
        bound = [node.target] if isinstance(node, ast.For) else [item.optional_vars for item in node.items]
        for target in (leaf for whole in bound if whole is not None for leaf in _leaves(whole)):
            if isinstance(target, ast.Attribute | ast.Subscript) and _on_self(target, walk):
                yield _mark(target, walk.text(target), walk.value(target).has_tensor)
        return
    if isinstance(node, ast.Delete):
        for target in node.targets:
            if _on_self(target, walk) and not walk.value(_owner(target)).is_tensor:
                outcome = "is deleted in no later call"
                yield Mark(
                    target, severity=Severity.WARNING, target=walk.text(target), changed="deleted", outcome=outcome
                )
        return
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in (leaf for whole in targets for leaf in _leaves(whole)):
        if isinstance(target, ast.Attribute | ast.Subscript) and _on_self(target, walk):
            # An augmented assignment stores the value that it reads, joined with the added value.
            value = walk.value(target)
            added = walk.value(node.value) if node.value is not None else value
            tensor = value.has_tensor or (isinstance(node, ast.AugAssign) and added.has_tensor)
            if value.kind in (Kind.BLOCK, Kind.CLASS):
                continue  # HL183
            if tensor or not _set_once(target, walk):
                same = not isinstance(node, ast.AugAssign) and node.value is not None and _is_literal(node.value, walk)
                yield _mark(target, walk.text(target), tensor, same)


def _grown(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in _GROWING and _on_self(function.value, walk):
        if walk.first_tensor(node.args) is not None:
            yield _mark(node, walk.text(function.value), True)
            return
    if (container := _changes_container(node, walk)) is not None and _on_self(container, walk):
        target, outcome = walk.text(container), "keeps the value of that one call"
        yield Mark(node, severity=Severity.WARNING, target=target, changed="changed", outcome=outcome)
    elif walk.dotted(function) in ("builtins.setattr", "builtins.object.__setattr__") and len(node.args) == 3:
        if walk.value(node.args[0]).kind is Kind.SELF:
            value = walk.value(node.args[2])
            named = isinstance(node.args[1], ast.Constant)
            if value.has_tensor or (named and value.kind not in (Kind.BLOCK, Kind.CLASS)):  # HL183
                yield _mark(node, _set_by(node, walk), value.has_tensor, _is_literal(node.args[2], walk))


def _mark(node: ast.AST, target: str, tensor: bool, same: bool = False) -> Mark:
    """same : every call would store the same value, which matters only to code that changes it in between."""
    if tensor:
        return Mark(node, target=target)
    if same:
        return Mark(node, severity=Severity.NOTE, target=target, outcome="is left as it is in later calls")
    return Mark(node, severity=Severity.WARNING, target=target, outcome="keeps the value of that one call")


def _is_literal(node: ast.expr, walk: Walk) -> bool:
    """Whether an expression has the same value in every call: literals, and lengths of lists."""
    if isinstance(node, ast.Call):
        return walk.dotted(node.func) == "builtins.len" and walk.value(node).kind is not Kind.LENGTH
    parts = list(ast.iter_child_nodes(node))
    literal = ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.UnaryOp | ast.expr_context | ast.unaryop
    return isinstance(node, literal) and all(isinstance(part, literal) for part in parts)


def _set_once(target: ast.expr, walk: Walk) -> bool:
    """Whether an attribute is assigned if it is not there yet, and nothing else happens: also eagerly only once."""
    branch = walk.parent(walk.statement(target))
    if not isinstance(branch, ast.If) or not isinstance(target, ast.Attribute):
        return False
    name, test = walk.text(target), branch.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = test.operand.args if isinstance(test.operand, ast.Call) else []
        missing = bool(asked) and (walk.text(asked[0]) == name or walk.text(asked[-1]).strip("'\"") == target.attr)
    else:
        is_none = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and walk.text(test.left) == name
        missing = is_none and walk.text(test.comparators[0]) == "None"  # type: ignore[attr-defined]
    return missing and all(name in walk.text(statement) for statement in branch.body)


@check("HL178")
def hidden_input(
    node: ast.Global
    | ast.Nonlocal
    | ast.Subscript
    | ast.Call
    | ast.FunctionDef
    | ast.Assign
    | ast.AnnAssign
    | ast.AugAssign
    | ast.Delete,
    walk: Walk,
) -> Iterator[Mark]:
    if isinstance(node, ast.Global):
        yield Mark(node, construct=f"global {', '.join(node.names)}", happens="is assigned")
    elif isinstance(node, ast.Nonlocal):
        if not (walk.frame.function is not None and walk.frame.function.in_checked_method):
            yield Mark(node, construct=f"nonlocal {', '.join(node.names)}", happens="is assigned")
    elif isinstance(node, ast.Subscript):
        if walk.dotted(node.value) == "os.environ":
            yield Mark(node, construct=walk.text(node))
    elif isinstance(node, ast.Call):
        yield from _hidden_call(node, walk)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
        for target in (leaf for whole in targets for leaf in _leaves(whole)):
            if isinstance(target, ast.Attribute | ast.Subscript) and not walk.value(_owner(target)).has_tensor:
                if (name := _outer_name(target, walk)) is not None:
                    yield Mark(target, construct=name, happens="is changed")
    else:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if isinstance(default, ast.List | ast.Dict | ast.Set):
                construct = f"mutable default {walk.text(default)}"
                yield Mark(default, construct=construct, happens="is seen")


def _owner(target: ast.expr) -> ast.expr:
    return target.value if isinstance(target, ast.Attribute | ast.Subscript) else target


def _hidden_call(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    name = walk.dotted(node.func)
    if name in ("os.getenv", "os.environ.get"):
        yield Mark(node, construct=walk.text(node))
    elif (container := _changes_container(node, walk)) is not None:
        if walk.first_tensor(node.args) is None and (outer := _outer_name(container, walk)) is not None:
            yield Mark(node, construct=outer, happens="is changed")
