"""Where sums begin in the backward pass: by the processors, machines and devices of the workers."""

import pytest

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.distributed import buckets
from hybrid_lab.distributed.launchers import WorkerIdentity


@pytest.mark.parametrize(
    ("size", "local_size", "backend", "processors", "threads", "wanted"),
    [
        (2, 2, "gloo", 2, "1", False),  # all compute
        (2, 2, "gloo", 3, "1", False),
        (2, 2, "gloo", 4, "1", True),  # one more for each
        (2, 2, "gloo", 4, "2", False),
        (2, 2, "gloo", 64, "", False),  # each computes with all of them
        (2, 2, "gloo", 64, "4,2", True),
        (8, 8, "gloo", 8, "1", False),
        (4, 2, "gloo", 2, "1", True),  # two machines
        (2, 2, "cpu:gloo,cuda:nccl", 2, "1", True),
    ],
)
def test_rule(monkeypatch, size, local_size, backend, processors, threads, wanted):
    monkeypatch.delenv(buckets.EARLY_SUMS, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(buckets, "processor_count", lambda: processors)
    assert buckets.begin_early(WorkerIdentity(0, size, 0, local_size, "", 0, ""), backend) is wanted


def test_setting(monkeypatch):
    place = WorkerIdentity(0, 2, 0, 2, "", 0, "")
    for text, wanted in (("1", True), ("0", False)):
        monkeypatch.setenv(buckets.EARLY_SUMS, text)
        assert buckets.begin_early(place, "gloo") is wanted
    monkeypatch.setenv(buckets.EARLY_SUMS, "yes")
    with pytest.raises(SettingError, match="it is 1 or 0"):
        buckets.begin_early(place, "gloo")
