"""First calls from several threads, each of which copies the parameters to the device."""

import threading
import time

import numpy as np
import pytest

pytest.importorskip("triton")

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines import memory
from hybrid_lab.gluon import nn


def test_a_program_reads_the_copies_that_stay(monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    x = nd.array([[1.0, 2.0, 3.0]])
    net(x)
    for parameter in (net.weight, net.bias):  # nothing is on the device
        parameter.data().buffer.device = None
        parameter.data().buffer.version += 1
    both, second_is_done, plain = threading.Barrier(2), threading.Event(), memory.to_device

    def to_device(host, device, out=None):
        """Both threads copy the weight; the second one's copy stays, and the first one is the last to end its call."""
        is_first = threading.current_thread().name == "first"
        if host.size == 6:
            both.wait(20)
            if not is_first:
                time.sleep(0.5)
        elif host.size == 2 and is_first:
            second_is_done.wait(20)
        return plain(host, device, out)

    def second():
        net(x)
        second_is_done.set()

    monkeypatch.setattr(memory, "to_device", to_device)
    workers = [threading.Thread(target=net, args=(x,), name="first"), threading.Thread(target=second)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    monkeypatch.setattr(memory, "to_device", plain)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    for _ in range(2):  # the update writes to the copy on the device
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
        trainer.step(1)
        weight, bias = net.weight.data().asnumpy(), net.bias.data().asnumpy()
        np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy() @ weight.T + bias, rtol=1e-5, atol=1e-5)
