"""SyncBatchNorm on several workers is BatchNorm on the whole batch: outputs, gradients and running statistics."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.distributed.nets import sync_norms
from tests.distributed.workers import results


def test_equal_to_the_whole_batch(tmp_path):
    everybody = results(2, "return nets.sync_norms(rank, size)", tmp_path)
    whole = sync_norms(0, 1)
    assert whole.keys() == everybody[0].keys()
    for case, expected in whole.items():
        for key in expected:
            parts = [each[case][key] for each in everybody]
            found = np.concatenate(parts) if key in ("y", "dx") else parts[0]
            if key in ("dgamma", "dbeta"):
                found = sum(parts)
            assert np.allclose(found, expected[key], rtol=1e-5, atol=2e-6), (case, key)
