"""Arrays without dimensions: NumPy makes scalars of them, which must not pass for Python numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops import records
from hybrid_lab.ops.framework.pointwise import Elementwise
from hybrid_lab.ops.framework.run import infer, run_kernel
from tests.failures import Failures
from tests.ops.cases import Case, each_sample
from tests.seeds import same_random_numbers

POINTWISE = [record for record in records() if issubclass(record, Elementwise)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("record", POINTWISE, ids=lambda record: record.name)
def test_a_pointwise_kernel_gives_an_array_with_the_numbers_of_one_element(record):
    failures = Failures()
    for number, sample in enumerate(record.samples):
        with failures.of(f"sample {number}, {sample}"):
            same_random_numbers()
            check_one_element(record, sample)
    failures.raise_all()


def check_one_element(record, sample):
    op = record.bind(**sample.attributes)
    op = op.bind_mode(True) if op.mode_dependent else op
    one = [item.reshape(-1)[:1] if isinstance(item, np.ndarray) else item for item in sample.arrays(record.name)]
    none = [item.reshape(()) if isinstance(item, np.ndarray) else item for item in one]
    dtypes = tuple(item.dtype if isinstance(item, np.ndarray) else None for item in none)
    _, types = infer(op, ((),) * len(none), dtypes)
    for found, wanted, dtype in zip(run_kernel(op, none), run_kernel(op, one), types, strict=True):
        assert type(found) is np.ndarray and (found.shape, found.dtype) == ((), dtype)
        np.testing.assert_array_equal(found.reshape(1), wanted)


def test_eager_gradients_keep_the_precision_of_float64():
    # A step of a gradient took the np.float64 of the step before for a number and gave float32.
    def function(F, x):
        return F.arctan(x) + F.rsqrt(x) * F.smooth_l1(x, scalar=0.7)

    class Net(HybridBlock):
        def hybrid_forward(self, F, x):
            return function(F, x)

    net = Net()
    net.hybridize(engine="numpy")
    found = []
    for call in (lambda x: function(nd, x), net):
        x = nd.array(np.float64(0.73), dtype="float64")
        x.attach_grad()
        with autograd.record():
            y = call(x)
        y.backward()
        found.append((y.asnumpy(), x.grad.asnumpy()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-14)


def _takes_scalars(case: Case) -> bool:
    inner = case.record.name.startswith("_") or case.op.random or case.op.signature.visible > 1
    if inner or any(isinstance(item, (int, float)) for item in case.sample.inputs):
        return False
    try:
        infer(case.op, ((),) * len(case.sample.inputs), (np.dtype(np.float64),) * len(case.sample.inputs))
    except HybridLabError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@each_sample(_takes_scalars)
def test_the_dtype_of_a_scalar_does_not_depend_on_earlier_calls(case):
    for dtype in ("float32", "float64", "float16"):
        inputs = [nd.array(np.array(0.25), dtype=dtype) for _ in case.sample.inputs]
        try:
            shapes, types = infer(case.op, ((),) * len(inputs), (np.dtype(dtype),) * len(inputs))
        except HybridLabError:
            continue
        y = invoke(case.op, inputs)
        assert (y.shape, y.host_view.dtype) == (shapes[0], types[0])
