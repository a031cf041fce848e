"""Kills processes that write checkpoints into one folder, at random moments, and opens the newest one each time.

python kill.py FOLDER KILLS WRITERS
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback

import numpy as np

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn


def start(folder: str):
    mx.random.seed(1)
    net = nn.HybridSequential()
    net.add(nn.Dense(64, in_units=16), nn.Dense(1, in_units=64))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    loader = gluon.data.DataLoader(np.ones((64, 16), np.float32), 8, shuffle=True)
    return net, trainer, loader, mx.checkpoint.Manager(folder, net, trainer, loader)


def write(folder: str, done: int) -> None:
    """Train and save at every step, for ever; each step that was saved is written to the pipe `done`."""
    net, trainer, loader, checkpoints = start(folder)
    point = checkpoints.restore()
    step = point.step if point else 0
    while True:
        for x in loader:
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
            trainer.step(8)
            step += 1
            checkpoints.save(step=step)
            os.write(done, step.to_bytes(8, "little"))


def fork_writer(folder: str) -> tuple[int, int]:
    """A child that writes checkpoints: its id, and the pipe of the steps that it has saved."""
    read, done = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(folder, done)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(done)
    return child, read


def last_saved(pipe: int) -> int:
    """The last step that a killed child has reported."""
    with open(pipe, "rb") as steps:
        reported = steps.read()
    return int.from_bytes(reported[-8:], "little")


def main(folder: str, kills: int, writers: int) -> None:
    os.environ["HYBRID_LAB_LOG"] = "warning"
    net, trainer, loader, checkpoints = start(folder)
    net(nd.ones((1, 16)))
    moments = random.Random(kills)
    for _ in range(kills):
        children = [fork_writer(folder) for _ in range(writers)]
        for _, pipe in children:
            assert len(os.read(pipe, 8)) == 8, "a writer ended before its first checkpoint"
        time.sleep(moments.uniform(0, 0.08))
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        for child, _ in children:
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status), f"a writer ended by itself: {status}"
        saved = max(last_saved(pipe) for _, pipe in children)
        newest = checkpoints.list()[-1]
        assert newest.step >= saved or writers > 1, (newest, saved)
        point = checkpoints.restore()
        assert point == newest, (point, newest)
        assert trainer.optimizer.num_update == point.step
        gluon.load(point.path)
    checkpoints.save(step=10**6)
    left = [name for name in os.listdir(folder) if not name.endswith(".hlab")]
    assert not left and len(checkpoints.list()) == 3, os.listdir(folder)
    print(f"{kills} kills; the newest checkpoint, step {newest.step}, opened each time")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
