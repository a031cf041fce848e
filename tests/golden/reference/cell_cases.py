"""Random settings of recurrent cells, and how one is unrolled: the same for the real MXNet (golden data) and for
hybrid_lab.

A cell is a list: its path in `gluon`, its arguments, the cells inside it.
"""

import numpy as np
from layer_cases import draw, fill, made, per_axis

GATED = ("rnn.RNNCell", "rnn.LSTMCell", "rnn.GRUCell")


def gated(rng, inputs):
    """(cell, size of its output)"""
    name, hidden = draw(rng, *GATED), int(rng.randint(1, 4))
    arguments = {"hidden_size": hidden}
    if name == "rnn.RNNCell":
        arguments["activation"] = draw(rng, "relu", "tanh", "sigmoid", "softrelu")
    elif name == "rnn.LSTMCell" and rng.rand() < 0.4:
        arguments["activation"] = draw(rng, "relu", "tanh", "softsign")
        arguments["recurrent_activation"] = draw(rng, "sigmoid", "tanh")
    if rng.rand() < 0.4:
        arguments["input_size"] = inputs
    return [name, arguments, []], hidden


def projected(rng, inputs):
    size = int(rng.randint(1, 3))
    return ["contrib.rnn.LSTMPCell", {"hidden_size": int(rng.randint(1, 4)), "projection_size": size}, []], size


def any_cell(rng, inputs, depth=2):
    kind = rng.randint(7) if depth else 0
    if kind < 2:
        return gated(rng, inputs)
    if kind == 2:
        return projected(rng, inputs)
    if kind == 3:
        cell = [draw(rng, *GATED), {"hidden_size": inputs}, []]
        return ["rnn.ResidualCell", {}, [cell]], inputs
    if kind == 4:
        cell, size = gated(rng, inputs)
        wrapper = draw(rng, ("rnn.ZoneoutCell", {}), ("contrib.rnn.VariationalDropoutCell", {}))
        return [*wrapper, [cell]], size
    if kind == 5:
        left, one = gated(rng, inputs)
        right, other = gated(rng, inputs)
        return ["rnn.BidirectionalCell", {}, [left, right]], one + other
    cells, name = [], draw(rng, "rnn.SequentialRNNCell", "rnn.HybridSequentialRNNCell")
    for _ in range(int(rng.randint(1, 4))):
        cell, inputs = any_cell(rng, inputs, depth - 1)
        cells.append(cell)
    if rng.rand() < 0.4:
        cells.append(["rnn.DropoutCell", {"rate": 0.0}, []])
    if "rnn.SequentialRNNCell" in str(cells):
        name = "rnn.SequentialRNNCell"
    return [name, {}, cells], inputs


def convolved(rng):
    """(cell, shape of one step without its batch)"""
    rank = int(rng.randint(1, 4))
    shape = (int(rng.randint(1, 3)), *(int(size) for size in rng.randint(3, 5 if rank == 3 else 7, rank)))
    kernel = per_axis(rng, rank, 1, 4)
    arguments = {
        "input_shape": shape,
        "hidden_channels": int(rng.randint(1, 3)),
        "i2h_kernel": kernel,
        "h2h_kernel": draw(rng, 1, 3, (3,) * (rank - 1) + (1,)),
        "i2h_pad": per_axis(rng, rank, 0, 2),
        "h2h_dilate": draw(rng, 1, 1, 2),
        "activation": draw(rng, "tanh", "relu", "softsign"),
    }
    return [f"contrib.rnn.Conv{rank}D{draw(rng, 'RNN', 'LSTM', 'GRU')}Cell", arguments, []], shape


