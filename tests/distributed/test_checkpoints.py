"""A training of several workers that is killed goes on from its newest checkpoint, with as many workers or others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.distributed.workers import ALL, environment, free_port, results, run

TRAIN = """
    import os, signal
    mx.random.seed(5)
    np.random.seed(rank)
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu", in_units=6), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(3, in_units=16))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {{"learning_rate": 0.01}}, kvstore="dist_sync")
    print("joined", file=sys.stderr, flush=True)
    numbers = np.random.RandomState(1)
    data = gluon.data.ArrayDataset(numbers.randn(48, 6).astype("float32"), numbers.randint(0, 3, 48).astype("float32"))
    sampler = gluon.data.DistributedSampler(48)
    loader = gluon.data.DataLoader(data, 4, sampler=sampler)
    loss_of, seen = gluon.loss.SoftmaxCrossEntropyLoss(), []
    manager = mx.checkpoint.Manager({folder!r}, net, trainer, loader)
    point = manager.restore()
    step = point.step if point else 0
    for epoch in range(point.epoch if point else 0, 2):
        if point is None or epoch > point.epoch:
            sampler.set_epoch(epoch)
        for x, y in loader:
            noise = nd.array(np.random.randn(*x.shape))
            with autograd.record():
                loss = loss_of(net(x + noise), y)
            loss.backward()
            trainer.step(4 * size)
            seen.append(x.asnumpy())
            step += 1
            manager.save(step)
            if step == {stop} and rank == {lost}:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == {end}:
                break
        if step == {end}:
            break
    return {{name: value.data().asnumpy() for name, value in net._collect_params_with_prefix().items()}}, seen
"""


def body(folder: Path, stop: int = -1, lost: int = -1, end: int = -1) -> str:
    return TRAIN.format(folder=str(folder), stop=stop, lost=lost, end=end)


@pytest.mark.long
def test_a_killed_training_ends_as_one_that_was_not(tmp_path):
    whole = results(2, body(tmp_path / "whole"), tmp_path)
    killed = run(2, body(tmp_path / "run", stop=8, lost=1), tmp_path)
    assert killed[0].code == 1
    assert "WorkerLostError" in killed[0].output
    assert "rank 1" in killed[0].output
    resumed = results(2, body(tmp_path / "run"), tmp_path)
    for (values, seen), (expected, all_seen) in zip(resumed, whole, strict=True):
        assert all(np.array_equal(values[name], expected[name]) for name in expected)
        assert all(map(np.array_equal, seen, all_seen[-len(seen) :]))
    files = sorted(os.listdir(tmp_path / "run"))
    assert all(name.startswith("step-") for name in files)


@pytest.mark.long
def test_another_number_of_workers_shares_the_rest_of_the_epoch(tmp_path):
    before = results(2, body(tmp_path / "run", end=2), tmp_path)
    after = results(1, body(tmp_path / "run", end=10), tmp_path)
    rows = np.concatenate([x for _, seen in (*before, *after) for x in seen])
    assert len(rows) == 48
    assert len(np.unique(rows, axis=0)) == 48


@pytest.mark.skipif(not ALL, reason="test_lost_workers has the same for a worker that is killed in an exchange")
def test_no_process_is_left(tmp_path):
    """A rank is killed while the others wait: they end by themselves."""
    script = tmp_path / "wait.py"
    script.write_text(
        "import hybrid_lab as mx, os, sys\nkv = mx.kv.create('dist_sync')\nprint('joined', flush=True)\n"
        "sys.stdin.readline() if kv.rank == 1 else kv.barrier()\n"
    )
    port, root = free_port(), str(Path(__file__).resolve().parents[2])
    started = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**environment(rank, 2, port), "PYTHONPATH": root},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    try:
        for process in started:
            assert process.stdout.readline() == b"joined\n"
        started[1].kill()
        assert started[0].wait(300) == 1
    finally:
        for process in started:
            process.kill()
            process.communicate()
