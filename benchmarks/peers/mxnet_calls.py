"""The three operators of bench_calls in the real MXNet: answers {"case", "repeats"} lines with microseconds a call."""

import json
import sys
import time

import mxnet as mx
from mxnet import autograd, gluon


class Three(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x * 2 + 1)


net = Three()
net.hybridize(static_alloc=True, static_shape=True)
x = mx.nd.ones((4, 4))
held = mx.nd.ones((4, 4))
held.attach_grad()


def call():
    net(x).wait_to_read()


def backward():
    with autograd.record():
        y = net(held)
    y.backward()
    held.grad.wait_to_read()


for line in sys.stdin:
    request = json.loads(line)
    function = {"call": call, "backward": backward}[request["case"]]
    function()
    start = time.perf_counter()
    for _ in range(request["repeats"]):
        function()
    print(json.dumps((time.perf_counter() - start) / request["repeats"] * 1e6), flush=True)
