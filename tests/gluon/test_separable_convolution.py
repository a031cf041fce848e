"""SeparableConv2D: one graph for all shapes, though the layer takes the number of channels from its first batch."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.gluon import nn


def net(**options: int) -> nn.HybridSequential:
    block = nn.HybridSequential()
    block.add(nn.SeparableConv2D(8, 3, **options))
    block.initialize()
    return block


@pytest.mark.parametrize("options", [{}, {"depth_multiplier": 2}, {"in_channels": 2}])
def test_one_graph_for_all_shapes(options, caplog):
    block = net(**options)
    block.hybridize()
    batches = [nd.random.normal(shape=shape) for shape in [(4, 2, 8, 8), (3, 2, 9, 7)]]
    hybrid = [block(batch).asnumpy() for batch in batches]
    assert sum(map(len, block._graphs.variants.values())) == 1 and "HL101" not in caplog.text
    block.hybridize(False)
    for batch, found in zip(batches, hybrid, strict=True):
        np.testing.assert_allclose(found, block(batch).asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 3, 8, 8)])
def test_batches_that_do_not_fit(shape, hybrid):
    block = net(in_channels=2)
    block.hybridize(hybrid)
    with pytest.raises(ShapeError):
        block(nd.ones(shape))
