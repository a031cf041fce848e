"""The layers of tests/golden/reference/layer_cases.py in torch: other formulations of the same formulas."""

import itertools
import math

import pytest

from tests.reference.golden import layer_cases

torch = pytest.importorskip("torch")
functional = torch.nn.functional

SELU = (1.6732632423543772, 1.0507009873554805)

ACTIVATIONS = {
    None: lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softrelu": functional.softplus,
    "softsign": functional.softsign,
}


def per_axis(size, rank):
    return layer_cases.axes(size, rank)


def dense(x, p, a):
    x = x.flatten(1) if a["flatten"] else x
    return ACTIVATIONS[a.get("activation")](functional.linear(x, p["weight"], p.get("bias")))


def convolution(x, p, a):
    rank = x.ndim - 2
    windows = [per_axis(a[name], rank) for name in ("strides", "padding", "dilation")]
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    return ACTIVATIONS[a.get("activation")](convolve(x, p["weight"], p.get("bias"), *windows, a["groups"]))


def transposed(x, p, a):
    rank = x.ndim - 2
    stride, padding, dilation, more = (
        per_axis(a[name], rank) for name in ("strides", "padding", "dilation", "output_padding")
    )
    convolve = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    return convolve(x, p["weight"], p.get("bias"), stride, padding, more, a["groups"], dilation)


def pooling(kind):
    def pool(x, p, a):
        """Window by window: torch's ceil_mode leaves out windows that begin in the padding."""
        axes = layer_cases.pool_axes(a, x.shape)
        whole = math.ceil if a["ceil_mode"] else math.floor
        counts = [whole((size + 2 * pad - kernel) / stride) + 1 for size, kernel, stride, pad in axes]
        values = []
        for place in itertools.product(*map(range, counts)):
            part, size = x, 1
            for axis, (index, (extent, kernel, stride, pad)) in enumerate(zip(place, axes)):
                start = index * stride - pad
                stop = min(start + kernel, extent + pad)
                first, last = max(start, 0), min(stop, extent)
                part = part.narrow(axis + 2, first, last - first)
                size *= stop - start if a.get("count_include_pad", True) else last - first
            flat = part.flatten(2)
            values.append(flat.amax(2) if kind == "Max" else flat.sum(2) / size)
        return torch.stack(values, 2).reshape(*x.shape[:2], *counts)

    return pool


def largest(x, p, a):
    return x.flatten(2).max(2)[0].reshape(*x.shape[:2], *[1] * (x.ndim - 2))


def mean(x, p, a):
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def normalized(x, axes, epsilon):
    """Mean 0 and variance 1 over these axes."""
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + epsilon).sqrt()


def along(vector, axis, rank):
    """A vector that broadcasts along an axis."""
    return vector.reshape([-1 if place == axis % rank else 1 for place in range(rank)])


def affine(x, p, a, axis):
    """x * gamma + beta; gamma and beta stand in the parameters also where they are not learned."""
    return x * along(p["gamma"], axis, x.ndim) + along(p["beta"], axis, x.ndim)


def batch_norm(x, p, a, training=True):
    axis = a["axis"] % x.ndim
    others = tuple(place for place in range(x.ndim) if place != axis)
    if training and not a["use_global_stats"]:
        y = normalized(x, others, a["epsilon"])
        with torch.no_grad():
            for name, now in (("running_mean", x.mean(others)), ("running_var", x.var(others, unbiased=False))):
                p[name] = p[name] * a["momentum"] + now * (1 - a["momentum"])
    else:
        mean, variance = (along(p[name], axis, x.ndim) for name in ("running_mean", "running_var"))
        y = (x - mean) / (variance + a["epsilon"]).sqrt()
    gamma = along(p["gamma"], axis, x.ndim) if a["scale"] else 1.0
    return y * gamma + along(p["beta"], axis, x.ndim)


def layer_norm(x, p, a):
    return affine(normalized(x, (a["axis"],), a["epsilon"]), p, a, a["axis"])


def group_norm(x, p, a):
    groups = x.reshape(x.shape[0], a["num_groups"], -1)
    scaled = normalized(groups, (2,), a["epsilon"]) * p["gamma"][None, :, None] + p["beta"][None, :, None]
    return scaled.reshape(x.shape)


