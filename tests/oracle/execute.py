"""Runs one case in a package with MXNet's interface: the real MXNet, or Hybrid Lab. It imports neither of them."""

from __future__ import annotations

import contextlib
import random
import re
from typing import Any, NamedTuple

import numpy as np


class Answer(NamedTuple):
    """What a case gave, up to its error.

    values : by name: outputs `y0`, gradients `dx`, arrays after the call `after x`, `stage`s of an optimizer ...
    error : names of the error's classes, the most special one first; empty if there was none
    text : of the error; at : how far the case came: "forward" or "backward"
    """

    values: dict[str, np.ndarray]
    error: tuple[str, ...] = ()
    text: str = ""
    at: str = "forward"


def answer(mx: Any, case: dict[str, Any], engine: str | None = None) -> Answer:
    """Run a case. mx : the package; engine : of Hybrid Lab, to hybridize with"""
    values: dict[str, Any] = {}
    np.random.seed(case["seed"] % 2**32)
    random.seed(case["seed"])
    mx.random.seed(case["seed"] % 2**31)
    mode = mx.util.np_shape(True), mx.util.np_array(True)
    try:
        with contextlib.ExitStack() as scopes:
            for scope in mode if case.get("front") == "np" else ():
                scopes.enter_context(scope)
            _KINDS[case["kind"]](mx, case, values, engine)
    except Exception as error:  # of any class: it is compared
        names = tuple(kind.__name__ for kind in type(error).__mro__ if kind not in (object, BaseException))
        at = "backward" if "y0" in values else "forward"
        return Answer(values, names, str(error).strip()[:2000], at)
    return Answer(values)


# -- arrays --------------------------------------------------------------------------------------------------------


def array(spec: dict[str, Any], case: dict[str, Any]) -> np.ndarray:
    """The array of a description: the same numbers in every process.

    case : with "wide", floating arrays become float64 after they were rounded; with "jitter", floating numbers are
    off by a rounding error
    """
    dtype = np.dtype(spec["dtype"])
    values = _numbers(spec, dtype).astype(dtype)
    if dtype.kind == "f":
        if case.get("jitter") and not spec.get("exact"):
            signs = np.random.RandomState(case["jitter"]).randint(0, 2, values.shape) * 2 - 1
            moved = values.astype(np.float64) * (1 + 1.5 * float(np.finfo(dtype).eps) * signs)
            values = np.where(values == np.rint(values), values, moved).astype(dtype)
        if case.get("wide"):
            values = values.astype(np.float64)
    return values


def _numbers(spec: dict[str, Any], dtype: np.dtype) -> np.ndarray:
    if "data" in spec:
        return np.array(spec["data"], np.float64 if dtype.kind == "f" else None).reshape(spec["shape"])
    draw = np.random.RandomState(spec["seed"])
    low, high, shape, kind = spec.get("low", -1.0), spec.get("high", 1.0), tuple(spec["shape"]), spec["values"]
    if kind == "ints":
        return draw.randint(int(low), max(int(low) + 1, int(high)), shape)
    if kind == "letters":  # padded with -1 behind the first one
        letters = draw.randint(int(low), max(int(low) + 1, int(high)), shape)
        place = np.arange(shape[spec["along"]])
        place = place[:, None] if spec["along"] == 0 else place[None, :]
        lengths = draw.randint(1, shape[spec["along"]] + 1, shape[1 - spec["along"]])
        lengths = lengths[None, :] if spec["along"] == 0 else lengths[:, None]
        return np.where(place < lengths, letters, -1)
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "mask":
        return draw.randint(0, 2, shape)
    if dtype.kind in "iub":
        least = max(low, 0) if dtype.kind == "u" else low
        return draw.randint(int(least), max(int(high), int(least) + 1) + 4, shape)
    if kind == "whole":
        return np.rint(draw.uniform(low, high, shape) * (1 if high - low > 4 else 2))
    values = draw.uniform(low, high, shape)
    if kind == "special":
        odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e4, -3e4, 1e-7, 1.0, -1.0])
        values = np.where(draw.uniform(0, 1, shape) < 0.25, odd[draw.randint(0, len(odd), shape)], values)
    elif kind == "distribution":
        values = np.exp(values) / np.exp(values).sum(-1, keepdims=True)
    return values


