"""Random layers, recurrent cells, losses, optimizers, metrics, initializers and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.random_programs.layers import LAYERS
from tests.random_programs.writing import Chance

#: Layers that the real MXNet runs with oneDNN only, or on several devices.
_ABSENT = {"nn.BatchNormReLU", "gluon.contrib.nn.SyncBatchNorm"}
_LAYERS = [
    layer for layer in LAYERS if layer.name not in _ABSENT and not layer.name.startswith(("rnn.", "gluon.contrib.rnn"))
]
_SIZES = {1: (1, 2, 3, 5), 2: (1, 2, 3, 4, 5), 3: (1, 2, 4, 6, 7), 4: (2, 3, 4, 5, 6, 8), 5: (2, 3, 4, 5)}


def spec(
    chance: Chance, shape: Sequence[int], values: str = "plain", low: float = -1.5, high: float = 1.5, **more: Any
) -> dict[str, Any]:
    """The description of an array."""
    return {
        "shape": list(shape), "dtype": "float32", "values": values, "low": low, "high": high,
        "seed": chance.randrange(10**6), **more,
    }  # fmt: skip


def options(chance: Chance, may: Mapping[str, Sequence[Any]], share: float = 0.4) -> list[str]:
    """Some of the settings, as texts."""
    return [f"{name}={chance.one_of(values)!r}" for name, values in may.items() if chance.often(share)]


# -- layers --------------------------------------------------------------------------------------------------------


def layer_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A layer with its parameters, or two in a row."""
    layer = chance.one_of(_LAYERS)
    rank = chance.one_of(layer.ranks)
    channels = chance.one_of([1, 2, 2, 4, 4, 6])
    shape = [chance.one_of([1, 2, 3]), *([channels] if rank > 1 else [])]
    shape += [chance.one_of(_SIZES[rank]) for _ in range(rank - 2)]
    net = layer.construct(chance)
    if chance.often(0.25) and not layer.whole and "SELU" not in net:
        second = chance.one_of(
            [each for each in _LAYERS if not each.whole and rank in each.ranks and "SELU" not in each.name]
        )
        net = f"build({net}, {second.construct(chance)})"
    values = chance.one_of(["plain"] * 6 + ["whole"])
    inputs = spec(chance, shape, "ints", 0, 4, exact=True) if layer.whole else spec(chance, shape, values)
    case: dict[str, Any] = {
        "seed": seed, "kind": "layer", "net": net, "text": "net(a)", "arrays": {"a": inputs},
        "train": chance.often(0.7), "grads": [] if layer.whole else ["a"],
    }  # fmt: skip
    if chance.often(0.15):
        case["dtype"] = inputs["dtype"] = "float64"
    case["random"] = "Dropout" in net and case["train"]
    return case


# -- recurrent -----------------------------------------------------------------------------------------------------

_CELLS = {
    "rnn.RNNCell({h}, activation={act!r})": 1,
    "rnn.LSTMCell({h})": 2,
    "rnn.LSTMCell({h}, activation={act!r}, recurrent_activation='hard_sigmoid')": 2,
    "rnn.GRUCell({h})": 1,
    "rnn.ResidualCell(rnn.GRUCell({c}))": 1,
    "rnn.BidirectionalCell(rnn.LSTMCell({h}), rnn.GRUCell({h}))": 0,
    "contrib.rnn.LSTMPCell({h}, 2)": 0,
    "cells(rnn.LSTMCell({h}), rnn.RNNCell({h}))": 0,
}


