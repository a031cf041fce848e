"""SqueezeNet: "AlexNet-level accuracy with 50x fewer parameters" (Iandola et al., 2016)."""

from __future__ import annotations

from typing import Any, Unpack

from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.contrib.nn import HybridConcurrent
from hybrid_lab.gluon.model_zoo.classifier import Classifier, create, model, with_weights

_POOL = None
#: Version -> (channels, kernel of the first convolution, then fire modules by their squeeze width, None a pooling).
_VERSIONS: dict[str, tuple[int, int, tuple[int | None, ...]]] = {
    "1.0": (96, 7, (_POOL, 16, 16, 32, _POOL, 32, 48, 48, 64, _POOL, 64)),
    "1.1": (64, 3, (_POOL, 16, 16, _POOL, 32, 32, _POOL, 48, 48, 64, 64)),
}


def _convolution(channels: int, kernel: int, padding: int = 0) -> nn.HybridSequential:
    unit = nn.HybridSequential(prefix="")
    unit.add(nn.Conv2D(channels, kernel, padding=padding), nn.Activation("relu"))
    return unit


def _fire(squeeze: int) -> nn.HybridSequential:
    """A 1 x 1 convolution to few channels, then 1 x 1 and 3 x 3 side by side, each four times as wide."""
    unit = nn.HybridSequential(prefix="")
    expand = HybridConcurrent(axis=1, prefix="")
    unit.add(_convolution(squeeze, 1))
    expand.add(_convolution(4 * squeeze, 1), _convolution(4 * squeeze, 3, 1))
    unit.add(expand)
    return unit


class SqueezeNet(Classifier):
    """Convolutions only; images of 224 x 224. version : "1.0" or "1.1" (2.4 times less work, the same accuracy)."""

    def __init__(self, version: str, classes: int = 1000, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(**keywords)
        if version not in _VERSIONS:
            raise ValueError(f"there is no SqueezeNet {version!r}; the versions are {', '.join(_VERSIONS)}")
        channels, kernel, rest = _VERSIONS[version]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                self.features.add(nn.Conv2D(channels, kernel_size=kernel, strides=2), nn.Activation("relu"))
                for squeeze in rest:
                    if squeeze is None:
                        self.features.add(nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True))
                    else:
                        self.features.add(_fire(squeeze))
                self.features.add(nn.Dropout(0.5))
            self.output = nn.HybridSequential(prefix="")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, kernel_size=1), nn.Activation("relu"))
                self.output.add(nn.AvgPool2D(13), nn.Flatten())


@with_weights
def get_squeezenet(version: str, *weights: Any, **options: Any) -> SqueezeNet:
    """SqueezeNet of a version, "1.0" or "1.1".

    weights, options : `pretrained`, `ctx`, `root` (see model_zoo.classifier), and arguments of the network
    """
    return create(f"squeezenet{version}", SqueezeNet, (version,), *weights, **options)


squeezenet1_0 = model("squeezenet1.0", get_squeezenet, "1.0")
squeezenet1_1 = model("squeezenet1.1", get_squeezenet, "1.1")
