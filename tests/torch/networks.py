"""Modules of torch as people write them, each with example inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """conv, norm, relu, conv, norm beside a shortcut."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.layer1(self.pool(self.stem(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Inverted(nn.Module):
    """MobileNet's block: wide, depthwise, squeezed, narrow."""

    def __init__(self, channels):
        super().__init__()
        wide = 4 * channels
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish())
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 5, 1, 2, groups=wide), nn.BatchNorm2d(wide), nn.ReLU6())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), nn.ReLU(), nn.Conv2d(4, wide, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Recurrent(nn.Module):
    """A recurrent layer of two directions and two floors, and a head on its last step."""

    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(6, 8, num_layers=2, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(2 * options.get("proj_size", 8), 4)

    def forward(self, x):
        y, state = self.rnn(x)
        return self.head(y[:, -1]), state[0] if isinstance(state, tuple) else state


class UNet(nn.Module):
    """Down twice, up twice, with skips; one way up by a transposed convolution, one by interpolation."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = self.double(1, 4), self.double(4, 8)
        self.middle = self.double(8, 8)
        self.up2 = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.dec2, self.dec1 = self.double(16, 4), self.double(8, 4)
        self.head = nn.Conv2d(4, 2, 1)

    @staticmethod
    def double(channels, out):
        return nn.Sequential(
            nn.Conv2d(channels, out, 3, padding=1),
            nn.GroupNorm(2, out),
            nn.LeakyReLU(0.1),
            nn.Conv2d(out, out, 3, padding=1),
            nn.InstanceNorm2d(out, affine=True),
            nn.SiLU(),
        )

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.middle(F.avg_pool2d(b, 2))
        y = self.dec2(torch.cat([self.up2(y), b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.dec1(torch.cat([y, a], dim=1)))


class ViT(nn.Module):
    """Patches, a class token, learned positions, nn.MultiheadAttention."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 17, 16))
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head((x + self.mlp(self.norm2(x)))[:, 0])


class Encoder(nn.Module):
    """nn.TransformerEncoder on tokens, with a mask of the padding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens):
        y = self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0)
        return self.head(y.mean(1))


class GPT(nn.Module):
    """A decoder with causal attention, and the embedding as the head's weight."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([GPTBlock(16, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class GPTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (
            y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.norm2(x))


class ConvNeXt(nn.Module):
    """Depthwise convolution, LayerNorm with channels last, a scale for each channel."""

    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, 4)
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.1))
        self.head = nn.Linear(channels, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.narrow(F.gelu(self.wide(self.norm(y)))).permute(0, 3, 1, 2)
        return self.head((x + self.scale * y).mean([-2, -1]))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


def conv_net():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding="same"),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect"),
        nn.ELU(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(32, 4),
        nn.LogSoftmax(dim=1),
    )


def images(*shape):
    return lambda: (torch.randn(*shape),)


def tokens(*shape):
    return lambda: (torch.randint(1, 20, shape),)


NETWORKS = {
    "mlp": (mlp, images(4, 3, 4)),
    "conv net": (conv_net, images(4, 3, 8, 8)),
    "residual net": (ResNet, images(4, 3, 32, 32)),
    "inverted residual": (lambda: Inverted(6), images(4, 6, 8, 8)),
    "lstm": (lambda: Recurrent(nn.LSTM), images(3, 5, 6)),
    "projected lstm": (lambda: Recurrent(nn.LSTM, proj_size=3), images(3, 5, 6)),
    "projected lstm without biases": (lambda: Recurrent(nn.LSTM, proj_size=3, bias=False), images(3, 5, 6)),
    "gru": (lambda: Recurrent(nn.GRU), images(3, 5, 6)),
    "u-net": (UNet, images(2, 1, 16, 16)),
    "vit": (ViT, images(3, 3, 16, 16)),
    "transformer encoder": (Encoder, lambda: (torch.randint(0, 20, (3, 7)),)),
    "gpt": (GPT, tokens(3, 9)),
    "convnext": (ConvNeXt, images(3, 3, 16, 16)),
}  # fmt: skip
"""Name -> the module, and its example inputs."""
