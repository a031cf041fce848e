"""MobileNet (Howard et al., 2017, arXiv 1704.04861) and MobileNetV2 (Sandler et al., 2018, arXiv 1801.04381)."""

from __future__ import annotations

from typing import Any, Unpack

from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.model_zoo.classifier import Classifier, create, model, with_weights
from hybrid_lab.ops.framework.protocols import Functions, Tensor

#: MobileNet's depthwise separable convolutions: (input channels, output channels, stride).
_SEPARABLE = (
    (32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
    *((512, 512, 1),) * 5, (512, 1024, 2), (1024, 1024, 1),
)  # fmt: skip
#: MobileNetV2's bottlenecks: (expansion, output channels, how many, stride of the first).
_BOTTLENECKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class RELU6(HybridBlock):
    """min(max(x, 0), 6)."""

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.clip(x, 0, 6, name="fwd")


def _add_convolution(
    out: nn.HybridSequential,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    active: bool = True,
    relu6: bool = False,
) -> None:
    """Convolution, BatchNorm and, where `active`, the activation."""
    out.add(nn.Conv2D(channels, kernel, stride, padding, groups=groups, use_bias=False))
    out.add(nn.BatchNorm(scale=True))
    if active:
        out.add(RELU6() if relu6 else nn.Activation("relu"))


class LinearBottleneck(HybridBlock):
    """Wide inside, narrow outside: expand by 1 x 1, filter each channel by 3 x 3, project by 1 x 1 without activation.

    in_channels, channels : of input and output; t : expansion factor. The input is added if the shapes agree.
    """

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(**keywords)
        self.use_shortcut = stride == 1 and in_channels == channels
        with self.name_scope():
            self.out = nn.HybridSequential()
            _add_convolution(self.out, in_channels * t, relu6=True)
            _add_convolution(self.out, in_channels * t, 3, stride, 1, groups=in_channels * t, relu6=True)
            _add_convolution(self.out, channels, active=False, relu6=True)

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNet(Classifier):
    """Depthwise separable convolutions. multiplier : factor on the width of every layer."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(**keywords)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                _add_convolution(self.features, int(32 * multiplier), 3, 2, 1)
                for inputs, outputs, stride in _SEPARABLE:
                    width = int(inputs * multiplier)
                    _add_convolution(self.features, width, 3, stride, 1, groups=width)
                    _add_convolution(self.features, int(outputs * multiplier))
                self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)


class MobileNetV2(Classifier):
    """Inverted residuals with linear bottlenecks. multiplier : factor on the width of every layer."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(**keywords)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                channels = int(32 * multiplier)
                _add_convolution(self.features, channels, 3, 2, 1, relu6=True)
                for expansion, outputs, count, stride in _BOTTLENECKS:
                    width = int(outputs * multiplier)
                    for index in range(count):
                        first = index == 0
                        self.features.add(LinearBottleneck(channels, width, expansion, stride if first else 1))
                        channels = width
                last = int(1280 * multiplier) if multiplier > 1.0 else 1280
                _add_convolution(self.features, last, relu6=True)
                self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())


def _text(multiplier: float) -> str:
    """As in the names of weight files: 1.0, 0.75, 0.5, 0.25."""
    text = f"{multiplier:.2f}"
    return text[:-1] if text in ("1.00", "0.50") else text


@with_weights
def get_mobilenet(multiplier: float, *weights: Any, **options: Any) -> MobileNet:
    """MobileNet with all widths times `multiplier`.

    weights, options : `pretrained`, `ctx`, `root` (see model_zoo.classifier), and arguments of the network
    """
    return create(f"mobilenet{_text(multiplier)}", MobileNet, (multiplier,), *weights, **options)


@with_weights
def get_mobilenet_v2(multiplier: float, *weights: Any, **options: Any) -> MobileNetV2:
    """MobileNetV2 with all widths times `multiplier`; options as for `get_mobilenet`."""
    return create(f"mobilenetv2_{_text(multiplier)}", MobileNetV2, (multiplier,), *weights, **options)


mobilenet1_0 = model("mobilenet1.0", get_mobilenet, 1.0)
mobilenet0_75 = model("mobilenet0.75", get_mobilenet, 0.75)
mobilenet0_5 = model("mobilenet0.5", get_mobilenet, 0.5)
mobilenet0_25 = model("mobilenet0.25", get_mobilenet, 0.25)
mobilenet_v2_1_0 = model("mobilenetv2_1.0", get_mobilenet_v2, 1.0)
mobilenet_v2_0_75 = model("mobilenetv2_0.75", get_mobilenet_v2, 0.75)
mobilenet_v2_0_5 = model("mobilenetv2_0.5", get_mobilenet_v2, 0.5)
mobilenet_v2_0_25 = model("mobilenetv2_0.25", get_mobilenet_v2, 0.25)
