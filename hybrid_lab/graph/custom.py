"""Custom: a call of user's Python code as one node of a graph, and CustomGradient, the call of its backward.

The code is not compiled: every engine runs such a node on the host, as a call of Python between its own kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.loops.composed import Composed
from hybrid_lab.graph.node import Value
from hybrid_lab.ops.framework.memory import all_into, into
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.framework.sizes import NeedsNumber, guards_of

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape

CALL = np.dtype("int64")
"""The dtype of the hidden output that holds the number of a call, by which the backward finds what the call kept."""


def is_call_number(value: Value) -> bool:
    """Whether a value is the number of a call of the user's code, which differs from run to run."""
    op = value.node.op
    return isinstance(op, Custom) and value.index == op.signature.outputs - 1


class HostCode(Protocol):
    """The user's code behind a Custom node, on NumPy arrays; `hybrid_lab.mxnet.operator` implements it.

    op_type, keywords : the name under which the code is registered, and the text of its arguments
    inputs, outputs, states : their names
    needs_heads : whether the backward reads the gradients of the outputs; the code of a loss does not
    """

    op_type: str
    keywords: dict[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...]
    needs_heads: bool

    def infer_shape(self, shapes: Sequence[PartialShape]) -> tuple[Sequence[Shape], Sequence[Shape], Sequence[Shape]]:
        """The shapes of inputs, outputs and states; some of the given shapes may not be known. Raises ShapeError."""
        ...

    def infer_type(
        self, dtypes: Sequence[np.dtype]
    ) -> tuple[Sequence[np.dtype], Sequence[np.dtype], Sequence[np.dtype]]:
        """The dtypes of inputs, outputs and states. Raises DTypeError."""
        ...

    def forward(
        self, train: bool, inputs: Sequence[Array], states: Sequence[Array], draw: tuple[int, int], keep: bool
    ) -> tuple[list[Array], list[Array], int]:
        """The outputs, the new states, and the number of the call.

        draw : (seed, number) of the call's random numbers; keep : whether a backward may follow
        """
        ...

    def backward(
        self,
        call: int,
        heads: Sequence[Array],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        states: Sequence[Array],
    ) -> list[Array]:
        """The gradients of the inputs for a call that was kept. Raises AutogradError."""
        ...


