"""Rules about reading what a tensor in a graph does not know: its shape, size, type, place, layout, length."""

import ast
from collections.abc import Iterator

from ..finding import Fix, Severity
from .checking import Checking, Mark
from .record import Rule, rule
from .values import Kind

# Question about attributes that rules share.


def attribute_of(node: ast.AST) -> str | None:
    """The attribute an expression reads: of `x.shape` or `getattr(x, "shape")`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
        return str(node.args[1].value)
    return None


def attribute_read(node: ast.AST, names: tuple[str, ...], checking: Checking) -> ast.expr | None:
    """The tensor of which one of the attributes is read here, or None."""
    if attribute_of(node) not in names:
        return None
    if isinstance(node, ast.Call):
        if checking.dotted(node.func) != "builtins.getattr":
            return None
        owner = node.args[0]
    else:
        assert isinstance(node, ast.Attribute)
        if not isinstance(node.ctx, ast.Load):
            return None
        owner = node.value
    return owner if checking.value(owner).is_tensor else None


@rule("HL101", "shape-read", Severity.ERROR, error=AttributeError)
class ShapeRead(Rule):
    """Reading `.shape` of a tensor inside hybrid_forward.

    Why: a graph is traced before shapes are known; the number would become a constant of the graph.
    Bad:
        return x.reshape((x.shape[0], -1))
    Instead:
        return x.reshape((0, -1))            # 0 keeps the dimension
    Fix: safe if only the batch dimension is read, inside `reshape`. Elsewhere `F.shape_array`, `F.slice_like`,
        `F.reshape_like`, `F.broadcast_like` or `F.zeros_like` keep the shape inside the graph.
    Note: in a 2.x-style `forward` the trace can read the shape; a new graph is then traced for every new shape.
    """

    message = "`.shape` of {tensor} cannot be read while a graph is made."
    rewrite = "{x}.reshape((0, -1))  (0 keeps a dimension)      or      F.shape_array({x}), F.reshape_like({x}, other)"
    softer_in_forward = True

    def at(self, node: ast.Attribute | ast.Call, checking: Checking) -> Iterator[Mark]:
        if (owner := attribute_read(node, ("shape",), checking)) is not None:
            yield checking.mark(node, checking.tensor_name(owner), fix=self._fix(node, owner, checking))

    def _fix(self, node: ast.AST, owner: ast.expr, checking: Checking) -> Fix | None:
        """`x.shape[0]` as the first of the numbers given to a reshape of the same tensor."""
        subscript = checking.parent(node)
        if not (isinstance(subscript, ast.Subscript) and subscript.value is node):
            return None
        if not (isinstance(subscript.slice, ast.Constant) and subscript.slice.value == 0):
            return None
        parent = checking.parent(subscript)
        call = (
            checking.parent(parent)
            if isinstance(parent, ast.Tuple | ast.List) and parent.elts[0] is subscript
            else parent
        )
        if isinstance(call, ast.keyword):
            call = checking.parent(call)
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "reshape"):
            return None
        if call is parent and call.args[:1] != [subscript]:
            return None
        if checking.value(call.func.value).kind is Kind.OPERATORS:
            reshaped = call.args[0] if call.args else None
        else:
            reshaped = call.func.value
        if reshaped is None or checking.text(reshaped) != checking.text(owner):
            return None
        return Fix("0 keeps the first dimension", (checking.replace(subscript, "0"),), safe=True)


@rule("HL102", "size-read", Severity.ERROR, error=AttributeError)
class SizeRead(Rule):
    """Reading `.size` or `.ndim` of a tensor inside hybrid_forward.

    Why: a graph is traced before shapes are known; the number would become a constant of the graph.
    Bad:
        return F.sum(x) / x.size
    Instead:
        return F.mean(x)
    Note: `F.size_array(x)` is the size as a tensor. Pass a number of dimensions to the constructor.
    """

    message = "`.{attribute}` of {tensor} cannot be read while a graph is made."
    rewrite = "F.size_array({x})      or      a constructor argument (self.ndim)"
    defaults = {"attribute": "size"}
    softer_in_forward = True

    def at(self, node: ast.Attribute | ast.Call, checking: Checking) -> Iterator[Mark]:
        if (owner := attribute_read(node, ("size", "ndim"), checking)) is not None:
            yield checking.mark(node, checking.tensor_name(owner), attribute=attribute_of(node))


@rule("HL103", "dtype-read", Severity.ERROR, error=AttributeError)
class DtypeRead(Rule):
    """Reading `.dtype` of a tensor inside hybrid_forward.

    Why: a graph is traced before dtypes are known.
    Bad:
        return F.zeros((1, 3), dtype=x.dtype) * x
    Instead:
        return F.zeros_like(x) * x           # takes its dtype from x
    """

    message = "`.dtype` of {tensor} cannot be read while a graph is made."
    rewrite = "F.cast({x}, dtype='float32')      or      F.zeros_like({x})"
    softer_in_forward = True

    def at(self, node: ast.Attribute | ast.Call, checking: Checking) -> Iterator[Mark]:
        if (owner := attribute_read(node, ("dtype",), checking)) is not None:
            yield checking.mark(node, checking.tensor_name(owner))


@rule("HL104", "context-read", Severity.ERROR, error=AttributeError)
class ContextRead(Rule):
    """Reading `.context` or `.ctx` of a tensor inside hybrid_forward.

    Why: a graph belongs to no device; it runs on the device of its inputs.
    Bad:
        return x + F.ones((1, 3), ctx=x.context)
    Instead:
        return x + F.ones((1, 3))            # made where the graph runs
    """

    message = "`.{attribute}` of {tensor} does not exist in a graph: it runs where its inputs are."
    rewrite = "leave ctx out      or      F.zeros_like({x}), F.ones_like({x})"
    defaults = {"attribute": "context"}

    def at(self, node: ast.Attribute | ast.Call, checking: Checking) -> Iterator[Mark]:
        if (owner := attribute_read(node, ("context", "ctx", "device"), checking)) is not None:
            yield checking.mark(node, checking.tensor_name(owner), attribute=attribute_of(node))


@rule("HL105", "layout-read", Severity.ERROR, error=AttributeError)
class LayoutRead(Rule):
    """Reading `.T` or `.stype` of a tensor inside hybrid_forward.

    Why: a Symbol has neither. Transposing is an operator, and the storage type is not known before the graph runs.
    Bad:
        return F.dot(x.T, x)
    Instead:
        return F.dot(F.transpose(x), x)
    Fix: safe for `.T`.
    """

    message = "`.{attribute}` of {tensor} does not exist in a graph."
    rewrite = "F.transpose({x})"
    rewrites = {"stype": "leave the storage type to the caller"}
    defaults = {"attribute": "T"}

    def at(self, node: ast.Attribute | ast.Call, checking: Checking) -> Iterator[Mark]:
        if (owner := attribute_read(node, ("T", "stype"), checking)) is None:
            return
        attribute = attribute_of(node)
        if attribute == "T" and checking.style == "forward":
            return  # arrays of a 2.x trace have it
        transposed = f"{checking.operators}.transpose({checking.text(owner)})" if checking.operators else None
        fix = None
        if attribute == "T" and transposed and isinstance(node, ast.Attribute):
            fix = Fix("the operator", (checking.replace(node, transposed),), safe=True)
        yield checking.mark(node, checking.tensor_name(owner), fix=fix, attribute=attribute)


@rule("HL106", "unpack-tensor", Severity.ERROR, error=TypeError)
class UnpackTensor(Rule):
    """Unpacking one tensor into several names.

    Why: unpacking iterates over the first dimension, whose length is not known while the graph is traced.
    Bad:
        a, b = x
        return a + b
    Instead:
        a, b = F.split(x, num_outputs=2, axis=0, squeeze_axis=True)
        return a + b
    """

    message = "{tensor} cannot be unpacked into {count} names: its length is not known while a graph is made."
    rewrite = "F.split({x}, num_outputs={count}, axis=0, squeeze_axis=True)"
    defaults = {"count": "several"}
    softer_in_forward = True

    def at(self, node: ast.Assign, checking: Checking) -> Iterator[Mark]:
        if not checking.value(node.value).is_one_tensor:
            return
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                count = len(target.elts) if not any(isinstance(t, ast.Starred) for t in target.elts) else None
                yield checking.mark(target, checking.tensor_name(node.value), count=count)