def cell_case(seed):
    """The cell of this seed: {"layer", "cell", "inputs", "length", "layout", "merge", "lengths", "states", "seed"}."""
    rng = np.random.RandomState(seed)
    length, batch = int(rng.randint(1, 5)), int(rng.randint(1, 4))
    layout = draw(rng, "NTC", "TNC")
    if seed % 4 == 3:
        cell, shape = convolved(rng)
        layout, shape = "NTC", (batch, length, *shape)
    else:
        inputs = int(rng.randint(1, 4))
        cell, _ = any_cell(rng, inputs)
        shape = (batch, length, inputs) if layout == "NTC" else (length, batch, inputs)
    # With lengths MXNet turns the outputs of a BidirectionalCell around along the batch where that comes first.
    lengths = bool(rng.rand() < 0.3) and seed % 4 != 3 and (layout == "TNC" or "Bidirectional" not in str(cell))
    return {
        "layer": cell[0], "cell": cell, "inputs": shape, "length": length, "batch": batch, "layout": layout,
        "merge": draw(rng, True, False, None), "listed": bool(rng.rand() < 0.3),
        "lengths": lengths, "states": bool(rng.rand() < 0.5), "seed": seed,
    }  # fmt: skip


def cell_of(mx, spec):
    name, arguments, inner = spec
    cells = [cell_of(mx, each) for each in inner]
    if name in ("rnn.SequentialRNNCell", "rnn.HybridSequentialRNNCell"):
        stack = made(mx, name, arguments)
        for each in cells:
            stack.add(each)
        return stack
    if cells:
        owner = mx.gluon
        for part in name.split("."):
            owner = getattr(owner, part)
        return owner(*cells, **arguments)
    return made(mx, name, arguments)


def run_cell(mx, case, dtype="float64", hybridize=False):
    """Outputs and states of an unrolled cell, and the gradients of the inputs and parameters."""
    rng = np.random.RandomState(7000 + case["seed"])
    cell = cell_of(mx, case["cell"])
    cell.initialize()
    cell.cast(dtype)
    if hybridize:
        cell.hybridize()
    values = rng.normal(0, 1, case["inputs"])
    lengths = rng.randint(1, case["length"] + 1, case["batch"]).astype("float64")
    axis = case["layout"].index("T")

    def unrolled(x, states=None):
        steps = x
        if case["listed"]:
            parts = mx.nd.split(x, num_outputs=case["length"], axis=axis) if case["length"] > 1 else [x]
            steps = [mx.nd.squeeze(part, axis=axis) for part in parts]
        return cell.unroll(
            case["length"], steps, begin_state=states, layout=case["layout"], merge_outputs=case["merge"],
            valid_length=mx.nd.array(lengths, dtype=dtype) if case["lengths"] else None,
        )  # fmt: skip

    x = mx.nd.array(values, dtype=dtype)
    states = [mx.nd.zeros(info["shape"], dtype=dtype) for info in cell.state_info(case["batch"])]
    unrolled(x, states)
    fill(cell, dtype)
    if case["states"]:
        states = [mx.nd.array(rng.normal(0, 1, each.shape), dtype=dtype) for each in states]
    x.attach_grad()
    for each in states:
        each.attach_grad()
    found = {}
    with mx.autograd.record():
        outputs, after = unrolled(x, states)
        merged = isinstance(outputs, mx.nd.NDArray)
        whole = outputs if merged else mx.nd.stack(*outputs, axis=axis)
        heads = [whole, *after]
        loss = sum(mx.nd.sum(each * mx.nd.array(rng.normal(0, 1, each.shape), dtype=dtype)) for each in heads)
    loss.backward()
    found["merged"] = np.array(merged)
    found["outputs"] = whole.asnumpy()
    found.update({f"state{place}": each.asnumpy() for place, each in enumerate(after)})
    found["dx"] = x.grad.asnumpy()
    found.update({f"dstate{place}": each.grad.asnumpy() for place, each in enumerate(states)})
    for place, parameter in enumerate(cell.collect_params().values()):
        # Without the counter in the cell's prefix.
        found[f"d{place}.{'_'.join(parameter.name.split('_')[-2:])}"] = parameter.grad().asnumpy()
    return found
