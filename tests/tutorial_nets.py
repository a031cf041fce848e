"""The tutorial's network in the two styles in which people write it."""

from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn


class Net(gluon.HybridBlock):
    """1.x style, as the tutorial has it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.fc1 = nn.Dense(120)
            self.fc2 = nn.Dense(84)
            self.fc3_weight = self.params.get("fc3_weight", shape=(10, 84))

    def hybrid_forward(self, F, x, fc3_weight):
        print(x)
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        x = x.reshape((0, -1))
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.dot(x, fc3_weight, transpose_b=True)


class Net2(gluon.HybridBlock):
    """2.x style: forward(x), parameters by data()."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(6, kernel_size=5)
        self.pool1 = nn.MaxPool2D(pool_size=2)
        self.conv2 = nn.Conv2D(16, kernel_size=5)
        self.pool2 = nn.MaxPool2D(pool_size=2)
        self.fc1 = nn.Dense(120)
        self.fc2 = nn.Dense(84)
        self.fc3_weight = gluon.Parameter("fc3_weight", shape=(10, 84))

    def forward(self, x):
        print(x)
        x = self.pool1(nd.relu(self.conv1(x)))
        x = self.pool2(nd.relu(self.conv2(x)))
        x = x.reshape((0, -1))
        x = nd.relu(self.fc1(x))
        x = nd.relu(self.fc2(x))
        return nd.dot(x, self.fc3_weight.data(), transpose_b=True)


class TrainingNet(gluon.HybridBlock):
    """The tutorial's network with BatchNorm and Dropout added, small enough to train in a test."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.norm1 = nn.BatchNorm()
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.norm2 = nn.BatchNorm()
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.fc1 = nn.Dense(120)
            self.drop = nn.Dropout(0.3)
            self.fc2 = nn.Dense(10)

    def hybrid_forward(self, F, x):
        x = self.pool1(F.relu(self.norm1(self.conv1(x))))
        x = self.pool2(F.relu(self.norm2(self.conv2(x))))
        x = F.relu(self.fc1(x.reshape((0, -1))))
        return self.fc2(self.drop(x))