def recurrent_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A recurrent layer, whose gradients MXNet computes wrongly or not, or a cell that is unrolled or called."""
    steps, batch, channels, hidden = (chance.one_of(sizes) for sizes in ((1, 2, 4), (1, 2, 3), (1, 3), (1, 2, 4)))
    layout = chance.one_of(["TNC", "NTC"])
    data = spec(chance, (steps, batch, channels) if layout == "TNC" else (batch, steps, channels))
    if chance.often(0.4):
        mode = chance.one_of(["LSTM", "GRU", "RNN"])
        more = options(chance, {"num_layers": (2, 3), "bidirectional": (True,), "activation": ("tanh", "relu")})
        more = [each for each in more if mode == "RNN" or not each.startswith("activation")]
        net = f"rnn.{mode}({', '.join([str(hidden), f'layout={layout!r}', *more])})"
        return {
            "seed": seed,
            "kind": "recurrent",
            "net": net,
            "text": "net(a)",
            "arrays": {"a": data},
            "forward": True,
            "onednn": True,
        }
    cell = chance.one_of(list(_CELLS))
    net = cell.format(h=hidden, c=channels, act=chance.one_of(["tanh", "relu", "sigmoid", "softsign"]))
    case = {"seed": seed, "kind": "recurrent", "net": net, "arrays": {"a": data}, "grads": ["a"], "eager": True}
    merge = chance.one_of([True, False, None])
    text = f"net.unroll({steps}, a, layout={layout!r}, merge_outputs={merge}"
    if chance.often(0.3):
        case["arrays"]["n"] = spec(chance, (batch,), "ints", 1, steps + 1, exact=True)
        text += ", valid_length=n"
    case["text"] = text + ")"
    if _CELLS[cell] and "Residual" not in cell and chance.often(0.3):
        states = _CELLS[cell]
        case["arrays"] = {"a": spec(chance, (batch, channels))}
        case["arrays"] |= {name: spec(chance, (batch, hidden)) for name in "bc"[:states]}
        case |= {"grads": list(case["arrays"]), "text": f"net(a, [{', '.join('bc'[:states])}])"}
        del case["eager"]
    return case


# -- losses --------------------------------------------------------------------------------------------------------

_WEIGHTED = {"weight": (None, 0.5, 2.0), "batch_axis": (0, 0, 1)}
#: Losses with their settings and the kind of their inputs.
_LOSSES: dict[str, tuple[Mapping[str, Sequence[Any]], str]] = {
    "L1Loss": (_WEIGHTED, "two"),
    "L2Loss": ({**_WEIGHTED, "weight": (0.5, 2.0)}, "two"),
    "HuberLoss": ({**_WEIGHTED, "rho": (0.5, 1, 2.0)}, "two"),
    "HingeLoss": ({**_WEIGHTED, "margin": (0.5, 1, 2)}, "signs"),
    "SquaredHingeLoss": ({**_WEIGHTED, "margin": (0.5, 1, 2)}, "signs"),
    "LogisticLoss": ({**_WEIGHTED, "label_format": ("signed", "binary")}, "signs"),
    "SigmoidBinaryCrossEntropyLoss": ({**_WEIGHTED, "from_sigmoid": (False, True)}, "binary"),
    "SigmoidBCELoss": ({**_WEIGHTED, "from_sigmoid": (False, True)}, "binary"),
    "SoftmaxCrossEntropyLoss": (
        {**_WEIGHTED, "axis": (-1, 1), "sparse_label": (True, False), "from_logits": (True,)},
        "classes",
    ),
    "SoftmaxCELoss": ({**_WEIGHTED, "axis": (-1, 1), "sparse_label": (True, False)}, "classes"),
    "KLDivLoss": ({**_WEIGHTED, "axis": (-1, 1), "from_logits": (True, False)}, "distribution"),
    "PoissonNLLLoss": ({**_WEIGHTED, "from_logits": (True, False)}, "counts"),
    "TripletLoss": ({**_WEIGHTED, "margin": (0.5, 2)}, "three"),
    "CosineEmbeddingLoss": ({**_WEIGHTED, "margin": (0, 0.3)}, "pairs"),
    "CTCLoss": ({"weight": (None, 0.5), "layout": ("NTC", "TNC"), "label_layout": ("NT", "TN")}, "letters"),
}


def loss_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A loss, with weights of samples now and then."""
    name = chance.one_of(list(_LOSSES))
    may, kind = _LOSSES[name]
    settings = {key: chance.one_of(values) for key, values in may.items() if chance.often(0.4)}
    rank = (
        chance.one_of([1, 2, 2, 2, 3, 4])
        if kind not in ("classes", "distribution", "pairs")
        else chance.one_of([2, 2, 3])
    )
    shape = tuple(chance.one_of([1, 2, 3, 4]) for _ in range(rank))
    arrays = _loss_arrays(chance, kind, shape, settings)
    words = list(arrays)
    if kind not in ("three", "letters") and chance.often(0.3):
        sizes = chance.one_of([(shape[0], *(1,) * (rank - 1)), shape, (1,) * rank])
        arrays["w"] = spec(chance, sizes, low=0.0, high=2.0)
        words.append("w")
    if name.startswith("Sigmoid") and "w" not in arrays and rank > 1 and chance.often(0.25):
        arrays["p"] = spec(chance, (1,) * (rank - 1) + shape[-1:], low=0.5, high=2.0)
        words += ["None", "p"]
    given = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    return {
        "seed": seed, "kind": "loss", "net": f"loss.{name}({given})", "text": f"net({', '.join(words)})",
        "arrays": arrays, "grads": [each for each in arrays if not arrays[each].get("exact")],
    }  # fmt: skip