def instance_norm(x, p, a):
    axis = a["axis"] % x.ndim
    return affine(normalized(x, tuple(set(range(1, x.ndim)) - {axis}), a["epsilon"]), p, a, axis)


def prelu(x, p, a):
    slope = p["alpha"] if p["alpha"].numel() == 1 else along(p["alpha"], 1, x.ndim)
    return torch.where(x > 0, x, slope * x)


def reflected(x, p, a):
    pad = a["padding"]
    top, bottom, left, right = (pad,) * 4 if isinstance(pad, int) else pad[4:]
    return functional.pad(x, (left, right, top, bottom), mode="reflect")


def shuffled(x, p, a):
    """One factor after the other is taken off the channels and put behind its axis."""
    rank = x.ndim - 2
    factors = per_axis(a["factor"], rank)
    x = x.reshape(x.shape[0], -1, *factors, *x.shape[2:])
    for _ in factors:
        x = x.movedim(2, 2 + rank).flatten(1 + rank, 2 + rank)
    return x


FORMULAS = {
    "nn.Dense": dense,
    **{f"nn.Conv{rank}D": convolution for rank in (1, 2, 3)},
    **{f"nn.Conv{rank}DTranspose": transposed for rank in (1, 2, 3)},
    **{f"nn.{kind}Pool{rank}D": pooling(kind) for kind in ("Max", "Avg") for rank in (1, 2, 3)},
    **{f"nn.GlobalMaxPool{rank}D": largest for rank in (1, 2, 3)},
    **{f"nn.GlobalAvgPool{rank}D": mean for rank in (1, 2, 3)},
    "nn.BatchNorm": batch_norm,
    "nn.LayerNorm": layer_norm,
    "nn.GroupNorm": group_norm,
    "nn.InstanceNorm": instance_norm,
    "nn.Embedding": lambda x, p, a: functional.embedding(x.long(), p["weight"]),
    "nn.Activation": lambda x, p, a: ACTIVATIONS[a["activation"]](x),
    "nn.LeakyReLU": lambda x, p, a: functional.leaky_relu(x, a["alpha"]),
    "nn.PReLU": prelu,
    "nn.ELU": lambda x, p, a: functional.elu(x, a["alpha"]),
    "nn.SELU": lambda x, p, a: functional.selu(x),
    "nn.GELU": lambda x, p, a: functional.gelu(x),
    "nn.Swish": lambda x, p, a: x * torch.sigmoid(a["beta"] * x),
    "nn.Dropout": lambda x, p, a: x,
    "nn.Flatten": lambda x, p, a: x.flatten(1),
    "nn.ReflectionPad2D": reflected,
    **{f"contrib.nn.PixelShuffle{rank}D": shuffled for rank in (1, 2, 3)},
    "contrib.nn.Identity": lambda x, p, a: x,
}
"""layer: function of the input, the parameters by their short names, the layer's arguments"""


def run(case, parameters, steps=2):
    """As layer_cases.run_layer. parameters : float64 arrays by short name, those that are not learned too"""
    name, arguments = case["layer"], case["arguments"]
    values = {key: torch.tensor(each[0], requires_grad=each[1]) for key, each in parameters.items()}
    found = {}

    def called(x, training):
        if name == "nn.BatchNorm":
            return batch_norm(x, values, arguments, training)
        return FORMULAS[name](x, values, arguments)

    for step in range(steps):
        (array,) = layer_cases.layer_inputs(case, step)
        x = torch.tensor(array, requires_grad=True)
        y = called(x, True)
        found[f"y{step}"] = y.detach().numpy()
        head = torch.tensor(layer_cases.head_of(step, tuple(y.shape)))
        learned = [key for key, each in parameters.items() if each[1]]
        wanted = [x, *(values[key] for key in learned)]
        dx, *gradients = torch.autograd.grad(y, wanted, head, allow_unused=True) if y.requires_grad else [None] * 99
        if case["inputs"][0][0] != "whole":
            found[f"dx{step}.0"] = dx.numpy()
        found.update({f"d{key}{step}": torch.zeros_like(values[key]).numpy() if each is None else each.numpy()
                      for key, each in zip(learned, gradients)})  # fmt: skip
    found.update({key: each.numpy() for key, each in values.items() if "running" in key})
    (array,) = layer_cases.layer_inputs(case, steps)
    found["prediction"] = called(torch.tensor(array), False).detach().numpy()
    return found
