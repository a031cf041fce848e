"""The same workloads in torch."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def build(name, batch, device="cpu"):
    """(network, input, target, loss function) as gluon_workloads.build gives them."""
    random = np.random.RandomState(0)
    classes = None
    if name.startswith("resnet"):
        net, shape, classes = ResNet(50 if "50" in name else 18), (batch, 3, 224, 224), 1000
    elif name.startswith("mobilenet"):
        net, shape, classes = mobilenet(), (batch, 3, 224, 224), 1000
    elif name.startswith("lenet"):
        net, shape, classes = lenet(), (batch, 1, 28, 28), 10
    elif name.startswith("mlp"):
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
        shape, classes = (batch, 784), 10
    elif name == "miniature":
        net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
        shape, classes = (batch, 12), 3
    elif name.startswith("lstm"):
        net, shape = Lstm(), (35, batch, 200)
    elif name.startswith("encoder"):
        layers = (EncoderBlock(256, 4, 1024) for _ in range(6 if "6" in name else 1))
        net, shape = nn.Sequential(*layers), (batch, 128, 256)
    else:
        net, shape = nn.Sequential(nn.GELU(), nn.LayerNorm(4096), nn.Softmax(-1)), (batch, 4096)
    net, x = net.to(device), torch.from_numpy(random.uniform(-1, 1, shape).astype("float32")).to(device)
    if classes:
        return net, x, torch.from_numpy(random.randint(0, classes, batch)).to(device), functional.cross_entropy
    target = torch.from_numpy(random.uniform(-1, 1, shape).astype("float32")).to(device)
    return net, x, target, functional.mse_loss


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(200, 200, 2)

    def forward(self, x):
        return self.layers(x)[0]


class EncoderBlock(nn.Module):
    def __init__(self, units, heads, hidden):
        super().__init__()
        self.heads, self.scale = heads, (units // heads) ** -0.5
        self.qkv, self.out = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.norm1, self.norm2 = nn.LayerNorm(units), nn.LayerNorm(units)
        self.wide, self.narrow = nn.Linear(units, hidden), nn.Linear(hidden, units)

    def forward(self, x):
        batch, length, units = x.shape
        parts = self.qkv(x).split(units, 2)
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        weights = ((q @ k.transpose(-1, -2)) * self.scale).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, units)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.narrow(functional.gelu(self.wide(x))))


def unit(inputs, channels, kernel, stride=1, groups=1, active=True, bias=False):
    """Convolution, BatchNorm and, where `active`, the activation."""
    convolution = nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, groups=groups, bias=bias)
    layers = [convolution, nn.BatchNorm2d(channels)]
    return nn.Sequential(*layers, *([nn.ReLU()] if active else []))


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return functional.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Sequential):
    """The first version: 18 layers of basic blocks, or 50 of bottlenecks with the stride on the first convolution."""

    def __init__(self, depth):
        counts, widths = ((2, 2, 2, 2), (64, 128, 256, 512)) if depth == 18 else ((3, 4, 6, 3), (256, 512, 1024, 2048))
        layers, inputs = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for stage, (count, width) in enumerate(zip(counts, widths)):
            for index in range(count):
                stride = 2 if stage and not index else 1
                if depth == 18:
                    body = nn.Sequential(unit(inputs, width, 3, stride), unit(width, width, 3, active=False))
                else:
                    inner = width // 4
                    body = nn.Sequential(
                        unit(inputs, inner, 1, stride, bias=True), unit(inner, inner, 3),
                        unit(inner, width, 1, active=False, bias=True),
                    )  # fmt: skip
                shortcut = unit(inputs, width, 1, stride, active=False) if inputs != width or stride != 1 else None
                layers.append(Residual(body, shortcut))
                inputs = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def mobilenet():
    layers, inputs = [unit(3, 32, 3, 2)], 32
    first = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    for channels, stride in [*first, *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        layers += [unit(inputs, inputs, 3, stride, groups=inputs), unit(inputs, channels, 1)]
        inputs = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))
