"""Convolutions, transposed ones and pooling whose output or input is one pixel wide: hybridized as eagerly."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import nn
from tests.triton_device import use_triton

LAYERS = {
    "convolution": lambda kernel, stride: nn.Conv2D(4, kernel, strides=stride, in_channels=4),
    "in groups": lambda kernel, stride: nn.Conv2D(4, kernel, strides=stride, groups=2, in_channels=4),
    "depthwise": lambda kernel, stride: nn.Conv2D(4, kernel, strides=stride, groups=4, in_channels=4),
    "max pooling": lambda kernel, stride: nn.MaxPool2D(kernel, strides=stride),
    "average pooling": lambda kernel, stride: nn.AvgPool2D(kernel, strides=stride),
    "transposed": lambda kernel, stride: nn.Conv2DTranspose(4, kernel, strides=stride, in_channels=4),
    "to one channel": lambda kernel, stride: nn.Conv2D(1, kernel, strides=stride, in_channels=4),
    "from one channel": lambda kernel, stride: nn.Conv2D(2, kernel, strides=stride, in_channels=1),
    "transposed to one channel": lambda kernel, stride: nn.Conv2DTranspose(1, kernel, strides=stride, in_channels=4),
    "transposed from one channel": lambda kernel, stride: nn.Conv2DTranspose(2, kernel, strides=stride, in_channels=1),
}


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch", "triton"])
@pytest.mark.parametrize("kind", LAYERS)
def test_one_pixel(kind, engine, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    elif engine != "numpy":
        pytest.importorskip(engine)
    for kernel, stride in ((3, 2), (2, 2), (2, 3), ((3, 1), (2, 2)), ((1, 3), (2, 1))):
        layer = LAYERS[kind](kernel, stride)
        layer.initialize(mx.init.Uniform(0.7))
        for output, batch in (((5, 1), 2), ((1, 5), 2), ((1, 1), 2), ((1, 1), 1)):
            pairs = zip(output, np.broadcast_to(stride, 2), np.broadcast_to(kernel, 2), strict=True)
            channels = 1 if "from one" in kind or "pooling" in kind and batch == 1 else 4
            size = output if "transposed" in kind else [(pixels - 1) * step + own for pixels, step, own in pairs]
            x = nd.array(np.random.RandomState(0).uniform(-1.5, 1.5, (batch, channels, *size)))
            x.attach_grad()
            found = []
            for hybrid in (False, True):
                layer.hybridize(hybrid, engine=engine)
                with autograd.record():
                    y = layer(x)
                    total = (y * y).sum()
                total.backward()
                grads = [each.grad() for each in layer.collect_params().values()]
                found.append([each.asnumpy() for each in (y, x.grad, *grads)])
            for eager, other in zip(*found, strict=True):
                case = f"{kernel} {stride} {output} {batch}"
                np.testing.assert_allclose(other, eager, rtol=1e-4, atol=1e-4, err_msg=case)
