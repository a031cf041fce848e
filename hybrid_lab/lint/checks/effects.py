"""Checks of rules about code that runs once, at the trace, or differs between the modes: random numbers, modes, try."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.expression import one_line
from hybrid_lab.diagnostics.finding import Severity

from ..classes import AUTOGRAD_FUNCTION, passed
from ..names import KNOWN_MODULES
from ..values import Kind
from ..walk import Mark, Walk, check

_CLOCKS = {
    "time.time", "time.perf_counter", "time.monotonic", "time.time_ns", "time.process_time", "time.perf_counter_ns",
    "time.ctime", "time.localtime", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
    "datetime.date.today", "os.urandom", "os.getpid",
}  # fmt: skip
_SCOPES = {f"mx.autograd.{scope}" for scope in ("record", "pause", "train_mode", "predict_mode")}
_HARMLESS = {"?.display", "?.get_ipython"}


@check("HL172")
def python_random(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    name = walk.dotted(node.func) or ""
    if name.startswith(("random.", "numpy.random.", "secrets.", "uuid.")) or name in _CLOCKS:
        yield Mark(node, call=f"{walk.text(node.func)}()")


@check("HL174")
def mode_read(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.dotted(node.func) in ("mx.autograd.is_training", "mx.autograd.is_recording"):
        yield Mark(node, call=f"{walk.text(node.func)}()")


@check("HL175")
def autograd_scope(node: ast.With | ast.Call, walk: Walk) -> Iterator[Mark]:
    if isinstance(node, ast.Call):
        name = one_line(node.func, walk.text(node.func))
        function = walk.value(node.func)
        if function.ref == AUTOGRAD_FUNCTION and any(walk.value(argument).has_tensor for argument in passed(node)):
            message = f"`{name.removesuffix('()')}` is an autograd.Function: a graph would lose its own backward."
            yield Mark(node, severity=Severity.ERROR, call="autograd.Function", message=message)
        elif walk.dotted(node.func) in ("mx.autograd.set_recording", "mx.autograd.set_training"):
            message = f"`{name}()` inside hybrid_forward changes the mode behind the graph."
            yield Mark(node, severity=Severity.ERROR, call="autograd.set_training", message=message)
        return
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and walk.dotted(call.func) in _SCOPES:
            yield Mark(call, call=f"{walk.text(call.func)}()")


@check("HL176")
def mode_dispatch(node: ast.Call | ast.Compare, walk: Walk) -> Iterator[Mark]:
    value = walk.value(node)
    if value.kind is Kind.MODE and value.ref == "sort":
        yield Mark(node, construct=" ".join(walk.text(node).split()))


@check("HL177")
def try_operators(node: ast.Try, walk: Walk) -> Iterator[Mark]:
    if not node.handlers:
        return
    for inner in (inner for statement in node.body for inner in ast.walk(statement)):
        of_tensors = isinstance(inner, ast.Call | ast.BinOp | ast.Attribute) and walk.value(inner).has_tensor
        if of_tensors or (isinstance(inner, ast.Attribute) and walk.value(inner).kind in (Kind.SHAPE, Kind.HOST)):
            yield Mark(node.handlers[0])
            return


@check("HL198")
def generator(node: ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFunctionDef, walk: Walk) -> Iterator[Mark]:
    if isinstance(node, ast.AsyncFunctionDef):
        if node is walk.function():
            yield Mark(node, construct="async")
        return
    function = walk.function()
    if getattr(function, "name", None) in ("hybrid_forward", "forward"):
        yield Mark(node, construct="await" if isinstance(node, ast.Await) else "yield")


@check("HL199")
def unknown_function(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    name = walk.dotted(node.func)
    if name is None or name.startswith(KNOWN_MODULES) or name in _HARMLESS:
        return
    if name.rpartition(".")[2][:1].isupper():
        return  # a class: it keeps the tensors, or is a Block of its own (HL183)
    if (guilty := walk.first_tensor(passed(node))) is not None:
        yield Mark(node, walk.root_name(guilty), call=walk.text(node.func))
