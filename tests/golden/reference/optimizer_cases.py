"""Random settings of optimizers and schedules, and how they are run: the same for the real MXNet (golden data) and for
hybrid_lab.
"""

import math

import numpy as np
from layer_cases import draw

OPTIMIZERS = {
    "sgd": {"momentum": (0.0, 0.9, 0.5)},
    "nag": {"momentum": (0.0, 0.9, 0.5)},
    "signum": {"momentum": (0.0, 0.9), "wd_lh": (0.0, 0.01)},
    "adam": {"beta1": (0.9, 0.5), "beta2": (0.999, 0.9), "epsilon": (1e-8, 1e-2)},
    "adamw": {"beta1": (0.9, 0.5), "beta2": (0.999, 0.9), "epsilon": (1e-6, 1e-2), "correct_bias": (True, False)},
    "adamax": {"beta1": (0.9, 0.5), "beta2": (0.999, 0.9)},
    "adagrad": {"eps": (1e-7, 1e-2)},
    "adadelta": {"rho": (0.9, 0.5), "epsilon": (1e-5, 1e-2)},
    "rmsprop": {
        "gamma1": (0.9, 0.5), "gamma2": (0.9, 0.5), "epsilon": (1e-8, 1e-2), "centered": (True, False),
        "clip_weights": (None, 0.5),
    },
    "ftrl": {"lamda1": (0.01, 0.3), "beta": (1.0, 0.1)},
}  # fmt: skip

SCHEDULES = ("FactorScheduler", "MultiFactorScheduler", "PolyScheduler", "CosineScheduler")


def schedule_settings(rng):
    """(class name, arguments) of a schedule over about 12 updates."""
    name = draw(rng, *SCHEDULES)
    warmup = {"base_lr": draw(rng, 0.1, 0.5)}
    if rng.rand() < 0.6:
        warmup["warmup_steps"] = int(rng.randint(0, 5))
        warmup["warmup_begin_lr"] = draw(rng, 0.0, 0.01)
        warmup["warmup_mode"] = draw(rng, "linear", "constant")
    if name == "FactorScheduler":
        own = {"step": int(rng.randint(1, 5)), "factor": draw(rng, 0.5, 0.9, 1.0)}
        return name, {**own, "stop_factor_lr": draw(rng, 1e-8, 0.05), **warmup}
    if name == "MultiFactorScheduler":
        step = sorted(int(number) for number in rng.choice(np.arange(1, 12), rng.randint(1, 4), replace=False))
        return name, {"step": step, "factor": draw(rng, 0.5, 0.1), **warmup}
    own = {"max_update": int(rng.randint(6, 12)), "final_lr": draw(rng, 0.0, 0.02)}
    if name == "PolyScheduler":
        own["pwr"] = draw(rng, 1, 2, 3)
    return name, {**own, **warmup}


def schedule_case(seed):
    name, arguments = schedule_settings(np.random.RandomState(seed))
    return {"name": name, "arguments": arguments, "seed": seed}


def run_schedule(mx, case):
    """The rate at every one of 15 updates, and each of them a second time as a Trainer asks."""
    schedule = getattr(mx.lr_scheduler, case["name"])(**case["arguments"])
    return {"rates": np.array([schedule(update) for update in range(15) for _ in range(2)])}


def optimizer_case(seed):
    """The optimizer of this seed: {"optimizer", "arguments", "schedule", "seed"}."""
    rng = np.random.RandomState(seed)
    name = list(OPTIMIZERS)[seed % len(OPTIMIZERS)]
    arguments = {key: draw(rng, *values) for key, values in OPTIMIZERS[name].items() if rng.rand() < 0.7}
    schedule = schedule_settings(rng) if rng.rand() < 0.3 else None
    if schedule:  # equal rates: MXNet lets the optimizer's own, even its default, overwrite the schedule's in part
        arguments["learning_rate"] = schedule[1]["base_lr"]
    elif rng.rand() < 0.8:
        arguments["learning_rate"] = draw(rng, 0.1, 0.01, 0.3)
    if rng.rand() < 0.6:
        arguments["wd"] = draw(rng, 0.1, 0.01, 0.5)
    if rng.rand() < 0.5:
        arguments["clip_gradient"] = draw(rng, 0.3, 0.05, 1.0)
    if rng.rand() < 0.6:
        arguments["rescale_grad"] = draw(rng, 0.5, 1 / 3, 2.0)
    if rng.rand() < 0.2:
        arguments["begin_num_update"] = 3
    if name == "signum" and arguments.get("momentum", 0.9) == 0:
        arguments.pop("wd_lh", None)
    return {"optimizer": name, "arguments": arguments, "schedule": schedule, "seed": seed}


