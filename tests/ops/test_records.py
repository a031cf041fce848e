"""What holds for every record, on its samples: inference, out, aliasing, gradients, lowerings, ONNX, attributes."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import product

import numpy as np
import pytest

from hybrid_lab import ops
from hybrid_lab.diagnostics.errors import AttributeSpecError, Unmappable
from hybrid_lab.ops.framework import operator
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.pointwise import Binary
from hybrid_lab.ops.framework.run import infer, run_gradient, run_kernel
from tests.ops.cases import CASES, RECORDS, RNG, Case, Contract, close
from tests.ops.onnx_model import NotImplementedByRuntime, run_model

contract = Contract()


@contract.each_record()
def every_record_is_documented_and_sampled(record):
    assert record.__doc__ and record.samples
    assert record.family


@contract.each_sample()
def inferred_shapes_and_dtypes_are_the_real_ones(case: Case):
    inputs = case.inputs()
    shapes = tuple(np.shape(item) for item in inputs)
    assert infer(case.op, shapes, tuple(getattr(item, "dtype", None) for item in inputs)) == (
        tuple(y.shape for y in case.outputs(inputs)),
        tuple(y.dtype for y in case.outputs(inputs)),
    )


@contract.each_sample()
def complete_agrees_with_the_sample(case: Case):
    shapes = tuple(np.shape(item) for item in case.inputs())
    assert tuple(case.op.complete(*shapes)) == shapes


def _broadcasts(case: Case) -> bool:
    """What is unknown counts as equal, per channel or per row there, where a sample may have another shape."""
    return issubclass(case.record, Binary) or case.record.name in ("where", "LeakyReLU") or "Output" in case.record.name


@contract.each_sample(lambda case: case.record.complete is not ops.Operator.complete and not _broadcasts(case))
def complete_never_contradicts_the_sample(case: Case):
    """An input that is unknown, or of which some dimensions are, stays so or becomes what it is."""
    shapes = tuple(np.shape(item) for item in case.inputs())
    for index, item in enumerate(case.inputs()):
        if not isinstance(item, np.ndarray):
            continue
        for unknown in (None, (None,) * item.ndim, (*item.shape[:1], *(None,) * (item.ndim - 1))):
            found = case.op.complete(*shapes[:index], unknown, *shapes[index + 1 :])
            for shape, wanted in zip(found, shapes, strict=True):
                assert shape is None or len(shape) == len(wanted)
                assert all(size in (None, real) for size, real in zip(shape or (), wanted))


@contract.each_sample()
def kernels_leave_their_inputs_alone(case: Case):
    inputs = case.inputs()
    case.outputs(inputs)
    for item, fresh in zip(inputs, case.inputs()):
        np.testing.assert_array_equal(item, fresh)


@contract.each_sample()
def out_is_filled_and_returned(case: Case):
    expected = case.outputs()
    memory = tuple(np.full(y.shape, 77).astype(y.dtype) for y in expected)
    given = run_kernel(case.op, case.inputs(), out=memory, rng=RNG)
    for target, y, wanted in zip(memory, given, expected):
        assert y is target or np.shares_memory(y, target)
        np.testing.assert_array_equal(target, wanted)


@contract.each_sample()
def out_need_not_be_contiguous(case: Case):
    expected = case.outputs()
    memory = tuple(np.zeros((2, *y.shape[::-1]), y.dtype)[1, ...].T for y in expected)
    run_kernel(case.op, case.inputs(), out=memory, rng=RNG)
    for target, wanted in zip(memory, expected):
        # BLAS of some processors, and the power of some NumPy, write there by a kernel that rounds otherwise.
        if case.record.family == "linalg" or case.record.name == "broadcast_power":
            close(target, wanted)
        else:
            np.testing.assert_array_equal(target, wanted)


@contract.each_sample(lambda case: "scratch" in case.record.run_keywords)
def outputs_do_not_lie_in_temporary_memory(case: Case):
    lent = []

    def scratch(shape, dtype):
        lent.append(np.empty(shape, dtype))
        return lent[-1]

    outputs = run_kernel(case.op, case.inputs(), rng=RNG, scratch=scratch)
    for memory in lent:
        assert not any(np.shares_memory(memory, y) for y in outputs)


#: Operators of gradients, whose results nobody writes to, hand an input on.
HANDED_ON = {"_sum_like", "_present"}


@contract.each_sample(lambda case: case.record.name not in HANDED_ON and not case.op.view)
def results_are_no_memory_of_inputs(case: Case):
    inputs = [item for item in case.inputs() if isinstance(item, np.ndarray)]
    for y in case.outputs():
        assert not any(np.shares_memory(y, item) for item in inputs)


@contract.each_sample(lambda case: case.record.alias_safe)
def out_may_be_any_input_of_its_shape_and_dtype(case: Case):
    expected = case.outputs()
    for place, index in product(range(len(expected)), range(len(case.inputs()))):
        inputs, y = case.inputs(), expected[place]
        target = inputs[index]
        if not isinstance(target, np.ndarray) or (target.shape, target.dtype) != (y.shape, y.dtype):
            continue
        outputs = [None] * len(expected)
        outputs[place] = target
        found = run_kernel(case.op, inputs, out=outputs, rng=RNG)
        np.testing.assert_array_equal(target, y)
        for other, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(other, wanted)


@contract.each_sample(lambda case: case.record.view)
def views_share_memory_with_the_first_input(case: Case):
    inputs = case.inputs()
    assert np.shares_memory(case.outputs(inputs)[0], inputs[0])


@contract.each_sample(lambda case: case.record.shape_only)
def shape_only_inputs_are_not_read(case: Case):
    inputs = case.inputs()
    stubs = [
        item if case.op.reads_values(index) else np.broadcast_to(np.zeros((), item.dtype), item.shape)
        for index, item in enumerate(inputs)
    ]
    for y, wanted in zip(case.outputs(stubs), case.outputs(inputs)):
        np.testing.assert_array_equal(y, wanted)


def _differentiable_inputs(case: Case, inputs: list) -> list[int]:
    return [i for i, item in enumerate(inputs) if isinstance(item, np.ndarray) and item.dtype == np.float64]


#: Gradients that are MXNet's on purpose and not the derivative of the output.
_NOT_THE_DERIVATIVE = {"BlockGrad", "make_loss", "_contrib_round_ste", "_contrib_sign_ste"} | {
    "_contrib_gradientmultiplier",
    # Samples of discrete distributions have no gradient.
    *("random_pdf_poisson", "random_pdf_negative_binomial", "random_pdf_generalized_negative_binomial"),
    *("SoftmaxOutput", "SVMOutput", "MakeLoss"),
    *("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"),
}


@contract.each_sample(
    lambda case: (
        case.record.differentiable
        and case.sample.gradient
        and case.sample.smooth
        and case.sample.dtype == "float32"
        and case.record.name not in _NOT_THE_DERIVATIVE
    )
)
def gradient_is_the_numeric_derivative(case: Case):
    op, inputs = case.op, case.inputs("float64")
    outputs = run_kernel(op, inputs, rng=RNG)
    visible = outputs[: op.signature.visible]
    if any(y.dtype != np.float64 for y in visible):
        pytest.skip("the output dtype is fixed")
    generator = np.random.RandomState(5)
    heads = [generator.uniform(-1, 1, y.shape) for y in visible]
    gradients = run_gradient(op, F, inputs, outputs, heads)
    assert len(gradients) == len(inputs)

    def loss(values: list) -> float:
        given = run_kernel(op, values, rng=RNG)[: op.signature.visible]
        return float(sum((y * head).sum() for y, head in zip(given, heads)))

    def along(index: int, direction: np.ndarray) -> float:
        """The derivative with respect to one input, along a direction in it."""
        step = 1e-6
        values = [
            loss([np.array(item + change) if i == index else item for i, item in enumerate(inputs)])
            for change in (step * direction, -step * direction)
        ]
        return (values[0] - values[1]) / (2 * step)

    for index in _differentiable_inputs(case, inputs):
        gradient = gradients[index]
        size, shape = inputs[index].size, inputs[index].shape
        found = np.zeros(shape) if gradient is None else np.asarray(gradient)
        # First along four directions, each of which moves every element by half a step or more, with a tenth of the
        # tolerance: errors of some elements do not cancel in all of them. If one differs, the derivatives with respect
        # to each element decide, and say where the error is.
        if size > 4 and found.shape == shape:
            bound = 1e-7 * (1 if gradient is None else max(np.abs(found).max(), 1e-3))
            ways = [generator.uniform(0.5, 1, shape) * generator.choice([-1, 1], shape) for _ in range(4)]
            if all(abs((found * way).sum() - along(index, way)) < bound for way in ways):
                continue
        numeric = np.array([along(index, way.reshape(shape)) for way in np.eye(size)])
        if gradient is None:
            assert not op.reads_values(index) or np.abs(numeric).max(initial=0) < 1e-6 or index in _parameters(op)
            continue
        assert gradient.shape == inputs[index].shape
        close(gradient.reshape(-1), numeric, 1e-6)


@contract.each_sample(
    lambda case: case.record.differentiable and case.sample.gradient and case.op.signature.visible > 1
)
def an_output_gradient_that_is_missing_counts_as_zero(case: Case):
    op, inputs = case.op, case.inputs()
    outputs = run_kernel(op, inputs, rng=RNG)
    heads = [np.ones(y.shape, y.dtype) for y in outputs[: op.signature.visible]]
    for present in range(len(heads)):
        alone = [head if index == present else None for index, head in enumerate(heads)]
        filled = [head if index == present else np.zeros_like(head) for index, head in enumerate(heads)]
        for item, found, wanted in zip(
            inputs, run_gradient(op, F, inputs, outputs, alone), run_gradient(op, F, inputs, outputs, filled)
        ):
            if wanted is not None:
                close(np.zeros_like(item) if found is None else found, wanted)


def _parameters(op) -> list[int]:
    """Inputs without a gradient on purpose: auxiliary states, and operators that are gradients themselves."""
    names = op.signature.inputs
    return [i for i, name in enumerate(names) if name in op.signature.aux] + (
        list(range(9)) if op.mxnet is None else []
    )


@contract.each_sample(lambda case: case.record.lower is not ops.Operator.lower and not case.op.random)
def lowering_equals_the_kernel(case: Case):
    try:
        lowered = case.op.lower(F, *case.inputs())
    except Unmappable as reason:
        pytest.skip(str(reason))
    lowered = lowered if isinstance(lowered, tuple) else (lowered,)
    for y, wanted in zip(lowered, case.outputs()):
        close(y, wanted)


@contract.each_sample(lambda case: case.record.onnx is not None)
def onnx_equals_numpy(case: Case):
    inputs = case.inputs()
    try:
        outputs = run_model(case.op, inputs)
    except (Unmappable, NotImplementedByRuntime) as reason:
        if case.sample.dtype == "float32" and not isinstance(reason, Unmappable):
            raise
        pytest.skip(str(reason))
    expected = case.outputs(inputs)
    assert len(outputs) == len(expected)
    for y, wanted in zip(outputs, expected):
        assert y.dtype == wanted.dtype
        close(y, wanted)


@contract.each_record()
def unknown_attributes_are_refused(record):
    with pytest.raises(AttributeSpecError, match=f"{record.name}: unknown attribute no_such"):
        record.bind(no_such=1)


@contract.each_record(lambda record: record.fields)
def attributes_that_cannot_be_read_are_refused(record):
    for name in (name for name in record.fields if not name.startswith("_")):
        if name == "layout":
            continue
        with pytest.raises(AttributeSpecError, match=name):
            record.bind(**{**record.samples[0].attributes, name: object()})


@contract.each_sample(lambda case: bool(case.sample.attributes))
def attributes_survive_mxnets_strings(case: Case):
    written = {key: str(value) for key, value in case.sample.attributes.items()}
    assert case.record.bind(**written) is case.record.bind(**case.sample.attributes)


@contract.each_sample()
def instances_are_interned_and_survive_a_copy(case: Case):
    import copy
    import pickle

    op = case.record.bind(**case.sample.attributes)
    assert copy.deepcopy(op) is op is pickle.loads(pickle.dumps(op))


test_records = contract.test()


def test_every_check_has_samples():
    assert not contract.idle()


def test_samples_differ_from_one_another():
    for record in RECORDS:
        texts = [repr(case.sample) for case in CASES if case.record is record]
        assert len(set(texts)) == len(texts), record.name


def test_no_output_is_larger_than_its_bound():
    bounded = set()
    for case in CASES:
        inputs = case.inputs()
        if not inputs or any(getattr(item, "dtype", np.dtype("f4")).kind not in "fiu" for item in inputs):
            continue

        def largest(item):
            return float(np.abs(np.asarray(item, np.float64)).max(initial=0))

        def filters(index, inputs=inputs):
            return float(np.abs(inputs[index]).reshape(len(inputs[index]), -1).sum(axis=1).max())

        bound = case.op.bound([largest(item) for item in inputs], [np.shape(item) for item in inputs], filters)
        if np.isfinite(bound):
            bounded.add(case.record.name)
            assert largest(case.outputs(inputs)[0]) <= bound * (1 + 1e-3), case.id
    assert len(bounded) >= 25, "the rules of the records are not asked"


def test_every_module_of_records_is_declared():
    """The names of a module that is not would be unknown until something imports it."""
    for module in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}."):
        importlib.import_module(module.name)
    found = {record.__module__ for record in ops.records()}
    assert {name for name in found if name.startswith(f"{ops.__name__}.")} <= operator._modules.keys()
