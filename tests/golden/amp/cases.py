"""Symbols to be converted to mixed precision, written for MXNet and this package alike."""


def network(mx):
    """Layers, activations of both kinds, a sum of a float16 and a float32 value."""
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=4, kernel=(3, 3), name="conv")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn"), act_type="relu", name="relu")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    x = mx.sym.Dropout(mx.sym.Flatten(x, name="flat"), p=0.5, name="drop")
    first = mx.sym.FullyConnected(x, num_hidden=8, name="first")
    second = mx.sym.LeakyReLU(first, act_type="elu", name="elu")
    second = mx.sym.FullyConnected(second, num_hidden=8, name="second")
    soft = mx.sym.Activation(second, act_type="softrelu", name="softrelu")
    tanh = mx.sym.Activation(second, act_type="tanh", name="tanh")
    total = mx.sym.broadcast_add(tanh, mx.sym.exp(soft, name="exp"), name="sum")
    both = mx.sym.concat(tanh, first, dim=1, name="both")
    mixed = mx.sym.concat(tanh, total, dim=1, name="mixed")
    return mx.sym.Group([mx.sym.softmax(mixed, name="soft"), mx.sym.mean(both, name="mean")])


def arithmetic(mx):
    """Numbers beside float16 values."""
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense")
    names = {
        "scaled": x * 2,
        "shifted": 1 - x,
        "halved": x / 2,
        "inverse": 1 / x,
        "squared": x**2,
        "root": mx.sym.sqrt(x),
        "norm": mx.sym.LayerNorm(x),
        "largest": mx.sym.max(x),
        "total": mx.sym.sum(x),
        "order": mx.sym.argsort(x),
        "greater": mx.sym.broadcast_greater(x, mx.sym.exp(x)),
        "chosen": mx.sym.where(x, mx.sym.exp(x), mx.sym.log(x)),
        "picked": mx.sym.slice_axis(x, axis=1, begin=0, end=1),
    }
    return mx.sym.Group([mx.sym.identity(value, name=name) for name, value in names.items()])


CASES = {"network": (network, (2, 1, 8, 8)), "arithmetic": (arithmetic, (2, 3))}
