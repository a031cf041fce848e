"""The contract of a record, checked: at its declaration, and at the answers of its rules. Errors name record and
member.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import RecordError
from hybrid_lab.ops.framework.kernel import Kernel
from hybrid_lab.ops.framework.sample import Sample
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.framework.sizes import SymbolicSize

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.operator import Operator

RUN_KEYWORDS = ("out", "rng", "need", "scratch")
"""Keyword parameters that a kernel gets if its signature has them."""


def named_parameters(method: Any) -> tuple[tuple[str, ...], bool]:
    """The named parameters of a method behind `self`, and whether it takes any number more; faster than inspect."""
    code = method.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[1:count], bool(code.co_flags & inspect.CO_VARARGS)


# -- when a record is declared ---------------------------------------------------------------------------------


def check_record(record: type[Operator], base: type[Operator]) -> None:
    """Raise RecordError for faults that are visible without running anything. base : Operator itself."""
    for member in ("infer_shape", "numpy"):
        if getattr(record, member) is getattr(base, member) and (member == "numpy" or record.shaped_like is None):
            instead = " or shaped_like" if member == "infer_shape" else ""
            raise RecordError(record.name, member, f"is missing; every record has one{instead}")
    _check_triton(record)
    signature = inspect.getattr_static(record, "signature")
    signature = signature if isinstance(signature, Signature) else None  # else the attributes decide
    fixed = signature is not None and not record.variadic
    if signature is not None and fixed:
        _check_numpy(record)
        if record.grad is not base.grad:
            _check_grad(record, signature)
    for member, stated in (
        ("signature", signature.aux if signature else ()),
        ("shape_only", record.shape_only),
        ("arrays_only", record.arrays_only),
    ):
        for name in stated:
            if name not in record.input_names and not (name == "args" and record.variadic):
                raise RecordError(record.name, member, f"names {name!r}; the inputs are {_listed(record.input_names)}")
    if record.scalars and tuple(record.scalars) != record.input_names[-len(record.scalars) :]:
        raise RecordError(
            record.name,
            "infer_shape",
            f"must take the scalars {_listed(tuple(record.scalars))} last; it takes {_listed(record.input_names)}",
        )
    for index, sample in enumerate(record.samples):
        _check_sample(record, f"samples[{index}]", sample, fixed)


def _check_triton(record: type[Operator]) -> None:
    kernel = inspect.getattr_static(record, "triton")
    if isinstance(kernel, str):
        raise RecordError(record.name, "triton", f"is {kernel!r}; write Pointwise({kernel!r})")
    if not (kernel is None or isinstance(kernel, (*Kernel.__args__, property))):
        kinds = ", ".join(kind.__name__ for kind in Kernel.__args__)
        raise RecordError(record.name, "triton", f"is none of the kinds of kernels, or has no decorator: {kinds}")


def _check_numpy(record: type[Operator]) -> None:
    names, more = named_parameters(record.numpy)
    taken = tuple(name for name in names if name not in RUN_KEYWORDS)
    if not more and len(taken) != len(record.input_names):
        raise RecordError(
            record.name,
            "numpy",
            f"takes {_listed(taken)}; by infer_shape the inputs are {_listed(record.input_names)}",
        )


def _check_grad(record: type[Operator], signature: Signature) -> None:
    names, more = named_parameters(record.grad)
    taken = len(names) - 1 - ("wanted" in names)  # without F
    inputs, outputs, visible = len(signature.inputs), signature.outputs, signature.visible
    if not more and taken != inputs + outputs + visible:
        raise RecordError(
            record.name,
            "grad",
            f"takes F and {taken} values; it gets F, {inputs} inputs, {outputs} outputs (hidden ones too) and "
            f"{visible} output gradients",
        )


def _check_sample(record: type[Operator], member: str, sample: Any, fixed: bool) -> None:
    if not isinstance(sample, Sample):
        raise RecordError(record.name, member, f"is {sample!r}; write sample((3, 4), axis=1)")
    for name in sample.attributes:
        if name not in record.fields:
            known = _listed([key for key in record.fields if not key.startswith("_")])
            advice = f"; write `{name}: float = ...`, with its type" if hasattr(record, name) else ""
            raise RecordError(record.name, member, f"sets {name!r}; the attributes are {known}{advice}")
    missing = [name for name, field in record.fields.items() if field.required and name not in sample.attributes]
    if missing:
        raise RecordError(record.name, member, f"leaves out the attribute {missing[0]!r}, which has no default")
    if fixed and len(sample.inputs) != len(record.input_names):
        raise RecordError(
            record.name, member, f"has {len(sample.inputs)} inputs; the record takes {_listed(record.input_names)}"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


# -- where its rules answer ------------------------------------------------------------------------------------

_NUMBERS = (int, np.integer, SymbolicSize)


def read_shapes(op: Operator, answer: Any) -> tuple[tuple[int, ...], ...]:
    """What infer_shape returned, as one shape per output."""
    made = tuple(answer) if isinstance(answer, list) else (answer,)
    for shape in made:
        if not isinstance(shape, tuple) or any(not isinstance(size, _NUMBERS) for size in shape):
            raise RecordError(
                op.name,
                "infer_shape",
                f"returned {answer!r}; a shape is a tuple of ints, several shapes are a list of tuples",
            )
    count = op.signature.outputs
    if len(made) != count:
        raise RecordError(op.name, "infer_shape", f"returned {len(made)} shapes; signature.outputs is {count}")
    return made


def read_dtypes(op: Operator, answer: Any) -> tuple[np.dtype, ...]:
    """The result of infer_type, as one dtype per output; a single dtype counts for every output."""
    count = op.signature.outputs
    made = tuple(answer) if isinstance(answer, (list, tuple)) else (answer,) * count
    if len(made) != count or any(dtype is None for dtype in made):
        raise RecordError(op.name, "infer_type", f"returned {answer!r}; signature.outputs is {count}")
    return tuple(np.dtype(dtype) for dtype in made)


def read_outputs(op: Operator, answer: Any) -> tuple[Any, ...]:
    """The results of a kernel as one array per output; None for an output left out through `need`."""
    made: tuple[Any, ...]
    if type(answer) is np.ndarray:
        made = (answer,)
    else:
        # NumPy makes scalars of arrays without dimensions, and np.float64 is a float: it would pass for an immediate.
        answers = answer if isinstance(answer, (tuple, list)) else (answer,)
        made = tuple([np.asarray(item) if isinstance(item, np.generic) else item for item in answers])
    if len(made) != op.signature.outputs:
        raise RecordError(op.name, "numpy", f"returned {len(made)} arrays; signature.outputs is {op.signature.outputs}")
    if made[0] is None and op.signature.visible and "need" not in op.run_keywords:
        raise RecordError(op.name, "numpy", "returned None; a kernel returns its output even if `out` is given")
    return made


def read_gradients(op: Operator, answer: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What grad returned, as one value (or None) per input."""
    made = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
    if len(made) != len(inputs):
        raise RecordError(
            op.name,
            "grad",
            f"returned {len(made)} values for {len(inputs)} inputs; None stands for an input without a gradient",
        )
    for index, value in enumerate(made):
        if isinstance(value, (bool, int, float)):
            raise RecordError(
                op.name,
                "grad",
                f"returned {value!r} for {_input_name(op, index)}; return F.zeros_like(x), or None for no gradient",
            )
    return made


def check_gradient_type(op: Operator, index: int, gradient: Any, value: Any) -> None:
    """Both Values of a graph, inferred: a gradient has the shape and dtype of its input."""
    if (gradient.shape, gradient.dtype) != (value.shape, value.dtype):
        raise RecordError(
            op.name,
            "grad",
            f"gave {_input_name(op, index)} a gradient of shape {gradient.shape} and dtype {gradient.dtype}; "
            f"the input has {value.shape} and {value.dtype}",
        )


def _input_name(op: Operator, index: int) -> str:
    names = op.signature.inputs
    return names[index] if index < len(names) else f"input {index}"
