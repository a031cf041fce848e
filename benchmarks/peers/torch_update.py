"""torch's fused optimizers, measured on request."""

import json
import statistics
import sys
import time

import torch
from update_sizes import OPTIMIZERS, SIZES


def optimizer_of(size, name):
    weights = [torch.randn(shape).requires_grad_() for shape in SIZES[size]]
    for each in weights:
        each.grad = torch.full_like(each, 0.01)
    options = OPTIMIZERS[name]
    rate, decay = options["learning_rate"], options["wd"]
    if name == "sgd":
        return torch.optim.SGD(weights, rate, options["momentum"], weight_decay=decay, fused=True)
    return torch.optim.Adam(weights, rate, weight_decay=decay, fused=True)


made = {}
for line in sys.stdin:
    request = json.loads(line)
    key = tuple(request["case"].split("/"))
    if key not in made:
        made[key] = optimizer_of(*key)
    times = []
    for _ in range(request["repeats"]):
        start = time.perf_counter()
        made[key].step()
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps(statistics.median(times)), flush=True)
