"""Hooks on operators: the calls of a hybridized Block run operator by operator and show each one's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.graph.node import Node
from hybrid_lab.hybridize.calls import GraphCalls
from hybrid_lab.hybridize.structure import flatten, unflatten
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.symbol.symbol import Symbol

#: Gets the name of an array, `dense0_fwd_output`, the name of the operator, and the array.
OperatorHook = Callable[[str, str, NDArray], object]


class OperatorInterceptor:
    """An interceptor of the compiled calls of a Block: it runs their graphs by `interpret` and calls the hook.

    monitor_all : the hook gets the inputs of operators, too
    """

    def __init__(self, hook: OperatorHook, monitor_all: bool) -> None:
        self.hook, self.monitor_all = hook, monitor_all

    def __call__(self, calls: GraphCalls, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """The call of a Block, operator by operator."""
        leaves, spec = flatten(args, f"the input of {calls.block.name}")
        neutral = calls.neutral(spec, leaves)
        if any(parameter._array is None for parameter in neutral.parameters):
            calls.block._complete_from(neutral, leaves)
        context = leaves[0].context
        arrays = [*leaves, *(parameter.data(context) for parameter in neutral.parameters)]
        return unflatten(neutral.out_spec, iter(interpret(neutral.with_unused, arrays, look=self._look)))

    def _look(self, node: Node, inputs: Sequence[Any], outputs: Sequence[NDArray]) -> None:
        operator = node.op.name
        if self.monitor_all:
            for name, array in zip(node.op.signature.inputs, inputs, strict=False):
                if isinstance(array, NDArray):
                    self.hook(f"{node.name}_{name}", operator, array.detach())
        for name, array in zip(Symbol(node.outputs[: len(outputs)]).list_outputs(), outputs, strict=True):
            self.hook(name, operator, array.detach())
