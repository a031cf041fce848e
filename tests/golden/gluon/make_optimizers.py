"""Golden data of optimizers: weights after each of six updates, as the real MXNet computes them.

Run with the real MXNet 1.9.1, `MXNET_MKLDNN_ENABLED=0 python make_optimizers.py`: it writes optimizers.npz here.
"""

import json
import pathlib

import mxnet as mx
import numpy as np

CASES = [
    ("sgd", {"learning_rate": 0.1}),
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1, "clip_gradient": 0.3, "rescale_grad": 0.5}),
    ("nag", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1, "clip_gradient": 0.3, "rescale_grad": 0.5}),
    ("nag", {"learning_rate": 0.1, "wd": 0.1}),
    (
        "signum",
        {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1, "wd_lh": 0.01, "clip_gradient": 0.3, "rescale_grad": 0.5},
    ),
    ("signum", {"learning_rate": 0.1, "momentum": 0.0, "wd": 0.1, "rescale_grad": 0.5}),
    ("adam", {"learning_rate": 0.01}),
    ("adam", {"learning_rate": 0.01, "wd": 0.3, "clip_gradient": 0.2, "rescale_grad": 0.5}),
    ("adamax", {"learning_rate": 0.01, "wd": 0.3, "clip_gradient": 0.2, "rescale_grad": 0.5}),
    ("adagrad", {"learning_rate": 0.1, "wd": 0.3, "clip_gradient": 0.2, "rescale_grad": 0.5}),
    ("adadelta", {"wd": 0.03, "clip_gradient": 0.2, "rescale_grad": 0.5}),
    ("rmsprop", {"learning_rate": 0.01, "wd": 0.3, "clip_gradient": 0.2, "rescale_grad": 0.5}),
    ("rmsprop", {"learning_rate": 0.01, "wd": 0.3, "centered": True, "clip_gradient": 0.2, "clip_weights": 1.0}),
    ("ftrl", {"learning_rate": 0.1, "lamda1": 0.05, "wd": 0.1, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    ("ftml", {"learning_rate": 0.1, "wd": 0.1, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    ("lamb", {"learning_rate": 0.1, "wd": 0.1, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    ("lamb", {"learning_rate": 0.1, "bias_correction": False, "lower_bound": 5.0, "upper_bound": 7.0}),
    ("lars", {"learning_rate": 0.1, "momentum": 0.9, "eta": 0.5, "wd": 0.1, "clip_gradient": 0.5}),
    ("lars", {"learning_rate": 0.1, "eta": 0.5, "eps": 0.1, "rescale_grad": 0.5}),
    ("lbsgd", {"learning_rate": 0.1, "momentum": 0.9, "batch_scale": 2, "wd": 0.1, "clip_gradient": 0.5}),
    ("lbsgd", {"learning_rate": 0.1, "batch_scale": 3, "warmup_strategy": "lars", "wd": 0.1}),
    ("lbsgd", {"learning_rate": 0.1, "batch_scale": 2, "warmup_strategy": "sqrt", "updates_per_epoch": 1}),
    ("nadam", {"learning_rate": 0.1, "wd": 0.1, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    ("dcasgd", {"learning_rate": 0.1, "wd": 0.1, "lamda": 0.5, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    ("groupadagrad", {"learning_rate": 0.1, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    ("ccsgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
]

rng = np.random.RandomState(0)
start = rng.normal(0, 1, (3, 7)).astype("float32")
grads = rng.normal(0, 1, (6, 3, 7)).astype("float32")
arrays = {"start": start, "grads": grads, "cases": np.frombuffer(json.dumps(CASES).encode(), "uint8")}
for number, (name, options) in enumerate(CASES):
    optimizer = mx.optimizer.create(name, **options)
    updater = mx.optimizer.get_updater(optimizer)
    weight = mx.nd.array(start)
    steps = []
    for grad in grads:
        updater(0, mx.nd.array(grad), weight)
        steps.append(weight.asnumpy())
    arrays[f"case{number}"] = np.stack(steps)
np.savez_compressed(pathlib.Path(__file__).with_name("optimizers.npz"), **arrays)
