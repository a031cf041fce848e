"""A small training that draws random numbers wherever one can, which the tests of checkpoints stop and continue."""

from __future__ import annotations

import json
import random
import sys

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn

SAMPLES, BATCH = 26, 4
RATE = 0.05


class WithNoise:
    """Adds noise to each sample; of NumPy and Python too where one thread makes all batches."""

    def __init__(self, threads: int):
        self.threads = threads

    def __call__(self, x, y):
        x = x + 0.1 * nd.random.normal(shape=x.shape).asnumpy()
        if not self.threads:
            x = x + np.float32(0.1 * np.random.rand() + 0.1 * random.random())
        return x, y


class Training:
    """optimizer : 'sgd' (with momentum) or 'adam'; threads : workers of the loader; engine : of the net"""

    def __init__(self, optimizer: str, threads: int, folder: str | None, engine: str | None = "numpy", **options):
        mx.random.seed(3)
        np.random.seed(4)
        random.seed(5)
        self.net = nn.HybridSequential()
        self.net.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dropout(0.4), nn.Dense(3))
        self.net.initialize(mx.init.Xavier())
        if engine is not None:
            self.net.hybridize(engine=engine)
        values = np.random.default_rng(0)
        data = gluon.data.ArrayDataset(
            values.normal(size=(SAMPLES, 5)).astype(np.float32), values.integers(0, 3, SAMPLES).astype(np.int32)
        )
        self.loader = gluon.data.DataLoader(
            data.transform(WithNoise(threads)), BATCH, shuffle=True, last_batch="rollover", num_workers=threads
        )
        schedule = mx.lr_scheduler.FactorScheduler(step=3, factor=0.8, base_lr=RATE)
        settings = {"learning_rate": RATE, "lr_scheduler": schedule}
        if optimizer == "sgd":
            settings["momentum"] = 0.9
        self.trainer = gluon.Trainer(self.net.collect_params(), optimizer, settings)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.checkpoints = None
        if folder is not None:
            self.checkpoints = mx.checkpoint.Manager(folder, self.net, self.trainer, self.loader, **options)

    def run(self, steps: int, save_at=()) -> list[float]:
        """Train up to step number `steps`, from where the newest checkpoint stands; the losses of the steps done."""
        point = self.checkpoints.restore() if self.checkpoints else None
        step, losses = point.step if point else 0, []
        while step < steps:
            for x, y in self.loader:
                with mx.autograd.record():
                    loss = self.loss(self.net(x), y).mean()
                loss.backward()
                self.trainer.step(1)
                losses.append(float(loss.asscalar()))
                step += 1
                if step in save_at:
                    self.checkpoints.save(step=step, metric=losses[-1])
                if step == steps:
                    return losses
        return losses


if __name__ == "__main__":
    # In a process of its own: continue from the folder's newest checkpoint and print the losses.
    optimizer, threads, folder, steps = sys.argv[1:]
    json.dump(Training(optimizer, int(threads), folder).run(int(steps)), sys.stdout)
