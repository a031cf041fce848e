"""The code of an operator written in Python, as a node of a graph calls it: on NumPy arrays of an engine."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import AutogradError, DTypeError, HybridLabError, ShapeError
from hybrid_lab.mxnet.operator.base import CustomOp, make_prop
from hybrid_lab.ndarray import NDArray, tape
from hybrid_lab.ndarray import zeros as nd_zeros
from hybrid_lab.ndarray.context import Context, cpu
from hybrid_lab.ndarray.numpy_mode import is_np_array
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.types import Array, PartialShape, Shape

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_MOST_KEPT = 4096
"""The most operators that are kept for a backward; the oldest is dropped."""


class CustomCode:
    """Implements `graph.custom.HostCode` with the CustomOpProp that is registered as `op_type`.

    keywords : the arguments of the CustomOpProp
    Raises HybridLabError if nothing is registered under this name.
    """

    def __init__(self, op_type: str, keywords: Mapping[str, str]) -> None:
        self.op_type, self.keywords = op_type, dict(keywords)
        self._prop = make_prop(op_type, keywords)
        self.inputs, self.outputs = self._names("list_arguments"), self._names("list_outputs")
        self.states = self._names("list_auxiliary_states")
        if not self.outputs:
            raise HybridLabError(f"{op_type}: list_outputs must name at least one output")
        self.needs_heads = bool(self._prop.need_top_grad_)

    def _names(self, rule: str) -> tuple[str, ...]:
        names = getattr(self._prop, rule)()
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise HybridLabError(f"{self.op_type}: {rule} must return a list of names, not {names!r}")
        return tuple(names)

    def infer_shape(self, shapes: Sequence[PartialShape]) -> tuple[list[Shape], list[Shape], list[Shape]]:
        """Shapes of inputs, outputs and states. Unknown shapes are [] and unknown sizes 0, as in MXNet."""
        asked = [[] if shape is None else [size or 0 for size in shape] for shape in shapes]
        inputs, outputs, states = self._answer("infer_shape", asked, ShapeError)
        return [*map(self._shape, inputs)], [*map(self._shape, outputs)], [*map(self._shape, states)]

    def infer_type(self, dtypes: Sequence[np.dtype]) -> tuple[list[np.dtype], list[np.dtype], list[np.dtype]]:
        """Dtypes of inputs, outputs and states."""
        inputs, outputs, states = self._answer("infer_type", [dtype.type for dtype in dtypes], DTypeError)
        return [*map(self._dtype, inputs)], [*map(self._dtype, outputs)], [*map(self._dtype, states)]

    def _shape(self, answer: object) -> Shape:
        try:
            return tuple([operator.index(size) for size in answer])  # type: ignore[attr-defined]
        except TypeError:
            raise ShapeError(
                f"{self.op_type}: infer_shape must return each shape as a list of whole numbers, not {answer!r}"
            ) from None

    def _dtype(self, answer: DTypeLike) -> np.dtype:
        try:
            return dtype_of(answer)
        except TypeError:
            raise DTypeError(f"{self.op_type}: infer_type returned {answer!r}, which is not a dtype") from None

    def _answer(self, rule: str, asked: list[Any], kind: type[ShapeError | DTypeError]) -> Sequence[Sequence[Any]]:
        """Call a rule of the CustomOpProp: lists for inputs, outputs and states. Raises `kind` if the rule raises."""
        try:
            answer = getattr(self._prop, rule)(asked)
        except Exception as error:
            raise kind(f"{self.op_type}: {rule}({asked}) failed: {type(error).__name__}: {error}") from error
        counts = [len(self.inputs), len(self.outputs), len(self.states)]
        lists = list(answer) if isinstance(answer, (tuple, list)) else []
        lists += [[]] if len(lists) == 2 else []
        if [len(each) if isinstance(each, (tuple, list)) else None for each in lists] != counts:
            raise kind(
                f"{self.op_type}: {rule} must return three lists, for inputs, outputs and states, of the lengths "
                f"{counts}; it returned {answer!r}"
            )
        return lists

    def create(self, context: Context, shapes: Sequence[Shape], dtypes: Sequence[np.dtype]) -> CustomOp:
        """The operator for inputs of these types. Raises HybridLabError if the CustomOpProp makes no CustomOp."""
        made = self._prop.create_operator(context, [*map(list, shapes)], [dtype.type for dtype in dtypes])
        if not isinstance(made, CustomOp):
            raise HybridLabError(f"{self.op_type}: create_operator must return a CustomOp, not {made!r}")
        return made

    def forward(
        self, train: bool, inputs: Sequence[Array], states: Sequence[Array], draw: tuple[int, int], keep: bool
    ) -> tuple[list[Array], list[Array], int]:
        """The outputs, the new states, and the number of the call for `backward`, 0 if it is not kept."""
        data, aux = _arrays(inputs), _arrays(states)
        shapes, output_shapes, _ = self.infer_shape([each.shape for each in inputs])
        dtypes, output_types, _ = self.infer_type([each.dtype for each in inputs])
        outputs = [
            _seen(nd_zeros(shape, ctx=cpu(), dtype=dtype))
            for shape, dtype in zip(output_shapes, output_types, strict=True)
        ]
        custom = self.create(cpu(), shapes, dtypes)
        with tape.Mode(False, train), random_state.substream(draw):
            custom.forward(is_train=train, req=["write"] * len(outputs), in_data=data, out_data=outputs, aux=aux)
        call = _kept.add(custom) if keep else 0
        return [each.asnumpy() for each in outputs], [each.asnumpy() for each in aux], call

    def backward(
        self,
        call: int,
        heads: Sequence[Array],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        states: Sequence[Array],
    ) -> list[Array]:
        """The gradients of the inputs. Raises AutogradError for a call that is not kept, and for changed states."""
        custom = _kept.take(call, again=tape.state.retaining)
        if custom is None:
            raise AutogradError(
                f"the gradient of {self.op_type} needs values of its forward that are gone: a graph keeps them for "
                f"{_MOST_KEPT} forwards"
            )
        gradients = [_seen(nd_zeros(each.shape, ctx=cpu(), dtype=each.dtype)) for each in inputs]
        aux = _arrays(states)
        with tape.Mode(False, None):
            custom.backward(
                req=["write"] * len(inputs),
                out_grad=_arrays(heads),
                in_data=_arrays(inputs),
                out_data=_arrays(outputs),
                in_grad=gradients,
                aux=aux,
            )
        if any(not np.array_equal(new.asnumpy(), old) for new, old in zip(aux, states, strict=True)):
            raise AutogradError(f"the backward of {self.op_type} wrote to a state, which it cannot do in a graph")
        return [each.asnumpy() for each in gradients]


class _Kept:
    """The operators of forwards that may be followed by a backward, by the number of the call.

    An operator may keep anything for its backward. It is dropped by the first forward after its last backward.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operators: dict[int, CustomOp] = {}
        self._used: set[int] = set()
        self._last = 0

    def add(self, operator: CustomOp) -> int:
        with self._lock:
            for call in self._used:
                self._operators.pop(call, None)
            self._used.clear()
            if len(self._operators) >= _MOST_KEPT:
                self._operators.pop(next(iter(self._operators)))
            self._last += 1
            self._operators[self._last] = operator
            return self._last

    def take(self, call: int, again: bool) -> CustomOp | None:
        """The operator of a call. again : whether another backward may follow, after retain_graph=True"""
        with self._lock:
            if not again:
                self._used.add(call)
            return self._operators.get(call)


_kept = _Kept()


def _arrays(values: Sequence[Array]) -> list[NDArray]:
    """Copies: the engine uses its memory again, and the code may keep its arguments."""
    return [_seen(NDArray.from_host(np.array(value, order="C"), cpu())) for value in values]


def _seen(array: NDArray) -> NDArray:
    """The array as the user's code sees it: of `mx.np` in NumPy's mode."""
    made: NDArray = array.as_np_ndarray() if is_np_array() else array
    return made
