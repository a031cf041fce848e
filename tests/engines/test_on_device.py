"""NumPy kernels on arrays of a device, for operators that no Triton kernel and no torch call computes: tensors of the
CPU stand in for those of a GPU.
"""

import re

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hybrid_lab import ops
from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.engines.memory import numpy_dtype, shared, torch_dtype
from hybrid_lab.engines.torch_kernels import device_functions, on_device, registry  # noqa: F401
from hybrid_lab.engines.torch_kernels.device_array import DeviceArray
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.node import Node, input_node
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.kernels import philox
from tests.failures import Failures
from tests.ops.cases import RNG, by_record, close

#: The dtypes that samples of float32 are run in besides; a record may refuse one.
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32")
CPU = torch.device("cpu")
SAMPLES = by_record(lambda case: case.record.name in on_device.OPERATORS)


def as_tensor(item):
    return shared(np.array(item)) if isinstance(item, np.ndarray) else item


def as_array(tensor):
    array = tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    return array.astype(numpy_dtype(tensor.dtype))


def node_of(case, inputs) -> Node | None:
    """The sample's operator over inputs like these; None where the record refuses their dtypes."""
    operands = [
        input_node(f"x{index}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
        for index, item in enumerate(inputs)
    ]
    try:
        return make_node(case.op, operands, draw=0 if case.op.random else None)
    except (DTypeError, ShapeError):
        return None


def run(node: Node, inputs):
    kernel = on_device.kernel_of(node, (True,) * len(node.outputs), CPU)
    return [as_array(item) for item in kernel(RNG, *map(as_tensor, inputs))]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_in_every_dtype_of_the_record_equals_the_numpy_kernel(name):
    failures = Failures()
    for case in SAMPLES[name]:
        for dtype in DTYPES:
            inputs = [
                item.astype(dtype_of(dtype)) if isinstance(item, np.ndarray) and item.dtype == np.float32 else item
                for item in case.inputs()
            ]
            node = node_of(case, inputs)
            if node is None:
                continue
            with failures.of(f"the sample {case.id} in {dtype}"):
                assert on_device.refusal(node) is None
                try:
                    wanted = run_kernel(node.op, inputs, rng=RNG)
                except HybridLabError as error:  # numbers that a record refuses, as 0.3 in int32
                    with pytest.raises(type(error), match=re.escape(str(error))):
                        run(node, inputs)
                    continue
                for actual, expected, value in zip(run(node, inputs), wanted, node.outputs, strict=True):
                    assert actual.dtype == value.dtype
                    close(actual, expected)
    failures.raise_all()


def test_every_operator_named_has_a_record_with_samples():
    assert set(SAMPLES) == on_device.OPERATORS


def test_results_have_memory_of_their_own():
    failures = Failures()
    for cases in SAMPLES.values():
        with failures.of(cases[0].id):
            inputs = cases[0].inputs()
            tensors = list(map(as_tensor, inputs))
            node = node_of(cases[0], inputs)
            made = on_device.kernel_of(node, (True,) * len(node.outputs), CPU)(RNG, *tensors)
            given = {item.untyped_storage().data_ptr() for item in tensors if isinstance(item, torch.Tensor)}
            assert not any(item.untyped_storage().data_ptr() in given for item in made)
    failures.raise_all()


def node(name, *arrays, **attributes):
    operands = [input_node(f"x{index}", shape=item.shape, dtype=item.dtype) for index, item in enumerate(arrays)]
    return make_node(ops.get(name).bind(**attributes), operands)


def test_errors_about_numbers_are_those_of_the_host():
    singular = np.zeros((2, 2), np.float32)
    for name in ("_linalg_inverse", "_linalg_potrf"):
        with pytest.raises(HybridLabError, match="singular|definite"):
            run(node(name, singular), [singular])
    data, places = np.zeros((3, 2), np.float32), np.array([0, 3], np.int64)
    with pytest.raises(HybridLabError, match="index 3 is outside of an axis of 3"):
        run(node("take", data, places, mode="raise"), [data, places])


ODD = np.array([[np.nan, -0.0, np.inf, 0.0, -np.inf, 1.5, -np.nan, 1.5]], np.float32)


@pytest.mark.parametrize("name", ["argsort", "sort", "topk", "cumsum", "gamma", "gammaln", "erfinv", "_digamma"])
def test_odd_values(name):
    with np.errstate(all="ignore"):
        (wanted, *_) = run_kernel(ops.get(name).bind(), [ODD])
    (actual, *_) = run(node(name, ODD), [ODD])
    np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_numbers_of_a_device_do_not_go_to_the_host_unasked():
    array = DeviceArray(torch.ones(3))
    for use in (
        lambda: np.asarray(array),
        lambda: np.zeros(3).__setitem__(slice(None), array),
        lambda: np.kron(array, 2),
    ):
        with pytest.raises(TypeError):
            use()


@pytest.mark.parametrize("kinds", [("int8", "float32"), ("uint8", "int8"), ("int32", "float16"), ("bool", "int64")])
def test_dtypes_are_those_of_numpy(kinds):
    first, second = (np.ones(2, kind) for kind in kinds)
    ours = [DeviceArray(torch.ones(2, dtype=torch_dtype(kind))) for kind in kinds]
    for function in (np.add, np.multiply, np.maximum, np.arctan2, lambda a, b: np.where(a > 0, a, b)):
        assert function(*ours).dtype == function(first, second).dtype
        assert function(ours[0], 2).dtype == function(first, 2).dtype


def test_repeated_places_are_added_up_in_one_order():
    values = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    places = np.random.default_rng(1).integers(0, 4, 1000)
    total = DeviceArray(torch.zeros(4, 3))
    np.add.at(total, DeviceArray(torch.from_numpy(places)), DeviceArray(torch.from_numpy(values)))
    wanted = np.zeros((4, 3), np.float64)
    np.add.at(wanted, places, values)
    close(total.tensor.numpy(), wanted)


def test_an_operator_of_the_table_of_torch_calls_keeps_its_rule():
    data = np.ones((2, 3), np.float32)
    assert registry.refusal(node("sort", data)) is None
    assert registry.refusal(node("sort", data.astype(np.float16))) is not None
    assert on_device.refusal(node("sort", data.astype(np.float16))) is None


SEEDS = [(0, 0), (7, 3), (2**33 + 5, 2**32 + 1), (2**64 - 1, 2**40)]


@pytest.mark.parametrize("rng", SEEDS)
def test_words_are_those_of_the_host(rng):
    like = DeviceArray(torch.zeros(1))
    for count in (1, 7, 4096):
        np.testing.assert_array_equal(philox.words(*rng, count, like=like).tensor.numpy(), philox.words(*rng, count))
    blocks = np.array([0, 5, 2**32 + 1, 2**47 + 3])
    found = philox.words_at(*rng, DeviceArray(torch.from_numpy(blocks)))
    np.testing.assert_array_equal(found.tensor.numpy(), philox.words_at(*rng, blocks))


DRAWS = [
    ("random_gamma", {"alpha": 0.3, "beta": 2.0}), ("random_gamma", {"alpha": 7.5}), ("random_poisson", {"lam": 3.0}),
    ("random_poisson", {"lam": 250.0}), ("random_negative_binomial", {"k": 4, "p": 0.1}),
    ("random_generalized_negative_binomial", {"mu": 20.0, "alpha": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize("name, parameters", DRAWS, ids=str)
def test_many_draws_equal_those_of_the_host(name, parameters):
    op = ops.get(name).bind(shape=(2, 1000), **parameters)
    kernel = on_device.kernel_of(make_node(op, [], draw=0), (True,), CPU)
    for rng in SEEDS:
        (wanted,) = run_kernel(op, [], rng=rng)
        np.testing.assert_allclose(as_array(kernel(rng)[0]), wanted, rtol=1e-6)


def test_many_choices_equal_those_of_the_host():
    shares = np.random.default_rng(0).dirichlet(np.full(50, 0.2), 8).astype(np.float32)
    shares[:, 40:] = 0
    op = ops.get("_sample_multinomial").bind(shape=(2000,))
    node = make_node(op, [input_node("x", shape=shares.shape, dtype=shares.dtype)], draw=0)
    for rng in SEEDS:
        (wanted,) = run_kernel(op, [shares], rng=rng)
        (found,) = on_device.kernel_of(node, (True,), CPU)(rng, as_tensor(shares))
        np.testing.assert_array_equal(as_array(found), wanted)
