"""Examples of callables whose arguments follow from what they are: of a layer, a metric, a function on arrays.

Each candidate is executed; the first that runs is the example, so that what is shown is true.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import hybrid_lab as mx

from . import executed

_A, _B = "[[1.0, -2.0], [0.5, 3.0]]", "[[2.0, 1.0], [4.0, 0.5]]"


def session(name: str, value: Any) -> str | None:
    """The example of `name` as a session, or None."""
    for code in _candidates(name, value):
        try:
            return executed.session(code)
        except executed.ExampleError:
            continue
    return None


def _candidates(name: str, value: Any) -> Iterator[str]:
    space = name.rpartition(".")[0]
    if inspect.isclass(value):
        yield from _of_class(name, value)
    elif space in ("np", "npx", "np.linalg"):
        yield from _of_arrays(name, "np")
    elif space in ("np.random", "nd.random"):
        yield f"{name}(size=(2, 3))"
        yield f"{name}(shape=(2, 3))"
        yield f"{name}(2.0, size=(2, 3))"
        yield f"{name}(2.0, 1.0, size=(2, 3))"
        yield f"{name}(0.5, shape=(2, 3))"
        yield f"{name}(5, 0.5, size=(2, 3))"
    elif space == "gluon.model_zoo.vision":
        yield f"net = {name}(classes=10)\nnet.initialize()\nnet(nd.random.uniform(shape=(1, 3, 224, 224))).shape"
    elif space.startswith("nd"):
        yield from _of_arrays(name, "nd")


def _of_class(name: str, value: Any) -> Iterator[str]:
    gluon = mx.gluon
    if issubclass(value, gluon.loss.Loss):
        yield f"loss = {name}()\npred = nd.array({_A})\nlabel = nd.array([1, 0])\nloss(pred, label)"
        yield f"loss = {name}()\npred = nd.array({_A})\nlabel = nd.array({_B})\nloss(pred, label)"
        yield f"loss = {name}()\none = nd.array({_A})\nother = nd.array({_B})\nloss(one, other, nd.array([1, -1]))"
        yield f"loss = {name}()\nloss(nd.array({_A}), nd.array({_B}), nd.array([[0.0, 1.0], [1.0, 0.0]]))"
    elif issubclass(value, mx.metric.EvalMetric):
        yield f"metric = {name}()\nmetric.update(nd.array([0, 1]), nd.array([[0.9, 0.1], [0.4, 0.6]]))\nmetric.get()"
        yield f"metric = {name}()\nmetric.update(nd.array({_A}), nd.array({_B}))\nmetric.get()"
    elif issubclass(value, mx.optimizer.Optimizer):
        yield (
            "net = nn.Dense(1, in_units=2)\nnet.initialize(mx.init.One())\n"
            f"trainer = gluon.Trainer(net.collect_params(), {name}(learning_rate=0.1))\n"
            "with autograd.record():\n    loss = net(nd.array([[1.0, 2.0]]))\n"
            "loss.backward()\ntrainer.step(1)\nnet.weight.data()"
        )
    elif issubclass(value, mx.lr_scheduler.LRScheduler):
        yield f"schedule = {name}(10, base_lr=0.1)\n[round(schedule(step), 4) for step in (0, 5, 10, 15)]"
    elif issubclass(value, mx.init.Initializer):
        yield f"net = nn.Dense(2, in_units=3)\nnet.initialize({name}())\nnet.weight.data()"
    elif issubclass(value, gluon.Block):
        yield from _of_block(name)


def _of_block(name: str) -> Iterator[str]:
    shapes = ["(2, 3)", "(2, 3, 8)", "(2, 4, 8, 8)", "(2, 4, 8, 8, 8)"]
    rank = next((index for index, mark in enumerate(("1D", "2D", "3D")) if mark in name), None)
    if rank is not None:
        shapes.insert(0, shapes[rank + 1])
    if ".rnn." in name:
        if name.endswith("Cell"):
            yield (
                f"cell = {name}(4)\ncell.initialize()\nstates = cell.begin_state(batch_size=2)\n"
                "output, states = cell(nd.ones((2, 3)), states)\noutput.shape"
            )
            sizes = {"1": "(3, 8)", "2": "(3, 8, 8)", "3": "(3, 8, 8, 8)"}
            size = sizes.get(next((letter for letter in name if letter in sizes), "1"))
            yield (
                f"cell = {name}(input_shape={size}, hidden_channels=4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)\n"
                f"cell.initialize()\nstates = cell.begin_state(batch_size=2)\n"
                f"output, states = cell(nd.ones((2, *{size})), states)\noutput.shape"
            )
        yield f"layer = {name}(4)\nlayer.initialize()\nlayer(nd.ones((5, 2, 3))).shape"
        return
    if "transforms" in name:
        image = "image = nd.random.randint(0, 256, shape=(8, 8, 3)).astype('uint8')"
        for arguments in ("", "4", "0.5", "0.1", "0, 0, 4, 4", "0.4, 0.4", "'float32'"):
            yield f"{image}\n{name}({arguments})(image).shape"
        yield f"{name}(0.5, 0.5)(nd.random.uniform(shape=(3, 8, 8))).shape"
        return
    for shape in shapes:
        for arguments in ("", "4", "4, kernel_size=3", "8, kernel_size=3", "2", "10, 4", "2, in_channels=4"):
            yield f"layer = {name}({arguments})\nlayer.initialize()\nlayer(nd.random.uniform(shape={shape})).shape"


def _of_arrays(name: str, made_by: str) -> Iterator[str]:
    a, b = f"{made_by}.array({_A})", f"{made_by}.array({_B})"
    yield f"{name}({a})"
    yield f"{name}({a}, {b})"
    yield f"{name}({made_by}.array([2, 4]), {made_by}.array([1, 3]))"
    yield f"{name}([{a}, {b}])"
    yield f"{name}({a}, 1)"
    yield f"{name}((2, 3))"
    yield f"{name}(3)"
    yield f"{name}({a}, 0, 1)"
    yield f"{name}({a}, (4,))"
    yield f"{name}({made_by}.array([1, 2, 2], dtype='int32'))"
    yield f"{name}({a}, {made_by}.array([1, 0], dtype='int32'))"
    yield f"{name}({made_by}.array([3.0, 1.0, 2.0]))"
    yield f"{name}((2, 3), 7.0)"
    yield f"{name}()"
