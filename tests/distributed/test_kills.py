"""Workers that are killed at random moments: a short form of `make test-kills`."""

import pytest

pytest.importorskip("torch")

from benchmarks.workers.kills import campaign


@pytest.mark.long
def test_a_training_that_is_killed_in_a_checkpoint():
    """`problems` are hangs, processes that are left, and other bits at the end."""
    found = campaign(count=1, size=2, steps=10, seed=3, places={"checkpoint": 1.0})
    assert sum(found.kills.values()) == 1
    assert found.problems == []
    assert found.left == 0
    assert len(found.notices) == 1
