"""Random settings of layers, and how a layer is run: the same for the real MXNet (golden data) and for hybrid_lab.

A case is a dictionary of plain values: the layer's path in `gluon`, its arguments, the shapes of its inputs.
"""

import numpy as np

SIZES = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def draw(rng, *choices):
    """One of the choices."""
    return choices[rng.randint(len(choices))]


def per_axis(rng, rank, low, high):
    """A number, or one number per axis."""
    sizes = tuple(int(size) for size in rng.randint(low, high, rank))
    return sizes if rng.rand() < 0.6 else sizes[0]


def axes(size, rank):
    return (size,) * rank if isinstance(size, int) else size


def extent(rng, rank, low=4, high=8):
    return tuple(int(size) for size in rng.randint(low, high - (rank == 3), rank))


def dense(rng):
    shape = tuple(rng.randint(1, 5, rng.randint(2, 5)))
    arguments = {"units": int(rng.randint(1, 6)), "use_bias": bool(rng.rand() < 0.7), "flatten": bool(rng.rand() < 0.6)}
    arguments["activation"] = draw(rng, None, None, "relu", "sigmoid", "tanh", "softrelu", "softsign")
    if rng.rand() < 0.4:
        arguments["in_units"] = int(np.prod(shape[1:]) if arguments["flatten"] else shape[-1])
    return "nn.Dense", arguments, [shape]


def convolution(rng):
    rank = int(rng.randint(1, 4))
    groups = draw(rng, 1, 1, 2)
    channels, inputs = groups * int(rng.randint(1, 4)), groups * int(rng.randint(1, 4))
    arguments = {
        "channels": channels,
        "kernel_size": per_axis(rng, rank, 1, 4),
        "strides": per_axis(rng, rank, 1, 4),
        "padding": per_axis(rng, rank, 0, 3),
        "dilation": per_axis(rng, rank, 1, 3),
        "groups": groups,
        "use_bias": bool(rng.rand() < 0.7),
    }
    if rng.rand() < 0.3:
        arguments["activation"] = draw(rng, "relu", "tanh")
    shape = (int(rng.randint(1, 4)), inputs, *extent(rng, rank, 5, 8))
    if rng.rand() < 0.3:
        arguments["in_channels"] = inputs
    return f"nn.Conv{rank}D", arguments, [shape]


def transposed(rng):
    rank = draw(rng, 1, 2, 2, 3)
    groups = draw(rng, 1, 1, 2)
    inputs = groups * int(rng.randint(1, 4))
    strides = per_axis(rng, rank, 1, 4)
    # MXNet's own numbers are wrong where both are above 1 (docs/differences.md).
    dilation = per_axis(rng, rank, 1, 3) if max(axes(strides, rank)) == 1 else 1
    arguments = {
        "channels": groups * int(rng.randint(1, 4)),
        "kernel_size": per_axis(rng, rank, 2, 4),
        "strides": strides,
        "padding": per_axis(rng, rank, 0, 2),
        "dilation": dilation,
        "output_padding": tuple(int(rng.randint(0, step)) for step in axes(strides, rank)),
        "groups": groups,
        "use_bias": bool(rng.rand() < 0.7),
        "in_channels": inputs,
    }
    return f"nn.Conv{rank}DTranspose", arguments, [(int(rng.randint(1, 3)), inputs, *extent(rng, rank, 3, 6))]


def pooling(rng):
    rank = int(rng.randint(1, 4))
    kind = draw(rng, "Max", "Avg", "Avg")
    shape = (int(rng.randint(1, 3)), int(rng.randint(1, 4)), *extent(rng, rank))
    if rng.rand() < 0.2:
        return f"nn.Global{kind}Pool{rank}D", {}, [shape]
    size = per_axis(rng, rank, 1, 4)
    most = min(axes(size, rank))
    arguments = {"pool_size": size, "ceil_mode": bool(rng.rand() < 0.5), "padding": int(rng.randint(0, most))}
    if rng.rand() < 0.7:
        arguments["strides"] = per_axis(rng, rank, 1, 4)
    if kind == "Avg":
        arguments["count_include_pad"] = bool(rng.rand() < 0.5)
    return f"nn.{kind}Pool{rank}D", arguments, [shape]


def batch_norm(rng):
    shape = tuple(int(size) for size in rng.randint(2, 5, rng.randint(2, 6)))
    arguments = {
        "axis": draw(rng, 1, 1, -1, len(shape) - 1),
        "momentum": draw(rng, 0.9, 0.5, 0.0, 1.0),
        "epsilon": draw(rng, 1e-5, 1e-3, 0.1),
        "center": bool(rng.rand() < 0.7),
        "scale": bool(rng.rand() < 0.7),
        "use_global_stats": bool(rng.rand() < 0.2),
    }
    return "nn.BatchNorm", arguments, [shape]


