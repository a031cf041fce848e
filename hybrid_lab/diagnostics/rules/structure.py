"""Rules about how a HybridBlock is put together: children, methods, inputs, outputs; and about the source itself."""

import ast
from collections.abc import Iterator

from ..finding import Fix, Severity
from .checking import Checking, Mark
from .record import Rule, rule
from .values import Kind, Value

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
    """How many outputs a return value is; None if it is not known."""
    if value.kind is Kind.SEQUENCE:
        return len(value.items) if value.items is not None else None
    return 1 if value.is_one_tensor else None


@rule("HL001", "syntax-error", Severity.ERROR)
class SyntaxFault(Rule):
    """The source is not valid Python.

    Why: the linter can only check code that Python can parse.
    Bad:
        return x +
    Instead:
        return x + 1
    """

    message = "{problem}"
    rewrite = " "
    defaults = {"problem": "invalid syntax"}


@rule("HL181", "plain-child", Severity.ERROR)
class PlainChild(Rule):
    """A child of a HybridBlock that is not a HybridBlock.

    Why: a Block's graph contains the graphs of its children, and a plain Block has none.
    Bad:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential()

            def hybrid_forward(self, F, x):
                return self.body(x)
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.body = nn.HybridSequential()

            def hybrid_forward(self, F, x):
                return self.body(x)
    Fix: safe if there is a hybrid counterpart (Sequential, Lambda, the contrib containers).
    """

    message = "the child `{child}` is a plain {type}, which cannot become part of a graph."
    rewrite = "{counterpart}"
    defaults = {"child": "self.body", "type": "Block", "counterpart": "a HybridBlock"}

    def at(self, node: ast.ClassDef, checking: Checking) -> Iterator[Mark]:
        block = checking.block
        if block is None or not checking.makes_graph:
            return
        children = [(a.node, f"self.{a.name}", a.value) for a in block.attributes.values()]
        children += [(place, checking.text(place), value) for place, value in block.added]
        for place, child, value in children:
            if value.kind is Kind.BLOCK and checking.is_block(value) is False:
                counterpart, fix = self._counterpart(place, value, checking)
                kind = checking.kind_of_block(value)
                yield checking.mark(place, fix=fix, child=child, type=kind, counterpart=counterpart)

    @staticmethod
    def _counterpart(place: ast.AST, value: Value, checking: Checking) -> tuple[str | None, Fix | None]:
        name = checking.kind_of_block(value)
        hybrid = _COUNTERPARTS.get(name)
        if hybrid is None:
            return f"class {name}(HybridBlock)  with hybrid_forward", None
        call = next(
            (c for c in ast.walk(checking.statement(place)) if isinstance(c, ast.Call) and id(c) == value.site), None
        )
        if call is None:
            return hybrid, None
        function = call.func
        text = checking.text(function)
        if not text.endswith(name) or (isinstance(function, ast.Name) and function.id == name):
            # A bare name would have to be imported first.
            return hybrid, Fix("the hybrid counterpart", (checking.replace(function, hybrid),), safe=False)
        return hybrid, Fix(
            "the hybrid counterpart", (checking.replace(function, text.removesuffix(name) + hybrid),), safe=True
        )


@rule("HL182", "hidden-children", Severity.ERROR)
class HiddenChildren(Rule):
    """Blocks kept in a list, tuple or dict on `self`.

    Why: children inside a container are not registered, so their parameters are neither initialized, saved nor trained.
    Bad:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Dense(8), nn.Dense(8)]

            def hybrid_forward(self, F, x):
                for layer in self.layers:
                    x = layer(x)
                return x
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.layers = nn.HybridSequential()
                self.layers.add(nn.Dense(8), nn.Dense(8))

            def hybrid_forward(self, F, x):
                for layer in self.layers:
                    x = layer(x)
                return x
    """

    message = "the blocks in `{attribute}` are hidden in a {container}: their parameters are not collected."
    rewrite = "{attribute} = nn.HybridSequential(); {attribute}.add(...)      or      self.register_child(block)"
    defaults = {"attribute": "self.layers", "container": "list"}

    def at(self, node: ast.ClassDef, checking: Checking) -> Iterator[Mark]:
        block = checking.block
        for attribute in block.attributes.values() if block is not None else ():
            value = attribute.value
            if value.kind not in (Kind.SEQUENCE, Kind.MAPPING):
                continue
            hidden = [v for v in _blocks_in(value) if v.site not in block.registered]  # type: ignore[union-attr]
            if hidden:
                container = "dict" if value.kind is Kind.MAPPING else "list"
                yield checking.mark(attribute.node, attribute=f"self.{attribute.name}", container=container)


