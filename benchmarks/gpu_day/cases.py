"""Blocks whose graphs have every kind of kernel, each at three sizes, and the numbers that they are checked with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZES = ("small", "medium", "large")
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """block : makes the Block; shapes : of its inputs, by size
    kinds : kinds of kernels that its larger sizes are there for, as KernelSource.kind names them
    numbers : where the first input is whole numbers, below what they are
    """

    block: Callable[[], Any]
    shapes: tuple[Shapes, Shapes, Shapes]
    kinds: tuple[str, ...]
    numbers: int = 0

    def inputs(self, size: str, seed: int) -> list[np.ndarray]:
        """Random inputs in float32."""
        random, shapes = np.random.default_rng(seed), self.shapes[SIZES.index(size)]
        arrays = [random.uniform(-1.5, 1.5, shape).astype(np.float32) for shape in shapes]
        if self.numbers:
            arrays[0] = random.integers(0, self.numbers, shapes[0]).astype(np.float32)
        return arrays


def of(compute: Callable[..., Any]) -> Callable[[], Any]:
    """A Block without parameters: compute(F, *inputs)."""

    def make() -> Any:
        from hybrid_lab import gluon

        class Computed(gluon.HybridBlock):
            def hybrid_forward(self, F: Any, *inputs: Any) -> Any:
                return compute(F, *inputs)

        return Computed()

    return make


def chain(*layers: Callable[[Any], Any]) -> Callable[[], Any]:
    """A sequence of layers: each is made of gluon.nn."""

    def make() -> Any:
        from hybrid_lab.gluon import nn

        net = nn.HybridSequential()
        net.add(*(layer(nn) for layer in layers))
        return net

    return make


def recurrent(layer: str, hidden: int, width: int) -> Callable[[], Any]:
    def make() -> Any:
        from hybrid_lab.gluon import rnn

        return getattr(rnn, layer)(hidden, input_size=width)

    return make


def attention(F: Any, q: Any, k: Any, v: Any) -> Any:
    return F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.125), v)


def masked_attention(F: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """The mask has a gradient too, for which the weights are kept."""
    return F.batch_dot(F.softmax(F.broadcast_add(F.batch_dot(q, k, transpose_b=True) * 0.125, mask)), v)


def quotients_and_roots(F: Any, a: Any, b: Any) -> Any:
    """Whole numbers of a table of products: a / b, rounded down, and b again. One unit less shows."""
    return F.broadcast_add(F.floor(F.broadcast_div(a, b)), F.sqrt(F.square(b)))


def table(small: bool) -> tuple[int, int]:
    """Rows and columns of that table, both from 1 on: below what they are."""
    return (9, 7) if small else (400, 300)


def mix(F: Any, x: Any, y: Any) -> Any:
    return x * F.sigmoid(y) + F.LeakyReLU(y, act_type="gelu") - F.tanh(x)


def views(F: Any, x: Any) -> Any:
    turned = F.transpose(F.exp(x), axes=(2, 0, 1))
    return F.concat(F.slice_axis(turned, axis=0, begin=1, end=None), F.reverse(turned, axis=0), dim=0)


def statistics(F: Any, x: Any) -> Any:
    return F.sum(F.square(x), axis=0), F.mean(x, axis=0), F.broadcast_sub(x, F.mean(x, axis=1, keepdims=True))


#: Sizes are ragged on purpose: 17 and 77 fill no tile. What follows a product has no kink: where tf32 moves a number to
#: the other side of one, as of relu's at 0, its whole gradient is another.
CASES = {
    "pointwise": Case(of(mix), ([(3, 7)] * 2, [(77, 513)] * 2, [(4096, 4096)] * 2), ("pointwise",)),
    "views": Case(of(views), ([(2, 3, 5)], [(17, 33, 65)], [(128, 256, 257)]), ("pointwise",)),
    "softmax": Case(
        of(lambda F, x: F.softmax(x)), ([(3, 17)], [(77, 1000)], [(4096, 4096)]), ("rows",)
    ),
    "long softmax": Case(
        of(lambda F, x: F.softmax(x)), ([(3, 20001)], [(64, 33000)], [(512, 50000)]), ("rows in a loop",)
    ),
    "means of few rows": Case(
        of(lambda F, x: F.mean(F.square(x), axis=1)), ([(2, 70001)], [(16, 200000)], [(8, 8000001)]),
        ("parts of rows", "rows of parts"),
    ),
    "layer norm": Case(
        chain(lambda nn: nn.LayerNorm()), ([(5, 17)], [(500, 512)], [(16384, 1000)]), ("rows", "rows and columns")
    ),
    "sums of columns": Case(of(statistics), ([(17, 19)], [(513, 77)], [(8192, 2048)]), ("rows",)),
    "dense": Case(
        chain(lambda nn: nn.Dense(77, activation="tanh"), lambda nn: nn.Dense(19)),
        ([(5, 7)], [(129, 500)], [(4096, 1024)]), ("product",),
    ),
    "batched product": Case(
        of(lambda F, x, y: F.batch_dot(x, y, transpose_b=True)),
        ([(2, 5, 7), (2, 3, 7)], [(8, 77, 64), (8, 100, 64)], [(64, 512, 64), (64, 512, 64)]), ("product",),
    ),
    "convolution": Case(
        chain(lambda nn: nn.Conv2D(33, 3, strides=2, padding=1, activation="tanh"), lambda nn: nn.BatchNorm()),
        ([(2, 3, 9, 9)], [(4, 17, 29, 29)], [(32, 64, 56, 56)]), ("product", "parts of a product", "product of parts"),
    ),
    "1 x 1 convolution": Case(
        chain(lambda nn: nn.Conv2D(65, 1)), ([(2, 5, 7, 7)], [(4, 33, 14, 14)], [(32, 128, 28, 28)]), ("product",)
    ),
    "depthwise": Case(
        chain(lambda nn: nn.Conv2D(32, 3, padding=1, groups=32, in_channels=32)),
        ([(1, 32, 5, 5)], [(4, 32, 29, 29)], [(32, 32, 112, 112)]), ("pointwise",),
    ),
    "pooling": Case(
        chain(lambda nn: nn.MaxPool2D(3, 2, 1), lambda nn: nn.AvgPool2D(2)),
        ([(2, 3, 13, 13)], [(4, 17, 37, 37)], [(32, 64, 112, 112)]), ("pointwise",),
    ),
    "attention": Case(
        of(attention), ([(2, 17, 16)] * 3, [(4, 300, 64)] * 3, [(32, 1024, 64)] * 3),
        ("attention", "gradient of attention"),
    ),
    "masked attention": Case(
        of(masked_attention),
        (
            [(2, 17, 16)] * 3 + [(1, 17, 17)],
            [(4, 100, 64)] * 3 + [(1, 100, 100)],
            [(32, 1024, 64)] * 3 + [(1, 1024, 1024)],
        ),
        ("whole attention",),
    ),
    "embedding": Case(
        chain(lambda nn: nn.Embedding(1000, 65)), ([(3, 2)], [(35, 32)], [(512, 128)]), ("collect",), 1000
    ),
    "LSTM": Case(recurrent("LSTM", 65, 33), ([(2, 3, 33)], [(7, 17, 33)], [(35, 64, 33)]), ("recurrence",)),
    "GRU": Case(recurrent("GRU", 65, 33), ([(2, 3, 33)], [(7, 17, 33)], [(35, 64, 33)]), ("recurrence",)),
}  # fmt: skip
