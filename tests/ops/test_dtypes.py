"""Every record on other dtypes than its samples': what is inferred is real, or a DTypeError names the dtype."""

from __future__ import annotations

import warnings

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.run import infer, run_gradient, run_kernel
from tests.ops.cases import RNG, Case, Contract

WHOLE = ("int32", "int64", "uint8", "int8", "bool")
FLOATING = ("float16", "float64")
contract = Contract()


def converted(case: Case, dtype: str) -> list:
    """The sample's inputs with its random arrays as `dtype`; numbers that are indices stay as they are."""
    return [
        (item * 3).astype(dtype) if isinstance(given, tuple) else item
        for given, item in zip(case.sample.inputs, case.inputs(), strict=True)
    ]


def inferred(case: Case, inputs: list) -> tuple:
    return infer(case.op, tuple(map(np.shape, inputs)), tuple(getattr(item, "dtype", None) for item in inputs))


@contract.each_sample(lambda case: case.sample.dtype == "float32" and case.sample.inputs)
def the_kernel_gives_the_inferred_dtype_or_inference_refuses(case: Case):
    for dtype in WHOLE + FLOATING:
        check_kernel(case, dtype)


def check_kernel(case: Case, dtype: str) -> None:
    inputs = converted(case, dtype)
    try:
        _, dtypes = inferred(case, inputs)
    except DTypeError as error:
        # The check of an imported graph's inputs is no operator that the user knows: it names the input.
        named = "the input 'x'" if case.record.name == "_check_inputs" else case.record.name
        assert named in str(error) and (dtype in str(error) or "dtypes" in str(error))
        return
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outputs = run_kernel(case.op, inputs, rng=RNG)
        memory = tuple(np.zeros(y.shape, y.dtype) for y in outputs)
        run_kernel(case.op, inputs, out=memory, rng=RNG)
    assert tuple(y.dtype for y in outputs) == dtypes, dtype


@contract.each_sample(
    lambda case: case.record.differentiable and case.sample.gradient and case.sample.dtype == "float32"
)
def gradients_have_the_dtype_of_their_input(case: Case):
    for dtype in FLOATING:
        check_gradients(case, dtype)


def check_gradients(case: Case, dtype: str) -> None:
    inputs = converted(case, dtype)
    try:
        inferred(case, inputs)
    except DTypeError:
        return
    with np.errstate(all="ignore"):
        outputs = run_kernel(case.op, inputs, rng=RNG)
        douts = [np.ones(y.shape, y.dtype) for y in outputs[: case.op.signature.visible]]
        for item, gradient in zip(inputs, run_gradient(case.op, F, inputs, outputs, douts), strict=True):
            if gradient is not None:
                assert (gradient.shape, gradient.dtype) == (item.shape, item.dtype)


@contract.each_sample(
    lambda case: (
        (case.record.differentiable and case.sample.gradient and case.sample.dtype == "float32")
        and (case.record.typed_like == 0 and case.record.shape_only)
    )
)
def gradients_where_mixed_precision_converts_only_what_is_read(case: Case):
    """Inputs of which the shape alone is read keep their dtype there."""
    inputs = [
        item.astype("float16") if getattr(item, "dtype", "") == "float32" and case.op.reads_values(index) else item
        for index, item in enumerate(case.inputs())
    ]
    try:
        inferred(case, inputs)
    except DTypeError:
        return
    outputs = run_kernel(case.op, inputs, rng=RNG)
    found = run_gradient(case.op, F, inputs, outputs, [np.ones_like(y) for y in outputs])
    assert [None if dx is None else dx.dtype for dx in found[:1]] in ([None], [np.float16])


test_records = contract.test(lambda case: case.sample.dtype == "float32" and case.sample.inputs)


def test_every_check_has_samples():
    assert not contract.idle()
