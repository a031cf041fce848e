"""ResNet-18 from layers, for the tests that look into a deep model; the widths are a parameter."""

from hybrid_lab import gluon
from hybrid_lab.gluon import nn


class BasicBlock(gluon.HybridBlock):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels, stride, project, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(channels, 3, strides=stride, padding=1, use_bias=False)
            self.bn1 = nn.BatchNorm()
            self.conv2 = nn.Conv2D(channels, 3, padding=1, use_bias=False)
            self.bn2 = nn.BatchNorm()
            self.project = nn.Conv2D(channels, 1, strides=stride, use_bias=False) if project else None

    def hybrid_forward(self, F, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut = x if self.project is None else self.project(x)
        return F.relu(y + shortcut)


class ResNet18(gluon.HybridBlock):
    """A stem, four stages of two blocks, and a classifier."""

    def __init__(self, widths=(64, 128, 256, 512), classes=10, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.stem = nn.Conv2D(widths[0], 7, strides=2, padding=3, use_bias=False)
            self.bn = nn.BatchNorm()
            self.pool = nn.MaxPool2D(3, 2, 1)
            self.stages = nn.HybridSequential()
            for index, width in enumerate(widths):
                self.stages.add(BasicBlock(width, 1 + (index > 0), index > 0), BasicBlock(width, 1, False))
            self.head = nn.Dense(classes)

    def hybrid_forward(self, F, x):
        x = self.pool(F.relu(self.bn(self.stem(x))))
        x = self.stages(x)
        return self.head(x.mean(axis=(2, 3)))
