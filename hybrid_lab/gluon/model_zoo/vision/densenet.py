"""DenseNet: "Densely connected convolutional networks" (Huang et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.contrib.nn import HybridConcurrent, Identity
from hybrid_lab.gluon.model_zoo.classifier import Classifier, create, model, with_weights

#: Depth -> (first channels, growth rate, layers per stage).
_VARIANTS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


# Libraries import the three functions below under MXNet's names.


def _make_dense_layer(growth_rate: int, bn_size: int, dropout: float) -> HybridConcurrent:
    """The input, and `growth_rate` new channels computed from the whole input."""
    new = nn.HybridSequential(prefix="")
    new.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(bn_size * growth_rate, kernel_size=1, use_bias=False))
    new.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(growth_rate, kernel_size=3, padding=1, use_bias=False))
    if dropout:
        new.add(nn.Dropout(dropout))
    layer = HybridConcurrent(axis=1, prefix="")
    layer.add(Identity(), new)
    return layer


def _make_dense_block(
    num_layers: int, bn_size: int, growth_rate: int, dropout: float, stage_index: int
) -> nn.HybridSequential:
    """Layers that each see the outputs of all layers before them."""
    stage = nn.HybridSequential(prefix=f"stage{stage_index}_")
    with stage.name_scope():
        for _ in range(num_layers):
            stage.add(_make_dense_layer(growth_rate, bn_size, dropout))
    return stage


def _make_transition(num_output_features: int) -> nn.HybridSequential:
    """Half the channels, half the height and width."""
    unit = nn.HybridSequential(prefix="")
    unit.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(num_output_features, kernel_size=1, use_bias=False))
    unit.add(nn.AvgPool2D(pool_size=2, strides=2))
    return unit


class DenseNet(Classifier):
    """Every layer of a stage sees the outputs of all layers before it; images of 224 x 224.

    num_init_features : channels of the first convolution
    growth_rate : channels each layer adds
    block_config : layers per stage
    bn_size : a layer's 1 x 1 convolution has bn_size * growth_rate channels
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: Sequence[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **keywords: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**keywords)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                nn.Conv2D(num_init_features, kernel_size=7, strides=2, padding=3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(pool_size=3, strides=2, padding=1),
            )
            channels = num_init_features
            for index, layers in enumerate(block_config):
                self.features.add(_make_dense_block(layers, bn_size, growth_rate, dropout, index + 1))
                channels += layers * growth_rate
                if index != len(block_config) - 1:
                    channels //= 2
                    self.features.add(_make_transition(channels))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(pool_size=7), nn.Flatten())
            self.output = nn.Dense(classes)


@with_weights
def get_densenet(num_layers: int, *weights: Any, **options: Any) -> DenseNet:
    """DenseNet with 121, 161, 169 or 201 layers.

    weights, options : `pretrained`, `ctx`, `root` (see model_zoo.classifier), and arguments of the network
    """
    if num_layers not in _VARIANTS:
        raise ValueError(
            f"there is no DenseNet of {num_layers} layers; the depths are {', '.join(map(str, _VARIANTS))}"
        )
    return create(f"densenet{num_layers}", DenseNet, _VARIANTS[num_layers], *weights, **options)


densenet121 = model("densenet121", get_densenet, 121)
densenet161 = model("densenet161", get_densenet, 161)
densenet169 = model("densenet169", get_densenet, 169)
densenet201 = model("densenet201", get_densenet, 201)
