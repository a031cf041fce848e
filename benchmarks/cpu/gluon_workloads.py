"""The workloads as Gluon models, written once: `mx` is hybrid_lab or the real MXNet."""

import numpy as np

#: name -> (images or numbers per step, whether a training step is measured)
WORKLOADS = {
    "lenet b64": (64, True),
    "mlp b256": (256, True),
    "resnet18 b1": (1, False),
    "resnet18 b8": (8, True),
    "resnet50 b1": (1, False),
    "resnet50 b8": (8, False),
    "mobilenet1.0 b1": (1, False),
    "lstm 2x200 b32": (32, True),
    "encoder block b8": (8, True),
    "encoder 6 layers b8": (8, True),
    "gelu, layernorm, softmax 4M": (1024, True),
}


def build(mx, name, batch=None, ctx=None):
    """(network, input, target or None for a squared error, loss) for a workload; initialized, not hybridized.

    batch : images or numbers per step, where not those of WORKLOADS; ctx : where arrays and parameters live
    """
    random = np.random.RandomState(0)
    gluon, nn = mx.gluon, mx.gluon.nn
    layers = blocks(mx)
    batch = batch or WORKLOADS[name][0]
    ctx = ctx or mx.cpu()
    if name.startswith(("resnet", "mobilenet")):
        model = {"resnet18": "resnet18_v1", "resnet50": "resnet50_v1"}.get(name.split()[0], name.split()[0])
        net, shape, classes = gluon.model_zoo.vision.get_model(model), (batch, 3, 224, 224), 1000
    elif name.startswith("lenet"):
        net, shape, classes = layers["LeNet"](), (batch, 1, 28, 28), 10
    elif name.startswith("mlp"):
        net, shape, classes = nn.HybridSequential(), (batch, 784), 10
        net.add(nn.Dense(256, activation="relu"), nn.Dense(10))
    elif name == "miniature":
        net, shape, classes = nn.HybridSequential(), (batch, 12), 3
        net.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    elif name.startswith("lstm"):
        net, shape, classes = gluon.rnn.LSTM(200, num_layers=2, input_size=200), (35, batch, 200), None
    elif name.startswith("encoder"):
        net, shape, classes = nn.HybridSequential(), (batch, 128, 256), None
        net.add(*(layers["EncoderBlock"](256, 4, 1024) for _ in range(6 if "6" in name else 1)))
    else:
        net, shape, classes = nn.HybridSequential(), (batch, 4096), None
        net.add(nn.GELU(), nn.LayerNorm(), layers["Softmax"]())
    net.initialize(mx.init.Xavier(), ctx=ctx)
    x = mx.nd.array(random.uniform(-1, 1, shape).astype("float32"), ctx=ctx)
    if classes:
        return net, x, mx.nd.array(random.randint(0, classes, batch), ctx=ctx), gluon.loss.SoftmaxCrossEntropyLoss()
    target = mx.nd.array(random.uniform(-1, 1, shape).astype("float32"), ctx=ctx)
    return net, x, target, gluon.loss.L2Loss()


def blocks(mx):
    nn, HybridBlock = mx.gluon.nn, mx.gluon.HybridBlock

    class LeNet(HybridBlock):
        def __init__(self, **keywords):
            super().__init__(**keywords)
            with self.name_scope():
                self.conv1, self.pool1 = nn.Conv2D(20, kernel_size=5), nn.MaxPool2D(2)
                self.conv2, self.pool2 = nn.Conv2D(50, kernel_size=5), nn.MaxPool2D(2)
                self.fc1, self.fc2 = nn.Dense(500), nn.Dense(10)

        def hybrid_forward(self, F, x):
            x = self.pool1(F.relu(self.conv1(x)))
            x = self.pool2(F.relu(self.conv2(x)))
            return self.fc2(F.relu(self.fc1(x)))

    class Attention(HybridBlock):
        def __init__(self, units, heads, **keywords):
            super().__init__(**keywords)
            self.heads, self.scale = heads, (units // heads) ** -0.5
            with self.name_scope():
                self.qkv = nn.Dense(3 * units, flatten=False, in_units=units)
                self.out = nn.Dense(units, flatten=False, in_units=units)

        def hybrid_forward(self, F, x):
            parts = F.split(self.qkv(x), num_outputs=3, axis=2)
            q, k, v = (
                F.reshape(
                    F.transpose(F.reshape(part, shape=(0, 0, self.heads, -1)), axes=(0, 2, 1, 3)), shape=(-3, 0, 0)
                )
                for part in parts
            )
            weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * self.scale, axis=-1)
            mixed = F.reshape(F.batch_dot(weights, v), shape=(-4, -1, self.heads, 0, 0))
            return self.out(F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -3)))

    class EncoderBlock(HybridBlock):
        def __init__(self, units, heads, hidden, **keywords):
            super().__init__(**keywords)
            with self.name_scope():
                self.attention = Attention(units, heads)
                self.norm1, self.norm2 = nn.LayerNorm(in_channels=units), nn.LayerNorm(in_channels=units)
                self.wide, self.gelu = nn.Dense(hidden, flatten=False, in_units=units), nn.GELU()
                self.narrow = nn.Dense(units, flatten=False, in_units=hidden)

        def hybrid_forward(self, F, x):
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.narrow(self.gelu(self.wide(x))))

    class Softmax(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.softmax(x, axis=-1)

    return {"LeNet": LeNet, "EncoderBlock": EncoderBlock, "Softmax": Softmax}