def layer_norm(rng):
    shape = tuple(int(size) for size in rng.randint(2, 5, rng.randint(2, 5)))
    arguments = {
        "axis": int(rng.randint(-len(shape), len(shape))),
        "epsilon": draw(rng, 1e-5, 1e-3, 0.1),
        "center": bool(rng.rand() < 0.7),
        "scale": bool(rng.rand() < 0.7),
    }
    return "nn.LayerNorm", arguments, [shape]


def group_norm(rng):
    groups = int(rng.randint(1, 4))
    spatial = (int(size) for size in rng.randint(2, 5, rng.randint(1, 4)))
    shape = (int(rng.randint(1, 4)), groups * int(rng.randint(1, 3)), *spatial)
    arguments = {"num_groups": groups, "epsilon": draw(rng, 1e-5, 1e-2), "center": bool(rng.rand() < 0.7)}
    arguments["scale"] = bool(rng.rand() < 0.7)
    return "nn.GroupNorm", arguments, [shape]


def instance_norm(rng):
    shape = tuple(int(size) for size in rng.randint(2, 5, rng.randint(3, 6)))
    arguments = {
        "axis": draw(rng, 1, 1, 1, len(shape) - 1),
        "epsilon": draw(rng, 1e-5, 1e-2),
        "center": bool(rng.rand() < 0.7),
        "scale": bool(rng.rand() < 0.5),
    }
    return "nn.InstanceNorm", arguments, [shape]


def embedding(rng):
    rows = int(rng.randint(1, 7))
    shape = tuple(int(size) for size in rng.randint(1, 5, rng.randint(1, 4)))
    return "nn.Embedding", {"input_dim": rows, "output_dim": int(rng.randint(1, 5))}, [("whole", rows, shape)]


def activation(rng):
    shape = tuple(int(size) for size in rng.randint(1, 5, rng.randint(1, 5)))
    channels = shape[1] if len(shape) > 1 else 1
    kind = rng.randint(8)
    if kind == 0:
        return "nn.Activation", {"activation": draw(rng, "relu", "sigmoid", "tanh", "softrelu", "softsign")}, [shape]
    return [
        None,
        ("nn.LeakyReLU", {"alpha": draw(rng, 0.0, 0.01, 0.3, 2.0)}, [shape]),
        ("nn.PReLU", {"in_channels": draw(rng, 1, channels)}, [shape]),
        ("nn.ELU", {"alpha": draw(rng, 1.0, 0.5, 3.0)}, [shape]),
        ("nn.SELU", {}, [shape]),
        ("nn.GELU", {}, [shape]),
        ("nn.Swish", {"beta": draw(rng, 1.0, 0.5, -1.0, 2.0)}, [shape]),
        ("nn.Dropout", {"rate": 0.0}, [shape]),
    ][kind]


def rearranged(rng):
    rank = int(rng.randint(1, 4))
    kind = rng.randint(4)
    if kind == 0:
        pad = int(rng.randint(0, 3))
        sides = (0, 0, 0, 0, *(int(size) for size in rng.randint(0, 3, 4)))
        return "nn.ReflectionPad2D", {"padding": draw(rng, pad, sides)}, [(2, 2, *extent(rng, 2))]
    if kind == 1:
        factors = per_axis(rng, rank, 1, 4) if rank > 1 else int(rng.randint(1, 4))
        channels = int(np.prod(axes(factors, rank))) * int(rng.randint(1, 3))
        shape = (int(rng.randint(1, 3)), channels, *extent(rng, rank, 1, 5))
        return f"contrib.nn.PixelShuffle{rank}D", {"factor": factors}, [shape]
    if kind == 2:
        return "contrib.nn.Identity", {}, [extent(rng, 2)]
    return "nn.Flatten", {}, [extent(rng, rank + 1, 1, 5)]


LAYERS = (
    dense, convolution, convolution, transposed, transposed, pooling, pooling, batch_norm, batch_norm, layer_norm,
    group_norm, instance_norm, embedding, activation, activation, rearranged,
)  # fmt: skip


def layer_case(seed):
    """The layer of this seed: {"layer", "arguments", "inputs", "seed"}."""
    rng = np.random.RandomState(seed)
    while True:
        name, arguments, inputs = LAYERS[seed % len(LAYERS)](rng)
        if sensible(name, arguments, inputs[0]):
            # MXNet's InstanceNorm takes float32 only.
            dtype = "float32" if name.endswith("InstanceNorm") else "float64"
            return {"layer": name, "arguments": arguments, "inputs": inputs, "seed": seed, "dtype": dtype}


