"""ResNet: v1 "Deep residual learning for image recognition", v2 "Identity mappings in deep residual networks"
(He et al., 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.model_zoo.classifier import Classifier, create, model, with_weights
from hybrid_lab.ops.framework.protocols import Functions, Tensor

#: Depth -> (kind of block, blocks per stage, channels of the stem and of the stages).
_DEPTHS: dict[int, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    18: ("basic", (2, 2, 2, 2), (64, 64, 128, 256, 512)),
    34: ("basic", (3, 4, 6, 3), (64, 64, 128, 256, 512)),
    50: ("bottleneck", (3, 4, 6, 3), (64, 256, 512, 1024, 2048)),
    101: ("bottleneck", (3, 4, 23, 3), (64, 256, 512, 1024, 2048)),
    152: ("bottleneck", (3, 8, 36, 3), (64, 256, 512, 1024, 2048)),
}


def _conv3x3(channels: int, stride: int, in_channels: int) -> nn.Conv2D:
    return nn.Conv2D(channels, kernel_size=3, strides=stride, padding=1, use_bias=False, in_channels=in_channels)


class _Residual(HybridBlock):
    """Base of the blocks: layers, and a way past them.

    downsample : bring x to the new shape by a 1 x 1 convolution, on the way past the layers
    """

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **keywords: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**keywords)
        self._add_layers(channels, stride, in_channels)
        self.downsample = self._projection(channels, stride, in_channels) if downsample else None

    def _add_layers(self, channels: int, stride: int, in_channels: int) -> None:
        """Make the layers, which `hybrid_forward` calls."""
        raise NotImplementedError

    def _projection(self, channels: int, stride: int, in_channels: int) -> HybridBlock:
        return nn.Conv2D(channels, kernel_size=1, strides=stride, use_bias=False, in_channels=in_channels)


class _ResidualV1(_Residual):
    def _projection(self, channels: int, stride: int, in_channels: int) -> HybridBlock:
        unit = nn.HybridSequential(prefix="")
        unit.add(super()._projection(channels, stride, in_channels), nn.BatchNorm())
        return unit


class BasicBlockV1(_ResidualV1):
    """relu(x + two 3 x 3 convolutions of x), for 18 and 34 layers."""

    def _add_layers(self, channels: int, stride: int, in_channels: int) -> None:
        self.body = nn.HybridSequential(prefix="")
        self.body.add(_conv3x3(channels, stride, in_channels), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(_conv3x3(channels, 1, channels), nn.BatchNorm())

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        return F.Activation(residual + self.body(x), act_type="relu")


class BottleneckV1(_ResidualV1):
    """relu(x + three convolutions of x, the middle one 3 x 3 on a quarter of the channels), for 50 layers and more."""

    def _add_layers(self, channels: int, stride: int, in_channels: int) -> None:
        inner = channels // 4
        self.body = nn.HybridSequential(prefix="")
        self.body.add(nn.Conv2D(inner, kernel_size=1, strides=stride), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(_conv3x3(inner, 1, inner), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(nn.Conv2D(channels, kernel_size=1, strides=1), nn.BatchNorm())

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        return F.Activation(self.body(x) + residual, act_type="relu")


class BottleneckV1b(BottleneckV1):
    """BottleneckV1 with the stride in its 3 x 3 convolution, and no biases, as torchvision and timm have it."""

    def _add_layers(self, channels: int, stride: int, in_channels: int) -> None:
        inner = channels // 4
        self.body = nn.HybridSequential(prefix="")
        self.body.add(nn.Conv2D(inner, kernel_size=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(_conv3x3(inner, stride, inner), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(nn.Conv2D(channels, kernel_size=1, use_bias=False), nn.BatchNorm())


class BasicBlockV2(_Residual):
    """x + two 3 x 3 convolutions, BatchNorm and relu before each."""

    def _add_layers(self, channels: int, stride: int, in_channels: int) -> None:
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv3x3(channels, stride, in_channels)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels, 1, channels)

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        active = F.Activation(self.bn1(x), act_type="relu")
        residual = x if self.downsample is None else self.downsample(active)
        x = F.Activation(self.bn2(self.conv1(active)), act_type="relu")
        return self.conv2(x) + residual


class BottleneckV2(_Residual):
    """x + three convolutions, the middle one 3 x 3 on a quarter of the channels, BatchNorm and relu before each."""

    def _add_layers(self, channels: int, stride: int, in_channels: int) -> None:
        inner = channels // 4
        self.bn1 = nn.BatchNorm()
        self.conv1 = nn.Conv2D(inner, kernel_size=1, strides=1, use_bias=False)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(inner, stride, inner)
        self.bn3 = nn.BatchNorm()
        self.conv3 = nn.Conv2D(channels, kernel_size=1, strides=1, use_bias=False)

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        active = F.Activation(self.bn1(x), act_type="relu")
        residual = x if self.downsample is None else self.downsample(active)
        x = F.Activation(self.bn2(self.conv1(active)), act_type="relu")
        x = F.Activation(self.bn3(self.conv2(x)), act_type="relu")
        return self.conv3(x) + residual


class _ResNet(Classifier):
    """What both versions share: stem, four stages, a dense layer."""

    def __init__(
        self,
        block: Callable[..., HybridBlock],
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **keywords: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**keywords)
        if len(layers) != len(channels) - 1:
            raise ValueError(
                f"{type(self).__name__}: {len(layers)} stages need {len(layers) + 1} widths, got {channels}"
            )
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self._add_stem(channels[0], thumbnail)
            for index, count in enumerate(layers):
                self.features.add(self._stage(index, count, block, channels[index], channels[index + 1]))
            self._add_end()
            self.output = nn.Dense(classes, in_units=channels[-1])

    def _add_stem(self, channels: int, thumbnail: bool) -> None:
        if thumbnail:
            self.features.add(_conv3x3(channels, 1, 0))
            return
        self.features.add(nn.Conv2D(channels, 7, 2, 3, use_bias=False))
        self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))

    def _add_end(self) -> None:
        raise NotImplementedError

    @staticmethod
    def _stage(
        index: int, count: int, block: Callable[..., HybridBlock], in_channels: int, channels: int
    ) -> nn.HybridSequential:
        stage = nn.HybridSequential(prefix=f"stage{index + 1}_")
        with stage.name_scope():
            first = {"downsample": channels != in_channels, "in_channels": in_channels, "prefix": ""}
            stage.add(block(channels, 1 if index == 0 else 2, **first))
            for _ in range(count - 1):
                stage.add(block(channels, 1, downsample=False, in_channels=channels, prefix=""))
        return stage


class ResNetV1(_ResNet):
    """ResNet with the activation behind the addition; images of 224 x 224, or of 32 x 32 with `thumbnail`.

    block : BasicBlockV1 or BottleneckV1
    layers : blocks per stage; channels : of the stem and of each stage
    thumbnail : one 3 x 3 convolution instead of the stem that quarters the image
    """

    def _add_end(self) -> None:
        self.features.add(nn.GlobalAvgPool2D())


class ResNetV2(_ResNet):
    """ResNet with BatchNorm and activation before each convolution. Arguments as ResNetV1's, with V2 blocks."""

    def _add_stem(self, channels: int, thumbnail: bool) -> None:
        self.features.add(nn.BatchNorm(scale=False, center=False))
        super()._add_stem(channels, thumbnail)

    def _add_end(self) -> None:
        self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten())


