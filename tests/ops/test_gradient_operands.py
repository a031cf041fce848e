"""Gradients as operators of their own: operands of other shapes and dtypes are a typed error or have a right result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops.framework.run import infer
from tests.ops.cases import RECORDS

GRADIENTS = [record for record in RECORDS if record.name.endswith("_grad")]
DTYPES = ["bool", "int32", "float16", "float32", "float64"]


def other_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """More and fewer dimensions; one dimension larger, smaller, 1 or 0."""
    yield from ((*shape, 2), (1, *shape))
    if shape:
        yield from (shape[:-1], ())
    for axis, size in enumerate(shape):
        for other in {size + 1, max(size - 1, 0), 1, 0} - {size}:
            yield (*shape[:axis], other, *shape[axis + 1 :])


@pytest.mark.parametrize("record", GRADIENTS, ids=lambda record: record.name)
def test_operands_that_do_not_fit(record):
    refused = 0
    for sample in record.samples:
        op, inputs = record.bind(**sample.attributes), sample.arrays(record.name)
        for place, item in enumerate(inputs):
            others = [np.resize(item, shape).astype(item.dtype) for shape in other_shapes(item.shape)]
            others += [item.astype(dtype) for dtype in DTYPES if dtype != item.dtype.name]
            for other in others:
                operands = [*inputs[:place], other, *inputs[place + 1 :]]
                try:
                    with np.errstate(all="ignore"):
                        found = invoke(op, [nd.array(array, dtype=array.dtype) for array in operands])
                except HybridLabError:
                    refused += 1
                    continue
                shapes, dtypes = (tuple([getattr(each, name) for each in operands]) for name in ("shape", "dtype"))
                made = found if isinstance(found, list) else [found]
                wanted = list(zip(*infer(op, shapes, dtypes), strict=True))
                assert [(array.asnumpy().shape, array.asnumpy().dtype) for array in made] == wanted[: len(made)]
    assert refused


EMPTY = {
    "SequenceLast": lambda: nd.SequenceLast(nd.zeros((0, 3))),
    "SoftmaxOutput": lambda: nd.SoftmaxOutput(nd.zeros((4, 0)), nd.zeros((4,))),
    "BilinearSampler": lambda: nd.BilinearSampler(nd.zeros((2, 3, 0, 5)), nd.zeros((2, 2, 3, 4))),
    "BilinearResize2D": lambda: nd.contrib.BilinearResize2D(
        nd.zeros((2, 3, 0, 5)), nd.zeros((2, 3, 2, 3)), mode="like"
    ),
    "ROIPooling": lambda: nd.ROIPooling(nd.zeros((2, 3, 0, 9)), nd.zeros((5, 5)), pooled_size=(2, 3), spatial_scale=1),
    "ROIAlign": lambda: nd.contrib.ROIAlign(
        nd.zeros((2, 3, 8, 0)), nd.zeros((5, 5)), pooled_size=(2, 2), spatial_scale=1
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_choose_from(name):
    with pytest.raises(ShapeError, match="nothing to choose from|no classes"):
        EMPTY[name]()


def test_coordinates_outside():
    indices = nd.array([[0, 5], [1, 0]])
    for write in (
        lambda: nd.gather_nd(nd.zeros((2, 3)), indices),
        lambda: nd.scatter_nd(nd.ones((2,)), indices, shape=(2, 3)),
        lambda: nd._internal._scatter_set_nd(nd.zeros((2, 3)), nd.ones((2,)), indices, shape=(2, 3)),
    ):
        with pytest.raises(ShapeError, match="out of bounds"):
            write()
