"""Checks of the stage `smoke` beside single kernels: trainings, dropout, captured launches, copies."""

from __future__ import annotations

from typing import Any

import numpy as np


def check(name: str) -> dict[str, Any]:
    """The errors of one check. Raises AssertionError for a wrong result."""
    if name.startswith("training by"):
        return training(name.split()[-1])
    return {
        "dropout": dropout,
        "captured prediction": captured_prediction,
        "captured training": captured_training,
        "copies": copies,
    }[name]()


def network(engine: str | None, ctx: Any, captured: bool = False, dropout: float = 0.2) -> Any:
    """A small network with the same parameters whatever runs it."""
    import hybrid_lab as mx
    from hybrid_lab.gluon import nn

    mx.random.seed(5)
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(9, 3, activation="relu", in_channels=3), nn.BatchNorm(in_channels=9), nn.MaxPool2D(2), nn.Flatten(),
        nn.Dropout(dropout), nn.Dense(17, in_units=9 * 4 * 4, activation="tanh"), nn.Dense(5, in_units=17),
    )  # fmt: skip
    net.initialize(mx.init.Xavier(), ctx=ctx)
    if engine is not None:
        net.hybridize(engine=engine, static_alloc=captured, static_shape=captured)
    return net


def graphs(name: str) -> dict[str, Any]:
    """The graphs of a check: of the network, its loss and its update. Nothing runs."""
    import hybrid_lab as mx
    from hybrid_lab import gluon
    from hybrid_lab.gluon import ahead, nn

    if name == "copies":
        return {}
    if name == "dropout":
        return ahead.graphs_of(nn.Dropout(0.3), (77, 501), train=True)
    net = network(None, mx.cpu(), dropout=0 if name == "captured training" else 0.2)
    prediction = {f"prediction {part}": graph for part, graph in ahead.graphs_of(net, (8, 3, 10, 10)).items()}
    if name == "captured prediction":
        return prediction
    trainer = gluon.Trainer(net.collect_params(), *optimizer_of("adam" if name == "training by adam" else "sgd"))
    training = ahead.graphs_of(net, (8, 3, 10, 10), train=True)
    output = mx.nd.zeros((8, 5))
    output.attach_grad()
    error = ahead.graphs_of(gluon.loss.SoftmaxCrossEntropyLoss(), [output, mx.nd.zeros((8,))], train=True)
    del trainer  # whose rule the update is
    return prediction | training | {f"loss {part}": error[part] for part in ("forward", "backward")}


def optimizer_of(name: str) -> tuple[str, dict[str, float]]:
    """The name of an optimizer and its settings, as arguments of a Trainer."""
    return name, {"learning_rate": 0.01} | ({"momentum": 0.9, "wd": 1e-3} if name == "sgd" else {})


def steps(
    engine: str | None, ctx: Any, optimizer: str = "sgd", captured: bool = False, dropout: float = 0.2
) -> list[np.ndarray]:
    """Losses of four training steps, and a prediction by what was learned."""
    import hybrid_lab as mx
    from hybrid_lab import autograd, gluon

    net = network(engine, ctx, captured, dropout)
    trainer = gluon.Trainer(net.collect_params(), *optimizer_of(optimizer))
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    if engine is not None:
        loss.hybridize(engine=engine, static_alloc=captured, static_shape=captured)
    random, found = np.random.default_rng(1), []
    for _ in range(4):
        x = mx.nd.array(random.standard_normal((8, 3, 10, 10), np.float32), ctx=ctx)
        with autograd.record():
            error = loss(net(x), mx.nd.array(np.arange(8) % 5, ctx=ctx))
        error.backward()
        trainer.step(8)
        found.append(error.asnumpy())
    return [*found, net(x).asnumpy()]


def training(optimizer: str) -> dict[str, Any]:
    """Four steps on the GPU and by the numpy engine: dropout's masks are the same, so the losses are."""
    import hybrid_lab as mx

    found, expected = steps("triton", mx.gpu(0), optimizer), steps("numpy", mx.cpu(), optimizer)
    # Adam divides by the gradient's own size: of one that is rounding alone it makes a whole step.
    return {"errors": {"losses": compared(found, expected, 2e-3 if optimizer == "adam" else 2e-4)}}


def dropout() -> dict[str, Any]:
    """A mask on the GPU is bit for bit the host's."""
    import hybrid_lab as mx
    from hybrid_lab import autograd
    from hybrid_lab.gluon import nn

    masks = []
    for engine, ctx in (("triton", mx.gpu(0)), ("numpy", mx.cpu())):
        mx.random.seed(3)
        layer = nn.Dropout(0.3)
        layer.hybridize(engine=engine)
        with autograd.record():
            masks += [layer(mx.nd.ones((77, 501), ctx=ctx)).asnumpy() for _ in range(2)][-1:]
    assert ((masks[0] == 0) == (masks[1] == 0)).all(), "the mask differs from the host's"
    return {"kept": float((masks[0] != 0).mean())}


def captured_prediction() -> dict[str, Any]:
    """Replays give the bits of plain launches, also when the address of the input changes."""
    import hybrid_lab as mx

    plain, captured = network("triton", mx.gpu(0)), network("triton", mx.gpu(0), captured=True)
    random = np.random.default_rng(2)
    for _ in range(6):
        x = random.standard_normal((8, 3, 10, 10), np.float32)
        one, other = (net(mx.nd.array(x, ctx=mx.gpu(0))).asnumpy() for net in (plain, captured))
        assert np.array_equal(one, other), "a replay gives other numbers than a plain run"
    return captures(captured)


def captured_training() -> dict[str, Any]:
    """Losses of captured steps are those of plain ones."""
    import hybrid_lab as mx
    from hybrid_lab.engines.launches import launches

    # Steps that draw random numbers are not captured.
    found = steps("triton", mx.gpu(0), captured=True, dropout=0)
    away = compared(found, steps("triton", mx.gpu(0), dropout=0), 1e-6)
    assert launches.replays >= 4, f"{launches.replays} replays in four steps of a network and its loss"
    return {"errors": {"losses": away}, "replays": launches.replays}


def captures(net: Any) -> dict[str, Any]:
    import hybrid_lab as mx
    from hybrid_lab.engines.launches import launches

    notes = [line.strip() for line in str(mx.explain(net)).splitlines() if "capture" in line]
    assert launches.replays, f"nothing was replayed: {notes}"
    return {"replays": launches.replays, "notes": notes}


def copies() -> dict[str, Any]:
    """To the device and back, odd sizes and every dtype."""
    import hybrid_lab as mx

    random = np.random.default_rng(4)
    for dtype in ("float32", "float16", "float64", "int32", "int64", "int8", "uint8"):
        for size in (1, 7, 4097):
            array = random.integers(0, 100, size).astype(dtype)
            back = mx.nd.array(array, dtype=dtype, ctx=mx.gpu(0)).asnumpy()
            assert back.dtype == array.dtype and np.array_equal(back, array), f"{dtype} of {size} came back otherwise"
    return {}


def compared(found: list[np.ndarray], expected: list[np.ndarray], allowed: float) -> float:
    from gpu_day.smoke import difference

    away = max(difference(one, other) for one, other in zip(found, expected, strict=True))
    assert away <= allowed, f"{away:.3g} away, {allowed:g} is allowed"
    return away
