"""Networks for random orders of calls, changes and saves: of `mx.nd` and `mx.np`, with plain tops, shared parts,
modes, shapes, structures around tensors, and graphs from files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from hybrid_lab import autograd, gluon, nd, np, npx, onnx
from hybrid_lab.gluon import nn, rnn


@dataclass(frozen=True)
class Network:
    """make : gives a new net; arguments : batch size -> arguments of a call, whose arrays are made with `array`

    fails : whether the net has a switch `fail`, which makes its code untraceable; scale : whether it has an attribute
    `scale` that its code reads; casts : whether it may be cast; is_made : whether it has values already
    """

    make: Callable[[], Any]
    arguments: Callable[[int, Callable[..., Any]], tuple[Any, ...]]
    fails: bool = False
    scale: bool = False
    casts: bool = True
    is_np: bool = False
    is_made: bool = False


class Scaled(gluon.HybridBlock):
    """A user's Block with an attribute that its code reads, and a switch that makes the code untraceable."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.fail = 1.5, False
        with self.name_scope():
            self.first, self.second = nn.Dense(4), nn.Dense(3)

    def hybrid_forward(self, F, x):
        y = F.relu(self.first(x))
        if self.fail and float(y.sum().asscalar()) > 1e9:
            y = y + 1
        return self.second(y) * self.scale


class Modes(gluon.HybridBlock):
    """Reads the mode."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body, self.auxiliary = nn.Dense(4), nn.Dense(2)

    def hybrid_forward(self, F, x):
        y = self.body(x)
        extra = self.auxiliary(y)
        return (y, extra) if autograd.is_training() else y


class Shapes(gluon.HybridBlock):
    """Gluon 2's style, which reads a shape."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.out = nn.Dense(3)

    def forward(self, x):
        return self.out(x) / x.shape[0]


class Dicts(gluon.HybridBlock):
    """Takes and returns dicts."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.left, self.right = nn.Dense(3), nn.Dense(3)

    def hybrid_forward(self, F, parts):
        return {"sum": self.left(parts["a"]) + self.right(parts["b"]), "both": [parts["a"], None]}


class Optional(gluon.HybridBlock):
    """An argument that may be None, and a number."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.out = nn.Dense(3, flatten=False)

    def hybrid_forward(self, F, x, mask=None, power=2):
        y = self.out(x) ** power
        return y if mask is None else F.broadcast_mul(y, mask)


class Constants(gluon.HybridBlock):
    """Holds a constant, and calls one child twice."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.table = self.params.get_constant("table", numpy.arange(12, dtype="float32").reshape(3, 4))
            self.mix = nn.Dense(3)

    def hybrid_forward(self, F, x, table):
        return self.mix(F.dot(self.mix(x), table))


class OwnForward(nn.Dense):
    """A layer of the library with a forward of its own."""

    def forward(self, x):
        return super().forward(x) * 2


class OwnCall(gluon.HybridBlock):
    """A `__call__` of its own, which prepares the argument and scales the result."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.out = nn.Dense(3)

    def __call__(self, x, factor=1.0):
        return super().__call__(x + 1) * (2 * factor)

    def hybrid_forward(self, F, x):
        return self.out(x)


class Unused(gluon.HybridBlock):
    """Computes a layer whose result nobody uses."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.unused, self.norm, self.out = nn.Dense(2), nn.BatchNorm(), nn.Dense(3)

    def hybrid_forward(self, F, x):
        self.norm(self.unused(x))
        return self.out(x)


class Holder(gluon.HybridBlock):
    """A HybridBlock around the graph of a file."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body, self.out = _from_files(), nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.out(self.body(x)) - 1


