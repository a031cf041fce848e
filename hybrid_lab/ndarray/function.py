"""Function: a computation with a gradient of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AutogradError, DTypeError, ShapeError
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.system.provided import Provided

refuse_function: Provided[[str, Sequence[object]], None] = Provided("refuse_function")


class Function:
    """Base for computations whose gradient is written by hand. An instance is called once.

    ```python
    class Sigmoid(autograd.Function):
        def forward(self, x):
            y = 1 / (1 + nd.exp(-x))
            self.save_for_backward(y)
            return y

        def backward(self, dy):              # one gradient per output of forward; returns one per input
            y, = self.saved_tensors
            return dy * y * (1 - y)

    y = Sigmoid()(x)
    ```
    """

    _graph_operator: Operator | None = None

    def __init__(self) -> None:
        self._used = False
        self.saved_tensors: tuple[NDArray, ...] = ()

    def save_for_backward(self, *args: NDArray) -> None:
        """Keep arrays for `backward`, as `self.saved_tensors`. AutogradError there, if one was written to since."""
        self.saved_tensors = args

    def forward(self, *inputs: Any) -> Any:
        """The outputs: an NDArray or a tuple of them. Runs without recording."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def backward(self, *output_grads: NDArray) -> Any:
        """The gradients of forward's inputs (None for none)."""
        raise NotImplementedError(f"{type(self).__name__} has no backward()")

    def __call__(self, *inputs: Any) -> Any:
        if self.__dict__.get("_used"):
            raise AutogradError(
                f"each {type(self).__name__} instance can be called only once; create another one: "
                f"{type(self).__name__}()(x)"
            )
        refuse_function(type(self).__name__, inputs)
        self._used = True
        with tape.Mode(False, None):
            outputs = self.forward(*inputs)
        if not tape.state.recording:
            return outputs
        several = isinstance(outputs, (tuple, list))
        plain = tuple(outputs) if several else (outputs,)
        for output in plain:
            if not isinstance(output, NDArray):
                raise DTypeError(f"{type(self).__name__}.forward must return NDArrays, not {type(output).__name__}")
        # Objects of their own: what forward saved keeps no history, so nothing points in a circle.
        results = tuple(output.detach() for output in plain)
        tape.note(FunctionEntry(self, inputs, results), inputs, results)
        return type(outputs)(results) if type(outputs) in (tuple, list) else results[0] if not several else results


class FunctionEntry(tape.Entry):
    """A call of a user's Function.

    operator : computes the same in a graph, or None
    """

    def __init__(self, function: Function, inputs: Sequence[Any], outputs: Sequence[NDArray]):
        self.operator = function._graph_operator
        self.name = type(function).__name__ if self.operator is None else repr(self.operator)
        self._function: Function | None = function
        self._context = outputs[0].context
        self._inputs = [(item.shape, item.host_view.dtype) if isinstance(item, NDArray) else None for item in inputs]
        self._outputs = [(item.shape, item.host_view.dtype) for item in outputs]
        self._is_np = any(item.is_np for item in outputs)
        self._saved = [
            tape.Saved(item, f"saved_tensors[{place}]", self.name)
            if isinstance(item, NDArray) and not item.buffer.stored
            else item
            for place, item in enumerate(function.saved_tensors)
        ]

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        function = self._function
        assert function is not None
        function.saved_tensors = tuple(map(_as_saved, function.saved_tensors, self._saved))
        gradients = [
            NDArray.from_host(np.zeros(*kind) if dout is None else np.array(dout, order="C"), self._context)
            for dout, kind in zip(douts, self._outputs, strict=True)
        ]
        if self._is_np:
            gradients = [gradient.as_np_ndarray() for gradient in gradients]
        results = function.backward(*gradients)
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        if len(results) != len(self._inputs):
            raise AutogradError(
                f"{self.name}.backward must return one gradient per input of forward: "
                f"{len(self._inputs)} were expected, {len(results)} were returned"
            )
        return [self._checked(result, kind) for result, kind in zip(results, self._inputs, strict=True)]

    def _checked(self, result: Any, kind: Any) -> object:
        if result is None or kind is None:
            return None
        if not isinstance(result, NDArray):
            raise AutogradError(f"{self.name}.backward must return NDArrays, not {type(result).__name__}")
        if result.shape != kind[0]:
            raise ShapeError(
                f"{self.name}.backward returned a gradient of shape {result.shape} for an input of shape {kind[0]}"
            )
        return result._data.astype(kind[1], copy=False)

    def check(self) -> None:
        for value in self._saved:
            if type(value) is tape.Saved:
                value.memory()

    def release(self) -> None:
        if self._function is not None:
            self._function.saved_tensors = ()
        self._function, self._saved = None, []


def _as_saved(array: Any, saved: Any) -> Any:
    """`array`, or an array with the values that it had when they were saved, if `Parameter.set_data` overwrote them."""
    if type(saved) is not tape.Saved:
        return array
    buffer, view = saved.memory()
    return array if buffer is saved.buffer else array.alike(NDArray.view_of(buffer, view))