@rule("HL183", "child-in-forward", Severity.ERROR)
class ChildInForward(Rule):
    """Creating a Block inside hybrid_forward.

    Why: every eager call would create a new, uninitialized layer, and the graph would keep the layer of the trace for
        good.
    Bad:
        return nn.Dense(10)(x)
    Instead:
        return self.dense(x)                 # self.dense = nn.Dense(10) in __init__
    """

    message = "`{type}` is made inside {method}: a new layer with new parameters in every call."
    rewrite = "self.layer = {type}(...) in __init__"
    defaults = {"type": "nn.Dense", "method": "hybrid_forward"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.value(node).site == id(node):
            yield checking.mark(node, type=checking.text(node.func), method=checking.style)


@rule("HL184", "forward-overridden", Severity.ERROR)
class ForwardOverridden(Rule):
    """A HybridBlock that defines `forward` beside `hybrid_forward`.

    Why: HybridBlock's `forward` traces hybrid_forward. If a class overrides `forward`, hybridize() has no effect.
    Bad:
        class Net(gluon.HybridBlock):
            def forward(self, x):
                return x * 2

            def hybrid_forward(self, F, x):
                return x * 2
    Instead:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x * 2
    """

    message = "`forward` is overridden beside hybrid_forward: hybridize() then does nothing."
    rewrite = "def hybrid_forward(self, F, x): ..."

    def at(self, node: ast.ClassDef, checking: Checking) -> Iterator[Mark]:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "forward":
                inherited = checking.block is not None and "hybrid_forward" in checking.block.methods
                if inherited and not _hands_on(statement):
                    yield checking.mark(statement)


@rule("HL190", "stale-ignore", Severity.WARNING)
class StaleIgnore(Rule):
    """An ignore comment that silences nothing.

    Why: the comment would hide the next real finding on its line.
    Bad:
        return x * 2  # hl: ignore[HL101] the batch is fixed
    Instead:
        return x * 2
    Fix: deletes the comment. Safe.
    """

    message = "`# hl: ignore[{codes}]` silences nothing on this line."
    rewrite = "delete the comment"
    defaults = {"codes": "HL101"}


@rule("HL191", "varying-outputs", Severity.WARNING)
class VaryingOutputs(Rule):
    """Returning different numbers of outputs, depending on something that may change from call to call.

    Why: a graph has a fixed structure of outputs: that of the call that traced it.
    Bad:
        if autograd.is_training():
            return x, x * 2
        return x
    Instead:
        return x, x * 2
    """

    message = "the number of outputs varies between calls ({counts}); a graph keeps the number of its first call."
    rewrite = "the same outputs on every path"
    defaults = {"counts": "1 or 2"}

    def at(self, node: ast.FunctionDef, checking: Checking) -> Iterator[Mark]:
        counts: dict[int, tuple[ast.AST, bool]] = {}
        for place, value, varying in checking.returns():
            if (count := _count(value)) is not None:
                known = counts.get(count)
                counts[count] = (place, varying or (known[1] if known else False))
        if len(counts) > 1 and any(varying for _, varying in counts.values()):
            place = list(counts.values())[-1][0]
            yield checking.mark(place, counts=" or ".join(str(count) for count in sorted(counts)))