STEPS = 5
SHAPES = [(3, 2), (5,)]


def weights_and_gradients(case):
    """float64 arrays: a weight per shape, and a gradient of each for every step; some elements have none at first."""
    rng = np.random.RandomState(9000 + case["seed"])
    weights = [rng.normal(0, 1, shape) for shape in SHAPES]
    gradients = [[rng.normal(0, 1, shape) for shape in SHAPES] for _ in range(STEPS)]
    if case["optimizer"] != "adamax":  # which gives NaN in MXNet where no gradient has arrived
        gradients[0][1][:2] = 0
        gradients[1][1][:1] = 0
    return weights, gradients


def with_schedule(mx, case):
    arguments = dict(case["arguments"])
    if case["schedule"]:
        name, settings = case["schedule"]
        arguments["lr_scheduler"] = getattr(mx.lr_scheduler, name)(**settings)
    return arguments


def run_optimizer(mx, case, dtype="float32", fused=True):
    """The weights after each of five updates."""
    if case["optimizer"] == "adamw" and "mxnet" in mx.__name__:
        return run_adamw(mx, case)
    optimizer = mx.optimizer.create(case["optimizer"], **with_schedule(mx, case))
    optimizer.set_lr_mult({1: 0.5})
    optimizer.set_wd_mult({1: 2.0})
    updater = mx.optimizer.get_updater(optimizer)
    if not fused:
        updater.fused = lambda *arguments: False
    weights, gradients = weights_and_gradients(case)
    weights = [mx.nd.array(values, dtype=dtype) for values in weights]
    found = {}
    for step in range(STEPS):
        if step == 3:
            optimizer.rescale_grad = 0.7
        for place, weight in enumerate(weights):
            updater(place, mx.nd.array(gradients[step][place], dtype=dtype), weight)
            found[f"w{place}.{step}"] = weight.asnumpy()
    return found


def run_adamw(mx, case):
    """The steps of AdamW with MXNet's operator: the real MXNet has no optimizer of that name."""
    given = case["arguments"]
    beta1, beta2 = given.get("beta1", 0.9), given.get("beta2", 0.999)
    schedule = None
    if case["schedule"]:
        schedule = getattr(mx.lr_scheduler, case["schedule"][0])(**case["schedule"][1])
    weights, gradients = weights_and_gradients(case)
    weights = [mx.nd.array(values, dtype="float32") for values in weights]
    moments = [[mx.nd.zeros(weight.shape) for _ in range(2)] for weight in weights]
    found, begin = {}, given.get("begin_num_update", 0)
    for step in range(STEPS):
        scale = mx.nd.array([0.7 if step == 3 or step == 4 else given.get("rescale_grad", 1.0)])
        for place, weight in enumerate(weights):
            count = begin + step + 1
            lr = schedule(count) if schedule else given.get("learning_rate", 0.001)
            lr *= 0.5 if place == 1 else 1.0
            wd = given.get("wd", 0.0) * (2.0 if place == 1 else 1.0)
            corrected = lr * math.sqrt(1 - beta2**count) / (1 - beta1**count) if given.get("correct_bias", True) else lr
            mx.nd.contrib.adamw_update(
                weight, mx.nd.array(gradients[step][place]), *moments[place], scale, lr=corrected, eta=1.0, wd=lr * wd,
                beta1=beta1, beta2=beta2, epsilon=given.get("epsilon", 1e-6),
                clip_gradient=given.get("clip_gradient", -1.0), out=weight,
            )  # fmt: skip
            found[f"w{place}.{step}"] = weight.asnumpy()
    return found
