"""AlexNet, in the form of "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014)."""

from __future__ import annotations

from typing import Any, Unpack

from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.model_zoo.classifier import MODELS, Classifier, create, with_weights


class AlexNet(Classifier):
    """Five convolutions and three dense layers; images of 224 x 224.

    classes : number of outputs
    """

    def __init__(self, classes: int = 1000, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(**keywords)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                self.features.add(
                    nn.Conv2D(64, kernel_size=11, strides=4, padding=2, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Conv2D(192, kernel_size=5, padding=2, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Conv2D(384, kernel_size=3, padding=1, activation="relu"),
                    nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                    nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Flatten(),
                )
                for _ in range(2):
                    self.features.add(nn.Dense(4096, activation="relu"), nn.Dropout(0.5))
            self.output = nn.Dense(classes)


@with_weights
def alexnet(*weights: Any, **options: Any) -> AlexNet:
    """AlexNet. weights, options : `pretrained`, `ctx`, `root` (see model_zoo.classifier), arguments of the network"""
    return create("alexnet", AlexNet, (), *weights, **options)


MODELS["alexnet"] = alexnet
