"""Rules about things that happen once at the trace, or differ between the modes: random numbers, modes, types, try."""

import ast
from collections.abc import Iterator

from ..finding import Severity
from .checking import Checking, Mark
from .record import Rule, rule
from .values import Kind

_CLOCKS = {
    "time.time", "time.perf_counter", "time.monotonic", "time.time_ns", "time.process_time", "time.perf_counter_ns",
    "time.ctime", "time.localtime", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
    "datetime.date.today", "os.urandom", "os.getpid",
}  # fmt: skip
_SCOPES = {f"mx.autograd.{scope}" for scope in ("record", "pause", "train_mode", "predict_mode")}
_KNOWN = (
    "builtins.", "numpy.", "mx.", "math.", "random.", "logging.", "warnings.", "copy.", "functools.", "itertools.",
    "time.", "os.", "collections.", "operator.", "typing.", "pprint.", "IPython.", "contextlib.", "dataclasses.",
)  # fmt: skip
_HARMLESS = {"?.display", "?.get_ipython"}


@rule("HL172", "python-random", Severity.WARNING)
class PythonRandom(Rule):
    """Using Python's or NumPy's random numbers, or the clock, inside hybrid_forward.

    Why: the number is drawn once, while the graph is traced, and stays the same in every later call.
    Bad:
        return x * random.random()
    Instead:
        return x * F.random.uniform(shape=(1,))
    """

    message = "`{call}` is drawn once, when the graph is made, and stays the same in every later call."
    rewrite = "F.random.uniform(...), F.random.normal(...)      or      an input of the network"
    defaults = {"call": "random.random()"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        name = checking.dotted(node.func) or ""
        if name.startswith(("random.", "numpy.random.", "secrets.", "uuid.")) or name in _CLOCKS:
            yield checking.mark(node, call=f"{checking.text(node.func)}()")


@rule("HL174", "mode-read", Severity.WARNING)
class ModeRead(Rule):
    """Calling `autograd.is_training()` or `is_recording()` inside hybrid_forward.

    Why: the answer may change from call to call. MXNet keeps the first answer in the graph; Hybrid Lab traces one graph
        for each answer.
    Bad:
        if autograd.is_training():
            x = x * 2
        return x
    Instead:
        return F.Dropout(x, p=0.5)           # operators know the mode themselves
    """

    message = "`{call}` is called while the graph is made; each answer needs a graph of its own."
    rewrite = "an operator that knows the mode (F.Dropout, F.BatchNorm)      or      ask outside the network"
    defaults = {"call": "autograd.is_training()"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.dotted(node.func) in ("mx.autograd.is_training", "mx.autograd.is_recording"):
            yield checking.mark(node, call=f"{checking.text(node.func)}()")


@rule("HL175", "autograd-scope", Severity.ERROR)
class AutogradScope(Rule):
    """Using `autograd.record()`, `pause()`, `train_mode()` or `predict_mode()` inside hybrid_forward.

    Why: a graph runs in one mode, the mode of the call. A scope inside the graph is not recorded.
    Bad:
        with autograd.pause():
            y = x * 2
        return y
    Instead:
        return F.BlockGrad(x * 2)            # or open the scope round the call of the network
    """

    message = "`{call}` inside hybrid_forward does not become part of the graph."
    rewrite = "F.BlockGrad(x)      or      the scope around the call of the network"
    defaults = {"call": "autograd.pause()"}

    def at(self, node: ast.With, checking: Checking) -> Iterator[Mark]:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and checking.dotted(call.func) in _SCOPES:
                yield checking.mark(call, call=f"{checking.text(call.func)}()")


@rule("HL176", "mode-dispatch", Severity.WARNING)
class ModeDispatch(Rule):
    """Testing whether a tensor is an NDArray or a Symbol, or whether `F` is `nd`.

    Why: eager and hybrid calls then run different code and may give different results.
    Bad:
        if isinstance(x, mx.nd.NDArray):
            x = x * 2
        return x
    Instead:
        return x * 2
    """

    message = "`{construct}` makes eager and hybrid run different code."
    rewrite = "remove the test: operators in F work in both modes"
    defaults = {"construct": "isinstance(x, NDArray)"}

    def at(self, node: ast.Call | ast.Compare, checking: Checking) -> Iterator[Mark]:
        value = checking.value(node)
        if value.kind is Kind.MODE and value.ref == "sort":
            yield checking.mark(node, construct=" ".join(checking.text(node).split()))


@rule("HL177", "try-operators", Severity.WARNING)
class TryOperators(Rule):
    """`try` / `except` around operators on tensors.

    Why: errors that depend on values do not occur while a graph is traced, and code that cannot be traced takes the
        `except` branch. The choice holds for all later calls.
    Bad:
        try:
            y = F.dot(x, x)
        except Exception:
            y = x
        return y
    Instead:
        return F.dot(x, x)
    """

    message = "whether `except` runs is decided once, while the graph is made, for all later calls."
    rewrite = "remove the try; check shapes before the network is called"

    def at(self, node: ast.Try, checking: Checking) -> Iterator[Mark]:
        if not node.handlers:
            return
        for statement in node.body:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Call | ast.BinOp | ast.Attribute) and checking.value(inner).has_tensor:
                    yield checking.mark(node.handlers[0])
                    return
                if isinstance(inner, ast.Attribute) and checking.value(inner).kind in (Kind.SHAPE, Kind.HOST):
                    yield checking.mark(node.handlers[0])
                    return


@rule("HL198", "generator", Severity.ERROR)
class Generator(Rule):
    """`yield`, `await` or `async` in hybrid_forward.

    Why: a trace calls the method once and needs its outputs immediately; a generator returns none.
    Bad:
        for i in range(3):
            yield x * i
    Instead:
        return [x * i for i in range(3)]
    """

    message = "`{construct}` in hybrid_forward: a trace needs the outputs immediately."
    rewrite = "return a list of the outputs      or      F.contrib.foreach"
    defaults = {"construct": "yield"}

    def at(
        self, node: ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFunctionDef, checking: Checking
    ) -> Iterator[Mark]:
        if isinstance(node, ast.AsyncFunctionDef):
            if node is checking.function():
                yield checking.mark(node, construct="async")
            return
        function = checking.function()
        if getattr(function, "name", None) in ("hybrid_forward", "forward"):
            yield checking.mark(node, construct="await" if isinstance(node, ast.Await) else "yield")


@rule("HL199", "unknown-function", Severity.NOTE)
class UnknownFunction(Rule):
    """Passing tensors to a function whose source cannot be found.

    Why: the linter cannot check what the function does with them.
    Bad:
        return some_library.normalize(x)
    Instead:
        return F.L2Normalization(x)
    """

    message = "`{call}` receives {tensor}; its source could not be found, so it was not checked."
    rewrite = "a function in the same file, or an operator of F"
    defaults = {"call": "function"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        name = checking.dotted(node.func)
        if name is None or name.startswith(_KNOWN) or name in _HARMLESS:
            return
        if name.rpartition(".")[2][:1].isupper():
            return  # a class: it keeps the tensors, or is a Block of its own (HL183)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        guilty = next((argument for argument in arguments if checking.value(argument).has_tensor), None)
        if guilty is not None:
            yield checking.mark(node, checking.root_name(guilty), call=checking.text(node.func))
