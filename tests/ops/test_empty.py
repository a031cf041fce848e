"""Arrays without elements: results have the shapes that inference gives, and errors are typed."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.gluon import HybridBlock

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
