"""MXNet's Trainer.step, measured on request; runs in the oracle's environment."""

import json
import statistics
import sys
import time

import mxnet as mx
from update_sizes import OPTIMIZERS, SIZES


def trainer_of(size, optimizer):
    params = mx.gluon.ParameterDict()
    for number, shape in enumerate(SIZES[size]):
        params.get(f"p{number}", shape=shape)
    params.initialize()
    for each in params.values():
        each.grad()[:] = 0.01
    return params, mx.gluon.Trainer(params, optimizer, dict(OPTIMIZERS[optimizer]), kvstore=None)


made = {}
for line in sys.stdin:
    request = json.loads(line)
    key = tuple(request["case"].split("/"))
    if key not in made:
        made[key] = trainer_of(*key)
    params, trainer = made[key]
    times = []
    for _ in range(request["repeats"]):
        for each in params.values():
            each.data()._fresh_grad = True
        mx.nd.waitall()
        start = time.perf_counter()
        trainer.step(8)
        mx.nd.waitall()
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps(statistics.median(times)), flush=True)
