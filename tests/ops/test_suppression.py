"""Non-maximum suppression in blocks of boxes keeps what a loop over single boxes keeps."""

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.ops.vision.boxes import overlaps
from hybrid_lab.ops.vision.suppression import uncovered


def kept_one_by_one(count, covered):
    kept = []
    for box in range(count):
        if not any(covered[better, box] for better in kept):
            kept.append(box)
    return kept


@pytest.mark.parametrize("count", [0, 1, 5, 257, 900])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_what_no_better_one_covers(count, share):
    covered = np.random.default_rng(count).random((count, count)) < share
    wanted = kept_one_by_one(count, covered)

    def covers(some, others):
        return covered[np.ix_(some, others)]

    assert uncovered(count, covers).tolist() == wanted
    assert uncovered(count, covers, 3).tolist() == wanted[:3]


@pytest.mark.parametrize("force", [False, True])
def test_box_nms_of_many_boxes(force):
    rng = np.random.default_rng(1)
    center, half = rng.random((600, 2)), rng.random((600, 2)) / 5
    rows = np.column_stack([rng.integers(0, 3, 600), rng.random(600), center - half, center + half]).astype("float32")
    ranked = rows[np.argsort(-rows[:, 1], kind="stable")]
    box = ranked[:, 2:].T
    covered = overlaps(tuple(box[:, :, None]), tuple(box)) > 0.3
    if not force:
        covered &= ranked[:, :1] == ranked[:, 0]
    wanted = ranked[kept_one_by_one(600, covered)]
    made = nd.contrib.box_nms(nd.array(rows), overlap_thresh=0.3, id_index=0, force_suppress=force).asnumpy()
    np.testing.assert_array_equal(made[: len(wanted)], wanted)
    assert len(wanted) < 500 and (made[len(wanted) :] == -1).all()
