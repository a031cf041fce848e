"""Arrays without elements: results have the shapes that inference gives, and errors are typed."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ops.framework.dtypes import is_floating
from tests.gluon.test_second_gradients import Call as Sampled
from tests.gluon.test_second_gradients import Twice
from tests.ops.cases import Case, each_sample

CALLS = {
    "argmax": (lambda F, x: F.argmax(x, axis=1), (0, 0, 2), (0, 2)),
    "argmin": (lambda F, x: F.argmin(x, axis=1, keepdims=True), (0, 0, 2), (0, 1, 2)),
    "gather_nd": (lambda F, x: F.gather_nd(F.ones((3, 4)), x), (0, 5), (5, 3, 4)),
    "linalg_syevd": (lambda F, x: F.linalg_syevd(x)[1], (2, 0, 0), (2, 0)),
    "CTCLoss": (lambda F, x: F.CTCLoss(F.ones((6, 2, 4)), x), (2, 0), (2,)),
    "bipartite_matching": (lambda F, x: F.contrib.bipartite_matching(x, threshold=0.5)[0], (0, 3, 4), (0, 3)),
}


class Call(HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_empty_arrays(name, hybrid):
    function, shape, wanted = CALLS[name]
    net = Call(function)
    net.hybridize(hybrid)
    y = net(nd.zeros(shape))
    assert y.shape == wanted and np.isfinite(y.asnumpy()).all()


def test_an_image_without_pixels():
    data, loc = nd.zeros((2, 3, 0, 5)), nd.zeros((2, 6))
    with pytest.raises(ShapeError, match="SpatialTransformer"):
        nd.SpatialTransformer(data, loc, target_shape=(3, 4), transform_type="affine", sampler_type="bilinear")


#: Records that gradients and lowerings are made of. Their inputs depend on one another, which a length of 0 breaks.
INSIDE = {
    *("_sum_like", "_restore_axes", "_concat_part", "_scatter_along", "_gather_along", "_present", "_rows_by_record"),
    "_multinomial_grad",
}


def outcome(block: HybridBlock, arrays: list[np.ndarray], wrt: list[int]) -> list:
    """Outputs, then gradients: their shapes and values, or the error."""
    inputs = [nd.array(array, dtype=array.dtype) for array in arrays]
    for index in wrt:
        inputs[index].attach_grad()
    mx.random.seed(3)
    try:
        with np.errstate(all="ignore"), autograd.record(bool(wrt)):
            made = block(*inputs)
            outputs = made if isinstance(made, list) else [made]
            if wrt:
                autograd.backward([y for y in outputs if is_floating(np.dtype(y.dtype))])
    except HybridLabError as error:
        return [type(error)]
    return [y.asnumpy() for y in (*outputs, *(inputs[index].grad for index in wrt))]


@each_sample(lambda case: case.number < 2 and case.sample.inputs and case.record.name not in INSIDE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_records(case: Case):
    """Each length in the inputs is 0 in turn: hybridized calls give what eager ones give, and raise what they raise."""
    twice, eager, hybrid = Twice(case), Sampled(case), Sampled(case)
    hybrid.hybridize(engine="numpy")  # one trace for all lengths
    differentiable = case.record.differentiable and case.sample.gradient
    for length in {length for array in twice.arrays for length in array.shape}:
        arrays = [array[tuple(slice(None if n != length else 0) for n in array.shape)] for array in twice.arrays]
        for wrt in ([], twice.wrt) if differentiable and twice.wrt else ([],):
            wanted, found = outcome(eager, arrays, wrt), outcome(hybrid, arrays, wrt)
            assert [getattr(item, "shape", item) for item in found] == [getattr(item, "shape", item) for item in wanted]
            for one, other in zip(found, wanted, strict=True):
                if isinstance(one, np.ndarray) and not case.record.random:
                    np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=1e-4, atol=1e-5)
