"""Networks for the tests of ONNX files, and how a file is run beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime

from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn, rnn

_random = np.random.RandomState(7)


def floats(*shape: int) -> np.ndarray:
    return _random.rand(*shape).astype(np.float32)


def flat(result: Any) -> list[np.ndarray]:
    """The arrays of a result, in order."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [array for part in result for array in flat(part)]
    return [] if result is None else [result.asnumpy()]


def call(net: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return flat(net(*[nd.array(array, dtype=array.dtype) for array in arrays]))


def run(path: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime gives for inputs in order."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def assert_equal(path: str, net: Any, arrays: Sequence[np.ndarray], tolerance: float = 1e-4) -> None:
    expected, found = call(net, arrays), run(path, arrays)
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in expected]
    for y, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(y, wanted, rtol=0, atol=tolerance * max(np.abs(wanted).max(initial=0), 1e-6))


class Mixed(gluon.HybridBlock):
    """A Block in a Block, one called twice, dropout and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.HybridSequential()
        self.features.add(nn.Dense(4), nn.BatchNorm(), nn.Dropout(0.5))
        self.output = nn.Dense(4)

    def hybrid_forward(self, F, x):
        return self.output(self.output(self.features(x)))


class SeveralOutputs(gluon.HybridBlock):
    """Two inputs, and outputs in a dict with a tuple, a list and None in it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(3), nn.Dense(3)

    def hybrid_forward(self, F, x, y):
        p, q = self.a(x), self.b(y)
        return {"p": p, "pair": (q, [p + q, None]), "again": p}


class Attention(gluon.HybridBlock):
    def __init__(self, units: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (units // heads) ** -0.5
        self.qkv, self.out = nn.Dense(3 * units, flatten=False), nn.Dense(units, flatten=False)
        self.dropout = nn.Dropout(0.1)

    def hybrid_forward(self, F, x, mask):
        def apart(t):
            t = F.transpose(F.reshape(t, (0, 0, self.heads, -1)), (0, 2, 1, 3))
            return F.reshape(t, (-1, 0, 0), reverse=True)

        q, k, v = map(apart, F.split(self.qkv(x), 3, axis=-1))
        scores = F.reshape(F.batch_dot(q, k, transpose_b=True) * self.scale, (-4, -1, self.heads, 0, 0))
        seen = F.broadcast_like(F.expand_dims(F.expand_dims(mask, 1), 1), scores)
        scores = F.where(seen, scores, F.ones_like(scores) * -1e9)
        weights = F.reshape(self.dropout(F.softmax(scores)), (-3, 0, 0))
        mixed = F.reshape(F.batch_dot(weights, v), (-4, -1, self.heads, 0, 0))
        return self.out(F.reshape(F.transpose(mixed, (0, 2, 1, 3)), (0, 0, -3)))


class EncoderLayer(gluon.HybridBlock):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.attention = Attention(units, 4)
        self.first, self.second = nn.LayerNorm(), nn.LayerNorm()
        self.wide, self.narrow = nn.Dense(2 * units, flatten=False), nn.Dense(units, flatten=False)
        self.gelu = nn.GELU()

    def hybrid_forward(self, F, x, mask):
        x = self.first(x + self.attention(x, mask))
        return self.second(x + self.narrow(self.gelu(self.wide(x))))


class Encoder(gluon.HybridBlock):
    """Token ids (batch, time) and a mask -> the sequence, and a vector for it."""

    def __init__(self, layers: int = 6, units: int = 16) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Embedding(50, units), nn.HybridSequential()
        self.layers.add(*[EncoderLayer(units) for _ in range(layers)])
        self.positions, self.pooler = nn.Embedding(64, units), nn.Dense(4)

    def hybrid_forward(self, F, ids, mask):
        x = F.broadcast_add(self.embedding(ids), self.positions(F.contrib.arange_like(ids, axis=1)))
        for layer in self.layers:
            x = layer(x, mask)
        return x, self.pooler(F.slice_axis(x, axis=1, begin=0, end=1))


class WithStates(gluon.HybridBlock):
    """An LSTM whose states come in and go out."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = rnn.LSTM(7, 1, input_size=5), nn.Dense(3, flatten=False)

    def hybrid_forward(self, F, x, h, c):
        y, states = self.lstm(x, [h, c])
        return {"y": self.out(y), "states": states}


class Unrolled(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.cell = rnn.LSTMCell(6, input_size=4)

    def hybrid_forward(self, F, x):
        return self.cell.unroll(5, x, layout="NTC", merge_outputs=True)[0]


class Detector(gluon.HybridBlock):
    """The head of an SSD: anchors, decoded boxes, the best of them, and how much anchors overlap."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.classes, self.body = classes, nn.HybridSequential()
        self.body.add(
            nn.Conv2D(8, 3, 2, 1, activation="relu"), nn.BatchNorm(), nn.Conv2D(16, 3, 2, 1, activation="relu")
        )
        self.score, self.box = nn.Conv2D(4 * (classes + 1), 3, 1, 1), nn.Conv2D(16, 3, 1, 1)

    def hybrid_forward(self, F, x):
        x = self.body(x)
        anchors = F.contrib.MultiBoxPrior(x, sizes=[0.2, 0.3], ratios=[1, 2, 0.5])
        scores = F.reshape(F.transpose(self.score(x), (0, 2, 3, 1)), (0, -1, self.classes + 1))
        boxes = F.contrib.box_decode(F.reshape(F.transpose(self.box(x), (0, 2, 3, 1)), (0, -1, 4)), anchors)
        scores = F.softmax(scores)
        best = F.max(F.slice_axis(scores, axis=-1, begin=1, end=None), axis=-1, keepdims=True)
        rows = F.concat(F.expand_dims(F.argmax(scores, axis=-1), -1), best, boxes, dim=-1)
        found = F.contrib.box_nms(rows, overlap_thresh=0.5, valid_thresh=0.01, topk=20, id_index=0)
        flat = F.reshape(anchors, (-1, 4))
        return {"boxes": boxes, "found": found, "overlaps": F.contrib.box_iou(flat, flat)}
