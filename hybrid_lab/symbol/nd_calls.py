"""Calls of functions of `nd` on Symbols: part of the graph in 2.x-style code, refused with HL163 in hybrid_forward.

`hybrid_lab/__init__.py` provides them to `ndarray/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.symbol import control_flow, surface, tracing
from hybrid_lab.symbol.symbol import Symbol, as_arrays, compose


def compose_call(op: Operator, inputs: Sequence[object], name: str | None) -> Symbol | list[Symbol]:
    """An operator; several outputs in a list. Raises HybridizeError HL163."""
    trace = tracing.current()
    if trace is not None and not trace.arrays:
        first = next((item for item in inputs if isinstance(item, Symbol)), None)
        array = next((item for item in inputs if not isinstance(item, Symbol)), None)
        raise tracing.refuse("HL163", tensor=first, value=array, call=f"nd.{op.name}", operator=op.name)
    return as_arrays(compose(op, inputs, name))


def compose_creation(name: str, arguments: dict[str, object]) -> Symbol:
    """nd.ones(...) and the like in 2.x-style code."""
    known = {key: value for key, value in arguments.items() if value is not None and key not in ("ctx", "stype", "out")}
    return getattr(surface, name)(**known)


def refuse_function(name: str, inputs: Sequence[object]) -> None:
    """For an autograd.Function. Raises HybridizeError HL175: a graph would lose the Function's own backward."""
    first = next((item for item in inputs if isinstance(item, Symbol)), None)
    if first is not None:
        raise tracing.refuse(
            "HL175",
            tensor=first,
            call="autograd.Function",
            message=f"`{name}` is an autograd.Function: a graph would lose its own backward.",
            reason="An autograd.Function computes on arrays; a graph would contain its forward, but not its backward.",
            rewrite="operators of F, with F.BlockGrad where no gradient flows      or      call it in a plain Block",
        )


def refuse_numbers(name: str, inputs: Sequence[object]) -> None:
    """For a function that reads the numbers of a tensor, such as `np.unique` or `contrib.boolean_mask`.

    Raises HybridizeError HL133; hybridized Blocks that call the function run eagerly.
    """
    first = next((item for item in inputs if isinstance(item, Symbol)), None)
    if first is not None:
        error = tracing.refuse(
            "HL133",
            tensor=first,
            call=name,
            message=f"{name} reads numbers that do not exist while a graph is made.",
            reason="It computes in NumPy, from the numbers of its arguments.",
            rewrite=f"call {name} in a plain Block",
        )
        error.runs_eagerly = True
        raise error


def _composed(function: Callable[..., object]) -> Callable[..., Any]:
    """`nd.contrib.<function>`. Raises HybridizeError HL163."""

    def call(*args: object) -> object:
        trace = tracing.current()
        if trace is not None and not trace.arrays:
            name = f"contrib.{function.__name__}"
            raise tracing.refuse("HL163", call=f"nd.{name}", operator=name)
        return function(*args)

    return call


compose_foreach, compose_while_loop = _composed(control_flow.foreach), _composed(control_flow.while_loop)
compose_cond = _composed(control_flow.cond)
