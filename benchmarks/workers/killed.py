"""A training of several workers that `kills.py` kills: it tells on its output what it does now.

python benchmarks/workers/killed.py FOLDER STEPS [WORD NUMBER SECONDS], as torchrun starts it. So many seconds after it
has told this word for the so many-th time, a signal that nothing handles ends the process.
"""

import faulthandler
import os
import signal
import sys
import time
from collections import Counter

faulthandler.register(signal.SIGUSR1, all_threads=True)


WORD, NUMBER, SECONDS = (sys.argv[3], int(sys.argv[4]), float(sys.argv[5])) if len(sys.argv) > 3 else ("", 0, 0.0)
told = Counter()


def tell(*words):
    """Write one line with the time in a single write, so that a killed process leaves no part of a line."""
    now = time.time()
    os.write(1, f"{now:.6f} {' '.join(map(str, words))}\n".encode())
    told[words[0]] += 1
    if words[0] == WORD and told[WORD] == NUMBER:
        os.write(1, f"{now:.6f} until {now + SECONDS:.6f}\n".encode())
        signal.setitimer(signal.ITIMER_REAL, SECONDS)


tell("started")

import numpy as np  # noqa: E402

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import autograd, gluon, nd  # noqa: E402
from hybrid_lab.gluon import nn  # noqa: E402

SAMPLES, BATCH = 96, 4


def main(folder, steps):
    """Train, with a checkpoint after each step, from the newest one there is; then write the values of this rank."""
    tell("imported")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mx.random.seed(5)
    np.random.seed(rank)
    net = nn.HybridSequential()
    net.add(nn.Dense(64, activation="relu", in_units=32), nn.Dropout(0.5), nn.BatchNorm(), nn.Dense(64), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, kvstore="dist_sync")
    tell("joined")
    numbers = np.random.RandomState(1)
    data = numbers.randn(SAMPLES, 32).astype("float32"), numbers.randint(0, 3, SAMPLES).astype("float32")
    sampler = gluon.data.DistributedSampler(SAMPLES)
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(*data), BATCH, sampler=sampler)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    manager = mx.checkpoint.Manager(os.path.join(folder, "checkpoints"), net, trainer, loader, keep_last=3)
    point = manager.restore()
    step, epoch = (point.step, point.epoch) if point else (0, 0)
    tell("restored", step)
    while step < steps:
        if point is None or epoch > point.epoch:
            sampler.set_epoch(epoch)
        for x, y in loader:
            tell("step", step + 1)
            noise = nd.array(np.random.randn(*x.shape))
            with autograd.record():
                loss = loss_of(net(x + noise), y)
            loss.backward()
            trainer.step(BATCH * size)
            step += 1
            tell("save", step)
            manager.save(step)
            tell("saved", step)
            if step == steps:
                break
        epoch += 1
    values = {name: value.data().asnumpy() for name, value in net._collect_params_with_prefix().items()}
    np.savez(os.path.join(folder, f"rank{rank}.npz"), **values)
    tell("done")


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except mx.distributed.WorkerLostError as error:
        tell("lost", *error.ranks)
        raise