class Custom(Composed):
    """A call of the code in `code`. train : the mode of the call; None in a neutral graph

    inputs : the inputs of the code, then its states
    returns : the outputs of the code; the hidden outputs are its new states and the number of the call

    It counts as random: it runs in every call, as often as the graph has it, and its random numbers have a stream of
    their own.
    """

    name: ClassVar[str] = "Custom"
    mxnet: ClassVar[str | None] = "Custom"
    family: ClassVar[str] = "custom"
    own_bfloat16: ClassVar[bool] = False
    mode_dependent: ClassVar[bool] = True
    random: ClassVar[bool] = True
    code: HostCode
    train: bool | None

    def __init__(self, code: HostCode, train: bool | None = None):
        super().__init__(code=code, train=train, attributes={"op_type": code.op_type, **code.keywords})

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        code = self.code
        visible = len(code.outputs)
        names = (*code.inputs, *code.states)
        return Signature(names, visible + len(code.states) + 1, visible, code.states, aux_always=True)

    @property
    def changed(self) -> dict[str, Any]:
        """The attributes in MXNet's files: `op_type` and the arguments of the code."""
        return self.attributes

    @property
    def own_gradient(self) -> bool:  # type: ignore[override]
        return not self.code.needs_heads

    def bind_mode(self, train: bool) -> Custom:
        if self.train is train:
            return self
        by_mode: dict[bool, Custom] = self.__dict__.setdefault("_bound_modes", {})
        if train not in by_mode:
            by_mode[train] = Custom(self.code, train)
        return by_mode[train]

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        count = len(self.code.inputs)
        first = shapes[0] if count else None
        known = first is not None and None not in first
        if not known or all(shape is not None and None not in shape for shape in shapes):
            return shapes
        inputs, _, states = self.code.infer_shape(shapes[:count])
        return (*map(_completed, shapes[:count], inputs), *states)

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        guards = guards_of(shapes)
        if guards is not None:  # the code computes with numbers
            symbols = frozenset().union(*[guards.symbols_of(size) for shape in shapes for size in shape])
            raise NeedsNumber(symbols, f"Custom: infer_shape of {self.code.op_type}")
        count = len(self.code.inputs)
        inputs, outputs, states = self.code.infer_shape(shapes[:count])
        for name, shape, wanted in zip(self.signature.inputs, shapes, (*inputs, *states), strict=True):
            if tuple(shape) != tuple(wanted):
                raise ShapeError(f"{self.code.op_type}: {name} has shape {shape}; infer_shape says {tuple(wanted)}")
        return [*outputs, *states, (1,)]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        count = len(self.code.inputs)
        given = [dtype for dtype in dtypes if dtype is not None]  # no input is a number
        inputs, outputs, states = self.code.infer_type(given[:count])
        for name, dtype, wanted in zip(self.signature.inputs, given, (*inputs, *states), strict=True):
            if dtype != wanted:
                raise DTypeError(f"{self.code.op_type}: {name} is {dtype.name}; infer_type says {wanted.name}")
        return [*outputs, *states, CALL]

    def complete_types(self, dtypes: Sequence[np.dtype | None]) -> Sequence[np.dtype | None]:
        """Ask the code for the dtypes of inputs and states; the dtype of the first input stands for unknown ones."""
        first, count = dtypes[0], len(self.code.inputs)
        if first is None:
            return dtypes
        inputs, _, states = self.code.infer_type([dtype or first for dtype in dtypes[:count]])
        return [*inputs, *states]

    def numpy(
        self,
        *inputs: Array,
        out: Outs = None,
        rng: tuple[int, int] | None = None,
        need: tuple[bool, ...] | None = None,
    ) -> tuple[Array, ...]:
        count = len(self.code.inputs)
        keep = need is None or need[-1]
        outputs, states, call = self.code.forward(bool(self.train), inputs[:count], inputs[count:], rng or (0, 0), keep)
        results = [*outputs, *states, np.array([call], CALL)]
        outs = (None,) * len(results) if out is None else out
        return tuple(into(value, target) for value, target in zip(results, outs, strict=True))

    def aux(self, F: object, inputs: tuple[object, ...], outputs: tuple[object, ...]) -> dict[str, Any]:
        return dict(zip(self.code.states, outputs[len(self.code.outputs) :], strict=False))

    def grad(self, F: Any, *values: Any, wanted: Any = None) -> tuple[Any, ...]:
        count, visible, states = len(self.code.inputs), len(self.code.outputs), len(self.code.states)
        inputs, rest = values[:count], values[count + states :]
        outputs, hidden, douts = rest[:visible], rest[visible : visible + states + 1], rest[visible + states + 1 :]
        taken = [*inputs, *outputs, *hidden]
        if self.code.needs_heads:
            pairs = zip(outputs, douts, strict=True)
            taken += [F.zeros_like(output) if dout is None else dout for output, dout in pairs]
        results = F.apply(CustomGradient(self.code), taken)
        results = results if isinstance(results, (tuple, list)) else (results,)
        return (*results, *(None,) * states)

    def __repr__(self) -> str:
        keywords = "".join(f", {key}={value!r}" for key, value in self.code.keywords.items())
        return f"Custom(op_type={self.code.op_type!r}{keywords})"


def _completed(given: PartialShape, inferred: Shape) -> PartialShape:
    """The shape of an input with the sizes that the code says; it writes () and 0 for what it does not know."""
    if given is None:
        return tuple(inferred) or None
    return tuple(known if known is not None else size or None for known, size in zip(given, inferred, strict=True))


class CustomGradient(Composed):
    """The backward of a Custom node: its inputs, outputs, new states, the number of the call, and the gradients of the
    outputs if the code reads them -> the gradients of its inputs.
    """

    name: ClassVar[str] = "_custom_grad"
    family: ClassVar[str] = "custom"
    own_bfloat16: ClassVar[bool] = False
    refuses_gradient: ClassVar[bool] = True
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out"})
    differentiable: ClassVar[bool] = False
    grad_wants: ClassVar[bool] = False
    code: HostCode

    def __init__(self, code: HostCode):
        super().__init__(code=code)

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        code = self.code
        heads = tuple(f"{name}_grad" for name in code.outputs) if code.needs_heads else ()
        names = (*code.inputs, *code.outputs, *code.states, "call", *heads)
        return Signature(names, len(code.inputs), len(code.inputs))

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        return list(shapes[: len(self.code.inputs)])

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        return list(dtypes[: len(self.code.inputs)])

    def numpy(self, *inputs: Array, out: Array | Outs = None) -> Array | Arrays:
        code = self.code
        first = len(code.inputs)
        second = first + len(code.outputs)
        third = second + len(code.states)
        gradients = code.backward(
            int(inputs[third][0]), inputs[third + 1 :], inputs[:first], inputs[first:second], inputs[second:third]
        )
        return all_into(gradients, out)

    def __repr__(self) -> str:
        return f"gradient of {self.code.op_type}"