_VERSIONS: dict[int, tuple[type[_ResNet], dict[str, Callable[..., HybridBlock]]]] = {
    1: (ResNetV1, {"basic": BasicBlockV1, "bottleneck": BottleneckV1}),
    2: (ResNetV2, {"basic": BasicBlockV2, "bottleneck": BottleneckV2}),
}


@with_weights
def get_resnet(version: int, num_layers: int, *weights: Any, stride_in_3x3: bool = False, **options: Any) -> _ResNet:
    """ResNet of version 1 or 2 with 18, 34, 50, 101 or 152 layers.

    stride_in_3x3 : version 1 as torchvision and timm have it ("v1.5", "v1b"): from 50 layers on BottleneckV1b instead
        of BottleneckV1, else no difference
    weights, options : `pretrained`, `ctx`, `root` (see model_zoo.classifier), and arguments of the network
    """
    if num_layers not in _DEPTHS:
        raise ValueError(f"there is no ResNet of {num_layers} layers; the depths are {', '.join(map(str, _DEPTHS))}")
    if version not in _VERSIONS:
        raise ValueError(f"there is no ResNet of version {version}; the versions are 1 and 2")
    kind, layers, channels = _DEPTHS[num_layers]
    network, blocks = _VERSIONS[version]
    block = BottleneckV1b if stride_in_3x3 and blocks[kind] is BottleneckV1 else blocks[kind]
    name = f"resnet{num_layers}_v{version}"
    return create(name, network, (block, layers, channels), *weights, **options)


resnet18_v1 = model("resnet18_v1", get_resnet, 1, 18)
resnet34_v1 = model("resnet34_v1", get_resnet, 1, 34)
resnet50_v1 = model("resnet50_v1", get_resnet, 1, 50)
resnet101_v1 = model("resnet101_v1", get_resnet, 1, 101)
resnet152_v1 = model("resnet152_v1", get_resnet, 1, 152)
resnet18_v2 = model("resnet18_v2", get_resnet, 2, 18)
resnet34_v2 = model("resnet34_v2", get_resnet, 2, 34)
resnet50_v2 = model("resnet50_v2", get_resnet, 2, 50)
resnet101_v2 = model("resnet101_v2", get_resnet, 2, 101)
resnet152_v2 = model("resnet152_v2", get_resnet, 2, 152)
