"""Cases of the stage `kernels`: single layers as graphs, and the same work as calls of torch.

A name is "conv 64 > 128, 3 x 3 s2 at 56, weight, tf32": the layer, what is computed of it, and the precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PRECISIONS = ("float32", "tf32", "float16")
#: Channels in and out, kernel, stride, and height of the image: layers of ResNet-18 and ResNet-50.
CONVOLUTIONS = (
    (64, 64, 3, 1, 56), (3, 64, 7, 2, 224), (128, 128, 3, 1, 28), (256, 256, 3, 1, 14), (512, 512, 3, 1, 7),
    (64, 128, 3, 2, 56), (64, 128, 1, 2, 56), (128, 256, 3, 2, 28), (256, 512, 3, 2, 14), (64, 256, 1, 1, 56),
    (256, 64, 1, 1, 56), (512, 128, 1, 1, 28), (1024, 256, 1, 1, 14), (2048, 512, 1, 1, 7),
)  # fmt: skip
PASSES = ("forward", "data", "weight")
PRODUCTS = (4096, 8192, 2048, 1024, 512)
#: Length -> how many heads of 64 at once: no array may be larger than 2 GiB.
ATTENTIONS = {1024: 64, 128: 256, 512: 64, 2048: 16, 4096: 8, 8192: 4}
#: Steps, batch and units.
RECURRENCES = ((35, 32, 200), (128, 64, 512))
#: Operators that only move memory: what they compute, how many inputs they have, and torch's call.
MEMORY: dict[str, tuple[Callable[..., Any], int, Callable[..., Any]]] = {
    "x * y + x": (lambda F, x, y: x * y + x, 2, lambda x, y: x * y + x),
    "gelu": (lambda F, x: F.LeakyReLU(x, act_type="gelu"), 1, lambda x: _functional().gelu(x)),
    "tanh(x) * sigmoid(y)": (lambda F, x, y: F.tanh(x) * F.sigmoid(y), 2, lambda x, y: x.tanh() * y.sigmoid()),
    "sum of rows": (lambda F, x: F.sum(x, axis=1), 1, lambda x: x.sum(1)),
    "sum of columns": (lambda F, x: F.sum(x, axis=0), 1, lambda x: x.sum(0)),
    "sum of all": (lambda F, x: F.sum(x), 1, lambda x: x.sum()),
    "softmax": (lambda F, x: F.softmax(x), 1, lambda x: x.softmax(-1)),
}


@dataclass(frozen=True)
class Layer:
    """graph : makes the Graph; calls : makes torch's calls by their names
    flops : operations of one run, 0 for what only moves memory
    """

    graph: Callable[[], Any]
    calls: Callable[[], Mapping[str, Callable[[], Any]]]
    flops: int


def names() -> list[str]:
    """The names of all layers: the larger half of what ResNet-18 needs first, other precisions and sizes later."""
    found = [f"memory {name}, float32" for name in MEMORY]
    for precision in PRECISIONS:
        found += [f"gemm {size}, {precision}" for size in PRODUCTS]
        found += [f"attention {length}, {part}, {precision}" for length in ATTENTIONS for part in PASSES[:2]]
        found += [f"{_conv(*each)}, {part}, {precision}" for each in CONVOLUTIONS[:5] for part in PASSES]
    found += [f"lstm {' x '.join(map(str, each))}, {part}, float32" for each in RECURRENCES for part in PASSES[:2]]
    for precision in PRECISIONS:
        found += [f"{_conv(*each)}, {part}, {precision}" for each in CONVOLUTIONS[5:] for part in PASSES]
    return found


def _conv(inputs: int, channels: int, kernel: int, stride: int, size: int) -> str:
    return f"conv {inputs} > {channels}, {kernel} x {kernel}{f' s{stride}' if stride > 1 else ''} at {size}"


def layer(name: str, small: bool = False) -> Layer:
    """The layer of a name. small : of miniature sizes"""
    kind, _, rest = name.partition(" ")
    *parts, precision = rest.split(", ")
    dtype = "float16" if precision == "float16" else "float32"
    if kind == "memory":
        return _memory(parts[0], small)
    numbers = [int(number) for number in re.findall(r"\d+", ", ".join(parts))]
    if kind == "gemm":
        return gemm(24 if small else numbers[0], dtype)
    if kind == "attention":
        length, heads = (40, 2) if small else (numbers[0], ATTENTIONS[numbers[0]])
        return _attention(heads, length, parts[-1], dtype)
    if kind == "lstm":
        steps, batch, units = (2, 3, 18) if small else numbers
        return _lstm(steps, batch, units, parts[-1])
    inputs, channels, kernel, _, *stride, size = numbers
    shape = (2, 5, 9, 9) if small else (32, inputs, size, size)
    return _convolution(shape, 7 if small else channels, kernel, stride[0] if stride else 1, parts[-1], dtype)


# -- one function for each kind ----------------------------------------------------------------------------------------


def _memory(name: str, small: bool) -> Layer:
    compute, inputs, call = MEMORY[name]
    shape = (64, 256) if small else (16384, 4096)

    def calls() -> Mapping[str, Callable[[], Any]]:
        given = [_random(shape, "float32") for _ in range(inputs)]
        return {"torch": lambda: call(*given)}

    return Layer(lambda: graph_of(_computed(compute), [shape] * inputs), calls, 0)


def gemm(size: int, dtype: str) -> Layer:
    def calls() -> Mapping[str, Callable[[], Any]]:
        x, y = (_random((size, size), dtype) for _ in range(2))
        return {"torch": lambda: x @ y}

    block = _computed(lambda F, x, y: F.dot(x, y))
    return Layer(lambda: graph_of(block, [(size, size)] * 2, dtype), calls, 2 * size**3)


def _attention(heads: int, length: int, part: str, dtype: str) -> Layer:
    def compute(F: Any, q: Any, k: Any, v: Any) -> Any:
        return F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.125), v)

    def calls() -> Mapping[str, Callable[[], Any]]:
        import torch

        q, k, v = (_random((1, heads, length, 64), dtype).requires_grad_(part == "data") for _ in range(3))
        if part == "forward":
            return {"torch SDPA": lambda: _functional().scaled_dot_product_attention(q, k, v)}
        made = _functional().scaled_dot_product_attention(q, k, v)
        head = torch.randn_like(made)
        return {"torch SDPA": lambda: torch.autograd.grad(made, (q, k, v), head, retain_graph=True)}

    shapes, flops = [(heads, length, 64)] * 3, 4 * heads * length**2 * 64
    made = lambda: graph_of(_computed(compute), shapes, dtype, part)  # noqa: E731
    return Layer(made, calls, flops if part == "forward" else flops * 5 // 2)


def _convolution(shape: tuple[int, ...], channels: int, kernel: int, stride: int, part: str, dtype: str) -> Layer:
    padding = kernel // 2

    def make() -> Any:
        from hybrid_lab.gluon import nn

        settings = {"padding": padding, "use_bias": False, "in_channels": shape[1]}
        return nn.Conv2D(channels, kernel, strides=stride, **settings)

    def calls() -> Mapping[str, Callable[[], Any]]:
        import torch

        found: dict[str, Callable[[], Any]] = {}
        wanted = [part == "data", part == "weight", False]
        window = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, wanted)
        for layout, order in (("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last)):
            x, weight = (
                _random(each, dtype).contiguous(memory_format=order)
                for each in (shape, (channels, shape[1], kernel, kernel))
            )
            made = torch.nn.functional.conv2d(x, weight, None, stride, padding)

            def backward(head: Any = torch.randn_like(made), x: Any = x, weight: Any = weight) -> Any:
                return torch.ops.aten.convolution_backward(head, x, weight, None, *window)

            def forward(x: Any = x, weight: Any = weight) -> Any:
                return torch.nn.functional.conv2d(x, weight, None, stride, padding)

            found[f"torch {layout}"] = forward if part == "forward" else backward
        return found

    high = (shape[2] + 2 * padding - kernel) // stride + 1
    flops = 2 * shape[0] * channels * high**2 * shape[1] * kernel**2
    return Layer(lambda: graph_of(make, [shape], dtype, part), calls, flops)


def _lstm(steps: int, batch: int, units: int, part: str) -> Layer:
    def make() -> Any:
        from hybrid_lab.gluon import rnn

        return rnn.LSTM(units, input_size=units)

    def calls() -> Mapping[str, Callable[[], Any]]:
        import torch

        net = torch.nn.LSTM(units, units).to(device())
        x = _random((steps, batch, units), "float32").requires_grad_()
        if part == "forward":
            return {"torch": lambda: net(x)}
        made = net(x)[0]
        head, read = torch.randn_like(made), (x, *net.parameters())
        return {"torch": lambda: torch.autograd.grad(made, read, head, retain_graph=True)}

    flops, shape = 2 * steps * batch * 8 * units**2, (steps, batch, units)
    if part == "forward":
        return Layer(lambda: graph_of(make, [shape]), calls, flops)
    return Layer(lambda: graph_of(make, [shape], "float32", "every"), calls, 2 * flops)


# -- shared by them ----------------------------------------------------------------------------------------------------


def graph_of(
    make: Callable[[], Any], shapes: list[tuple[int, ...]], dtype: str = "float32", part: str = "forward"
) -> Any:
    """The graph of a Block's call, or of its gradients.

    part : "forward"; the gradient of its "data", of its "weight", or of "every" one
    """
    return graphs_of(make, shapes, dtype, part)["forward" if part == "forward" else "backward"]


def graphs_of(
    make: Callable[[], Any], shapes: list[tuple[int, ...]], dtype: str = "float32", part: str = "forward",
    rule: Any = None, whole: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The same with the forward beside its gradients. Nothing runs.

    rule : which recurrent layers the GPU's own library computes; whole : the first input is whole numbers, which have
    no gradient
    """
    import numpy as np

    from hybrid_lab import nd
    from hybrid_lab.gluon import ahead

    block = make()
    block.initialize()
    block.cast(dtype)
    inputs = [nd.array(np.zeros(shape, dtype), dtype=dtype) for shape in shapes]
    if part in ("data", "every"):
        for array in inputs[whole:]:
            array.attach_grad()
    if part == "data":
        for parameter in block.collect_params().values():
            parameter.grad_req = "null"
    return ahead.graphs_of(block, inputs, train=part != "forward", rule=rule)


def _computed(compute: Callable[..., Any]) -> Callable[[], Any]:
    from gpu_day.cases import of

    return of(compute)


def _random(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    return torch.randn(shape, device=device(), dtype=getattr(torch, dtype))


def device() -> Any:
    from hybrid_lab.engines.triton.run import availability

    return availability.torch_device()


def _functional() -> Any:
    import torch

    return torch.nn.functional
