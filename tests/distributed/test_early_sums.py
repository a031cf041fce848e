"""Sums of gradients that begin in the backward pass: the same bits as sums in the step, whatever happens in between."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.distributed.workers import results

WAYS = ("eager", "parts", "numpy", "onnxruntime", "torch")
"""How the network runs: operator by operator, as several graphs, or as one graph on an engine."""
_BODY = """
from hybrid_lab.distributed import buckets
buckets.FIRST, buckets.SIZE = 1000, 100_000

def train(way, early, between):
    mx.random.seed(3)
    net = nn.HybridSequential()
    net.add(*[nn.Dense(128, activation="tanh", in_units=128) for _ in range(6)], nn.Dense(4, in_units=128))
    net.initialize(mx.init.Xavier())
    if way == "parts":
        for child in net:
            child.hybridize()
    elif way != "eager":
        net.hybridize(engine=way)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.1, "momentum": 0.9}}, kvstore="dist_sync")
    numbers, begun, seen = np.random.RandomState(rank), [], []
    for step in range(6):
        for turn in range(2 if between == "two backward passes" else 1):
            x = nd.array(numbers.randn(16, 128))
            with autograd.record():
                y = net(x)
                loss = (y * y).mean()
            loss.backward()
        sums = trainer._own_store._buckets
        begun.append(sums.begun)
        gradients = [each.grad() for each in trainer._params]
        if between == "read":
            seen += [each.asnumpy() for each in gradients]
        if between == "clip":
            gluon.utils.clip_global_norm(gradients, 0.01)
        if between == "one worker writes" and rank == 1:
            gradients[-2][:] = gradients[-2] * 2
        if between == "error" and step == 2 and rank == 0:
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
        trainer.step(1)
        if not early:
            sums._drop_early()
    names = {{id(each.grad()): each.name for each in trainer._params}}
    order = [[names[id(one)] for one in bucket.gradients] for bucket in sums._dense]
    values = {{key: value.data().asnumpy() for key, value in net._collect_params_with_prefix().items()}}
    return values, begun, order, seen

return [[train(way, early, between) for early in (True, False)] for way, between in {cases}]
"""
BETWEEN = ("nothing", "read", "clip", "one worker writes", "two backward passes", "error")
CASES = [(way, "nothing") for way in WAYS] + [(way, between) for way in ("eager", "torch") for between in BETWEEN[1:]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    everybody = results(2, _BODY.format(cases=CASES), tmp_path_factory.mktemp("workers"), timeout=600)
    return dict(zip(CASES, zip(*everybody, strict=True), strict=True))


@pytest.mark.parametrize(("way", "between"), CASES)
def test_equal_to_sums_in_the_step(way, between, trained):
    everybody = trained[way, between]
    for (values, begun, order, seen), (expected, none_begun, _, seen_then) in everybody:
        assert all(np.array_equal(values[name], expected[name]) for name in expected)
        assert all(map(np.array_equal, seen, seen_then))
        assert begun[0] == 0
        assert none_begun[1:] == [0] * 5
        if between in ("clip", "one worker writes", "two backward passes"):
            assert begun[4:] == [0, 0]  # given up after three steps in vain
        else:
            assert begun[1:] == [len(order) - 1] * 5
    assert all(np.array_equal(everybody[0][0][0][name], everybody[1][0][0][name]) for name in everybody[0][0][0])
    for order in (everybody[0][0][2], everybody[1][0][2]):
        layers = [int(name.split("_")[0].removeprefix("dense")) for bucket in order for name in bucket]
        assert layers == sorted(layers, reverse=True)


@pytest.mark.long
def test_workers_with_other_gradients(tmp_path):
    body = """
    net = nn.Dense(3, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    if rank == 1:
        net.weight.grad_req = "add"
    with autograd.record():
        loss = net(nd.ones((1, 2))).sum()
    loss.backward()
    try:
        trainer.step(1)
    except mx.distributed.WorkersDifferError as error:
        return str(error)
    """
    for told in results(2, body, tmp_path):
        assert "dense0_weight' has the grad_req write on rank 0" in told
        assert "grad_req add on rank 1" in told