def arrays_of(mx: Any, case: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a case by name, as arrays of the package."""
    make = mx.np.array if case.get("front") == "np" else mx.nd.array
    made = {name: array(spec, case) for name, spec in case["arrays"].items()}
    return {name: make(value, dtype=value.dtype) for name, value in made.items()}


def heads(value: Any, case: dict[str, Any], number: int) -> np.ndarray:
    """The gradient that arrives at output `number`."""
    draw = np.random.RandomState((case["seed"] + number) % 2**32)
    return np.asarray(draw.randint(-16, 17, value.shape) / 8.0).astype(value.dtype)


# -- calls ---------------------------------------------------------------------------------------------------------


def find(room: Any, name: str) -> Any:
    """An operator by the name that MXNet's files have for it."""
    for place in (room, getattr(room, "_internal", None), getattr(room, "op", None)):
        if place is not None and hasattr(place, name):
            return getattr(place, name)
    prefix, short = name.strip("_").split("_", 1)
    return getattr(getattr(room, prefix), short)


def _call(mx: Any, case: dict[str, Any], values: dict[str, Any], engine: str | None) -> None:
    """`text` is evaluated; `net` is a Block whose parameters get numbers first."""
    inputs = arrays_of(mx, case)
    net = _built(mx, case, inputs) if "net" in case else None
    run = _evaluator(mx, case, net, engine)
    for name in case.get("grads", ()):
        inputs[name].attach_grad()
    if case.get("forward"):
        outputs = _leaves(run(**inputs))
    else:
        with mx.autograd.record(train_mode=case.get("train", True)):
            outputs = _leaves(run(**inputs))
    for number, value in enumerate(outputs):
        found = value.asnumpy()
        # The stand-in of a random result: what it has beside its numbers.
        values[f"y{number}"] = np.zeros_like(found) if case.get("random") else found
    # MXNet gives one of two gradients that arrive at one array; a cell's last output is one of its states.
    floating = list({id(value): value for value in outputs if np.dtype(value.dtype).kind == "f"}.values())
    given = [inputs[name] for name in case.get("grads", ())]
    parameters = list(net.collect_params().values()) if net is not None else []
    if floating and not case.get("forward") and (given or any(each.grad_req != "null" for each in parameters)):
        make = mx.np.array if case.get("front") == "np" else mx.nd.array
        arriving = [heads(value, case, number) for number, value in enumerate(floating)]
        # MXNet's backward has a mode of its own, in which BatchNorm's gradient is computed.
        arriving = [make(value, dtype=value.dtype) for value in arriving]
        mx.autograd.backward(floating, arriving, train_mode=case.get("train", True))
        if not case.get("random"):
            values.update({f"d{name}": inputs[name].grad.asnumpy() for name in case.get("grads", ())})
    if engine is None or net is not None:
        values.update({f"after {name}": inputs[name].asnumpy() for name in case.get("after", ())})
    for number, each in enumerate(parameters):
        if not case.get("random"):
            values[f"p{number} {_short(net, each)}"] = each.data().asnumpy()
            if each.grad_req != "null" and not case.get("forward"):
                values[f"dp{number} {_short(net, each)}"] = each.grad().asnumpy()


def _short(net: Any, parameter: Any) -> str:
    """A parameter's name without the numbers of Blocks, which count up in a process."""
    name = parameter.name[len(net.prefix) :] if parameter.name.startswith(net.prefix) else parameter.name
    return re.sub(r"\d+_", "_", name)


def _space(mx: Any, F: Any) -> dict[str, Any]:
    """The names that texts of cases use."""
    gluon = mx.gluon
    return {
        "mx": mx,
        "F": F,
        "op": lambda name: find(F, name),
        "gluon": gluon,
        "nn": gluon.nn,
        "rnn": gluon.rnn,
        "loss": gluon.loss,
        "contrib": gluon.contrib,
        "build": lambda *layers: _sequential(gluon.nn.HybridSequential, layers),
        "cells": lambda *layers: _sequential(gluon.rnn.SequentialRNNCell, layers),
        "nan": np.nan,
        "inf": np.inf,
        "numpy": np,
    }


def _sequential(kind: Any, layers: Any) -> Any:
    net = kind()
    for layer in layers:
        net.add(layer)
    return net


def _evaluator(mx: Any, case: dict[str, Any], net: Any, engine: str | None) -> Any:
    text = compile(case["text"], "<case>", "eval")
    names = list(case["arrays"])

    def run(F: Any, *items: Any) -> Any:
        return eval(text, {**_space(mx, F), "net": net}, dict(zip(names, items)))  # noqa: S307

    if engine is not None and net is not None:
        net.hybridize(engine=engine)
    elif engine is not None:
        block = mx.gluon.nn.HybridLambda(run)
        block.hybridize(engine=engine)
        return lambda **inputs: block(*inputs.values())
    return lambda **inputs: run(mx.nd, *inputs.values())


def _built(mx: Any, case: dict[str, Any], inputs: dict[str, Any]) -> Any:
    """The Block of a case. Its parameters get numbers that follow from their places."""
    net = eval(case["net"], _space(mx, mx.nd))  # noqa: S307
    net.initialize()
    if case.get("dtype"):
        net.cast("float64" if case.get("wide") else case["dtype"])
    elif case.get("wide"):
        net.cast("float64")
    _evaluator(mx, case, net, None)(**inputs)
    for place, parameter in enumerate(net.collect_params().values()):
        positive = parameter.name.endswith(("running_var", "gamma"))
        low, high = (0.5, 1.5) if positive else (-0.7, 0.7)
        spec = {
            "shape": parameter.shape, "dtype": case.get("dtype") or "float32", "values": "plain",
            "low": low, "high": high, "seed": case["seed"] % 2**31 + place,
        }  # fmt: skip
        make = mx.np.array if case.get("front") == "np" else mx.nd.array
        value = array(spec, case)
        parameter.set_data(make(value, dtype=value.dtype))
    return net


def _leaves(item: Any) -> list[Any]:
    if isinstance(item, (list, tuple)):
        return [leaf for part in item for leaf in _leaves(part)]
    return [item] if hasattr(item, "asnumpy") else []


# -- other kinds ---------------------------------------------------------------------------------------------------


def _optimizer(mx: Any, case: dict[str, Any], values: dict[str, Any], engine: str | None) -> None:
    """`text` makes the optimizer; the weights are updated step by step."""
    optimizer = eval(case["text"], _space(mx, mx.nd))  # noqa: S307
    updater = mx.optimizer.get_updater(optimizer)
    inputs = arrays_of(mx, case)
    weights = [inputs[name] for name in case["weights"]]
    for step in range(case["steps"]):
        for place, weight in enumerate(weights):
            name = case["weights"][place]
            spec = {**case["arrays"][name], "seed": case["arrays"][name]["seed"] + 100 * (step + 1), **case["gradient"]}
            value = array(spec, case)
            updater(place, mx.nd.array(value, dtype=value.dtype), weight)
            values[f"y{step}.{place}"] = weight.asnumpy()


def _metric(mx: Any, case: dict[str, Any], values: dict[str, Any], engine: str | None) -> None:
    """`text` makes the metric; it is updated batch by batch."""
    metric = eval(case["text"], _space(mx, mx.nd))  # noqa: S307
    inputs = arrays_of(mx, case)
    for number, (labels, preds) in enumerate(case["batches"]):
        metric.update([inputs[name] for name in labels], [inputs[name] for name in preds])
        name, value = metric.get()
        values[f"y{number}"] = np.array(value, np.float64)
        values[f"name{number}"] = np.array(str(name))
        if number == 0 and case.get("reset"):
            metric.reset()


def _initializer(mx: Any, case: dict[str, Any], values: dict[str, Any], engine: str | None) -> None:
    """`text` makes the initializer, which fills an array; of random numbers only the spread is compared."""
    initializer = eval(case["text"], _space(mx, mx.nd))  # noqa: S307
    weight = mx.nd.zeros(tuple(case["shape"]), dtype=case["dtype"])
    initializer(mx.init.InitDesc(case["name"]), weight)
    found = weight.asnumpy()
    if case.get("random"):
        values["shape"] = np.array(found.shape)
        values["dtype"] = np.array(str(found.dtype))
        values["spread"] = np.array([found.astype(np.float64).std()])
    else:
        values["y0"] = found


def _schedule(mx: Any, case: dict[str, Any], values: dict[str, Any], engine: str | None) -> None:
    """`text` makes a schedule of learning rates."""
    schedule = eval(case["text"], _space(mx, mx.nd))  # noqa: S307
    values["y0"] = np.array([schedule(number) for number in range(1, 25)], np.float64)


_KINDS = {
    "operator": _call,
    "array": _call,
    "layer": _call,
    "loss": _call,
    "recurrent": _call,
    "numpy": _call,
    "optimizer": _optimizer,
    "metric": _metric,
    "initializer": _initializer,
    "schedule": _schedule,
}