def sensible(name, arguments, shape):
    """Whether windows fit into the input, and none lies behind it."""
    if "Conv" in name and not name.endswith("Transpose"):
        rank = len(shape) - 2
        sizes = [axes(arguments[key], rank) for key in ("kernel_size", "padding", "dilation")]
        return all(size + 2 * pad >= step * (kernel - 1) + 1 for size, kernel, pad, step in zip(shape[2:], *sizes))
    if name.endswith("Transpose"):
        rank = len(shape) - 2
        names = ("kernel_size", "padding", "dilation", "strides", "output_padding")
        sizes = [axes(arguments[key], rank) for key in names]
        return all(
            (size - 1) * step - 2 * pad + rate * (kernel - 1) + 1 + more > 0
            for size, kernel, pad, rate, step, more in zip(shape[2:], *sizes)
        )
    if arguments.get("ceil_mode"):
        # MXNet's numbers for a window behind the input differ from one kind of pooling to the other.
        return not any(behind(*each) for each in pool_axes(arguments, shape))
    return True


def pool_axes(arguments, shape):
    """(size, kernel, stride, padding) of every axis of a pooling."""
    rank = len(shape) - 2
    kernel = axes(arguments["pool_size"], rank)
    stride = axes(arguments.get("strides", kernel), rank)
    return list(zip(shape[2:], kernel, stride, axes(arguments["padding"], rank)))


def behind(size, kernel, stride, pad):
    """Whether the last window of ceil_mode begins behind the input."""
    return -(-(size + 2 * pad - kernel) // stride) * stride - pad >= size


def values_of(spec, rng, dtype):
    """The values of an input: a shape, or ("whole", limit, shape) for whole numbers."""
    if spec and spec[0] == "whole":
        return rng.randint(0, spec[1], spec[2]).astype(dtype)
    return rng.normal(0, 1, spec).astype(dtype)


def layer_inputs(case, step):
    """float64 inputs of one step."""
    rng = np.random.RandomState(1000 + 7 * case["seed"] + step)
    return [values_of(spec, rng, "float64") for spec in case["inputs"]]


def head_of(step, shape):
    """The float64 gradient of the output of one step."""
    return np.random.RandomState(step).normal(0, 1, shape)


def parameter_values(place, name, shape):
    """float64 values of a parameter, positive for variances and scales."""
    values = np.random.RandomState(place).uniform(-0.8, 0.8, shape)
    return np.abs(values) + 0.5 if name.endswith(("running_var", "gamma")) else values


def fill(block, dtype):
    for place, parameter in enumerate(block.collect_params().values()):
        data = parameter.data().copy()
        data[:] = parameter_values(place, parameter.name, parameter.shape).astype(dtype)
        parameter.set_data(data)


def made(mx, path, arguments):
    owner = mx.gluon
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner(**arguments)


def short(block, parameter):
    return parameter.name[len(block.prefix) :]


def run_layer(mx, case, dtype=None, steps=2, hybridize=None):
    """Two training steps and a prediction: outputs, gradients of inputs and parameters, statistics, by name."""
    dtype = dtype or case["dtype"]
    block = made(mx, case["layer"], case["arguments"])
    block.initialize()
    block.cast(dtype)
    if hybridize is not None:
        block.hybridize(**hybridize)
    found = {}
    first = [mx.nd.array(values, dtype=dtype) for values in layer_inputs(case, 0)]
    block(*first)
    fill(block, dtype)
    parameters = list(block.collect_params().values())
    for step in range(steps):
        inputs = [mx.nd.array(values, dtype=dtype) for values in layer_inputs(case, step)]
        learned = [each for each, spec in zip(inputs, case["inputs"]) if spec[0] != "whole"]
        for each in learned:
            each.attach_grad()
        with mx.autograd.record():
            y = block(*inputs)
        head = head_of(step, y.shape).astype(dtype)
        y.backward(mx.nd.array(head, dtype=dtype))
        found[f"y{step}"] = y.asnumpy()
        found.update({f"dx{step}.{place}": each.grad.asnumpy() for place, each in enumerate(learned)})
        for parameter in parameters:
            if parameter.grad_req != "null":
                found[f"d{short(block, parameter)}{step}"] = parameter.grad().asnumpy()
    for parameter in parameters:
        if "running" in parameter.name:
            found[short(block, parameter)] = parameter.data().asnumpy()
    found["prediction"] = block(*(mx.nd.array(values, dtype=dtype) for values in layer_inputs(case, steps))).asnumpy()
    return found
