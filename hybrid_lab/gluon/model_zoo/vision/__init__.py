"""Image classifiers with MXNet's names, structure and parameter names: weights saved by MXNet load without changes.

    net = vision.get_model("resnet18_v1", classes=10)

Every network has `features` (a HybridSequential) and `output`. Images are (batch, 3, height, width), floating.
"""

from __future__ import annotations

import difflib

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.model_zoo.classifier import MODELS

from .alexnet import AlexNet, alexnet
from .densenet import DenseNet, densenet121, densenet161, densenet169, densenet201
from .inception import Inception3, inception_v3
from .mobilenet import (
    MobileNet,
    MobileNetV2,
    get_mobilenet,
    get_mobilenet_v2,
    mobilenet0_5,
    mobilenet0_25,
    mobilenet0_75,
    mobilenet1_0,
    mobilenet_v2_0_5,
    mobilenet_v2_0_25,
    mobilenet_v2_0_75,
    mobilenet_v2_1_0,
)
from .resnet import (
    BasicBlockV1,
    BasicBlockV2,
    BottleneckV1,
    BottleneckV1b,
    BottleneckV2,
    ResNetV1,
    ResNetV2,
    get_resnet,
    resnet18_v1,
    resnet18_v2,
    resnet34_v1,
    resnet34_v2,
    resnet50_v1,
    resnet50_v2,
    resnet101_v1,
    resnet101_v2,
    resnet152_v1,
    resnet152_v2,
)
from .squeezenet import SqueezeNet, squeezenet1_0, squeezenet1_1
from .vgg import VGG, get_vgg, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn


def get_model(name: str, **options: object) -> HybridBlock:
    """The network called `name`; options go to its constructor (`classes`, `pretrained`, `root`, `ctx`, `prefix` ...).

    Raises ValueError, naming the nearest names, for an unknown one.
    """
    make = MODELS.get(name.lower())
    if make is None:
        near = difflib.get_close_matches(name.lower(), MODELS, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"the models are {', '.join(MODELS)}"
        raise ValueError(f"there is no model {name!r}; {hint}")
    return make(**options)


__all__ = [
    "MODELS",
    "VGG",
    "AlexNet",
    "BasicBlockV1",
    "BasicBlockV2",
    "BottleneckV1",
    "BottleneckV1b",
    "BottleneckV2",
    "DenseNet",
    "Inception3",
    "MobileNet",
    "MobileNetV2",
    "ResNetV1",
    "ResNetV2",
    "SqueezeNet",
    "alexnet",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "get_mobilenet",
    "get_mobilenet_v2",
    "get_model",
    "get_resnet",
    "get_vgg",
    "inception_v3",
    "mobilenet0_5",
    "mobilenet0_25",
    "mobilenet0_75",
    "mobilenet1_0",
    "mobilenet_v2_0_5",
    "mobilenet_v2_0_25",
    "mobilenet_v2_0_75",
    "mobilenet_v2_1_0",
    "resnet18_v1",
    "resnet18_v2",
    "resnet34_v1",
    "resnet34_v2",
    "resnet50_v1",
    "resnet50_v2",
    "resnet101_v1",
    "resnet101_v2",
    "resnet152_v1",
    "resnet152_v2",
    "squeezenet1_0",
    "squeezenet1_1",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]

_suggest_names(__name__)
