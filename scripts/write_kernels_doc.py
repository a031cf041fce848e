"""Write docs/kernels.md: one kernel of every kind as the Triton engine prints it. A test compares.

Nothing is compiled and no GPU is needed: the text follows from the graphs alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.plan.training import with_less_saved
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.gluon import nn, rnn

TARGET = Path(__file__).resolve().parent.parent / "docs" / "kernels.md"

HEAD = """\
# Kernels

The page shows one kernel of every kind of the Triton engine. `python scripts/write_kernels_doc.py` writes it; a test
checks that the engine still writes the same kernels. A kernel is written backwards: for each element that it stores,
the engine writes the elements that this one is computed from, down to the loads. Views (`reshape`, `transpose`,
slices) need no code; they only change where elements are loaded from. A comment names the operator, its Block, the
composite operator that it is a part of, and the line of the user's code.

Comments and names of layers are not compiled; the counts of what a kernel computes (`n`, `rows`, `columns`) are passed
as arguments. So equal layers share a kernel, often with layers of other sizes, and other batch sizes mostly use it too.
`divide` and `square_root`, left out here, round correctly; `tl.fdiv` need not, and is used if that does no harm.
"""


class Residual(gluon.HybridBlock):
    """A residual with GELU and dropout: everything is done element by element."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        with self.name_scope():
            self.gelu, self.drop = nn.GELU(), nn.Dropout(0.1)

    def hybrid_forward(self, F, x, y):
        return x + self.drop(self.gelu(y))


class Words(gluon.HybridBlock):
    """The probability of every word of a large vocabulary."""

    def hybrid_forward(self, F, scores):
        return F.softmax(scores)


class Scores(gluon.HybridBlock):
    """Attention's scores: heads are cut out of one array on the way."""

    def hybrid_forward(self, F, qkv):
        q = F.slice_axis(qkv, axis=2, begin=0, end=64)
        k = F.slice_axis(qkv, axis=2, begin=64, end=128)
        return F.batch_dot(q, k, transpose_b=True) * 0.125


class Attention(gluon.HybridBlock):
    """Heads cut out of one array, scores with a mask, softmax, and the product with the values."""

    def hybrid_forward(self, F, qkv, mask):
        heads = F.transpose(F.reshape(qkv, shape=(0, 0, 12, 64)), axes=(0, 2, 1, 3))
        parts = (F.slice_axis(heads, axis=1, begin=first, end=first + 4) for first in (0, 4, 8))
        q, k, v = (F.reshape(part, shape=(-3, 0, 0)) for part in parts)
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.125 + mask)
        mixed = F.reshape(F.batch_dot(weights, v), shape=(-4, -1, 4, 0, 0))
        return F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -3))


class Gradient(gluon.HybridBlock):
    """Attention of one head."""

    def hybrid_forward(self, F, q, k, v):
        return F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.125), v)


def sources(net: gluon.HybridBlock, *shapes: tuple[int, ...], train: bool = False) -> list[list[KernelSource]]:
    """The kernels of forward and, in training, backward."""
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    inputs = [mx.nd.zeros(shape) for shape in shapes]
    for array in inputs:
        array.attach_grad()
    with autograd.record() if train else autograd.predict_mode():
        net(*inputs)
    special = net._graph_calls.compilations[-1].program.special
    if not train:
        return [kernels_of(special.forward)[2]]
    split = with_less_saved(special.split)
    return [kernels_of(graph)[2] for graph in (split.forward, split.backward)]


def convolution() -> gluon.HybridBlock:
    net = nn.HybridSequential(prefix="layers_")
    net.add(nn.Conv2D(64, 3, strides=2, padding=1, in_channels=32, activation="relu", prefix="conv_"))
    return net


def depthwise() -> gluon.HybridBlock:
    net = nn.HybridSequential(prefix="layers_")
    net.add(nn.Conv2D(32, (1, 3), padding=(0, 1), groups=32, in_channels=32, activation="relu"))
    return net


def examples() -> list[tuple[str, str, list[KernelSource]]]:
    """(title, what it is, kernels)."""
    forward, backward = sources(convolution(), (8, 32, 56, 56), train=True)
    bias = [source for source in backward if source.kind in ("parts of rows", "rows of parts")]
    weight = [source for source in backward if source.kind in ("parts of a product", "product of parts")]
    norm, words = sources(nn.LayerNorm(prefix="norm_"), (64, 512))[0], sources(Words(prefix="words_"), (512, 50000))[0]
    scores = sources(Scores(prefix="scores_"), (8, 128, 192))[0]
    attention = sources(Attention(prefix="attention_"), (8, 128, 768), (1, 128, 128))[0]
    gradient = sources(Gradient(prefix="attention_"), (8, 128, 64), (8, 128, 64), (8, 128, 64), train=True)[1]
    gradient = [source for source in gradient if source.kind == "gradient of attention"]
    columns = sources(nn.LayerNorm(prefix="norm_"), (1024, 512), train=True)[1]
    windows = sources(depthwise(), (8, 32, 56, 56))[0]
    residual = sources(Residual(prefix="residual_"), (64, 512), (64, 512), train=True)[0]
    table = sources(nn.Embedding(33000, 200, prefix="words_"), (35, 32), train=True)[1]
    steps = sources(rnn.LSTM(200, input_size=200, prefix="lstm_"), (35, 32, 200))[0]
    steps = [source for source in steps if source.kind == "recurrence"]
    return [
        ("Pointwise", "`x + dropout(gelu(y))` in training.", residual),
        ("Rows in one tile", "A LayerNorm: two reductions over each row, and the operators that use them.", norm),
        ("Rows in a loop", "A softmax over 50,000 words.", words),
        ("Split rows", "The gradient of a convolution's bias: few long rows, each split among many programs.", bias),
        ("Rows and columns", "The gradients of a LayerNorm: sums along rows and along columns.", columns),
        ("Products", "The scores of attention, read from one array that holds queries, keys and values.", scores),
        ("Convolutions", "A convolution with stride 2 and its ReLU, without a copy of the patches.", forward),
        ("Long sums", "The gradient of its weight: a small output, with many programs for each of its tiles.", weight),
        ("Depthwise convolutions", "One channel at a time: there is no product to compute in tiles.", windows),
        ("Attention", "Four heads with a mask, in prediction. Scores and weights are never in memory.", attention),
        ("Gradients of attention", "The weights are computed again in tiles, and never written to memory.", gradient),
        ("Rows by number", "The gradient of an embedding: 33,000 words, 35 x 32 of them read.", table),
        ("Recurrent layers", "All steps of an LSTM in one launch, after one product for all inputs.", steps),
    ]


def page() -> str:
    """The whole text."""
    parts = [HEAD]
    for title, what, kernels in examples():
        parts.append(f"## {title}\n\n{what}\n")
        for source in kernels:
            programs = (-(-source.sizes[size] // source.blocks.get(block, 1)) for size, block in source.grid)
            launch = " x ".join(map(str, programs))
            blocks = ", ".join(f"{name} = {size}" for name, size in source.blocks.items())
            body = source.text[source.text.rindex("@triton.jit") :]
            parts.append(f"`{source.name}`, {source.kind}; {launch} programs with {blocks}:\n\n```python\n{body}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET.name}, {len(TARGET.read_text().splitlines())} lines", file=sys.stderr)
