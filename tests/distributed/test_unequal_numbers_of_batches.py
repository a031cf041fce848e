"""Workers with different numbers of batches, and a batch size that counts one worker's samples."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn
from tests.distributed.workers import results

BODY = """
import warnings
net = nn.Dense(2, in_units=3)
net.initialize(mx.init.One())
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1}, kvstore="dist_sync")
numbers = np.random.RandomState(0).randn(8, 4, 3).astype("float32")
batches = numbers[: 5 if rank == 0 else 2]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for way in (net, trainer):
        with mx.distributed.join(way):
            for x in batches:
                with autograd.record():
                    loss = (net(nd.array(x) * (rank + 1)) ** 2).sum(axis=1)
                loss.backward()
                trainer.step(4)
mx.distributed.check(net)
return net.weight.data().asnumpy(), [str(each.message) for each in caught]
"""


def test_workers_that_have_ended_take_part_in_the_others_steps(tmp_path):
    (first, told), (second, _) = results(2, BODY, tmp_path)
    assert np.array_equal(first, second)
    assert len([text for text in told if text.startswith("step(4) divides") and "step(8) gives the mean" in text]) == 1
    net = nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    net.collect_params().setattr("grad_req", "add")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    numbers = np.random.RandomState(0).randn(8, 4, 3).astype("float32")
    for number in [*range(5), *range(5)]:
        for rank, count in enumerate((5, 2)):
            if number < count:
                with autograd.record():
                    loss = (net(nd.array(numbers[number]) * (rank + 1)) ** 2).sum(axis=1)
                loss.backward()
        trainer.step(4)
        net.collect_params().zero_grad()
    assert np.allclose(first, net.weight.data().asnumpy(), atol=1e-6)


def test_join_needs_workers():
    with pytest.raises(mx.diagnostics.SettingError, match="kvstore='dist_sync'"):
        with mx.distributed.join(nn.Dense(2)):
            pass
