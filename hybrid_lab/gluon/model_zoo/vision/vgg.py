"""VGG: "Very deep convolutional networks for large-scale image recognition" (Simonyan and Zisserman, 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from hybrid_lab import initializer
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.model_zoo.classifier import Classifier, create, model, with_weights

#: Depth -> convolutions per stage; the stages' widths are the same for all.
_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_FILTERS = (64, 128, 256, 512, 512)


class VGG(Classifier):
    """Stages of 3 x 3 convolutions, each halved by a pooling, then three dense layers; images of 224 x 224.

    layers : convolutions per stage; filters : their channels; batch_norm : a BatchNorm behind each
    """

    def __init__(
        self,
        layers: Sequence[int],
        filters: Sequence[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **keywords: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**keywords)
        if len(layers) != len(filters):
            raise ValueError(f"VGG: {len(layers)} stages in layers, {len(filters)} in filters")
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                for count, channels in zip(layers, filters, strict=True):
                    for _ in range(count):
                        self._add_convolution(channels, batch_norm)
                    self.features.add(nn.MaxPool2D(strides=2))
                for _ in range(2):
                    dense = nn.Dense(4096, activation="relu", weight_initializer="normal", bias_initializer="zeros")
                    self.features.add(dense, nn.Dropout(rate=0.5))
            self.output = nn.Dense(classes, weight_initializer="normal", bias_initializer="zeros")

    def _add_convolution(self, channels: int, batch_norm: bool) -> None:
        weights = initializer.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
        self.features.add(
            nn.Conv2D(channels, kernel_size=3, padding=1, weight_initializer=weights, bias_initializer="zeros")
        )
        if batch_norm:
            self.features.add(nn.BatchNorm())
        self.features.add(nn.Activation("relu"))


@with_weights
def get_vgg(num_layers: int, *weights: Any, **options: Any) -> VGG:
    """VGG with 11, 13, 16 or 19 layers; `batch_norm=True` for the variants with BatchNorm.

    weights, options : `pretrained`, `ctx`, `root` (see model_zoo.classifier), and arguments of the network
    """
    if num_layers not in _LAYERS:
        raise ValueError(f"there is no VGG of {num_layers} layers; the depths are {', '.join(map(str, _LAYERS))}")
    name = f"vgg{num_layers}{'_bn' if options.get('batch_norm') else ''}"
    return create(name, VGG, (_LAYERS[num_layers], _FILTERS), *weights, **options)


vgg11 = model("vgg11", get_vgg, 11)
vgg13 = model("vgg13", get_vgg, 13)
vgg16 = model("vgg16", get_vgg, 16)
vgg19 = model("vgg19", get_vgg, 19)
vgg11_bn = model("vgg11_bn", get_vgg, 11, batch_norm=True)
vgg13_bn = model("vgg13_bn", get_vgg, 13, batch_norm=True)
vgg16_bn = model("vgg16_bn", get_vgg, 16, batch_norm=True)
vgg19_bn = model("vgg19_bn", get_vgg, 19, batch_norm=True)
