"""Inception v3: "Rethinking the inception architecture for computer vision" (Szegedy et al., 2016)."""

from __future__ import annotations

from typing import Any, Unpack

from hybrid_lab.gluon import nn
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.contrib.nn import HybridConcurrent
from hybrid_lab.gluon.model_zoo.classifier import MODELS, Classifier, create, with_weights

Size = int | tuple[int, int]
#: A convolution of a branch: (channels, kernel), then stride and padding if they are not 1 and 0.
Step = tuple[Any, ...]


def _convolution(channels: int, kernel: Size, stride: Size = 1, padding: Size = 0) -> nn.HybridSequential:
    unit = nn.HybridSequential(prefix="")
    unit.add(nn.Conv2D(channels, kernel, stride, padding, use_bias=False))
    unit.add(nn.BatchNorm(epsilon=0.001), nn.Activation("relu"))
    return unit


def _branch(*steps: Step, pool: str | None = None) -> nn.HybridSequential:
    """Convolutions one after another, behind a pooling ("avg": same size, "max": half) if one is named."""
    branch = nn.HybridSequential(prefix="")
    if pool == "avg":
        branch.add(nn.AvgPool2D(pool_size=3, strides=1, padding=1))
    elif pool == "max":
        branch.add(nn.MaxPool2D(pool_size=3, strides=2))
    for step in steps:
        branch.add(_convolution(*step))
    return branch


def _forked(*steps: Step) -> nn.HybridSequential:
    """A branch that ends in a 1 x 3 and a 3 x 1 convolution side by side."""
    fork = HybridConcurrent(axis=1, prefix="")
    branch = nn.HybridSequential(prefix="")
    branch.add(_branch(*steps))
    fork.add(_branch((384, (1, 3), 1, (0, 1))), _branch((384, (3, 1), 1, (1, 0))))
    branch.add(fork)
    return branch


def _module_a(prefix: str, pooled: int) -> HybridConcurrent:
    module = HybridConcurrent(axis=1, prefix=prefix)
    with module.name_scope():
        module.add(
            _branch((64, 1)),
            _branch((48, 1), (64, 5, 1, 2)),
            _branch((64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
            _branch((pooled, 1), pool="avg"),
        )
    return module


def _module_b(prefix: str) -> HybridConcurrent:
    module = HybridConcurrent(axis=1, prefix=prefix)
    with module.name_scope():
        module.add(_branch((384, 3, 2)), _branch((64, 1), (96, 3, 1, 1), (96, 3, 2)), _branch(pool="max"))
    return module


def _module_c(prefix: str, inner: int) -> HybridConcurrent:
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    module = HybridConcurrent(axis=1, prefix=prefix)
    with module.name_scope():
        module.add(
            _branch((192, 1)),
            _branch((inner, 1), (inner, *row), (192, *column)),
            _branch((inner, 1), (inner, *column), (inner, *row), (inner, *column), (192, *row)),
            _branch((192, 1), pool="avg"),
        )
    return module


def _module_d(prefix: str) -> HybridConcurrent:
    module = HybridConcurrent(axis=1, prefix=prefix)
    with module.name_scope():
        module.add(
            _branch((192, 1), (320, 3, 2)),
            _branch((192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)),
            _branch(pool="max"),
        )
    return module


def _module_e(prefix: str) -> HybridConcurrent:
    module = HybridConcurrent(axis=1, prefix=prefix)
    with module.name_scope():
        module.add(
            _branch((320, 1)),
            _forked((384, 1)),
            _forked((448, 1), (384, 3, 1, 1)),
            _branch((192, 1), pool="avg"),
        )
    return module


class Inception3(Classifier):
    """Branches of different receptive fields side by side; images of 299 x 299."""

    def __init__(self, classes: int = 1000, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(**keywords)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                _convolution(32, 3, 2), _convolution(32, 3), _convolution(64, 3, 1, 1),
                nn.MaxPool2D(pool_size=3, strides=2),
                _convolution(80, 1), _convolution(192, 3),
                nn.MaxPool2D(pool_size=3, strides=2),
                _module_a("A1_", 32), _module_a("A2_", 64), _module_a("A3_", 64),
                _module_b("B_"),
                _module_c("C1_", 128), _module_c("C2_", 160), _module_c("C3_", 160), _module_c("C4_", 192),
                _module_d("D_"),
                _module_e("E1_"), _module_e("E2_"),
                nn.AvgPool2D(pool_size=8),
                nn.Dropout(0.5),
            )  # fmt: skip
            self.output = nn.Dense(classes)


@with_weights
def inception_v3(*weights: Any, **options: Any) -> Inception3:
    """Inception v3; options as for `alexnet`."""
    return create("inceptionv3", Inception3, (), *weights, **options)


MODELS["inceptionv3"] = inception_v3
