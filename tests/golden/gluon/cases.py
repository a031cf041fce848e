"""Models, losses, metrics and schedules, built alike from the real MXNet (golden data) and from hybrid_lab (tests).

Every function takes the package as `mx`. Names of Blocks depend on counters: build each model in fresh ones.
"""

import numpy as np


def lenet(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="lenet_")
    with net.name_scope():
        net.add(nn.Conv2D(4, kernel_size=3, activation="relu"), nn.MaxPool2D(pool_size=2, strides=2))
        net.add(nn.Conv2D(6, 3, padding=1, groups=2, use_bias=False), nn.BatchNorm(), nn.AvgPool2D(2), nn.Flatten())
        net.add(nn.Dense(8, activation="tanh"), nn.Dropout(0.5), nn.Dense(3))
    return net, (2, 1, 10, 10)


def nested(mx):
    nn = mx.gluon.nn

    class Unit(mx.gluon.HybridBlock):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.first = nn.Dense(units, activation="relu", flatten=False)
                self.norm = nn.LayerNorm()
                self.second = nn.Dense(units, use_bias=False, flatten=False, prefix="last_")

        def hybrid_forward(self, F, x):
            return F.relu(self.second(self.norm(self.first(x)))) + x

    class Net(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.embed = nn.Embedding(7, 4)
                self.units = nn.HybridSequential(prefix="")
                with self.units.name_scope():
                    self.units.add(Unit(4), Unit(4))
                self.scale = self.params.get("scale", shape=(1, 1, 4), init="ones")
            self.head = nn.Dense(2)

        def hybrid_forward(self, F, x, scale):
            return self.head(F.broadcast_mul(self.units(self.embed(x)), scale))

    return Net(), (3, 5)


def unscoped(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Conv1D(4, 3), nn.GlobalAvgPool1D(), nn.Dense(3), nn.Activation("sigmoid"), nn.Dense(2))
    return net, (2, 3, 9)


def shared(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    with net.name_scope():
        first = nn.Dense(4, in_units=4)
        net.add(first, nn.Dense(4, in_units=4, params=first.params), nn.Dense(2))
    return net, (2, 4)


def generator(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="generator_")
    with net.name_scope():
        net.add(nn.ReflectionPad2D(2), nn.Conv2D(6, 3), nn.InstanceNorm(), nn.PReLU(in_channels=6))
        net.add(nn.Conv2DTranspose(4, 4, strides=2, padding=1, activation="relu"), nn.GroupNorm(num_groups=2))
        net.add(nn.ELU(0.5))
        net.add(nn.Conv2DTranspose(2, 3, strides=2, output_padding=1, groups=2, use_bias=False, in_channels=4))
        net.add(nn.SELU(), nn.InstanceNorm(scale=True, center=False), nn.GELU(), nn.Swish())
    return net, (2, 3, 4, 5)


def signal(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Conv1D(4, 3), nn.GroupNorm(), nn.Conv1DTranspose(3, 3, strides=3, output_padding=2))
    net.add(nn.LeakyReLU(0.1), nn.Dense(2))
    return net, (2, 3, 9)


NETS = {
    "lenet": lenet,
    "nested": nested,
    "unscoped": unscoped,
    "shared": shared,
    "generator": generator,
    "signal": signal,
}


def inputs_of(name, shape):
    rng = np.random.RandomState(len(name))
    if name == "nested":
        return rng.randint(0, 7, shape).astype("float32")
    return rng.uniform(-1, 1, shape).astype("float32")


LOSSES = [
    ("L2Loss", {}, "same"),
    ("L2Loss", {"weight": 3.0}, "weighted"),
    ("L1Loss", {}, "same"),
    ("L1Loss", {"weight": 2.0, "batch_axis": 1}, "same"),
    ("SigmoidBinaryCrossEntropyLoss", {}, "binary"),
    ("SigmoidBinaryCrossEntropyLoss", {}, "pos_weight"),
    ("SigmoidBinaryCrossEntropyLoss", {"from_sigmoid": True}, "probabilities"),
    ("SoftmaxCrossEntropyLoss", {}, "classes"),
    ("SoftmaxCrossEntropyLoss", {"sparse_label": False}, "same"),
    ("SoftmaxCrossEntropyLoss", {"from_logits": True, "weight": 0.5}, "classes"),
    ("KLDivLoss", {}, "distribution"),
    ("KLDivLoss", {"from_logits": False}, "distribution"),
    ("HuberLoss", {}, "same"),
    ("HuberLoss", {"rho": 0.5}, "same"),
    ("HingeLoss", {}, "signs"),
    ("SquaredHingeLoss", {"margin": 2}, "signs"),
    ("LogisticLoss", {}, "signs"),
    ("LogisticLoss", {"label_format": "binary"}, "binary"),
    ("TripletLoss", {"margin": 2}, "three"),
    ("PoissonNLLLoss", {}, "counts"),
    ("PoissonNLLLoss", {"from_logits": False}, "positive"),
    ("CosineEmbeddingLoss", {"margin": 0.1}, "pairs"),
    ("CTCLoss", {}, "letters"),
    ("CTCLoss", {"layout": "TNC", "label_layout": "TN", "weight": 0.5}, "letters"),
    ("CTCLoss", {}, "letters of some steps"),
    ("CTCLoss", {}, "letters with lengths"),
    ("SDMLLoss", {}, "same"),
    ("SDMLLoss", {"smoothing_parameter": 0.1}, "same"),
]


def loss_inputs(kind):
    """NumPy inputs of a loss; the first is differentiated."""
    rng = np.random.RandomState(3)
    pred = rng.normal(0, 1, (4, 5)).astype("float32")
    other = rng.normal(0, 1, (4, 5)).astype("float32")
    softmax = (np.exp(other) / np.exp(other).sum(1, keepdims=True)).astype("float32")
    signs = np.sign(other).astype("float32")
    binary = (signs + 1) / 2
    steps = np.random.RandomState(4).normal(0, 1, (3, 3, 5)).astype("float32")
    letters = np.array([[1, 2, -1], [0, -1, -1], [3, -1, -1]], "float32")
    return {
        "same": [pred, other],
        "weighted": [pred, other, np.array([[1], [2], [0], [0.5]], "float32")],
        "binary": [pred, binary],
        "pos_weight": [pred, binary, np.ones((4, 1), "float32"), np.full((1, 5), 2, "float32")],
        "probabilities": [1 / (1 + np.exp(-pred)), binary],
        "classes": [pred, np.array([0, 4, 2, 1], "float32")],
        "distribution": [pred, softmax],
        "signs": [pred, signs],
        "three": [pred, other, rng.normal(0, 1, (4, 5)).astype("float32")],
        "counts": [pred, np.array(rng.randint(0, 5, (4, 5)), "float32")],
        "positive": [np.abs(pred) + 0.5, np.array(rng.randint(1, 5, (4, 5)), "float32")],
        "pairs": [pred, other, np.array([1, -1, 1, -1], "float32")],
        "letters": [steps, letters],
        "letters of some steps": [steps, letters, np.array([3, 2, 1], "float32")],
        "letters with lengths": [steps, letters, np.array([3, 2, 1], "float32"), np.array([2, 1, 1], "float32")],
    }[kind]


METRICS = [
    ("acc", {}),
    ("accuracy", {"axis": 1}),
    ("top_k_accuracy", {"top_k": 2}),
    ("ce", {}),
    ("nll_loss", {}),
    ("perplexity", {"ignore_label": 1}),
    ("perplexity", {"ignore_label": None}),
    ("loss", {}),
]
REGRESSION_METRICS = [("mae", {}), ("mse", {}), ("rmse", {}), ("pearsonr", {})]
BINARY_METRICS = [("f1", {}), ("f1", {"average": "micro"})]


def metric_batches(kind):
    """Two batches of (label, prediction)."""
    rng = np.random.RandomState(8)
    batches = []
    for size in (6, 4):
        classes = 2 if kind == "binary" else 4
        scores = np.exp(rng.normal(0, 1, (size, classes)))
        pred = (scores / scores.sum(1, keepdims=True)).astype("float32")
        label = rng.randint(0, classes, size).astype("float32")
        if kind == "regression":
            label, pred = rng.normal(0, 1, size).astype("float32"), rng.normal(0, 1, size).astype("float32")
        batches.append((label, pred))
    return batches


SCHEDULES = {
    "factor": ("FactorScheduler", {"step": 5, "factor": 0.5, "stop_factor_lr": 0.02, "base_lr": 0.1}),
    "factor_warmup": (
        "FactorScheduler",
        {"step": 3, "factor": 0.5, "base_lr": 0.1, "warmup_steps": 4, "warmup_begin_lr": 0.01},
    ),
    "multi": ("MultiFactorScheduler", {"step": [3, 7], "factor": 0.1, "base_lr": 1.0}),
    "poly": ("PolyScheduler", {"max_update": 10, "base_lr": 1.0, "pwr": 2, "final_lr": 0.1}),
    "cosine": ("CosineScheduler", {"max_update": 10, "base_lr": 1.0, "final_lr": 0.1, "warmup_steps": 3}),
    "constant_warmup": (
        "MultiFactorScheduler",
        {"step": [5], "factor": 0.1, "base_lr": 1.0, "warmup_steps": 3, "warmup_mode": "constant"},
    ),
}


def fill(net):
    """The same pseudo-random values in every parameter, by its place; running variances stay positive."""
    for place, parameter in enumerate(net.collect_params().values()):
        rng = np.random.RandomState(place)
        values = rng.uniform(-0.5, 0.5, parameter.shape).astype("float32")
        if parameter.name.endswith(("running_var", "gamma")):
            values = np.abs(values) + 0.5
        parameter.set_data(parameter.data() * 0 + array_like(parameter, values))


def array_like(parameter, values):
    data = parameter.data().copy()
    data[:] = values
    return data


TRAININGS = [
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
    ("adam", {"learning_rate": 0.01, "wd": 0.001}),
]


def train(mx, optimizer, options):
    """Five steps of a small net; returns the losses and the parameters after each step by name."""
    nn, autograd = mx.gluon.nn, mx.autograd
    net = nn.HybridSequential(prefix="trained_")
    with net.name_scope():
        net.add(nn.Dense(6, activation="tanh"), nn.BatchNorm(), nn.Dense(3))
    net.initialize()
    rng = np.random.RandomState(0)
    x = mx.nd.array(rng.normal(0, 1, (8, 5)).astype("float32"))
    y = mx.nd.array(rng.randint(0, 3, 8).astype("float32"))
    net(x)
    fill(net)
    net[0].bias.lr_mult = 2.0
    net[2].weight.wd_mult = 0.0
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, dict(options))
    steps = []
    for _ in range(5):
        with autograd.record():
            loss = loss_function(net(x), y)
        loss.backward()
        trainer.step(8)
        steps.append({"loss": loss.asnumpy(), **{name: p.data().asnumpy() for name, p in net.collect_params().items()}})
    return steps
