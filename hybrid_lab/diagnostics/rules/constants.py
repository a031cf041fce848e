"""Rules about arrays and shapes that enter a graph as constants, and about where operators come from."""

import ast
from collections.abc import Iterator

from ..expression import one_line
from ..finding import Fix, Severity
from .checking import Checking, Mark, is_stub
from .numpy_calls import ELEMENTWISE, operator_for
from .record import Rule, rule
from .values import Kind, Value

_NOT_OPERATORS = {
    "NDArray", "Symbol", "load", "save", "waitall", "Variable", "var", "Group", "load_json", "fromjson", "from_numpy",
    "from_dlpack", "to_dlpack_for_read", "to_dlpack_for_write", "load_frombuffer", "array", "CSRNDArray",
    "RowSparseNDArray",
}  # fmt: skip

_NOT_FUNCTIONS = {"array", "ndarray", "load", "save"}
_NAMESPACES = ("mx.nd.", "mx.sym.", "mx.np.", "mx.npx.")


def _depends(value: Value) -> bool:
    """Whether an input of the block takes part in a value."""
    if value.kind in (Kind.TENSOR, Kind.OUTPUTS):
        return value.depends
    return any(_depends(member) for member in value.members)


@rule("HL161", "array-constant", Severity.ERROR)
class ArrayConstant(Rule):
    """Creating an array from Python numbers with `nd.array(...)` inside hybrid_forward.

    Why: an NDArray is not part of a graph and cannot be combined with the graph's Symbols.
    Bad:
        return F.broadcast_mul(x, mx.nd.array([1.0, 2.0, 3.0]))
    Instead:
        return F.broadcast_mul(x, scale)     # self.scale = self.params.get_constant("scale", [1.0, 2.0, 3.0])
    Note: in Hybrid Lab `F.array(...)` stores the numbers in the graph; MXNet's Symbol has no such function.
    """

    message = "`{call}` makes an NDArray, which cannot enter a graph."
    rewrite = "self.params.get_constant(name, value) in __init__      or      F.full, F.zeros, F.ones, F.arange"
    defaults = {"call": "nd.array"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.style == "forward":
            return
        name = checking.dotted(node.func) or ""
        if name in ("mx.nd.array", "mx.nd.from_numpy", "mx.nd.NDArray", "mx.np.array"):
            yield checking.mark(node, call=checking.text(node.func))
        elif checking.value(node.func).kind is Kind.OPERATORS and checking.value(node.func).ref == "array":
            yield checking.mark(
                node,
                severity=Severity.NOTE,
                portability=True,
                message=f"`{checking.text(node.func)}` embeds its numbers here; MXNet's Symbol has no such function.",
            )


@rule("HL163", "fixed-namespace", Severity.ERROR, error=TypeError)
class FixedNamespace(Rule):
    """Calling `nd.*`, `sym.*` or `mx.np.*` instead of `F.*`.

    Why: F is `nd` in an eager call and `sym` while a graph is traced. Code that names one of them fails in the other
        mode.
    Bad:
        return mx.nd.relu(x)
    Instead:
        return F.relu(x)
    Fix: replaces the namespace with F. Safe; for `mx.np`, safe only for elementwise functions.
    """

    message = "`{call}` works in one mode only; F is the namespace of the mode that runs."
    rewrite = "F.{operator}(...)"
    defaults = {"call": "nd.relu", "operator": "relu"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.style == "forward" or checking.operators is None:
            return
        name = checking.dotted(node.func) or ""
        namespace = next((space for space in _NAMESPACES if name.startswith(space)), None)
        if namespace is None:
            return
        operator: str | None = name.removeprefix(namespace).removeprefix("_internal.")
        others = _NOT_FUNCTIONS if namespace == "mx.np." else _NOT_OPERATORS
        if not operator or operator.rpartition(".")[2] in others:
            return
        same = True
        if namespace == "mx.np.":
            # NumPy's name: the operator may be called otherwise, and take its arguments otherwise.
            same, operator = operator in ELEMENTWISE, operator_for(operator)
        rewrite = None if operator else "an operator of F"
        fix = None
        if operator:
            text = f"{checking.operators}.{operator}"
            fix = Fix("the namespace of the mode that runs", (checking.replace(node.func, text),), safe=same)
        call = one_line(node.func, checking.text(node.func))
        yield checking.mark(node, fix=fix, rewrite=rewrite, call=call, operator=operator)


@rule("HL164", "captured-array", Severity.ERROR, error=TypeError)
class CapturedArray(Rule):
    """Using an NDArray from outside hybrid_forward: a global, an attribute of `self`, `self.weight.data()`.

    Why: an NDArray is not part of a graph and cannot be combined with the graph's Symbols. Later changes of the array
        would not reach the graph either.
    Bad:
        return F.dot(x, self.weight.data())
    Instead:
        return F.dot(x, weight)              # the parameter as an argument of hybrid_forward
    """

    message = "`{expression}` is {kind}, which cannot enter a graph."
    rewrite = "the parameter as an argument of hybrid_forward      or      self.params.get_constant(name, value)"
    defaults = {"expression": "self.weight.data()", "kind": "an NDArray"}

    def at(self, node: ast.Call | ast.Name | ast.Attribute, checking: Checking) -> Iterator[Mark]:
        if checking.style == "forward":
            return
        if isinstance(node, ast.Call):
            function = node.func
            if not (isinstance(function, ast.Attribute) and function.attr in ("data", "list_data")):
                return
            owner = checking.value(function.value)
            if owner.kind is Kind.PARAMETER or self._unknown_parameter(function.value, owner, node, checking):
                # In a trace `data()` is the variable that stands for the parameter; MXNet hands out the array.
                yield checking.mark(node, expression=checking.text(node), portability=function.attr == "data")
        elif isinstance(node.ctx, ast.Load) and checking.value(node).kind is Kind.ARRAY:
            parent = checking.parent(node)
            if isinstance(parent, ast.Attribute) and parent.attr in (
                "shape",
                "size",
                "ndim",
                "dtype",
                "context",
                "ctx",
            ):
                return  # an array knows its shape
            if isinstance(node, ast.Name) and self._local(node, checking):
                return  # reported where it was made
            yield checking.mark(node, expression=checking.text(node))

    @staticmethod
    def _unknown_parameter(node: ast.expr, owner: Value, call: ast.Call, checking: Checking) -> bool:
        if not isinstance(node, ast.Attribute) or owner.kind is not Kind.OTHER or len(call.args) > 1:
            return False
        return checking.value(node.value).kind is Kind.SELF and not any(checking.value(a).has_tensor for a in call.args)

    @staticmethod
    def _local(node: ast.Name, checking: Checking) -> bool:
        function = checking.function()
        return function is not None and any(
            isinstance(inner, ast.Name) and inner.id == node.id and isinstance(inner.ctx, ast.Store)
            for inner in ast.walk(function)
        )


@rule("HL165", "missing-parameter", Severity.ERROR, error=TypeError)
class MissingParameter(Rule):
    """A parameter that `__init__` creates and hybrid_forward does not take as an argument.

    Why: every parameter of a HybridBlock is passed to hybrid_forward as the keyword argument that has its attribute's
        name.
    Bad:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.weight = self.params.get("weight", shape=(3, 3))

            def hybrid_forward(self, F, x):
                return x
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.weight = self.params.get("weight", shape=(3, 3))

            def hybrid_forward(self, F, x, weight):
                return F.dot(x, weight)
    Fix: adds the argument. Safe.
    """

    message = "hybrid_forward takes no argument `{parameter}` for the parameter `self.{parameter}`."
    rewrite = "def hybrid_forward({signature}, {parameter}):"
    defaults = {"parameter": "weight", "signature": "self, F, x"}

    def at(self, node: ast.ClassDef, checking: Checking) -> Iterator[Mark]:
        block = checking.block
        method = block.methods.get("hybrid_forward") if block is not None else None
        if block is None or method is None or method.node.args.kwarg is not None or is_stub(method.node):
            return
        arguments = method.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        taken = {argument.arg for argument in [*positional, *arguments.kwonlyargs]}
        for parameter in block.parameters:
            if parameter in taken:
                continue
            here = method.source is checking.source
            place = block.attributes[parameter].node if here else node
            fix = self._fix(method.node, parameter, checking) if here else None
            signature = ", ".join(argument.arg for argument in positional)
            yield checking.mark(place, fix=fix, parameter=parameter, signature=signature)

    @staticmethod
    def _fix(method: ast.FunctionDef, parameter: str, checking: Checking) -> Fix | None:
        arguments = method.args
        if arguments.vararg is not None or arguments.kwonlyargs or not arguments.args:
            return None
        end = arguments.defaults[-1] if arguments.defaults else arguments.args[-1]
        text = f", {parameter}=None" if arguments.defaults else f", {parameter}"
        edit = checking.insert(end.end_lineno or end.lineno, end.end_col_offset or 0, text)
        return Fix(f"add the argument {parameter}", (edit,), safe=True)


@rule("HL195", "constant-shape", Severity.WARNING)
class ConstantShape(Rule):
    """Reshaping or broadcasting an input to a shape that is a constant in every dimension.

    Why: the batch size becomes a constant of the graph. MXNet reads memory outside the array if it is called with
        another batch size.
    Bad:
        return x.reshape((32, 784))
    Instead:
        return x.reshape((0, -1))            # or -1 for one of the dimensions
    """

    message = "the shape {shape} fixes the batch size of {tensor} in the graph."
    rewrite = "0 keeps a dimension, -1 infers one: {x}.reshape((0, -1))"
    defaults = {"shape": "(...)"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in ("reshape", "broadcast_to"):
            return
        owner = checking.value(function.value)
        arguments = list(node.args)
        if owner.kind is Kind.OPERATORS:
            data, arguments = (arguments[0], arguments[1:]) if arguments else (None, [])
        else:
            data = function.value
        arguments += [keyword.value for keyword in node.keywords if keyword.arg == "shape"]
        if data is None or not checking.value(data).is_tensor or not checking.value(data).depends:
            return
        numbers = (
            arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List) else arguments
        )
        if not numbers or not all(
            isinstance(n, ast.Constant) and type(n.value) is int and n.value > 0 for n in numbers
        ):
            return
        shape = tuple(n.value for n in numbers if isinstance(n, ast.Constant))
        if any(number != 1 for number in shape):
            yield checking.mark(node, checking.tensor_name(data), shape=shape)


@rule("HL196", "output-without-input", Severity.WARNING)
class OutputWithoutInput(Rule):
    """Returning a tensor that depends on no input.

    Why: an output without inputs has neither a batch size nor a device.
    Bad:
        return F.zeros((1, 10))
    Instead:
        return F.zeros_like(x)               # or F.contrib.arange_like(x)
    """

    message = "the output depends on no input."
    rewrite = "F.zeros_like(x), F.ones_like(x), F.contrib.arange_like(x)"

    def at(self, node: ast.FunctionDef, checking: Checking) -> Iterator[Mark]:
        returned = checking.returns()
        with_tensors = [(place, value) for place, value, _ in returned if value.has_tensor]
        if with_tensors and not any(_depends(value) for _, value in with_tensors):
            yield checking.mark(with_tensors[0][0])
