"""The three operators of bench_calls in torch, eager: answers {"case", "repeats"} lines with microseconds a call."""

import json
import sys
import time

import torch

torch.set_num_threads(1)
x = torch.ones(4, 4)
held = torch.ones(4, 4, requires_grad=True)


def call():
    with torch.inference_mode():
        torch.relu(x * 2 + 1)


def backward():
    held.grad = None
    y = torch.relu(held * 2 + 1)
    y.backward(torch.ones_like(y))


for line in sys.stdin:
    request = json.loads(line)
    function = {"call": call, "backward": backward}[request["case"]]
    function()
    start = time.perf_counter()
    for _ in range(request["repeats"]):
        function()
    print(json.dumps((time.perf_counter() - start) / request["repeats"] * 1e6), flush=True)
