"""Calls of `nd.<operator>` on Symbols: part of the graph in 2.x-style code, refused with HL163 in hybrid_forward."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from hybrid_lab.ndarray import composed, creation, function
from hybrid_lab.ndarray import control_flow as eager
from hybrid_lab.ndarray import invoke as invoke_module
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.symbol import control_flow, tracing
from hybrid_lab.symbol.symbol import Symbol, compose


def dispatch_traced(op: Operator, inputs: Sequence[object], name: str | None) -> Symbol:
    """Hooked into ndarray.invoke. Raises HybridizeError HL163."""
    trace = tracing.current()
    if trace is not None and not trace.arrays:
        first = next((item for item in inputs if isinstance(item, Symbol)), None)
        array = next((item for item in inputs if not isinstance(item, Symbol)), None)
        raise tracing.refuse("HL163", tensor=first, value=array, call=f"nd.{op.name}", operator=op.name)
    return compose(op, inputs, name)


def create_traced(name: str, arguments: dict[str, object]) -> Symbol:
    """Hooked into ndarray.creation: nd.ones(...) and the like in 2.x-style code are part of the graph."""
    from hybrid_lab.symbol import surface

    known = {key: value for key, value in arguments.items() if value is not None and key not in ("ctx", "stype", "out")}
    return getattr(surface, name)(**known)


def refuse_function(name: str, inputs: Sequence[object]) -> None:
    """Hooked into ndarray.function. Raises HybridizeError HL175: a graph would lose the Function's own backward."""
    first = next((item for item in inputs if isinstance(item, Symbol)), None)
    if first is not None:
        raise tracing.refuse(
            "HL175",
            tensor=first,
            call=f"{name}()",
            reason="An autograd.Function computes on arrays; a graph would contain its forward, but not its backward.",
            rewrite="operators of F, with F.BlockGrad where no gradient flows      or      call it in a plain Block",
        )


def refuse_numbers(name: str, inputs: Sequence[object]) -> None:
    """Hooked into ndarray.composed. Raises HybridizeError HL133: the function reads the numbers of a tensor."""
    first = next((item for item in inputs if isinstance(item, Symbol)), None)
    if first is not None:
        raise tracing.refuse(
            "HL133",
            tensor=first,
            call=f"nd.{name}",
            message=f"nd.{name} reads numbers that do not exist while a graph is made.",
            rewrite="F.where(mask, x, F.zeros_like(x))      or      call it in a plain Block",
        )


def install() -> None:
    """Register the hooks."""
    function.refuse_symbols = refuse_function
    composed.refuse_symbols = refuse_numbers
    invoke_module.symbol_dispatch = dispatch_traced
    creation.symbol_creation = create_traced
    functions = (control_flow.foreach, control_flow.while_loop, control_flow.cond)
    eager.symbolic = SimpleNamespace(**{each.__name__: control_flow.recorded(each) for each in functions})