def _loss_arrays(
    chance: Chance, kind: str, shape: tuple[int, ...], settings: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    pred, other = spec(chance, shape), spec(chance, shape)
    axis = settings.get("axis", -1)
    if kind in ("signs", "binary"):
        label = spec(chance, shape, "mask", exact=True)
        low = settings.get("from_sigmoid")
        return {"a": spec(chance, shape, low=0.05, high=0.95) if low else pred, "b": label}
    if kind == "classes":
        if settings.get("sparse_label", True):
            classes = shape[axis]
            shape = tuple(size for place, size in enumerate(shape) if place != axis % len(shape))
            return {"a": pred, "b": spec(chance, shape, "ints", 0, classes, exact=True)}
        return {"a": pred, "b": spec(chance, shape, "distribution")}
    if kind == "distribution":
        return {"a": spec(chance, shape, low=-3.0, high=-0.1), "b": spec(chance, shape, "distribution")}
    if kind == "counts":
        low = -1.0 if settings.get("from_logits", True) else 0.3
        return {"a": spec(chance, shape, low=low, high=2.0), "b": spec(chance, shape, "ints", 0, 5, exact=True)}
    if kind == "three":
        return {"a": pred, "b": other, "c": spec(chance, shape)}
    if kind == "pairs":
        return {"a": pred, "b": other, "c": spec(chance, shape[:1], "ints", -1, 2, exact=True)}
    if kind == "letters":
        return _letters(chance, settings)
    return {"a": pred, "b": other}


def _letters(chance: Chance, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    steps, batch, letters, length = (
        chance.one_of([6, 8]),
        chance.one_of([1, 2, 3]),
        chance.one_of([3, 5]),
        chance.one_of([1, 2, 3]),
    )
    data = (steps, batch, letters) if settings.get("layout") == "TNC" else (batch, steps, letters)
    label = (length, batch) if settings.get("label_layout") == "TN" else (batch, length)
    along = 0 if settings.get("label_layout") == "TN" else 1
    kind = chance.one_of(["ints", "letters"])
    return {"a": spec(chance, data), "b": spec(chance, label, kind, 0, letters - 1, exact=True, along=along)}


# -- optimizers ----------------------------------------------------------------------------------------------------

_COMMON = {
    "learning_rate": (0.1, 0.01, 1.0),
    "wd": (0.0, 0.01, 0.3),
    "rescale_grad": (0.5, 0.125),
    "clip_gradient": (0.3, 1.0),
}
_OPTIMIZERS: dict[str, Mapping[str, Sequence[Any]]] = {
    "sgd": {"momentum": (0.9, 0.5, 0.0), "lazy_update": (False,), "multi_precision": (True,)},
    "ccsgd": {"momentum": (0.9,)},
    "nag": {"momentum": (0.9, 0.5), "multi_precision": (True,)},
    "signum": {"momentum": (0.9, 0.0), "wd_lh": (0.01,)},
    "adam": {"beta1": (0.5, 0.9), "beta2": (0.9, 0.99), "epsilon": (1e-4, 1e-8), "lazy_update": (False,)},
    "adamax": {"beta1": (0.5, 0.9), "beta2": (0.9,)},
    "adagrad": {"eps": (1e-3, 1e-7)},
    "adadelta": {"rho": (0.5, 0.9), "epsilon": (1e-3,)},
    "rmsprop": {
        "gamma1": (0.5, 0.95),
        "gamma2": (0.5, 0.9),
        "centered": (True,),
        "clip_weights": (0.5,),
        "epsilon": (1e-4,),
    },
    "ftrl": {"lamda1": (0.05, 0.0), "beta": (0.5, 1)},
    "ftml": {"beta1": (0.5, 0.9), "beta2": (0.9,), "epsilon": (1e-4,)},
    "lamb": {
        "beta1": (0.5,),
        "beta2": (0.9,),
        "lower_bound": (0.5,),
        "upper_bound": (1.5,),
        "bias_correction": (False,),
    },
    "lars": {"momentum": (0.9, 0.0), "eta": (0.5, 0.01), "eps": (0.1,), "momentum_correction": (False,)},
    "lbsgd": {
        "momentum": (0.9,),
        "batch_scale": (2, 3),
        "warmup_strategy": ("linear", "power2", "sqrt", "lars"),
        "updates_per_epoch": (1, 4),
    },
    "nadam": {"beta1": (0.5,), "beta2": (0.9,), "schedule_decay": (0.01,)},
    "dcasgd": {"momentum": (0.9, 0.0), "lamda": (0.5,)},
    "groupadagrad": {"eps": (1e-3,)},
}
_SCHEDULES: dict[str, Mapping[str, Sequence[Any]]] = {
    "FactorScheduler(step={step}": {"factor": (0.5, 0.9), "stop_factor_lr": (0.02,)},
    "MultiFactorScheduler(step=[2, 5, 9]": {"factor": (0.5, 0.1)},
    "PolyScheduler(max_update={many}": {"pwr": (1, 2), "final_lr": (0.01,)},
    "CosineScheduler(max_update={many}": {"final_lr": (0.01,)},
}


def _schedule(chance: Chance) -> str:
    start = chance.one_of(list(_SCHEDULES))
    may = {
        "base_lr": (0.1, 1.0),
        "warmup_steps": (2, 4),
        "warmup_begin_lr": (0.01,),
        "warmup_mode": ("linear", "constant"),
    }
    more = options(chance, may, 0.3)
    text = ", ".join(
        [
            start.format(step=chance.one_of([1, 3]), many=chance.one_of([6, 10])),
            *options(chance, _SCHEDULES[start]),
            *more,
        ]
    )
    return f"mx.lr_scheduler.{text})"


def schedule_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A schedule of learning rates."""
    return {"seed": seed, "kind": "schedule", "text": _schedule(chance), "arrays": {}}


def optimizer_case(chance: Chance, seed: int) -> dict[str, Any]:
    """An optimizer that makes some steps with one or two weights."""
    name = chance.one_of(list(_OPTIMIZERS))
    settings = [*options(chance, _COMMON), *options(chance, _OPTIMIZERS[name])]
    rates = [each for each in settings if each.startswith("learning_rate")]
    if not rates and chance.often(0.15):
        settings.append(f"lr_scheduler={_schedule(chance)}")
    elif not rates:
        settings.append("learning_rate=0.05")
    dtype = chance.one_of(["float32"] * 7 + ["float64", "float16"])
    weights = ["a", "b"][: chance.one_of([1, 1, 2])]
    arrays = {each: spec(chance, (chance.one_of([1, 3]), chance.one_of([2, 5])), dtype=dtype) for each in weights}
    gradient = {"values": chance.one_of(["plain"] * 5 + ["whole", "zeros"]), "low": -2.0, "high": 2.0}
    return {
        "seed": seed, "kind": "optimizer", "text": f"mx.optimizer.create({', '.join([repr(name), *settings])})",
        "arrays": arrays, "weights": weights, "steps": chance.one_of([1, 3, 6]), "gradient": gradient,
    }  # fmt: skip


# -- metrics -------------------------------------------------------------------------------------------------------

_METRICS: dict[str, tuple[Mapping[str, Sequence[Any]], str]] = {
    "acc": ({}, "classes"),
    "accuracy": ({"axis": (1, -1)}, "classes"),
    "top_k_accuracy": ({"top_k": (2, 3)}, "scores"),
    "ce": ({"eps": (1e-8,)}, "classes"),
    "nll_loss": ({"eps": (1e-8,)}, "classes"),
    "perplexity": ({}, "classes"),
    "f1": ({"average": ("micro", "macro")}, "binary"),
    "mcc": ({"average": ("micro", "macro")}, "binary"),
    "pcc": ({}, "classes"),
    "mae": ({}, "regression"),
    "mse": ({}, "regression"),
    "rmse": ({}, "regression"),
    "pearsonr": ({}, "flat"),
    "loss": ({}, "regression"),
}


def metric_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A metric over some batches."""
    name = chance.one_of(list(_METRICS))
    may, kind = _METRICS[name]
    settings = options(chance, may, 0.5)
    if name == "perplexity":
        settings.append(f"ignore_label={chance.one_of([None, 0, 1])!r}")
    if name == "top_k_accuracy" and not settings:
        settings.append("top_k=2")
    classes = 2 if kind == "binary" else chance.one_of([3, 4, 5])
    arrays, batches = {}, []
    for number in range(chance.one_of([1, 2, 3])):
        size = chance.one_of([1, 3, 6])
        labels, preds = f"l{number}", f"p{number}"
        if kind in ("regression", "flat"):
            shape = (size,) if kind == "flat" else chance.one_of([(size,), (size, 1), (size, 3)])
            arrays[labels], arrays[preds] = spec(chance, shape), spec(chance, shape)
        else:
            dtype = chance.one_of(["float32", "float32", "int32", "int64"])
            arrays[labels] = spec(chance, (size,), "ints", 0, classes, dtype=dtype, exact=True)
            arrays[preds] = spec(chance, (size, classes), "distribution")
        batches.append([[labels], [preds]])
    return {
        "seed": seed, "kind": "metric", "text": f"mx.metric.create({', '.join([repr(name), *settings])})",
        "arrays": arrays, "batches": batches, "reset": chance.often(0.2),
    }  # fmt: skip


# -- initializers --------------------------------------------------------------------------------------------------

_INITIALIZERS: dict[str, Mapping[str, Sequence[Any]]] = {
    "Zero": {},
    "One": {},
    "Constant": {"value": (0.5, 3, -1.25)},
    "Uniform": {"scale": (0.07, 1.0, 3)},
    "Normal": {"sigma": (0.01, 1.0)},
    "Orthogonal": {"scale": (1.414, 1.0), "rand_type": ("uniform", "normal")},
    "Xavier": {"rnd_type": ("uniform", "gaussian"), "factor_type": ("avg", "in", "out"), "magnitude": (3, 2.34, 1)},
    "MSRAPrelu": {"factor_type": ("avg", "in", "out"), "slope": (0.25, 0.0)},
    "Bilinear": {},
    "LSTMBias": {"forget_bias": (1.0, 0.5)},
}
_EXACT = {"Zero", "One", "Constant", "Bilinear", "LSTMBias"}


def initializer_case(chance: Chance, seed: int) -> dict[str, Any]:
    """An initializer that fills an array of some shape and name."""
    name = chance.one_of(list(_INITIALIZERS))
    settings = options(chance, _INITIALIZERS[name], 1.0 if name == "Constant" else 0.5)
    weight = chance.one_of(
        ["conv0_weight"] * 5 + ["dense0_bias", "bn0_gamma", "bn0_beta", "bn0_running_mean", "bn0_running_var"]
    )
    shape: list[int] = chance.one_of([[40, 50], [30, 8, 3, 3], [1500], [60, 60]])
    if name in _EXACT:
        shape = chance.one_of([[8], [4, 3], [2, 3, 4, 4], [2, 1, 5, 5]])
    if weight.endswith("weight") and name == "LSTMBias":
        weight = "lstm_i2h_bias"
    exact = name in _EXACT or not weight.endswith("weight")
    return {
        "seed": seed, "kind": "initializer", "text": f"mx.init.{name}({', '.join(settings)})", "arrays": {},
        "shape": shape, "dtype": chance.one_of(["float32", "float32", "float64", "float16"]), "name": weight,
        "random": not exact,
    }  # fmt: skip
