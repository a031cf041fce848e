"""Run one operator on NumPy arrays: the kernel's calling convention and the cached inference rules, in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AutogradError, DTypeError, HybridLabError, ShapeError
from hybrid_lab.ops.framework.contract import read_dtypes, read_gradients, read_outputs, read_shapes
from hybrid_lab.ops.framework.dtypes import BFLOAT16, is_bfloat16
from hybrid_lab.ops.framework.memory import WORKSPACE
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.sizes import NeedsNumber, guards_of, shapes_key

Scratch = Callable[[tuple[int, ...], Any], np.ndarray]
_OUT = frozenset({"out"})


def run_kernel(
    op: Operator, inputs: Sequence[Any], out: Any = None, rng: tuple[int, int] | None = None,
    need: tuple[bool, ...] | None = None, scratch: Scratch | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """All outputs of `op` as a tuple (None for a hidden output that `need` leaves out).

    out : None, or one array (or None) per output, to be filled
    rng : (seed, draw) for random operators
    scratch : gives the temporary memory of kernels; None means the thread's workspace
    """
    half = op.half_in_float32
    for item in inputs:
        if type(item) is np.ndarray and (
            (item.dtype.kind == "V" and not (op.view or op.own_bfloat16)) or (half and item.dtype == np.float16)
        ):
            return _run_in_float32(op, inputs, out, rng, need, scratch)
    if op.asks_bfloat16:
        return _run_in_float32(op, inputs, out, rng, need, scratch)
    wanted = op.run_keywords
    if out is None and wanted <= _OUT:
        return read_outputs(op, op.numpy(*inputs))
    keywords: dict[str, Any] = {}
    if out is not None and "out" in wanted:
        keywords["out"] = out[0] if op.signature.outputs == 1 else tuple(out)
    if "rng" in wanted:
        keywords["rng"] = rng or (0, 0)
    if "need" in wanted:
        keywords["need"] = need if need is not None else (True,) * op.signature.outputs
    if "scratch" in wanted:
        if scratch is None:
            mark = WORKSPACE.mark()
            try:
                return read_outputs(op, op.numpy(*inputs, **keywords | {"scratch": WORKSPACE}))
            finally:
                WORKSPACE.release(mark)
        keywords["scratch"] = scratch
    return read_outputs(op, op.numpy(*inputs, **keywords))


def _run_in_float32(op: Operator, inputs: Sequence[Any], out: Any, *more: Any) -> tuple[object, ...]:
    dtypes = tuple([item.dtype if isinstance(item, np.ndarray) else None for item in inputs])
    wide = InFloat32(op, read_dtypes(op, op.infer_type(*dtypes)))
    return wide.rounded(run_kernel(wide.op, wide.widened(inputs), None, *more), out)


class InFloat32:
    """The kernel of an operator for bfloat16, which NumPy's own functions lack or add up in, and for float16 if the
    record says `half_in_float32`: it computes in float32, and its results are rounded once, at the end. Called as
    `op.numpy` is.

    op : in float32, if its attributes ask for bfloat16; dtypes : of the outputs
    """

    def __init__(self, op: Operator, dtypes: Sequence[np.dtype]):
        if op.asks_bfloat16:
            op = op.variant(**{name: "float32" for name, value in op.attributes.items() if value == BFLOAT16})
        self.op, self.dtypes = op, dtypes

    def widened(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, converted to float32 if the kernel does not take their dtype."""
        kinds = "Vf" if self.op.half_in_float32 else "V"
        return [
            widen(item) if type(item) is np.ndarray and item.dtype.itemsize == 2 and item.dtype.kind in kinds else item
            for item in inputs
        ]

    def rounded(self, outputs: Sequence[Any], out: Any = None) -> tuple[Any, ...]:
        """The outputs in their dtypes, in the arrays of `out` if there are some."""
        targets = (None,) * len(outputs) if out is None else out
        found = []
        for value, target, dtype in zip(outputs, targets, self.dtypes, strict=True):
            if value is not None and target is not None:
                np.copyto(target, value, casting="unsafe")
                value = target
            elif value is not None:
                value = value.astype(dtype, copy=False)
            found.append(value)
        return tuple(found)

    def __call__(self, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        op = self.op
        targets = out if out is None or isinstance(out, tuple) else (out,)
        made = self.rounded(read_outputs(op, op.numpy(*self.widened(inputs), **keywords)), targets)
        return made if len(made) > 1 else made[0]


def kernel_of(op: Operator, dtypes_in: Sequence[Any], dtypes_out: Sequence[np.dtype]) -> Callable[..., Any]:
    """What to call for `op` on arrays of these dtypes (None for an immediate): its kernel, or the same in float32."""
    return InFloat32(op, dtypes_out) if computes_in_float32(op, dtypes_in) else op.numpy


def computes_in_float32(op: Operator, dtypes: Sequence[Any]) -> bool:
    """Whether the operator's kernel gets float32 in place of a narrower dtype."""
    if op.asks_bfloat16 or (op.half_in_float32 and any(dtype == np.float16 for dtype in dtypes if dtype is not None)):
        return True
    return not (op.view or op.own_bfloat16) and any(dtype is not None and is_bfloat16(dtype) for dtype in dtypes)


def widen(array: np.ndarray) -> np.ndarray:
    """bfloat16 or float16 as float32, exactly."""
    if array.size > 1 and not any(array.strides):  # a stand-in without memory, of which only the shape is read
        return np.broadcast_to(np.zeros((), np.float32), array.shape)
    return array.astype(np.float32)


def infer(
    op: Operator, shapes: tuple[Any, ...], dtypes: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[np.dtype, ...]]:
    """Output shapes and dtypes for complete input shapes and dtypes (None for an immediate), cached on the instance.

    Raises ShapeError or DTypeError.
    """
    guards = guards_of(shapes)
    if guards is None:
        known, key = op.inferred, (shapes, dtypes)
        # What runs in float32 is kept apart: eager calls run the kernel itself if they find their key in `inferred`.
        if computes_in_float32(op, dtypes):
            known = known.setdefault(BFLOAT16, {})
    else:  # symbolic sizes have no hash; their inferred types are kept for this run of the passes
        if not type(op).__module__.startswith("hybrid_lab."):  # its author does not know symbolic sizes
            symbols = frozenset().union(*[guards.symbols_of(size) for shape in shapes for size in shape])
            raise NeedsNumber(symbols, f"{op.name}: its rule")
        known, key = guards.inferred, (op, *shapes_key(shapes), dtypes)
    found = known.get(key)
    if found is None:
        if any(dtype is None for dtype in dtypes):
            _refuse_numbers(op, dtypes)
        try:
            out_shapes = read_shapes(op, op.infer_shape(*shapes))
        except NeedsNumber as need:
            raise NeedsNumber(need.symbols, need.rule or f"{op.name}: its rule") from None
        except HybridLabError:
            raise
        except FAILURES as error:
            raise no_shapes(op, error) from error
        for shape in out_shapes:
            if any(type(size) is int and size < 0 for size in shape):
                raise ShapeError(f"{op!r} has no result of shape {shape}: a shape cannot have negative sizes")
        out_types = read_dtypes(op, op.infer_type(*dtypes))
        if (out_types[0].kind if not is_bfloat16(out_types[0]) else "f") not in op.dtype_kinds:
            wanted = "floating numbers are needed" if op.dtype_kinds == "f" else "numbers are needed"
            raise DTypeError(f"{op.name}: {wanted}, not {out_types[0].name}; use F.cast(x, dtype='float32')")
        found = (out_shapes, out_types)
        if len(known) > 512:
            known.clear()
        known[key] = found
    return found


FAILURES = (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What arithmetic on attributes of any values, such as infinity or 10**18, may end in."""


def no_shapes(op: Operator, error: BaseException) -> ShapeError:
    """The error for a rule that failed at the operator's attributes."""
    return ShapeError(f"{op!r:.200}: no shapes follow from these attributes ({type(error).__name__}: {error})")


def _refuse_numbers(op: Operator, dtypes: Sequence[Any]) -> None:
    """Raise DTypeError for an immediate in the place of an input that must be an array."""
    for index, dtype in enumerate(dtypes):
        if dtype is None and op.needs_array(index):
            names = op.signature.inputs
            name = names[index] if index < len(names) else f"number {index}"
            raise DTypeError(f"{op.name}: the input {name} must be an array, not a number")


def apply_numpy(op: Operator, inputs: Sequence[Any], rng: tuple[int, int] | None = None) -> Any:
    """The visible outputs on raw arrays: one array, or a tuple of them."""
    outputs = run_kernel(op, inputs, rng=rng)
    visible = op.signature.visible
    return outputs[0] if visible == 1 else outputs[:visible]


def no_second_gradient(op: Operator, where: str = "") -> AutogradError:
    """The error for an operator with `refuses_gradient`: the gradient of RNN, say. where : added to the message"""
    name = op.name.strip("_").removesuffix("_grad")
    return AutogradError(f"the gradient of {name} has no gradient; leave it out of what is differentiated twice{where}")


def run_gradient(
    op: Operator, F: Any, inputs: Sequence[Any], outputs: Sequence[Any], douts: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradient of every input as a tuple, None if there is none or none is wanted.

    outputs : every output, also hidden outputs; douts : one per visible output, None if no gradient arrives
    wanted : one bool per input, None meaning all; saves eager work, a graph builder may leave it out
    """
    rule: Any = op.grad
    if op.grad_wants:
        result = rule(F, *inputs, *outputs, *douts, wanted=wanted)
    else:
        result = rule(F, *inputs, *outputs, *douts)
    return read_gradients(op, result, inputs)