class Top(gluon.Block):
    """A plain top: its HybridBlocks are its parts."""

    def __init__(self, shared=False, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.encoder = nn.HybridSequential()
            with self.encoder.name_scope():
                self.encoder.add(nn.Dense(4, activation="tanh"), nn.BatchNorm(), nn.Dense(4))
            self.decoder = Scaled()
            if shared:
                self.again = self.encoder

    def forward(self, x):
        y = self.encoder(x)
        if hasattr(self, "again"):
            y = self.again(y)
        return self.decoder(y) if float(y.sum().asscalar()) < 1e9 else y


class Deep(gluon.Block):
    """Plain Blocks in plain Blocks, with HybridBlocks at two depths."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.stem = nn.Dense(4)
            self.parts = nn.Sequential()
            with self.parts.name_scope():
                self.parts.add(Top(), nn.Dense(2))

    def forward(self, x):
        return self.parts(self.stem(x))


class NumpyNet(gluon.HybridBlock):
    """`mx.np` with reshape, einsum and matmul."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.fail = 0.5, False
        self.body = nn.Dense(6, flatten=False)

    def forward(self, x):
        y = np.tanh(self.body(x))
        if self.fail and y.sum().item() > 1e9:
            y = y + 1
        y = y.reshape(-1, 2, 3)
        return np.einsum("bij,bkj->bik", y, y).reshape(-1, 4) * self.scale


class NumpyPlain(gluon.Block):
    """A plain top over `mx.np`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.net = NumpyNet()
        self.head = nn.HybridSequential()
        self.head.add(nn.Dense(3, activation="relu"), nn.LayerNorm())

    def forward(self, x):
        return npx.softmax(self.head(self.net(x)))


def _sequential(*layers):
    def make():
        net = nn.HybridSequential()
        with net.name_scope():
            net.add(*[layer() for layer in layers])
        return net

    return make


def _shared_parameters():
    net = nn.HybridSequential()
    with net.name_scope():
        first = nn.Dense(4, in_units=4)
        net.add(first, nn.Dense(4, in_units=4, params=first.params), nn.Dropout(0.5))
    return net


def _from_files():
    source = _sequential(lambda: nn.Dense(4), lambda: nn.Dense(2))()
    source.initialize()
    source(nd.ones((2, 4)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m")
        source.export(path)
        return gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")


def _from_onnx():
    source = _sequential(lambda: nn.Dense(4, activation="relu"), lambda: nn.Dense(2))()
    source.initialize()
    source(nd.ones((2, 4)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        onnx.export(source, path, inputs=("batch", 4))
        return onnx.imports(path)


def _matrix(batch, array):
    return (array(batch, 4),)


NETWORKS: dict[str, Network] = {
    "layers": Network(_sequential(lambda: nn.Dense(5, activation="relu"), lambda: nn.Dense(2)), _matrix),
    "scaled": Network(Scaled, _matrix, fails=True, scale=True),
    "convolutions": Network(
        _sequential(lambda: nn.Conv2D(3, 3), nn.BatchNorm, lambda: nn.MaxPool2D(), nn.Flatten, lambda: nn.Dense(2)),
        lambda batch, array: (array(batch, 2, 6, 6),),
    ),
    "modes": Network(Modes, _matrix),
    "shapes": Network(Shapes, _matrix),
    "dicts": Network(Dicts, lambda batch, array: ({"a": array(batch, 4), "b": array(batch, 2)},)),
    "optional": Network(Optional, lambda batch, array: (array(batch, 4), *([array(batch, 1)] if batch % 2 else []))),
    "constants": Network(Constants, lambda batch, array: (array(batch, 4),), casts=False),
    "own forward": Network(lambda: OwnForward(3), _matrix),
    "cell": Network(
        lambda: rnn.LSTMCell(3), lambda batch, array: (array(batch, 4), [array(batch, 3), array(batch, 3)])
    ),
    "recurrent": Network(
        lambda: rnn.GRU(3, num_layers=2),
        lambda batch, array: (array(5, batch, 4), [array(2, batch, 3)]),
        casts=False,
    ),
    "shared parameters": Network(_shared_parameters, _matrix),
    "loss": Network(lambda: gluon.loss.L2Loss(), lambda batch, array: (array(batch, 4), array(batch, 4)), casts=False),
    "embedding": Network(
        _sequential(lambda: nn.Embedding(9, 4), lambda: nn.Dense(2, flatten=False)),
        lambda batch, array: (nd.array(numpy.arange(batch * 3).reshape(batch, 3) % 9),),
        casts=False,
    ),
    "own call": Network(OwnCall, _matrix),
    "unused": Network(Unused, _matrix),
    "holder": Network(Holder, _matrix, casts=False),
    "onnx": Network(_from_onnx, _matrix, casts=False, is_made=True),
    "plain top": Network(Top, _matrix, fails=False),
    "shared child": Network(lambda: Top(shared=True), _matrix),
    "deep": Network(Deep, _matrix),
    "file": Network(_from_files, _matrix, casts=False, is_made=True),
    "np": Network(NumpyNet, _matrix, fails=True, scale=True, is_np=True),
    "np plain top": Network(NumpyPlain, _matrix, is_np=True),
    "np layers": Network(
        _sequential(lambda: nn.Dense(4, activation="relu"), nn.BatchNorm, lambda: nn.Dense(2)), _matrix, is_np=True
    ),
}
