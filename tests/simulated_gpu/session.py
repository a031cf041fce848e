"""python -m tests.simulated_gpu.session sm90: a user's session on a simulated GPU, its kernels compiled for the chip.

Prints, as JSON, the engine that was chosen, launches of each kernel, how far results are from NumPy's, and problems.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from tests.simulated_gpu import start


def main(target: str) -> None:
    gpu = start(target)
    import hybrid_lab as mx
    from hybrid_lab import autograd, gluon, nd
    from hybrid_lab.gluon import nn

    def training(engine: str | None) -> tuple[list[np.ndarray], gluon.Block]:
        mx.random.seed(5)
        net = nn.HybridSequential()
        net.add(nn.Conv2D(5, 3, activation="relu"), nn.BatchNorm(), nn.Flatten(), nn.Dropout(0.2), nn.Dense(7))
        net.initialize(mx.init.Xavier())
        net.hybridize(engine=engine)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        criterion, random = gluon.loss.SoftmaxCrossEntropyLoss(), np.random.RandomState(1)
        criterion.hybridize(engine=engine)
        found = []
        for batch in (4, 16):  # the second is a multiple of 16, for which loads are of 128 bits
            x = nd.array(random.randn(batch, 2, 9, 9))
            with autograd.record():
                loss = criterion(net(x), nd.array(np.arange(batch) % 7))
            loss.backward()
            trainer.step(batch)
            found.append(loss.asnumpy())
        return [*found, net(x).asnumpy()], net

    expected, _ = training("numpy")
    results, net = training(None)
    away = max(float(np.abs(one - other).max()) for one, other in zip(results, expected, strict=True))

    # Captured: the first call runs plainly, the second is compared, others are replays.
    captured = nn.Dense(16, in_units=8, activation="tanh")
    captured.initialize()
    x = nd.array(np.random.RandomState(2).randn(5, 8))
    plain = captured(x).asnumpy()
    captured.hybridize(static_alloc=True, static_shape=True)
    away = max(away, *(float(np.abs(captured(x * 1).asnumpy() - plain).max()) for _ in range(4)))
    print(
        json.dumps(
            {
                "default": mx.engines.default().name,
                "report": str(mx.explain(net)),
                "captured": str(mx.explain(captured)),
                "launches": gpu.launches,
                "away": away,
                "problems": gpu.problems,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
