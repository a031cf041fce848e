"""Rules about bringing numbers to Python: host reads, synchronization, copies, conversions, printing."""

import ast
from collections.abc import Iterator

from ..expression import one_line
from ..finding import Fix, Severity
from .checking import Checking, Mark
from .numpy_calls import ELEMENTWISE, JOINING, instead_of, operator_for
from .reads import attribute_read
from .record import Rule, rule
from .values import Kind

_READS = ("asnumpy", "asscalar", "item", "tolist", "numpy", "__array__")
_MOVES = (
    "wait_to_read", "wait_to_write", "copyto", "as_in_context", "as_in_ctx", "to_device", "asnumpy_or_copy",
    "to_dlpack_for_read", "to_dlpack_for_write",
)  # fmt: skip
_COPIES = ("copy", "detach", "attach_grad", "backward", "zero_grad", "drop_grad")
_SHOWING = {
    "builtins.print",
    "builtins.str",
    "builtins.repr",
    "builtins.format",
    "pprint.pprint",
    "IPython.display.display",
}
_LOG_METHODS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log")

_MATH = {
    **{name: name for name in ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "cbrt", "floor", "ceil")},
    **{name: name for name in ("trunc", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "degrees", "radians")},
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "fabs": "abs",
}  # fmt: skip


def method_call(node: ast.Call, names: tuple[str, ...], checking: Checking) -> ast.expr | None:
    """The tensor whose method, one of the names, is called here; None if it is another call."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in names and checking.value(function.value).is_tensor:
        return function.value
    return None


def only_statement(node: ast.stmt, checking: Checking) -> bool:
    """Whether deleting a statement would leave its block empty."""
    parent = checking.parent(node)
    return any(getattr(parent, block, None) == [node] for block in ("body", "orelse", "finalbody"))


@rule("HL111", "host-read", Severity.ERROR, error=NotImplementedError)
class HostRead(Rule):
    """Reading the values of a tensor in Python: `asnumpy()`, `asscalar()`, `item()`, `tolist()`.

    Why: a graph is traced once, before tensors have values.
    Bad:
        return F.broadcast_div(x, F.full((1,), x.max().asscalar()))
    Instead:
        return F.broadcast_div(x, x.max())   # stays in the graph
    Note: code that needs the values (metrics, plots) belongs after the network, or in a plain Block.
    """

    message = "`{call}()` of {tensor} reads numbers that do not exist while a graph is made."
    rewrite = "keep the tensor in the graph (F.* operators)      or      do it in a plain Block"
    defaults = {"call": "asnumpy"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if (owner := method_call(node, _READS, checking)) is not None:
            yield checking.mark(node, checking.tensor_name(owner), call=node.func.attr)  # type: ignore[attr-defined]


@rule("HL112", "host-sync", Severity.ERROR, error=NotImplementedError)
class HostSync(Rule):
    """Waiting for a tensor or moving it: `wait_to_read()`, `copyto()`, `as_in_context()`.

    Why: a graph runs on one device, and while it is traced there is no computation to wait for.
    Bad:
        y = x * 2
        y.wait_to_read()
        return y
    Instead:
        y = x * 2
        return y
    Fix: deletes a line that only waits. Safe.
    """

    message = "`{call}()` of {tensor} has no meaning inside a graph."
    rewrite = "delete the call; move inputs to their device before calling the network"
    defaults = {"call": "wait_to_read"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.dotted(node.func) == "mx.nd.waitall":
            yield checking.mark(node, None, message="`nd.waitall()` has no meaning inside a graph.", call="waitall")
        elif (owner := method_call(node, _MOVES, checking)) is not None:
            name = node.func.attr  # type: ignore[attr-defined]
            statement = checking.parent(node)
            fix = None
            if isinstance(statement, ast.Expr) and name.startswith("wait_to_"):
                edit = checking.replace(statement, "pass" if only_statement(statement, checking) else "")
                fix = Fix("delete the call", (edit,), safe=True)
            yield checking.mark(node, checking.tensor_name(owner), fix=fix, call=name)


@rule("HL113", "copy-call", Severity.ERROR, error=NotImplementedError)
class CopyCall(Rule):
    """Using NDArray's members for copies and gradients: `copy()`, `detach()`, `attach_grad()`, `backward()`, `grad`.

    Why: a Symbol has no memory and no gradient. Gradients are recorded around the call of the network.
    Bad:
        return F.dot(x.detach(), x)
    Instead:
        return F.dot(F.BlockGrad(x), x)
    Fix: safe for `copy()` (F.identity) and `detach()` (F.BlockGrad).
    """

    message = "`.{call}` of {tensor} does not exist in a graph."
    rewrite = "F.BlockGrad({x})"
    rewrites = {
        "copy": "F.identity({x})      or      {x} itself: nothing in a graph changes a tensor",
        "detach": "F.BlockGrad({x})",
        "attach_grad": "outside the network: attach_grad() on its input, then with autograd.record(): out = net(input)",
        "backward": "outside the network: with autograd.record(): loss = ..., then loss.backward()",
        "grad": "outside the network, after loss.backward(): the input's .grad holds the gradient",
        "zero_grad": "outside the network, before autograd.record()",
        "drop_grad": "outside the network, on its input",
    }
    defaults = {"call": "copy"}

    def at(self, node: ast.Call | ast.Attribute, checking: Checking) -> Iterator[Mark]:
        if isinstance(node, ast.Attribute):
            if (owner := attribute_read(node, ("grad",), checking)) is not None:
                yield checking.mark(node, checking.tensor_name(owner), call="grad")
            return
        if (owner := method_call(node, _COPIES, checking)) is None:
            return
        name = node.func.attr  # type: ignore[attr-defined]
        fix = None
        if checking.operators and not node.args and not node.keywords and name in ("copy", "detach"):
            operator = "identity" if name == "copy" else "BlockGrad"
            text = f"{checking.operators}.{operator}({checking.text(owner)})"
            fix = Fix("the operator", (checking.replace(node, text),), safe=True)
        yield checking.mark(node, checking.tensor_name(owner), fix=fix, call=name)


@rule("HL124", "tensor-length", Severity.ERROR, error=TypeError)
class TensorLength(Rule):
    """Taking `len()` of a tensor.

    Why: the length is not known while the graph is traced. MXNet silently returns 1, the number of the Symbol's
        outputs.
    Bad:
        return F.sum(x) / len(x)
    Instead:
        return F.mean(F.sum(x, axis=1))      # or a size passed to the constructor
    """

    message = "`len()` of {tensor} is not known while a graph is made (MXNet would answer 1)."
    rewrite = "a size passed to the constructor      or      F.shape_array({x})"
    softer_in_forward = True

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.dotted(node.func) == "builtins.len" and len(node.args) == 1:
            if checking.value(node.args[0]).is_one_tensor:
                yield checking.mark(node, checking.tensor_name(node.args[0]))


@rule("HL125", "python-number", Severity.ERROR, error=TypeError)
class PythonNumber(Rule):
    """Turning a tensor into a Python number: `int`, `float`, `bool`, `round`, `max`, `min`, `sum`, `math.*`.

    Why: these functions need values, and a graph is traced before tensors have values. Python's `max(x, y)`, for
        example, tests `y > x` with `if`.
    Bad:
        return x / float(F.sum(x))
    Instead:
        return F.broadcast_div(x, F.sum(x))
    Fix: safe for `max(x, y)`, `min(x, y)` and `round(x)`: F.maximum, F.minimum, F.round.
    """

    message = "`{call}()` of {tensor} needs numbers that do not exist while a graph is made."
    rewrite = "an operator of F on {x}, which stays in the graph      or      a plain Block"
    rewrites = {
        "float": "{x} itself, which stays in the graph      or      F.cast({x}, dtype='float32')",
        "int": "F.cast({x}, dtype='int32')",
        "round": "F.round({x})",
        "max": "F.maximum({x}, other)",
        "min": "F.minimum({x}, other)",
        **{f"math.{function}": f"F.{operator}({{x}})" for function, operator in _MATH.items()},
    }
    defaults = {"call": "float"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        name = checking.dotted(node.func) or ""
        root, _, function = name.partition(".")
        arguments = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
        if root == "builtins" and function in ("int", "float", "complex", "round"):
            guilty = arguments[:1]
        elif root == "builtins" and function in ("max", "min", "sorted"):
            guilty = arguments
        elif root == "math":
            guilty = arguments
        else:
            return
        for argument in guilty:
            value = checking.value(argument)
            if value.is_one_tensor or (function in ("max", "min") and value.kind is Kind.SEQUENCE and value.has_tensor):
                if function == "sorted" and len(node.args) == 1 and not node.keywords and value.is_tensor:
                    return  # iterating is the first thing that fails: HL123
                fix = self._fix(node, function, checking)
                yield checking.mark(node, checking.tensor_name(argument), fix=fix, call=name.removeprefix("builtins."))
                return

    def _fix(self, node: ast.Call, function: str, checking: Checking) -> Fix | None:
        operators, tensors = checking.operators, [checking.value(a).is_one_tensor for a in node.args]
        if operators is None or node.keywords:
            return None
        if function in ("max", "min") and len(node.args) == 2 and any(tensors):
            text = f"{operators}.{function}imum"
        elif function == "round" and len(node.args) == 1:
            text = f"{operators}.round"
        else:
            return None
        return Fix("the operator", (checking.replace(node.func, text),), safe=True)


@rule("HL162", "numpy-on-tensor", Severity.ERROR)
class NumpyOnTensor(Rule):
    """Calling a NumPy function on a tensor.

    Why: NumPy needs values. With a Symbol it raises an error, or silently builds an array that contains Symbols.
    Bad:
        return np.exp(x)
    Instead:
        return F.exp(x)
    Fix: safe if F has an operator with the same name and meaning (`np.exp` and other elementwise functions).
    """

    message = "`{call}` was given {tensor}: NumPy needs numbers, which do not exist while a graph is made."
    rewrite = "the same operator of F, such as F.exp({x})      or      a plain Block"
    defaults = {"call": "np.array"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        name = checking.dotted(node.func)
        if name is None or not name.startswith("numpy."):
            return
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        guilty = next((argument for argument in arguments if checking.value(argument).has_tensor), None)
        if guilty is None:
            return
        function = name.rpartition(".")[2]
        operator = operator_for(function)
        tensor = checking.tensor_name(guilty)
        rewrite = instead_of(
            function, node, tensor, lambda part: one_line(part, checking.text(part)), checking.operators or "F"
        )
        fix = None
        if checking.operators and function in JOINING and "..." not in rewrite:
            fix = Fix("the operator", (checking.replace(node, rewrite),), safe=False)
        elif checking.operators and operator and not node.keywords:
            exact = function in ELEMENTWISE and len(node.args) == 1
            fix = Fix("the operator", (checking.replace(node.func, f"{checking.operators}.{operator}"),), safe=exact)
        yield checking.mark(node, tensor, fix=fix, rewrite=rewrite, call=checking.text(node.func))


@rule("HL171", "print-tensor", Severity.WARNING)
class PrintTensor(Rule):
    """Printing or logging a tensor, or putting it into a string.

    Why: the code runs once, while the graph is traced, and shows a Symbol instead of values. Later calls print nothing.
    Bad:
        print(x)
        return x * 2
    Instead:
        return x * 2                         # net.register_forward_hook(...) sees the numbers
    """

    message = "`{call}` of {tensor} happens once, when the graph is made, and shows a Symbol."
    rewrite = "net.register_forward_hook(lambda block, inputs, output: print(output))      or      a plain Block"
    defaults = {"call": "print"}

    def at(self, node: ast.Call | ast.JoinedStr | ast.BinOp, checking: Checking) -> Iterator[Mark]:
        if checking.raising:
            return  # the text of an error
        if isinstance(node, ast.Call):
            if (call := self._shown_by(node, checking)) is None:
                return
            shown = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.JoinedStr):
            call = "f-string"
            shown = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        elif isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            call, shown = "%", [node.right]
        else:
            return
        guilty = next((part for part in shown if checking.value(part).has_tensor), None)
        if guilty is not None:
            yield checking.mark(node, checking.root_name(guilty) or checking.tensor_name(guilty), call=call)

    @staticmethod
    def _shown_by(node: ast.Call, checking: Checking) -> str | None:
        name = checking.dotted(node.func)
        if name in _SHOWING or (name or "").startswith(("logging.", "warnings.warn")):
            return checking.text(node.func)
        if isinstance(node.func, ast.Attribute):
            owner = checking.value(node.func.value)
            if node.func.attr == "format" and owner.kind is Kind.CONSTANT:
                return "format"
            if (
                node.func.attr in _LOG_METHODS
                and not owner.is_tensor
                and "log" in checking.text(node.func.value).lower()
            ):
                return checking.text(node.func)
        return None
